"""Install one lock file and the project itself into the virtual environment that runs this script.

Used by the Makefile: `python requirements/install.py requirements/demo.lock`. It says how far it is on one line,
because a minute of silence looks like a hang, and shows pip's own words only when pip fails.
"""

import re
import subprocess
import sys
from pathlib import Path

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]


def run(arguments: list[str], *, total: int, label: str) -> None:
    """Run pip; exits with its code and its output if it fails."""
    live = sys.stdout.isatty()
    lines: list[str] = []
    seen = 0
    with subprocess.Popen([*PIP, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            lines.append(line)
            started = re.match(r"(?:Collecting|Requirement already satisfied:) ([\w.-]+)", line)
            if started:
                seen += 1
                if live:
                    print(f"\r\033[K{label}: {seen} of about {total}: {started[1]}", end="", flush=True)
            elif live and line.startswith("Installing collected"):
                print(f"\r\033[K{label}: unpacking", end="", flush=True)
    if live:
        print("\r\033[K", end="")
    if pip.returncode != 0:
        sys.stdout.writelines(lines)
        print(
            f"\nprivstream: pip could not do: {' '.join(arguments)}\n"
            "  If it says that it cannot connect, set up pip for your network (pip config) and run make again.\n"
            "  If it says that hashes do not match, the lock and the registry disagree: do not go on; report it.\n"
            "  If a package has to be compiled on your platform, install a C compiler and Python's headers first.",
            file=sys.stderr,
        )
        raise SystemExit(pip.returncode)


def main() -> None:
    lock = Path(sys.argv[1])
    total = len(re.findall(r"^[A-Za-z0-9][\w.\[\],-]*==", lock.read_text(encoding="utf-8"), flags=re.MULTILINE))
    print(f"Installing {lock.name} ({total} packages, about a minute the first time) into {Path(sys.prefix).name}/")
    # Python compiles what it imports, and most of these packages is never imported: a fifth of the time.
    run(["install", "--no-compile", "--require-hashes", "-r", str(lock)], total=total, label="packages")
    run(["install", "--no-build-isolation", "--no-deps", "--no-index", "-e", "."], total=1, label="privstream")


if __name__ == "__main__":
    main()

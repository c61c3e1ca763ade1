"""The installed program, as a process of its own: starts fast, and ends with the right code."""

from __future__ import annotations

import os
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.commands import call

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sys.executable).with_name("privstream")
HEAVY = ("numpy", "faust", "aiokafka", "pyarrow", "matplotlib", "pydantic", "rich.progress")
UNNEEDED = (
    "scipy.stats",
    "matplotlib",
    "pyarrow",
    "pandas",
    "agents.show.explain",
    "agents.readers.watch",
    "agents.local.start",
)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(PROGRAM), *arguments], capture_output=True, text=True, timeout=240, cwd=ROOT)


def test_help_imports_nothing_heavy() -> None:
    """What makes help fast; a time limit would depend on the machine."""
    code = (
        "import sys\nfrom agents.cli.app import build_app\nbuild_app()\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert found.stdout.strip() == "[]", found.stderr


def test_a_worker_loads_nothing_that_it_does_not_need() -> None:
    """Each start waits for it, and each worker keeps it in memory."""
    code = (
        "import ast, inspect, sys, agents.cli.run\n"
        "for node in ast.walk(ast.parse(inspect.getsource(agents.cli.run))):\n"
        "    if isinstance(node, ast.ImportFrom):\n"
        "        exec(ast.unparse(node))\n"
        f"print([name for name in {UNNEEDED!r} if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert found.stdout.strip() == "[]", found.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("validate", "examples/taxi.toml"), 0),
        (("validate", "nowhere.toml"), 2),
    ],
)
def test_exit_codes(arguments: tuple[str, ...], code: int) -> None:
    result = run(*arguments)
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(("arguments", "code"), [(("validate",), 2), (("nonsense",), 2), (("doctor",), 0)])
def test_exit_codes_that_need_no_file(arguments: tuple[str, ...], code: int) -> None:
    assert call(*arguments).exit_code == code


def test_a_folder_that_cannot_be_written_to(tmp_path: Path, few_trips: Path) -> None:
    folder = tmp_path / "out"
    folder.write_text("a file where a folder should be")
    result = call("simulate", ROOT / "examples" / "taxi.toml", few_trips, "--out", folder)
    assert result.exit_code == 2
    assert "fix: name a folder" in result.stderr


@pytest.mark.parametrize("columns", [60, None])
def test_a_table_is_as_wide_as_the_terminal_and_elsewhere_as_it_is(columns: int | None) -> None:
    code = "from agents.cli.output import print_table as p; p(['stream', 'h' * 40, 'lag'], [['s', 'ok', '7' * 20]])"
    ours, theirs = os.openpty() if columns else os.pipe()
    if columns:
        termios.tcsetwinsize(theirs, (24, columns))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    subprocess.run([sys.executable, "-c", code], stdout=theirs, env=environment, check=True)
    os.close(theirs)
    with os.fdopen(ours, "rb", buffering=0) as screen:
        lines = screen.read(4096).decode().splitlines()
    assert [line.split()[0] for line in lines if line] == ["stream", "s"] * (2 if columns else 1)
    assert max(map(len, lines)) <= (columns or 70)

"""Environments of their own, for programs to compare with whose packages ours must not hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.size import SMALLEST

ROOT = Path(__file__).resolve().parents[1]


def runs(name: str) -> bool:
    """Whether programs of that environment are to run: at the smallest size nothing is installed for them."""
    if SMALLEST and not _made(name):
        print(f"left out, since .venv-{name} is not installed: what runs in it", file=sys.stderr)
        return False
    return True


def environment(name: str) -> Path:
    """The Python of `.venv-NAME`, which is made from requirements/NAME.lock unless it has been."""
    venv, lock = _places(name)
    python = venv / "bin" / "python"
    if _made(name):
        return python
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, venv], check=True)
    # Without dependencies: the lock has all that is needed (requirements/price.overrides).
    locked = ["--require-hashes", "--no-deps", "-r", str(lock)]
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, *locked], check=True)
    (venv / ".stamp").write_bytes(lock.read_bytes())
    return python


def _places(name: str) -> tuple[Path, Path]:
    return ROOT / f".venv-{name}", ROOT / "requirements" / f"{name}.lock"


def _made(name: str) -> bool:
    venv, lock = _places(name)
    stamp = venv / ".stamp"
    return stamp.exists() and stamp.read_bytes() == lock.read_bytes()

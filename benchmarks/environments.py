"""Environments of their own, for programs to compare with whose packages ours must not hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def environment(name: str) -> Path:
    """The Python of `.venv-NAME`, which is made from requirements/NAME.lock unless it has been."""
    venv, lock = ROOT / f".venv-{name}", ROOT / "requirements" / f"{name}.lock"
    python, stamp = venv / "bin" / "python", venv / ".stamp"
    if stamp.exists() and stamp.read_bytes() == lock.read_bytes():
        return python
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, venv], check=True)
    # Without dependencies: the lock has all that is needed (requirements/price.overrides).
    locked = ["--require-hashes", "--no-deps", "-r", lock]
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, *locked], check=True)
    stamp.write_bytes(lock.read_bytes())
    return python

"""The Go programs of deploy/, built for a file of tests. Go keeps what it compiles: only the first build is long."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.missing import missing

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "privstream"
ALERTS = CHART / "files" / "alerts.yaml"
BOARD = CHART / "files" / "dashboard.json"


def built(name: str, folder: Path) -> Path:
    """The program of module `name`, in `folder`. Skips where Go is not installed."""
    go = shutil.which("go")
    if go is None:
        missing("what is deployed is read by its own software, in Go; install Go to run this")
    program = folder / name
    # They run for a second altogether: a sixth of the compiler's time is saved where nothing is inlined.
    subprocess.run(
        [go, "build", "-mod=readonly", "-buildvcs=false", "-gcflags=all=-l", "-ldflags=-s -w", "-o", str(program), "."],
        cwd=DEPLOY / name,
        # Without C there is one build of Go's own library for all of them, and no C compiler has to be there.
        env={**os.environ, "CGO_ENABLED": "0"},
        check=True,
    )
    return program


def run(program: Path, *arguments: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *arguments], input=given, capture_output=True, text=True, check=False)

"""The Go programs of deploy/, built for a file of tests. Go keeps what it compiles: only the first build is long."""

from __future__ import annotations

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
    """The program of module `name`, in `folder`. Skips where Go is not installed, as the compose file's check does."""
    go = shutil.which("go")
    if go is None:
        missing("what is deployed is read by the packages of helm and Prometheus; install Go to run this")
    program = folder / name
    subprocess.run(
        [go, "build", "-mod=readonly", "-buildvcs=false", "-ldflags=-s -w", "-o", str(program), "."],
        cwd=DEPLOY / name,
        check=True,
    )
    return program


def run(program: Path, *arguments: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *arguments], input=given, capture_output=True, text=True, check=False)

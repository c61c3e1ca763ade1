"""Other stream processors for Python, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from benchmarks.environments import environment

OTHERS = ("quix", "bytewax")
ENVIRONMENT = "streams"


def rate_of(program: str, bootstrap: str, folder: str, source: str, events: int) -> float:
    """Events a second of one of `OTHERS`. Raises: SystemExit with what it said, if it failed or lost events."""
    path = Path(__file__).with_name(f"{program}_process.py")
    command = [str(environment(ENVIRONMENT)), "-W", "ignore", str(path), bootstrap, source, str(events), folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{program} failed:\n{done.stderr[-3000:]}")
    seen, seconds = json.loads(done.stdout.strip().splitlines()[-1])
    if seen != events:
        raise SystemExit(f"{program} saw {seen} of {events} events")
    return float(seen / seconds)

"""The demo as a newcomer runs it, to its end: one JSON object last, sensible numbers, nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

KEYS = {
    "steps",
    "events",
    "synthetic_points",
    "query_error_small",
    "query_error_medium",
    "query_error_large",
    "epsilon",
    "seconds",
    "streams",
}


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.seconds(60)
def test_the_demo_runs_to_its_end_and_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PRIVSTREAM_")}
    done = subprocess.run(
        [sys.executable, "-m", "agents.cli", "demo", "--exit-when-done", "--json"],
        env={**environment, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert set(result) == KEYS
    assert result["steps"] == 31
    assert result["events"] == 19_756  # of 20,000 rows; the others do not lie on the outlined land
    assert abs(result["synthetic_points"] - result["events"]) < 3_000
    assert result["epsilon"] == 1.0
    assert all(0.0 < result[f"query_error_{scale}"] < 1.0 for scale in ("small", "medium", "large"))
    others = result["streams"]
    engines = {"departures": "series", "evictions": "tabular", "drives": "trajectory"}
    assert {name: other["engine"] for name, other in others.items()} == engines
    assert (others["departures"]["steps"], others["departures"]["events"]) == (248, 248)
    assert others["evictions"]["events"] == 8_858
    assert abs(others["evictions"]["synthetic_records"] - 8_858) < 1_500
    assert (others["drives"]["steps"], others["drives"]["events"]) == (3, 35_394)
    assert 10_000 < others["drives"]["synthetic_records"] < 70_000
    assert "privstream demo" in done.stderr
    # The live page's addresses, once each, and nothing of them where the results go.
    assert done.stderr.count("/public") == done.stderr.count("/operator#token=") == 1
    assert "token=" not in done.stdout
    assert not list(tmp_path.iterdir()), "something is left behind"

"""The demo as a newcomer runs it, to its end: one JSON object last, sensible numbers, nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


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
    assert set(result) == {"seconds", "streams"}
    streams = result["streams"]
    engines = {"taxi": "spatial", "departures": "series", "evictions": "tabular", "drives": "trajectory"}
    engines["arrivals"] = "keys"
    assert {name: each["engine"] for name, each in streams.items()} == engines
    # Of 20,000 pickups those that lie on the outlined land.
    events = {"taxi": (31, 19_756), "departures": (248, 248), "evictions": (66, 8_858), "drives": (3, 35_394)}
    events["arrivals"] = (6, 4_470)
    assert {name: (each["steps"], each["events"]) for name, each in streams.items()} == events
    assert streams["taxi"]["epsilon"] == 1.0
    assert all(0.0 < streams["taxi"]["metrics"][f"error_{scale}"] < 1.0 for scale in ("small", "medium", "large"))
    assert abs(streams["taxi"]["synthetic_records"] - 19_756) < 3_000
    assert abs(streams["evictions"]["synthetic_records"] - 8_858) < 1_500
    assert 10_000 < streams["drives"]["synthetic_records"] < 70_000
    assert "privstream demo" in done.stderr
    # The live page's addresses, once each, and nothing of them where the results go.
    assert done.stderr.count("/public") == done.stderr.count("/operator#token=") == 1
    assert "token=" not in done.stdout
    assert not list(tmp_path.iterdir()), "something is left behind"

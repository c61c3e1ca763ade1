"""Steps a second that one worker publishes where many empty ones are over: `python -m benchmarks.backlog [--steps N]`.

A stream starts N steps back and has no events. The whole job (ingest, engine, publisher, state table) runs in a process
of its own on the embedded broker; timed from its first public step until step N is. Steps go one in a transaction, and
as many as the job takes, so that the ratio is of one machine in one state.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console

from agents.kafka.status import status
from agents.kafka.topics import create_topics
from agents.local.broker.embedded import broker_from_env
from benchmarks.size import SMALLEST, sized
from schemas.config import Config
from schemas.config.load import config_from_mapping

STEP_S = 1
STEP = f"{STEP_S}s"
WAYS = sized((("one by one", 1), ("many at a time", None)), smallest=(("one by one", 1),))
"""How many steps go in one transaction at most: both run the same, and the smallest size runs one."""
WAIT_AT_MOST_S = 1800.0
LOOK_S = sized(0.2, smallest=1.0)


def configuration(bootstrap: str, folder: str, name: str, start: str) -> Config:
    return config_from_mapping(
        {
            "job": {"name": name, "data_dir": f"{folder}/{name}"},
            "kafka": {"bootstrap": bootstrap, "partitions": 1, "session_timeout_s": 30},
            "streams": [
                {
                    "name": f"{name}-s",
                    "engine": "spatial",
                    "source": f"raw.{name}",
                    "privacy": {"epsilon": 1.0, "unit": "event"},
                    "time": {
                        "field": "at",
                        "format": "s",
                        "start": start,
                        "step": STEP,
                        "grace": "0s",
                        "clock": "wall",
                    },
                    "domain": {"kind": "box", "x": "x", "y": "y", "bounds": [0.0, 0.0, 1.0, 1.0]},
                }
            ],
        }
    )


def measured(bootstrap: str, folder: str, steps: int, most: int | None) -> float:
    """Steps a second."""
    name = f"backlog-{os.getpid()}-{most or 'many'}"
    start = (datetime.now(UTC) - timedelta(seconds=STEP_S * steps)).replace(microsecond=0).isoformat()[:19]
    config = configuration(bootstrap, folder, name, start)
    asyncio.run(create_topics(config, source_partitions=1))
    arguments = [sys.executable, "-m", "benchmarks.backlog", "--worker", bootstrap, folder, name, start]
    with Path(f"{folder}/{name}.log").open("wb") as log:
        worker = subprocess.Popen([*arguments, "--most", str(most or 0)], stdout=log, stderr=log)
    try:
        # At the smallest size all may be published before anybody has looked.
        begun: tuple[float, int] | None = (time.monotonic(), -1) if SMALLEST else None
        deadline = time.monotonic() + WAIT_AT_MOST_S
        while time.monotonic() < deadline:
            (state,) = asyncio.run(status(config))
            now = time.monotonic()
            if state.published >= steps - 1:
                assert begun is not None, "published before anybody looked: more steps are needed"
                return (state.published - begun[1]) / (now - begun[0])
            if state.published >= 0 and begun is None:
                begun = now, state.published
            assert worker.poll() is None, Path(f"{folder}/{name}.log").read_text()[-2000:]
            time.sleep(LOOK_S)
        raise TimeoutError(f"step {state.published} of {steps} in {WAIT_AT_MOST_S:.0f} s")
    finally:
        worker.terminate()
        worker.wait()


def work(bootstrap: str, folder: str, name: str, start: str, most: int) -> int:
    from agents.kafka.lifecycle.leaving import Leaving
    from agents.kafka.lifecycle.logs import set_up
    from agents.protocol.release import candidates
    from agents.worker import publish
    from agents.worker.process import run_worker

    if most:
        for module in (publish, candidates):
            vars(module)["MOST_STEPS"] = most
    set_up("WARNING")
    leaving = Leaving()
    leaving.install()
    return run_worker(configuration(bootstrap, folder, name, start), leaving=leaving)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=sized(2_000, smallest=10))
    parser.add_argument("--most", type=int, default=0)
    parser.add_argument("--worker", nargs=4)
    arguments = parser.parse_args()
    if arguments.worker:
        bootstrap, folder, name, start = arguments.worker
        sys.exit(work(bootstrap, folder, name, start, arguments.most))
    found = {}
    with tempfile.TemporaryDirectory() as folder, broker_from_env() as broker:
        for label, most in WAYS:
            found[label] = measured(broker.bootstrap, folder, arguments.steps, most)
            Console(stderr=True).print(f"{label}: {found[label]:,.0f} steps a second")
    rates = list(found.values())
    print(json.dumps({"steps": arguments.steps, **found, "ratio": rates[-1] / rates[0]}))


if __name__ == "__main__":
    main()

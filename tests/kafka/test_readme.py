"""Every command of the README's own-cluster block, run as printed, in order, against the real broker."""

from __future__ import annotations

import csv
import datetime
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kafka.support import WAIT_AT_MOST_S

ROOT = Path(__file__).parents[2]
NOT_RUN = {"make setup": "it has run, or this test would not"}


def commands() -> list[str]:
    text = (ROOT / "README.md").read_text()
    block = text.split("## Your own cluster\n```\n", 1)[1].split("```", 1)[0]
    return [line.split("   #", 1)[0].strip() for line in block.splitlines()]


def write_history(path: Path, rows: int = 2_000) -> None:
    """A day of rides in Berlin: what a newcomer has at hand."""
    chance = random.Random(5)
    at = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["user_id", "at", "lon", "lat"])
        for _ in range(rows):
            at += datetime.timedelta(seconds=30)
            place = round(chance.gauss(13.4, 0.05), 5), round(chance.gauss(52.5, 0.03), 5)
            writer.writerow([f"u{chance.randrange(800)}", at.isoformat(), *place])


def runnable(command: str) -> str:
    return command.replace(".venv/bin/privstream", f"{shlex.quote(sys.executable)} -m agents.cli")


def until_it_works(worker: subprocess.Popen[bytes], log: Path) -> None:
    """Until the ingest of every source partition, an engine and a publisher are open."""
    end = time.monotonic() + WAIT_AT_MOST_S
    while True:
        said = log.read_text()
        assert worker.poll() is None, said[-3000:]
        if said.count(" goes on at offset ") >= 4 and "engine of " in said and "publisher of " in said:
            return
        assert time.monotonic() < end, f"the worker did not come up\n{said[-3000:]}"
        time.sleep(0.2)


def test_the_block_is_what_this_test_expects() -> None:
    verbs = [command.split()[1] for command in commands() if command.startswith(".venv/bin/privstream")]
    assert verbs == ["validate", "explain", "simulate", "tune", "topics", "topics", "run", "status"]
    assert set(NOT_RUN) <= set(commands())


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.seconds(40)
def test_every_command_of_the_readme_works(bootstrap: str, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    write_history(tmp_path / "history.csv")
    write_history(tmp_path / "old.csv", rows=200)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PRIVSTREAM_BOOTSTRAP": bootstrap,
        "PRIVSTREAM_JOB__NAME": "readme",  # the broker is shared with other tests
        "PRIVSTREAM_KAFKA__SESSION_TIMEOUT_S": "6",
    }
    worker: subprocess.Popen[bytes] | None = None
    log = tmp_path / "worker.log"
    try:
        for command in commands():
            if command in NOT_RUN:
                continue
            if " run " in command:
                with log.open("wb") as out:
                    worker = subprocess.Popen(
                        shlex.split(runnable(command)), cwd=tmp_path, env=environment, stdout=out, stderr=out
                    )
                until_it_works(worker, log)
                continue
            done = subprocess.run(
                ["bash", "-c", runnable(command)],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=3 * WAIT_AT_MOST_S,
                check=False,
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        assert (tmp_path / "try" / "report.html").stat().st_size > 50_000
        assert worker is not None
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(WAIT_AT_MOST_S) == 0, log.read_text()[-3000:]
    finally:
        if worker is not None and worker.poll() is None:
            worker.kill()

"""Every command of the README's own-cluster block, run as printed, in order, against the real broker."""

from __future__ import annotations

import asyncio
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
from aiokafka.admin import NewTopic

from tests.commands import invoked
from tests.kafka.support import WAIT_AT_MOST_S, create, fresh_name, producing

ROOT = Path(__file__).parents[2]
PROGRAM = ".venv/bin/privstream"
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
    verbs = [command.split()[1] for command in commands() if command.startswith(PROGRAM)]
    assert verbs == ["validate", "explain", "simulate", "tune", "topics", "topics", "run", "status"]
    assert set(NOT_RUN) <= set(commands())


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.seconds(40)
def test_every_command_of_the_readme_works(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker in a process of its own; whoever starts another command has not to wait for its imports again."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    write_history(tmp_path / "history.csv")
    write_history(tmp_path / "old.csv", rows=200)
    monkeypatch.chdir(tmp_path)
    for name, value in (
        ("PYTHONPATH", str(ROOT)),
        ("PRIVSTREAM_BOOTSTRAP", bootstrap),
        ("PRIVSTREAM_JOB__NAME", "readme"),  # the broker is shared with other tests
        ("PRIVSTREAM_KAFKA__SESSION_TIMEOUT_S", "6"),
    ):
        monkeypatch.setenv(name, value)
    worker: subprocess.Popen[bytes] | None = None
    log = tmp_path / "worker.log"
    try:
        for command in commands():
            program, *arguments = shlex.split(command)
            if command in NOT_RUN:
                continue
            if program != PROGRAM:
                subprocess.run(["bash", "-c", command], check=True)
            elif arguments[0] == "run":
                with log.open("wb") as out:
                    started = [sys.executable, "-m", "agents.cli", *arguments]
                    worker = subprocess.Popen(started, stdout=out, stderr=out)
                until_it_works(worker, log)
            else:
                done = invoked(*arguments)
                assert done.exit_code == 0, f"{command}\n{done.output}\n{done.exception!r}"
        assert (tmp_path / "try" / "report.html").stat().st_size > 10_000
        assert worker is not None
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(WAIT_AT_MOST_S) == 0, log.read_text()[-3000:]
    finally:
        if worker is not None and worker.poll() is None:
            worker.kill()


@pytest.mark.kafka
def test_the_consumer_prints_a_topic_and_ends_where_there_is_none_of_that_name(bootstrap: str) -> None:
    """Once it waited for a misspelt topic for ever, and said nothing."""
    topic = fresh_name("rides.synthetic")

    async def fill() -> None:
        await create(bootstrap, NewTopic(topic, 1, 1))
        async with producing(bootstrap) as producer:
            await producer.send_and_wait(topic, b'{"lon": 13.4}', key=b"a")
            await producer.send_and_wait(topic, None, key=b"a")

    asyncio.run(fill())
    command = [sys.executable, str(ROOT / "examples" / "consume.py"), bootstrap]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen([*command, topic], stdout=subprocess.PIPE, env=buffered) as reading:
        assert reading.stdout is not None
        assert [reading.stdout.readline() for _ in range(2)] == [b'a {"lon": 13.4}\n', b"a (withdrawn)\n"]
        reading.kill()
    ended = subprocess.run([*command, f"{topic}s"], capture_output=True, text=True, timeout=WAIT_AT_MOST_S, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"There is no topic {topic}s, or this client may not see it.")
    _, first, *others = ended.stderr.splitlines()
    assert first == f"  {topic}"
    assert len(others) < 5, "of a large cluster not all, with this message far above them"

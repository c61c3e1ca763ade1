"""A worker process and a broker of its own that goes away, stalls and comes back: the worker waits, goes on, leaves in
time, and what it writes to its log can be read by a person.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agents.local.broker.embedded import EmbeddedBroker
from schemas.topics import Topics
from tests.crash.field import ROOT, Field, Worker, to_toml
from tests.kafka.support import WAIT_AT_MOST_S, in_loop, until
from tests.kafka.test_streams_alone import admin_of

NOISE = re.compile(r"Traceback|Event loop is closed|never retrieved|Unclosed AIOKafka|^\s+File ", re.MULTILINE)
pytestmark = pytest.mark.seconds(20)

MOST_LINES = 40
"""What an outage may add to a log, whatever its length here: a line for each cause, and those of leaving and of a
start. Without a filter a second alone has some hundred."""
LEAVES_S = 30.0  # ten, and what a busy machine adds


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """One that these tests may kill and pause."""
    with EmbeddedBroker() as running:
        yield running


@contextlib.asynccontextmanager
async def job(broker: EmbeddedBroker, folder: Path) -> AsyncIterator[Field]:
    field = Field(broker.bootstrap, folder)
    try:
        await field.open()
        yield field
    finally:
        await field.close()


def lines(worker: Worker) -> list[str]:
    return worker.log.read_text(errors="replace").splitlines()


async def ended(worker: Worker, *, within_s: float = WAIT_AT_MOST_S) -> int:
    await until(lambda: worker.ended is not None, timeout_s=within_s)
    code = worker.ended
    assert code is not None
    assert not NOISE.search("\n".join(lines(worker)))
    return code


def public(worker: Worker) -> int:
    """The last step that the worker's log says is public, -1 before any. Steps that are late go out together."""
    told = re.findall(r"steps? (?:\d+ to )?(\d+) (?:is|are) public", worker.log.read_text())
    return max(map(int, told), default=-1)


def heard_of_the_end(worker: Worker) -> bool:
    """Whether the log says so of an outage. A life that ends meanwhile says that the next one begins; that one finds
    a cluster that answers.
    """
    _, waits, after = worker.log.read_text().partition("WAITING for")
    return bool(waits) and ("the cluster answers again" in after or "BEGINS ANEW" in after)


@in_loop
async def test_an_outage_is_waited_for_and_a_broker_that_stalls_keeps_nobody(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    async with job(broker, tmp_path) as field:
        worker = field.start("a")
        await until(lambda: public(worker) >= 1)
        await field.rest()
        before = len(lines(worker))
        await asyncio.to_thread(broker.kill)
        await until(lambda: "WAITING for" in worker.log.read_text())
        waiting = time.monotonic()
        await until(lambda: time.monotonic() - waiting > 2)  # a thousand lines, where they are not held back
        assert len(lines(worker)) - before < MOST_LINES, "whether something was under way, which BEGINS ANEW, or not"
        await asyncio.to_thread(broker.start)
        steps = field.steps
        field.go_on()
        await until(lambda: public(worker) >= steps)
        assert worker.ended is None, "it goes on in the same process"
        await until(lambda: heard_of_the_end(worker))
        await field.rest()
        await asyncio.to_thread(broker.pause)
        try:
            worker.process.send_signal(signal.SIGTERM)
            assert await ended(worker, within_s=LEAVES_S) == 0
            assert re.search(r"the worker has left$|could not leave in good order", lines(worker)[-1])
        finally:
            await asyncio.to_thread(broker.resume)


def test_it_leaves_with_a_line_while_it_starts(tmp_path: Path) -> None:
    """There is no broker at all: it waits for one. By the command line, as a person starts it."""
    field = Field("127.0.0.1:1", tmp_path)
    path = tmp_path / "job.toml"
    path.write_text(to_toml(field.config, bootstrap="127.0.0.1:1"))
    process = subprocess.Popen(
        [sys.executable, "-m", "agents.cli", "run", str(path)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        assert "WAITING for 0 s: no answer from the cluster at 127.0.0.1:1: 127.0.0.1:1 refused the connection" in first
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=WAIT_AT_MOST_S)
        assert process.returncode == 0
        assert [line.split(": ", 1)[1] for line in rest.splitlines()] == [
            "asked to leave (SIGTERM) while nothing was under way",
            "the worker has left",
        ]
    finally:
        process.kill()
        process.wait()


@in_loop
async def test_an_error_that_ends_it_is_the_last_line_of_its_log(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Of a topic that is deleted, which clients await in silence. (Of a full disk: tests/crash/test_machine.py.)"""
    async with job(broker, tmp_path) as field:
        worker = field.start("a")
        await until(lambda: public(worker) >= 0)
        await field.rest()
        blocks = Topics(field.config.job.name, field.config.kafka.partitions).blocks
        async with admin_of(broker.bootstrap) as admin:
            await admin.delete_topics([blocks])
        assert await ended(worker) == 1
        assert f"topic {blocks} was deleted while the worker ran. What to do: put the topic back" in lines(worker)[-1]
        again = field.start("a")
        assert await ended(again) == 1
        assert f"{blocks}: is gone, with all it held" in again.log.read_text()

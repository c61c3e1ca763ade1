"""A worker and a broker of its own that goes away, stalls, comes back, and is put back to an earlier moment: the worker
waits, goes on, leaves in time, answers nothing again, and what it writes to its log can be read by a person.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import orjson
import pytest

from agents.kafka.status import status
from agents.local.broker.embedded import EmbeddedBroker
from schemas.config import Config
from schemas.errors import WitnessError
from schemas.topics import Topics
from tests.crash.field import ROOT, Field, Worker, to_toml
from tests.kafka.support import WAIT_AT_MOST_S, delete, records_of, until, worker
from tests.kafka.test_streams_alone import Twins

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


async def test_an_error_that_ends_it_is_the_last_line_of_its_log(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Of a topic that is deleted, which clients await in silence. (Of a full disk: tests/crash/test_machine.py.)"""
    async with job(broker, tmp_path) as field:
        worker = field.start("a")
        await until(lambda: public(worker) >= 0)
        await field.rest()
        blocks = field.config.topics.blocks
        await delete(broker.bootstrap, blocks)
        assert await ended(worker) == 1
        # On a busy machine it begins anew before it has seen that the topic is gone, and its next start says so.
        said = (" was deleted while the worker ran. What to do: put the topic back", ": is gone, with all it held")
        assert any(f"{blocks}{words}" in worker.log.read_text() for words in said)
        assert "What to do: " in lines(worker)[-1]
        again = field.start("a")
        assert await ended(again) == 1
        assert f"{blocks}: is gone, with all it held" in again.log.read_text()


@contextlib.asynccontextmanager
async def down(broker: EmbeddedBroker) -> AsyncIterator[None]:
    broker.kill()
    yield
    await asyncio.to_thread(broker.start)


async def test_a_cluster_that_is_put_back_does_not_answer_again(
    broker: EmbeddedBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """To an earlier moment, whole: a copy of the broker's disk, and the same events again. No other test has a broker's
    own disk; tests/simulation puts the simulated one back, and finds a witness that is late.
    """
    twins = Twins(broker.bootstrap, tmp_path)
    stream, witness, copy = twins.a, tmp_path / "witness", tmp_path / "copy"
    witness.mkdir()
    config, unwitnessed = twins.config(stream, witness=str(witness)), twins.config(stream)

    async def ledger() -> list[bytes]:
        return [entry.value for entry in await records_of(broker.bootstrap, Topics.ledger(stream))]

    async def answer(config: Config, steps: range) -> list[bytes]:
        await twins.send(steps)
        async with worker(config):
            await twins.until_public(stream, steps.stop - 1)
        return await ledger()

    await twins.create()
    await answer(config, range(3))
    broker.pause()  # its disk as it is where it is killed
    shutil.copytree(broker.disk, copy)
    broker.resume()
    before = await answer(config, range(3, 5))
    assert not any("witness" in orjson.loads(entry) for entry in before)

    async with down(broker):
        shutil.rmtree(broker.disk)
        shutil.copytree(copy, broker.disk)
    shutil.rmtree(tmp_path / "data")
    assert await ledger() == before[:3]
    await twins.send(range(3, 5))
    with contextlib.suppress(WitnessError):
        async with worker(config, "publish") as app:
            await until(lambda: app.crash_reason is not None)
            reason = app.crash_reason
    assert isinstance(reason, WitnessError)
    assert "step 4 was answered, and the cluster knows its steps up to 2 only" in caplog.text
    assert await ledger() == before[:3]
    [told] = await status(config)
    assert told.witness == "step 4"

    # Without the witness nothing is wrong with this cluster: the steps get other answers, and the ledger says why.
    shutil.rmtree(tmp_path / "data")
    async with worker(unwitnessed):
        await twins.until_public(stream, 4)
    assert "taken on the ledger's word; no [job] witness is configured" in caplog.text
    again = await ledger()
    assert again[:3] == before[:3]
    assert {orjson.loads(entry).get("witness") for entry in again[3:]} == {"none configured"}

    # Steps of so little say the same by chance, often: they are other answers, and the witness knows it.
    assert not {orjson.loads(entry)["draw"] for entry in again[3:]} & {orjson.loads(old)["draw"] for old in before}
    with contextlib.suppress(WitnessError):
        async with worker(config) as app:
            await until(lambda: app.crash_reason is not None)
    assert "the public ledger has another answer of step 4" in caplog.text

"""A cluster that is put back to an earlier moment, whole: a copy of a real broker's disk, and the same events again.

It runs at night; tests/simulation/test_simulation.py puts the simulated cluster back, and finds a witness that is late.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from agents.kafka.status import status
from agents.local.broker.embedded import EmbeddedBroker
from schemas.config import Config
from schemas.errors import WitnessError
from schemas.topics import Topics
from tests.kafka.support import in_loop, records_of, until, worker
from tests.kafka.test_streams_alone import Twins

pytestmark = pytest.mark.seconds(25)


@contextlib.asynccontextmanager
async def down(broker: EmbeddedBroker) -> AsyncIterator[None]:
    broker.kill()
    yield
    await asyncio.to_thread(broker.start)


@in_loop
async def test_a_cluster_that_is_put_back_does_not_answer_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedBroker() as broker:
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
        async with down(broker):
            shutil.copytree(broker.disk, copy)
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

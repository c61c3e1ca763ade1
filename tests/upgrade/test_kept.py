"""What an earlier version left behind is taken over: blocks, bounds, seeds, candidates, states, public topics, RocksDB.

The broker starts on files of that time, so that topic ids, offsets, transactions and group offsets are what they were.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from schemas.config import Config
from schemas.topics import Topics
from tests.crash.field import Field
from tests.kafka.support import records_of
from tests.upgrade.kept import KeptBroker, config_of, unpacked

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.seconds(20)]


async def released(config: Config) -> list[list[tuple[int, bytes, bytes]]]:
    """What is public, topic by topic."""
    names = [name for s in config.streams for name in (Topics.ledger(s.name), Topics.measurements(s.name))]
    return [
        [(record.offset, record.key, record.value) for record in await records_of(config.kafka.bootstrap, name)]
        for name in names
    ]


def test_a_job_that_was_killed_under_an_earlier_version_goes_on(tmp_path: Path) -> None:
    data, job = unpacked(tmp_path)

    async def play(bootstrap: str) -> None:
        config = config_of(bootstrap, tmp_path, job)
        field = Field(bootstrap, tmp_path, seed=7, config=config)
        assert isinstance(job["steps"], int)
        field.steps = job["steps"]
        try:
            before = await released(config)
            public = await field.last_public()
            assert 0 <= min(public) < field.steps - 1, "some steps are public, and some are waiting"
            assert (tmp_path / "data-a").is_dir(), "the worker comes to its own folder"
            await field.open()
            field.start("a")
            await field.until_public(field.steps + 2)
            await field.settle()
            verdict = await field.verdict()
            assert verdict.kept, f"{verdict}\n" + "\n".join(verdict.notes[:20])
            assert verdict.steps == 2 * field.steps
            after = await released(config)
            assert all(now[: len(then)] == then for then, now in zip(before, after, strict=True))
        except BaseException:
            print(field.logs())
            raise
        finally:
            await field.close()

    with KeptBroker(data) as broker:
        asyncio.run(play(broker.bootstrap))

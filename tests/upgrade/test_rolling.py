"""A rolling restart: workers of an earlier version and of this one share a job, and each takes over from the other.

The earlier one is that of `earlier.py`; a step back must work too, or an upgrade that goes wrong could not be undone.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.crash.field import Field
from tests.crash.test_crash import ended, settled
from tests.crash.verify import StreamEvidence, collect
from tests.kafka.support import until
from tests.upgrade.earlier import earlier_tree

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.seconds(40)]


def test_workers_of_two_versions_share_a_job(bootstrap: str, tmp_path: Path) -> None:
    earlier = earlier_tree(tmp_path / "earlier")

    async def play() -> None:
        field = Field(bootstrap, tmp_path, seed=5)
        field.trees = dict.fromkeys(("a", "b", "d"), earlier)
        try:
            await field.open()
            field.start("a")
            field.start("b")
            await field.until_public(4)
            # One after the other leaves, and one of this version comes. The last of the earlier ones is killed.
            await leave(field, "a")
            field.start("c")
            await until(lambda: bool(settled(field.workers["c"].log)))
            await field.until_public(max(await field.last_public()) + 3)
            field.workers.pop("b").kill()
            await field.until_public(max(await field.last_public()) + 3)
            # And back: what this version wrote is read by the earlier one.
            field.start("d")
            await until(lambda: bool(settled(field.workers["d"].log)))
            await leave(field, "c")
            await field.until_public(max(await field.last_public()) + 3)
            await field.settle()
            verdict = await field.verdict()
            assert verdict.kept, f"{verdict}\n" + "\n".join(verdict.notes[:20])
            assert verdict.steps == 2 * field.steps
            blocks = [block for each in (await evidence(field)).values() for block in each.blocks]
            assert {bool(block.totals) for block in blocks} == {False, True}, "both versions have written"
        except BaseException:
            print(field.logs())
            raise
        finally:
            await field.close()

    asyncio.run(play())


async def evidence(field: Field) -> dict[str, StreamEvidence]:
    return await collect(field.config, field.source_partitions)


async def leave(field: Field, name: str) -> None:
    worker = field.workers.pop(name)
    worker.process.terminate()
    await ended(worker.process.poll)

"""A stream is added to a job that runs: the file is edited, its topics made, workers restarted one after the other.

For a while one worker has the new stream and another has not, and partitions go back and forth between them. It runs at
night: tests/agents/test_streams_of_others.py holds what a worker does with blocks of a stream that it does not know.
"""

from __future__ import annotations

import asyncio
import dataclasses
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from schemas.config import Config, Stream
from schemas.topics import Topics
from tests.crash.field import ROOT, SOURCE_PARTITIONS, Field, to_toml
from tests.crash.test_crash import ended, settled
from tests.crash.verify import StreamEvidence, Verdict, collect, judge
from tests.kafka.support import fresh_name, records_of, until

pytestmark = [pytest.mark.kafka, pytest.mark.nightly, pytest.mark.seconds(40)]


def with_one_more(config: Config) -> tuple[Config, str]:
    """The same job with a third stream, on the source of the first."""
    first = config.streams[0]
    name = fresh_name("added")
    added: Stream = first.model_copy(update={"name": name})
    return config.model_copy(update={"streams": (*config.streams, added)}), name


def edited(field: Field, config: Config) -> None:
    """What is started from now on has this configuration."""
    (field.folder / "job.toml").write_text(to_toml(config, bootstrap=config.kafka.bootstrap))


def test_a_stream_is_added_while_the_others_run(bootstrap: str, tmp_path: Path) -> None:
    async def play() -> None:
        field = Field(bootstrap, tmp_path, seed=11)
        old = field.config
        new, name = with_one_more(old)
        try:
            await field.open()
            field.start("a")
            field.start("b")
            await field.until_public(4)
            edited(field, new)
            command = [sys.executable, "-m", "agents.cli", "topics", str(field.folder / "job.toml"), "--create"]
            done = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            assert set(Topics.published(name)) <= {line.split()[-1] for line in done.stderr.splitlines()}
            await field.keep_replaced_records(new)
            # One of the two is restarted, and killed as soon as the new stream has a block: its blocks are read back.
            await leave(field, "a")
            field.start("a", failpoint="ingest_after_commit:1")
            await ended(field.workers["a"].process.poll)
            await join(field, "a")
            await field.until_public(max(await field.last_public()) + 3)
            # Back to a worker that does not know it, which gets all partitions, and on again.
            await leave(field, "a")
            await field.until_public(max(await field.last_public()) + 3)
            await join(field, "a")
            await leave(field, "b")
            await join(field, "b")
            await field.until_public(max(await field.last_public()) + 2)
            await field.settle()
            field.config = new

            async def public() -> bool:
                return len(await records_of(bootstrap, Topics.ledger(name))) >= field.steps

            await until(public)
            verdict, began = await judged(field, new, name)
            assert verdict.kept, f"{verdict}\n" + "\n".join(verdict.notes[:20])
            assert verdict.steps == 3 * field.steps
            assert min(began) > 0, "the new stream begins where ingest of the source was when it came"
            log = field.workers["b"].log.read_text() + field.workers["a"].log.read_text()
            assert "STOPPED" not in log
        except BaseException:
            print(field.logs(60))
            raise
        finally:
            await field.close()

    asyncio.run(play())


async def judged(field: Field, config: Config, name: str) -> tuple[Verdict, list[int]]:
    """The new stream is judged by what was sent from where it began on; and where that was, by source partition."""
    evidence = await collect(config, field.source_partitions)
    began: dict[int, set[int]] = defaultdict(set)
    for block in evidence[name].blocks:
        began[block.partition].add(block.began)
    begins = [began[partition].pop() for partition in range(SOURCE_PARTITIONS)]
    assert not any(began.values()), "it begins once"
    raw = [
        [record for record in records if record.offset >= begin]
        for records, begin in zip(evidence[name].raw, begins, strict=True)
    ]
    mine: StreamEvidence = dataclasses.replace(evidence[name], raw=raw)
    return judge(config, {**evidence, name: mine}, field.source_partitions, steps=field.steps), begins


async def join(field: Field, name: str) -> None:
    """Until it has settled a step in this life."""
    worker = field.start(name)
    await until(lambda: bool(settled(worker.log, after=worker.log_begins)))


async def leave(field: Field, name: str) -> None:
    worker = field.workers.pop(name)
    worker.process.terminate()
    await ended(worker.process.poll)

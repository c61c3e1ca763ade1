"""The engine's shell: does what `agents.protocol.owner` asks, on Kafka.

For each partition one fenced transactional producer is the only writer of that partition of the release log, so it
never has to read back what it wrote. Blocks are acknowledged when the step that used them is adopted, and never
decide where reading goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from agents.failpoints import failpoint
from agents.kafka_clients import fenced_producer, read_to_end
from agents.owners import AckList, PartitionOwner
from agents.protocol.effects import Adopted, CommitCandidates, CommitSeeds, Compute, Effect, SaveState
from agents.protocol.owner import Effects, StreamOwner
from agents.protocol.stepper import Stepper
from agents.trim import Trimmer
from schemas.blocks import Block
from schemas.releases import LogRecord, Seed, decode_log_record

if TYPE_CHECKING:
    from agents.app import Job

log = logging.getLogger(__name__)


class EngineOwner(PartitionOwner):
    """Sole writer of one partition of the release log."""

    role = "engine"

    def __init__(self, job: Job, partition: int) -> None:
        super().__init__(partition)
        self._job = job
        self._producer: Any = None
        self._streams: dict[str, StreamOwner] = {}
        self._positions: dict[str, int] = {}
        self._floors: dict[str, int] = {}
        self._acks = AckList()
        self._trimmer = Trimmer(job.config, job.topics.blocks, partition)

    async def open(self) -> None:
        job, partition = self._job, self.partition
        self._producer = await fenced_producer(job.config.kafka, f"{job.config.job.name}-engine-{partition}")
        # Only now: whatever a former owner had under way is settled, and the log ends where it ends.
        beginning, _, records = await read_to_end(job.config.kafka, job.topics.releases, partition, 0)
        entries = [(record.offset, decode_log_record(record.value)) for record in records]
        streams = job.streams_on(partition)
        # All of them, before any is recovered: what one adopts must not delete blocks that the next one still needs.
        self._positions = dict.fromkeys((stream.name for stream in streams), 0)
        self._floors = dict(self._positions)
        for stream in streams:
            stepper = Stepper.of(stream, job.source_partitions[stream.name], caveat=job.caveat)
            owner = self._streams[stream.name] = StreamOwner(stepper)
            mine = [(offset, entry) for offset, entry in entries if entry.stream == stream.name]
            saved = job.table.load(partition, stream.name)
            await self._drive(owner.recover(saved, mine, log_is_trimmed=beginning > 0))
            log.info("engine of %s: step %s is next, blocks from %s", stream.name, owner.step, owner.position)
        for owner in self._streams.values():
            await self._drive(owner.advance())

    async def handle(self, event: Any) -> None:
        offset = event.message.offset
        block = Block.decode(event.value)
        self._acks.hold(block.stream, offset, event)
        owner = self._streams.get(block.stream)
        if owner is None:
            return  # of a stream that is no longer configured
        owner.fold(offset, block)
        await self._drive(owner.advance())

    async def close(self) -> None:
        await super().close()
        if self._producer is not None:
            await self._producer.stop()

    async def _drive(self, effects: Effects) -> None:
        """Carry out one effect after the other and send back what came of it."""
        result: Any = None
        while True:
            try:
                effect = effects.send(result)
            except StopIteration:
                return
            result = await self._do(effect)

    async def _do(self, effect: Effect) -> Any:
        match effect:
            case CommitSeeds(stream, steps):
                seeds = [Seed(stream, step, self._job.draw_seed(stream, step)) for step in steps]
                await self._commit("seed", stream, seeds)
                return [each.seed for each in seeds]
            case Compute(work=work):
                return await asyncio.to_thread(work)
            case CommitCandidates(stream, _, chunks):
                await self._commit("candidate", stream, chunks)
            case SaveState(stream, step, body):
                facts = {"position": StreamOwner.position_of(body), "step": step}
                await self._job.table.save(self.partition, stream, body, facts=facts)
            case Adopted(stream, step, position, floor):
                failpoint("adopted")
                log.info("stream %s: step %s is settled", stream, step)
                self._positions[stream], self._floors[stream] = position, floor
                self._acks.settle(self._positions)
                self._trimmer.below(min(self._floors.values()))
        return None

    async def _commit(self, what: str, stream: str, records: Sequence[LogRecord]) -> None:
        """All records in one transaction. On an error the worker ends: only reading the log tells what came of it."""
        topic, key = self._job.topics.releases, stream.encode()
        await self._producer.begin_transaction()
        sent = [await self._producer.send(topic, each.encode(), key=key, partition=self.partition) for each in records]
        for each in sent:
            await each
            failpoint(f"{what}_appended")
        await self._producer.commit_transaction()
        failpoint(f"{what}_committed")


def blocks_start(job: Job) -> Callable[[int], int]:
    """Where a partition of the blocks topic is read from: where the least advanced stored state ends."""

    def start(partition: int) -> int:
        return min(_positions(job, partition), default=0)

    return start


def _positions(job: Job, partition: int) -> Iterable[int]:
    for stream in job.streams_on(partition):
        facts = job.table.facts(partition, stream.name)
        yield 0 if facts is None else int(facts["position"])

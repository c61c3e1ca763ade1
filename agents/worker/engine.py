"""The engine's shell: does what `agents.protocol.release.candidates` asks, on Kafka.

For each partition one fenced transactional producer is the only writer of that partition of the release log, so it
never has to read back what it wrote. Blocks are acknowledged when the step that used them is adopted, and never
decide where reading goes on.

Several streams share the producer. Each has a state machine of its own, and what these ask for is done together: steps
are computed as `agents.worker.processors` says, and whatever is to be committed by then, seeds and candidates of any of
the streams, goes into one transaction. So a stream waits for no other one that computes for long, and a partition of
many streams pays for few transactions. A stream whose own state machine fails has nothing in the transaction that is
under way: it is left out from then on, and what it may still need is not trimmed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from agents.kafka.clients import close_client, fenced_anew, fenced_producer, log_reader
from agents.kafka.lifecycle.stops import alone
from agents.kafka.lifecycle.vitals import COMPUTE_S, Pulse
from agents.protocol.release.candidates import (
    Adopted,
    CommitCandidates,
    CommitSeeds,
    Compute,
    Effect,
    Effects,
    StreamCandidates,
)
from agents.protocol.release.record_formats import record_format
from agents.protocol.release.stepper import Stepper
from agents.worker.failpoints import failpoint
from agents.worker.metrics import FENCES, PHASES, STATE_BYTES
from agents.worker.partition_tasks import AckList, StreamsTask, streams_of
from agents.worker.trimming import Trimmer
from schemas.blocks import Block
from schemas.errors import BrokerError, ForgottenIdError
from schemas.releases import Encoded, LogRecord, Seed, decode_log_record

if TYPE_CHECKING:
    from agents.worker.job import Job
    from agents.worker.table import DurableTable, Records

log = logging.getLogger(__name__)

COMMIT_BYTES = 16 << 20  # of candidates and states of several streams in one transaction
WAITING_BYTES = 16 << 20  # of blocks of streams that are at work, as they came; then no further record is read


class EngineTask(StreamsTask):
    """The sole writer of one partition of the release log."""

    role = "engine"

    def __init__(self, job: Job, table: DurableTable, partition: int) -> None:
        super().__init__(partition, job.stops)
        self._job = job
        self._table = table
        self._producer: Any = None
        self._id = f"{job.config.job.name}-engine-{partition}"
        self._newest = -1  # offset of the last record on its partition of the release log, as far as it knows
        self._streams: dict[str, StreamCandidates] = {}
        self._positions: dict[str, int] = {}
        self._floors: dict[str, int] = {}
        self._acks = AckList()
        self._pulses: dict[str, Pulse] = {}
        self._working: dict[str, Effects] = {}
        self._asked: dict[str, CommitSeeds | CommitCandidates] = {}
        self._computing: dict[asyncio.Future[Encoded], str] = {}
        self._waiting: dict[str, list[tuple[int, Block, int]]] = {}
        self._trimmer = Trimmer(job.deletions, job.topics.blocks, partition, held=lambda: job.holds_back(partition))

    async def open(self) -> None:
        job, partition = self._job, self.partition
        self._producer = await fenced_producer(job.config.kafka, self._id)
        FENCES.labels("engine").inc()
        # Only now: whatever a former task had under way is settled, and the log ends where it ends.
        await job.meet_all()
        streams = job.streams_on(partition)
        for name in job.stops.among(stream.name for stream in streams):
            job.stops.remind(name)
        # All of them, before any is recovered: what one adopts must not delete blocks that the next one still needs.
        self._positions = dict.fromkeys((stream.name for stream in streams), 0)
        self._floors = dict(self._positions)
        for stream in streams:
            if job.stops.stopped(stream.name):
                self.leave_out(stream.name)
                continue
            with self.serving(stream.name), alone(stream.name):
                stepper = Stepper.from_stream(
                    stream,
                    job.source_partitions[stream.name],
                    caveat=job.caveat,
                    witness=job.witness_remark(stream.name),
                    records=record_format(stream, job.schema_ids.get(stream.name)),
                )
                self._streams[stream.name] = StreamCandidates(stepper)
                self._pulses[stream.name] = Pulse(f"engine of {stream.name}")
                self._pulses[stream.name].waits("waits for a step")
                self.shows(self._pulses[stream.name])
        # Batch by batch: where a stream has stopped nothing is trimmed, and the log grows for as long as nobody comes.
        async with log_reader(job.config.kafka, job.topics.releases, partition) as releases:
            async for records in releases.read():
                self._newest = records[-1].offset if records else self._newest
                await self._read_log(records)
        # Behind the fence, so no further state comes to the changelog.
        await self._table.catch_up(job.config.kafka, partition)
        whole = False
        for name, machine in list(self._streams.items()):
            with self.serving(name):
                saved = self._table.load(partition, name)
                if machine.lacks(saved) and not whole:
                    log.warning("state store of partition %d: stream %s lacks its newest state", partition, name)
                    await self._table.catch_up(job.config.kafka, partition, anew=True)
                    saved, whole = self._table.load(partition, name), True
                self._begin(name, machine.recover(saved, log_is_trimmed=releases.beginning > 0))
                log.info("engine of %s: step %s is next, blocks from %s", name, machine.step, machine.position)
        for name, machine in list(self._streams.items()):
            self._begin(name, machine.advance())
        await self._work()

    async def _read_log(self, records: Iterable[Any]) -> None:
        entries: list[tuple[int, LogRecord]] = []
        for record in records:
            if self._streams.keys() & set(self._streams_of(record.key)):
                with self.serving(*self._streams_of(record.key)):
                    entries.append((record.offset, decode_log_record(record.value)))
        for name, mine in groupby(entries, key=lambda entry: entry[1].stream):
            if machine := self._streams.get(name):
                with self.serving(name), alone(name):
                    await asyncio.to_thread(machine.read, list(mine))

    async def handle(self, event: Any) -> None:
        """Take a record, and all that come meanwhile, until nothing is left to do that they allow."""
        self._take(event)
        await self._work()

    def _take(self, event: Any) -> None:
        offset = event.message.offset
        for stream in self._job.stops.among(self._streams):
            self.leave_out(stream)
        needed = False
        with self.serving(*self._streams_of(event.message.key)):
            block, size = Block.decode(event.value), len(event.value)
            self._job.meet(block.stream)
            machine = self._streams.get(block.stream)
            if machine is not None and offset >= machine.position:
                needed = True
                self._acks.hold(block.stream, offset, event)
                self._waiting.setdefault(block.stream, []).append((offset, block, size))
                self._fold(block.stream)
        if not needed:  # it cannot be read, or is in the state, or of a stream that has stopped or is not configured
            event.ack()
            self._acks.settle(self._positions.get)

    def _fold(self, stream: str) -> None:
        """Fold the blocks of a stream that wait, and let it go on; not while it is at work, maybe in a thread."""
        if stream in self._working or not (waiting := self._waiting.pop(stream, None)):
            return
        if self._job.stops.stopped(stream):
            return
        machine = self._streams[stream]
        with alone(stream):
            for offset, block, _ in waiting:
                machine.fold(offset, block)
        self._begin(stream, machine.advance())

    async def close(self) -> None:
        await super().close()
        if self._producer is not None:
            await close_client(self._producer)

    def _streams_of(self, key: bytes | None) -> Sequence[str]:
        return streams_of(key, [stream.name for stream in self._job.streams_on(self.partition)], self._job.kept)

    def leave_out(self, stream: str) -> int | None:
        """Leave a stream out. Its records hold back no acknowledgement: its own state says where a restart goes on."""
        self._positions.pop(stream, None)
        for what in (self._working, self._asked, self._waiting):
            what.pop(stream, None)
        machine = self._streams.pop(stream, None)
        return None if machine is None else machine.step

    def _begin(self, stream: str, effects: Effects) -> None:
        self._working[stream] = effects
        self._go_on(stream, partial(next, effects))

    def _go_on(self, stream: str, go_on: Callable[[], Effect]) -> None:
        """Let a machine say what is to be done next, and see to it.

        The machine itself sends nothing, and neither does what it has computed: what fails there has no effect, and the
        machine says what is left to do. A commit that fails ends the worker.
        """
        with self.serving(stream):
            while not self._job.stops.stopped(stream):
                self.pulse.goes_on()
                with alone(stream):
                    try:
                        effect = go_on()
                    except StopIteration:
                        break
                match effect:
                    case Compute():
                        self._computing[asyncio.ensure_future(self._compute(effect))] = stream
                        return
                    case Adopted():
                        self._adopt(effect)
                        go_on = partial(self._working[stream].send, None)
                    case _:
                        self._asked[stream] = effect
                        return
            self._working.pop(stream, None)
            if stream in self._streams:
                self._fold(stream)

    async def _work(self) -> None:
        """Do what all machines ask for, until none asks for anything."""
        try:
            while self._asked or self._computing:
                while not self.queue.empty() and self._has_room:
                    self._take(self.queue.get_nowait())
                await (self._commit_asked() if self._asked else self._wait())
        finally:
            for task in self._computing:
                task.cancel()
            self._computing = {}

    @property
    def _has_room(self) -> bool:
        """Whether records may be taken: not before what is committed is worked on, nor while too much waits."""
        waiting = sum(size for blocks in self._waiting.values() for _, _, size in blocks)
        return self.pulse.ready and waiting < WAITING_BYTES

    async def _wait(self) -> None:
        """Wait until a step is computed or a record comes."""
        came = asyncio.ensure_future(self.queue.get()) if self._has_room else None
        try:
            with self.pulse.at("waits for steps that are computed", COMPUTE_S):
                awaited = [*self._computing] if came is None else [*self._computing, came]
                await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if came is not None and not came.done():
                came.cancel()  # what comes then stays in the queue
        if came is not None and came.done() and not came.cancelled():
            self._take(came.result())
        for task in [task for task in self._computing if task.done()]:
            stream = self._computing.pop(task)
            effects = self._working.get(stream)
            error = task.exception()
            if effects is not None and error is None:
                self._go_on(stream, partial(effects.send, task.result()))
            elif effects is not None and isinstance(error, Exception):
                self._go_on(stream, partial(effects.throw, error))
            elif error is not None and not isinstance(error, Exception):
                raise error

    async def _compute(self, effect: Compute) -> Encoded:
        at_work = self._at_work(effect.stream)
        return await self._job.processors.compute(effect.stream, effect.events, effect.work, at_work)

    @contextlib.contextmanager
    def _at_work(self, stream: str) -> Iterator[None]:
        with self._pulses[stream].at("computes a step", COMPUTE_S), PHASES.labels(stream, "compute").time():
            yield

    def _adopt(self, effect: Adopted) -> None:
        failpoint("adopted")
        log.info("stream %s: step %s is settled", effect.stream, effect.step, extra={"step": effect.step})
        self._positions[effect.stream], self._floors[effect.stream] = effect.position, effect.floor
        self._acks.settle(self._positions.get)
        self._trimmer.below(min(self._floors.values()))

    async def _commit_asked(self) -> None:
        """Commit in one transaction what machines ask for, of as many streams as it may hold."""
        records: list[tuple[str, LogRecord]] = []
        states: dict[str, Records] = {}
        answers: dict[str, Sequence[bytes] | None] = {}
        size = 0
        for stream in self._job.stops.among(self._asked):
            self.leave_out(stream)
        for stream, effect in list(self._asked.items()):
            match effect:
                case CommitSeeds(steps=steps):
                    seeds = [Seed(stream, step, self._job.draw_seed(stream, step)) for step in steps]
                    records += [(stream, seed) for seed in seeds]
                    answers[stream] = [seed.seed for seed in seeds]
                case CommitCandidates(steps=steps, chunks=chunks, state=state, position=position):
                    stored = self._table.records(
                        self.partition, stream, state.pieces, digest=state.digest, step=steps[-1], position=position
                    )
                    more = sum(len(chunk.part) for chunk in chunks) + sum(len(value) for _, value in stored)
                    if answers and size + more > COMMIT_BYTES:
                        continue
                    size += more
                    STATE_BYTES.labels(stream).set(state.size)
                    states[stream] = stored
                    records += [(stream, chunk) for chunk in chunks]
                    answers[stream] = None
            del self._asked[stream]
        if records:
            await self._commit(records, states)
        for stream, answer in answers.items():
            if (effects := self._working.get(stream)) is not None:
                self._go_on(stream, partial(effects.send, answer))

    async def _commit(self, records: Sequence[tuple[str, LogRecord]], states: Mapping[str, Records]) -> None:
        """Commit all records in one transaction, and `states` on the table's changelog; then store those.

        On an error the worker ends: only reading the log tells what came of it.
        """
        kinds = {(stream, _kind_of(record)): None for stream, record in records}
        begun = time.monotonic()
        try:
            offset = await self._transact(records, states)
        except ForgottenIdError:
            await self._fence_anew()
            offset = await self._transact(records, states)
        for stream, what in kinds:
            PHASES.labels(stream, what).observe(time.monotonic() - begun)
        for what in dict.fromkeys(what for _, what in kinds):
            failpoint(f"{what}_committed")
        if states:
            await self._table.committed(self.partition, states, offset)
            failpoint("state_stored")

    async def _transact(self, records: Sequence[tuple[str, LogRecord]], states: Mapping[str, Records]) -> int:
        """Return the last offset on the changelog, -1 where there are no states."""
        topics, newest, last = self._job.topics, self._newest, -1
        await self._producer.begin_transaction()
        # All are on their way before any is waited for: one request has both topics.
        sent = [
            await self._producer.send(topics.releases, record.encode(), key=stream.encode(), partition=self.partition)
            for stream, record in records
        ]
        stored = [
            await self._producer.send(topics.changelog, value, key=key, partition=self.partition)
            for state in states.values()
            for key, value in state
        ]
        for each, (_, record) in zip(sent, records, strict=True):
            newest = (await each).offset
            what = _kind_of(record)
            failpoint(f"{what}_appended")
        for each in stored:
            last = (await each).offset
            failpoint("state_appended")
        await self._producer.commit_transaction()
        self._newest = newest
        return last

    async def _fence_anew(self) -> None:
        """Fence again where the cluster has forgotten this writer. Raises: BrokerError where somebody has written
        meanwhile.
        """
        if self.closed:
            raise BrokerError(f"{self._id} was forgotten, and its partition is somebody else's by now")
        await close_client(self._producer)
        place = (self._job.topics.releases, self.partition)
        self._producer = await fenced_anew(
            self._job.config.kafka, self._id, place, lambda newest: self._newest == (newest.offset if newest else -1)
        )
        FENCES.labels("engine").inc()


def _kind_of(record: LogRecord) -> str:
    return "seed" if isinstance(record, Seed) else "candidate"


def blocks_start(job: Job, table: DurableTable) -> Callable[[int], int]:
    """Return what says where a partition of the blocks topic is read from: where the least advanced state ends that is
    stored here.

    The engine passes over blocks that are in the state it goes on from, which may be newer.
    """

    def start(partition: int) -> int:
        return min((table.position(partition, stream.name) for stream in job.streams_on(partition)), default=0)

    return start

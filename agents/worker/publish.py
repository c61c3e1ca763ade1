"""The publisher's shell: committed candidates of the release log become public, each step once, on the public schedule.

For each stream one fenced transactional producer, named by the stream alone: two jobs that were given one stream name
fence each other, and the later one finds a ledger that is not its own and stops. A step's synthetic records,
measurements and ledger entry are one transaction. Everything a reader could learn from a record's envelope is public
too: partition 0, the end of the step as its time, the step as header.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import orjson
from aiokafka.errors import KafkaError

from agents.kafka.batches import RecordBatch
from agents.kafka.clients import LogQueue, close_client, fenced_anew, fenced_producer, log_reader, tail
from agents.kafka.lifecycle.cancellations import raise_stray_cancellation
from agents.kafka.lifecycle.stops import Stops, StreamStoppedError, alone
from agents.kafka.lifecycle.vitals import Pulse
from agents.kafka.witness.streams import StreamWitness
from agents.protocol.clock import StepClock
from agents.protocol.release.candidates import ENOUGH_BYTES, MOST_STEPS
from agents.protocol.release.log import LogView
from agents.protocol.release.publisher import Publication, StreamPublisher
from agents.worker.failpoints import failpoint
from agents.worker.metrics import DELAY, FENCES, LATE, PHASES, PUBLISHED, show_public
from agents.worker.partition_tasks import AckList, StreamsTask, streams_of
from agents.worker.trimming import Trimmer
from schemas.errors import BrokerError, ForgottenIdError, LostTopicError, RecordSizeError
from schemas.releases import CHANNELS, STEP_HEADER, Channel, LogRecord, Seed, decode_log_record, public_step
from schemas.topics import Topics

if TYPE_CHECKING:
    from agents.worker.job import Job
    from schemas.config import Kafka, Stream

log = logging.getLogger(__name__)

# A step goes out in one transaction, some 75,000 records a second; brokers allow 15 minutes at most.
TRANSACTION_TIMEOUT_MS = 600_000
MINUTE_S = 60.0
SMALL_BYTES = 64 << 10  # of a candidate: it is read in a few milliseconds
LATE_S = 1.0  # what computing and committing may take before a publication counts as late


class PublishTask(StreamsTask):
    """The sole writer of the public topics of the streams on one partition."""

    role = "publish"

    def __init__(self, job: Job, partition: int) -> None:
        super().__init__(partition, job.stops)
        self.job = job
        self._stream_tasks: dict[str, PublishStreamTask] = {}
        self._acks = AckList()
        self._needed: dict[str, int] = {}  # by stream, the first offset of the release log that it may need
        self._trimmer = Trimmer(job.deletions, job.topics.releases, partition, held=lambda: job.holds_back(partition))

    async def open(self) -> None:
        for stream in self.job.streams_on(self.partition):
            self._stream_tasks[stream.name] = PublishStreamTask(self, stream, self.job.stops)
        async with asyncio.TaskGroup() as group:
            for stream_task in self._stream_tasks.values():
                group.create_task(raise_stray_cancellation(self._open(stream_task), stream_task.pulse.name))

    async def _open(self, stream_task: PublishStreamTask) -> None:
        with self.serving(stream_task.name):
            await stream_task.open(self.job.config.kafka)

    async def run(self) -> None:
        await self.opened()
        async with asyncio.TaskGroup() as group:
            for stream_task in self._stream_tasks.values():
                self.shows(stream_task.pulse)
                group.create_task(raise_stray_cancellation(self._run(stream_task), stream_task.pulse.name))
            await self.handle_all()

    async def _run(self, stream_task: PublishStreamTask) -> None:
        try:
            with self.serving(stream_task.name):
                await stream_task.run()
        except (KafkaError, OSError, TimeoutError) as error:
            if stream_task.serves():
                raise
            # A topic of a stream that has stopped may be the reason. Whatever became of its last transaction, its
            # producer is not used again, and the next one fences before it reads.
            log.info("publisher of %s ended with %s", stream_task.name, type(error).__name__)
        stream_task.pulse.waits("has stopped")
        stream_task.queue.clear()  # nothing of what waits there is needed by this process

    async def handle(self, event: Any) -> None:
        needed = False
        with self.serving(*streams_of(event.message.key, list(self._stream_tasks), self.job.kept)):
            record = decode_log_record(event.value)
            self.job.meet(record.stream)
            stream_task = self._stream_tasks.get(record.stream)
            if stream_task is not None and stream_task.serves():
                needed = True
                self._acks.hold(record.stream, record.step, event)
                self._needed.setdefault(record.stream, event.message.offset)
                await stream_task.take(event.message.offset, record)
        if not needed:
            event.ack()
            self._acknowledge()

    def leave_out(self, stream: str) -> int:
        """Return the next step: a stream task ends by itself once its stream has stopped."""
        return self._stream_tasks[stream].machine.last_step + 1

    async def close(self) -> None:
        await super().close()
        for stream_task in self._stream_tasks.values():
            await stream_task.close()

    def settled(self, stream_task: PublishStreamTask) -> None:
        """Acknowledge and delete what is older on the release log than a step of this stream that is public."""
        self._acknowledge()
        if (offset := stream_task.first_needed()) is not None:
            self._needed[stream_task.name] = offset
        if self._needed:
            self._trimmer.below(min(self._needed.values()))

    def _acknowledge(self) -> None:
        self._acks.settle(self._mark)

    def _mark(self, stream: str) -> int | None:
        stream_task = self._stream_tasks[stream]
        return stream_task.machine.last_step + 1 if stream_task.serves() else None


class PublishStreamTask:
    """One stream of a publisher: its producer, machine and schedule, and which log records it still needs."""

    def __init__(self, task: PublishTask, stream: Stream, stops: Stops) -> None:
        self._task = task
        self._stream = stream
        self._stops = stops
        self.name = stream.name
        self.pulse = Pulse(f"publisher of {stream.name}")
        self._producer: Any = None
        self._id = Topics.publisher_id(stream.name)
        self.machine = StreamPublisher(stream.name)
        self._ledger: bytes | None = None  # what the newest entry is, as far as it knows
        self._first_offsets: dict[int, int] = {}

    @cached_property
    def queue(self) -> LogQueue:
        """The records of the release log that were not looked at yet."""
        job = self._task.job
        return LogQueue(job.config.kafka, job.topics.releases, self._task.partition)

    @cached_property
    def _witness(self) -> StreamWitness:
        job = self._task.job
        return StreamWitness(job.config, self.name, job.witness, self.pulse, trusted=job.trusted.get(self.name))

    @cached_property
    def _clock(self) -> StepClock:
        """The steps; not of a stream that could not start: where it begins may not be known."""
        return StepClock.from_stream(self._stream)

    def serves(self) -> bool:
        """Return false once nothing more of the stream may be published by this process."""
        return not self._stops.silent(self.name)

    async def open(self, kafka: Kafka) -> None:
        """Fence, then learn what is public: nobody adds to it any more. Raises: StreamStoppedError, BrokerError."""
        if not self.serves():
            return
        self._producer = await fenced_producer(kafka, self._id, timeout_ms=TRANSACTION_TIMEOUT_MS)
        FENCES.labels("publish").inc()
        showed = False
        async with log_reader(kafka, Topics.ledger(self._stream.name), 0) as ledger:
            async for records in ledger.read():
                with alone(self.name):
                    self.machine.recover(record.value for record in records)
                if records:
                    self._ledger = records[-1].value
                showed = showed or any(orjson.loads(record.value).get("added") for record in records)
        await self._look_behind(kafka, showed=showed)
        # Behind the fence: what a predecessor noted is there, and it commits nothing any more.
        with alone(self.name):
            await self._witness.open(self.machine, self._logged)
        if self._ledger is not None:
            show_public(self._stream, self.machine.last_step, self._clock, self._ledger)
        log.info("publisher of %s: step %s is public", self._stream.name, self.machine.last_step)

    async def _logged(self, step: int) -> str | None:
        """Return the digest of a step's candidate on the release log as it is now; None where it is not there."""
        job, view, found = self._task.job, LogView(self.name), None
        async with log_reader(job.config.kafka, job.topics.releases, self._task.partition) as releases:
            async for records in releases.read():
                for record in records:
                    if record.key == self.name.encode():
                        candidate = await asyncio.to_thread(view.apply, record.offset, decode_log_record(record.value))
                        if candidate is not None and candidate.step == step:
                            found = candidate.chain
        return found

    async def _look_behind(self, kafka: Kafka, *, showed: bool) -> None:
        """Compare the other public topics with the ledger, by the newest step of each.

        Args: showed: whether the ledger says that there were synthetic records.
        """
        name = self._stream.name
        topics: dict[str, Channel] = {Topics.synthetic(name): "synthetic", Topics.measurements(name): "measurements"}
        async with tail(kafka, [(topic, 0) for topic in topics]) as end:
            if showed and end.ends[Topics.synthetic(name), 0] == 0:
                with alone(name):
                    raise LostTopicError(
                        f"stream {name}: {Topics.synthetic(name)} was deleted and made again: the public ledger has "
                        "records of it, and it never held any"
                    )
            for topic, channel in topics.items():
                newest = -1 if end.begins[topic, 0] == 0 else None
                async for record in end.backwards((topic, 0)):
                    step = public_step(record.headers)
                    if step is not None:
                        newest = step
                        break
                    log.warning(
                        "stream %s: the record at offset %d of %s names no step: the job did not write it. It is "
                        "passed over", name, record.offset, topic,
                    )  # fmt: skip
                if newest is not None:
                    with alone(name):
                        self.machine.check_end(channel, newest)
                    if channel == "measurements":
                        self.machine.measured(newest)

    async def close(self) -> None:
        if self._producer is not None:
            await close_client(self._producer)

    async def take(self, offset: int, record: LogRecord) -> None:
        """Note where a step begins on the release log. Steps of one stream may wait for their time while another stream
        goes on.
        """
        self._first_offsets.setdefault(record.step, offset)
        self.queue.put(offset, record)

    def first_needed(self) -> int | None:
        """Return the first log offset that this stream may need: its newest public candidate stays. None where it has
        nothing there.

        A candidate is committed together with its state, so what is older is adopted.
        """
        last = self.machine.last_step
        if last in self._first_offsets:
            self._first_offsets = {step: at for step, at in self._first_offsets.items() if step >= last}
        return min(self._first_offsets.values(), default=None)

    async def run(self) -> None:
        held: Publication | None = None
        while self.serves():
            if held is None:
                self.pulse.waits("waits for a candidate")
                record = await self.queue.get()
                with self.pulse.at("reads a candidate"), alone(self.name):
                    held = await self._read(*record)
            if held is not None:
                self.pulse.waits(f"waits for the public time of step {held.step}")
                await self._wait_until_due(held)
                if not self.serves():
                    return
                with self.pulse.at("publishes", TRANSACTION_TIMEOUT_MS / 1000):
                    with alone(self.name):
                        due, held = await self._overdue(held)
                    with PHASES.labels(self.name, "publish").time():
                        await self.publish(due)
                for each in due:
                    self.machine.published(each.step)
                self._show(due)
                steps = f"step {due[0].step} is" if len(due) == 1 else f"steps {due[0].step} to {due[-1].step} are"
                log.info("stream %s: %s public", self._stream.name, steps, extra={"step": due[-1].step})
            self._task.settled(self)

    def _show(self, due: Sequence[Publication]) -> None:
        """Show what has become public, as metrics."""
        PUBLISHED.labels(self.name).inc(len(due))
        now = time.time()
        for each in due:
            if self._timed(each):
                DELAY.labels(self.name).observe(max(now - self._due_s(each.step), 0.0))
        show_public(self._stream, due[-1].step, self._clock, due[-1].ledger)

    async def _read(self, offset: int, record: LogRecord) -> Publication | None:
        """Read a record, in a thread where it may be large: a candidate can take seconds to unpack, in which the event
        loop must go on. A small one is read before it could be handed over.
        """
        if isinstance(record, Seed) or (record.count == 1 and len(record.part) <= SMALL_BYTES):
            return self.machine.on_record(offset, record)
        return await asyncio.to_thread(self.machine.on_record, offset, record)

    async def _overdue(self, first: Publication) -> tuple[list[Publication], Publication | None]:
        """Return `first` and the steps after it that are on the log already and late too; and the one not due yet."""
        held: Publication | None = None
        due, size = [first], first.size
        while len(due) < MOST_STEPS and size < ENOUGH_BYTES and not self.queue.empty():
            if (publication := await self._read(*await self.queue.get())) is not None:
                if self._timed(publication) and self._due_s(publication.step) > time.time():
                    held = publication
                    break
                due.append(publication)
                size += publication.size
        self._tell_late(due)
        return due, held

    async def publish(self, due: Sequence[Publication]) -> None:
        """Publish steps, one after the other, in one transaction. On any error the worker ends and its successor reads
        the ledger.

        The witness has the last of them before anything is sent: readers of uncommitted records see what is.

        Raises: StreamStoppedError where a topic of the stream takes no record of their size: nothing is committed.
        """
        failpoint("publish_due")
        await self._witness.note(due[-1].step, due[-1].chain)
        failpoint("publish_witnessed")
        try:
            try:
                await self._transact(due)
            except ForgottenIdError:
                await self._fence_anew()
                await self._transact(due)
        except RecordSizeError as error:
            raise StreamStoppedError(self.name, error) from error
        self._ledger = due[-1].ledger
        failpoint("publish_committed")

    async def _fence_anew(self) -> None:
        """Fence again where the cluster has forgotten this writer. Raises: BrokerError where somebody published
        meanwhile.
        """
        if self._task.closed:
            raise BrokerError(f"{self._id} was forgotten, and its partition is somebody else's by now")
        await close_client(self._producer)
        self._producer = await fenced_anew(
            self._task.job.config.kafka, self._id, (Topics.ledger(self.name), 0),
            lambda newest: self._ledger == (newest.value if newest else None),
            timeout_ms=TRANSACTION_TIMEOUT_MS,
        )  # fmt: skip
        FENCES.labels("publish").inc()

    async def _transact(self, due: Sequence[Publication]) -> None:
        await self._producer.begin_transaction()
        await self._append(due)
        failpoint("publish_appended")
        await self._producer.commit_transaction()

    async def _append(self, due: Sequence[Publication]) -> None:
        """Append all records of each step, those of its three topics at once: a request takes as long for one."""
        name = self._stream.name
        topics = {
            "synthetic": Topics.synthetic(name),
            "measurements": Topics.measurements(name),
            "ledger": Topics.ledger(name),
        }
        pending: list[asyncio.Future[Any]] = []
        batches = {channel: RecordBatch() for channel in CHANNELS}
        try:
            for publication in due:
                header = STEP_HEADER, b"%d" % publication.step
                time_ms = self._clock.end_of(publication.step) // 1000
                for channel in CHANNELS:
                    left = publication.ledger_record if channel == "ledger" else publication.data.of_channel(channel)
                    while len(left):
                        taken = batches[channel].extend(left, time_ms=time_ms, header=header)
                        if len(left := left.only(slice(taken, None))):
                            pending.append(
                                await self._producer.send_batch(batches[channel], topics[channel], partition=0)
                            )
                            batches[channel] = RecordBatch()
                        await asyncio.sleep(0)  # a whole batch must not keep everything else waiting
            for channel, batch in batches.items():
                if batch.record_count():
                    pending.append(await self._producer.send_batch(batch, topics[channel], partition=0))
            await asyncio.gather(*pending)
        except BaseException:
            for each in pending:  # nobody else asks what became of them
                each.cancel()
            raise

    async def _wait_until_due(self, held: Publication) -> None:
        """Wait until the public time of the step, where it has one. Late ones go out at once and are counted."""
        if self._timed(held):
            await asyncio.sleep(max(self._due_s(held.step) - time.time(), 0.0))

    def _timed(self, publication: Publication) -> bool:
        """Return whether the step has a public time: in a replay it has none, since its time is that of the file."""
        return publication.live or self._stream.time.clock == "wall"

    def _due_s(self, step: int) -> float:
        return (self._clock.end_of(step) + self._stream.time.grace_us + self._stream.publish_delay_us) / 1e6

    def _tell_late(self, due: Sequence[Publication]) -> None:
        now = time.time()
        late = [each.step for each in due if self._timed(each) and now - self._due_s(each.step) > LATE_S]
        if late:
            LATE.labels(self._stream.name).inc(len(late))
            late_s = now - self._due_s(late[0])
            log.warning(
                "stream %s: %s published up to %s after %s time",
                self._stream.name,
                f"step {late[0]} is" if len(late) == 1 else f"steps {late[0]} to {late[-1]} are",
                f"{late_s:.1f} s" if late_s < MINUTE_S else timedelta(seconds=round(late_s)),
                "its" if len(late) == 1 else "their",
            )

"""Ingest: raw topics in, blocks out. A Faust service with a Kafka consumer of its own.

Why not a Faust agent: its stream loop does 14 thousand events a second where this does some hundred thousands, see
docs/notes/0007-ingest-beside-faust.md. What it must do is in `agents.protocol.ingest.partition`; here are the wires.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.errors import KafkaError
from mode import Service

from agents.kafka.answers import heed
from agents.kafka.broker_clock import ASK_S, BrokerClock
from agents.kafka.clients import close_client, ends_of_everything
from agents.kafka.fingerprint import GIVE_UP_S, LOOK_S, SourceWatch
from agents.kafka.lifecycle.cancellations import LongService, finish_before_cancellation, raise_stray_cancellation
from agents.kafka.lifecycle.logs import Reminder, about
from agents.kafka.lifecycle.stops import Stops
from agents.kafka.lifecycle.vitals import COMPUTE_S, WORK_S, Reach, Reading, Vitals
from agents.kafka.membership import HEARTBEAT_S, ask_for_missing_topics, give_place_up, keep_place
from agents.kafka.security import security_kwargs
from agents.protocol.clock import MANY_STEPS, backlog_sentence
from agents.protocol.formats.contract import SchemaBook
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.spec import SourceSpec
from agents.worker.ingest.counters import IngestCounters
from agents.worker.ingest.partition_task import IngestOptions, SourceTask, part_of
from agents.worker.ingest.records import hand_out_bare_records
from agents.worker.ingest.restore import restore
from agents.worker.ingest.schema_wait import SchemaWait
from agents.worker.metrics import REBALANCES
from agents.worker.trimming import Deletions
from schemas.errors import ForgottenIdError

if TYPE_CHECKING:
    from agents.kafka.topics import TopicIdentity
    from schemas.config import Config

log = logging.getLogger(__name__)


Look = Callable[[], Awaitable[None]]
"""Looks whether sources have changed, and closes the tasks of those that have."""


async def pass_over(consumer: Any, task: SourceTask, position: int, *, look: Look) -> None:
    """Find out why nothing came from where the task stands up to `position`, where the consumer is.

    Markers of transactions and compaction leave offsets empty. Where the topic has since lost its head, records were
    deleted unread. Where the consumer went back it is another topic, or one that lost its tail: a Kafka consumer begins
    again with the topic where the broker knows of no offset as high as its own.
    """
    if position < task.position and task.position != task.went_back_from:
        await look()
        if (end := await _asked(consumer.end_offsets, task, look)) is not None:
            counted = f"counted as LOST from {end} on" if end < task.position else "how many cannot be told"
            log.error(
                "ingest of %s: the source lost its tail: it was read up to offset %d, and other records come at "
                "offsets below (unclean leader election, or an older copy). Which of them are new cannot be told: they "
                "are passed over; %s. What to do: unclean.leader.election.enable=false, min.insync.replicas=2 "
                '(docs/operations.md, "A source lost its tail")',
                task, task.position, counted,
            )  # fmt: skip
            task.went_back(end)
            if end < task.position:  # all that is before is known
                consumer.seek(task.source, end)
    elif position > max(task.position, task.explained):
        begin = await _asked(consumer.beginning_offsets, task, look)
        if begin is not None:
            task.lose(min(begin, position))
    task.explained = position


async def _asked(ask: Callable[..., Awaitable[Any]], task: SourceTask, look: Look) -> int | None:
    """Return an offset of the task's partition; None where it is closed meanwhile: nobody answers for a lost topic."""
    while not task.closed:
        try:
            async with asyncio.timeout(GIVE_UP_S):
                return int((await ask([task.source]))[task.source])
        except TimeoutError:
            await look()
    return None


class StepEnds:
    """Says which steps are over by the wall clock, for the machines of one worker.

    Attributes:
        next_us: when the next step of one of them ends, `grace` included, at most a second after `due` was asked; not
            before `due` finds nothing any more, since until then ticks are on their way that have no place yet.
    """

    def __init__(self) -> None:
        self._told: set[str] = set()
        self.next_us = 0

    def due(
        self, tasks: Iterable[SourceTask], now_us: int, *, grace_us: Mapping[str, int]
    ) -> list[tuple[SourceTask, PartitionIngest, int]]:
        """Return the steps that are over and have no place yet, replayed streams included: see `AwaitedTicks`."""
        found = []
        next_us = now_us + LONGEST_US
        for task in tasks:
            for machine in task.clocked:
                step, end_us = _over(machine, now_us, grace_us)
                next_us = min(next_us, end_us)
                if step > (asked := task.awaited.asked(machine)):
                    found.append((task, machine, step))
                    if machine.live:
                        self._tell_backlog(machine, step - asked)
        self.next_us = now_us if found else next_us
        return found

    def _tell_backlog(self, machine: PartitionIngest, steps: int) -> None:
        stream = machine.spec.stream
        if steps > MANY_STEPS and stream not in self._told:
            self._told.add(stream)
            log.warning("stream %s: %s", stream, backlog_sentence(steps))


def _over(machine: PartitionIngest, now_us: int, grace_us: Mapping[str, int]) -> tuple[int, int]:
    """Return the last step of a machine that is over at a time, and when the next one ends, both with `grace`."""
    clock, grace = machine.spec.clock, grace_us[machine.spec.stream]
    step = clock.last_over(now_us, grace_us=grace)
    return step, clock.end_of(step + 1) + grace


CLOCK_S = 0.05  # how late a step's end may be noticed, at most
LONGEST_US = 1_000_000  # between two looks at which steps are over
AGAIN_US = 200_000  # until the next look where a step is over whose source has no leader
NO_LEADER = -1
REOPENED_S = 60.0  # in which a task that was fenced anew is not forgotten again
LEAST_S = 0.01  # between two looks where one is due
FEW_RECORDS = 1_000  # of one partition
TOGETHER_RECORDS = 300_000  # at most: then they are taken in
REPLAYED_S = 0.1  # for which they come together where ticks are among them: a step ends when those are taken in
LEAD_S = 5.0  # before the end of a step, at most, to take in what has come together until then
REST_S = 2.0  # from which on nothing is fetched meanwhile: a fetch that was under way has ended by then
TURN_S = 0.02  # of work on one partition after the other, before anything else has its turn
FETCH_BYTES = 1 << 20  # of one partition: `getmany` drains one before it turns to the next


class IngestService(LongService):
    """Owns the source partitions that the consumer group gives to this worker.

    Args:
        specs: topic -> what each stream does with it.
        sources: what each topic was when it was held against the fingerprints; by default what it is when first seen.
        counters: where to count; its own by default.
        stops: which streams have stopped; its own by default.
        instance_id: the worker's place in the consumer group, see `agents.kafka.membership`.
        vitals: where it says what it is doing; its own by default.
        deletions: what deletes copies of routed records; its own by default.
        now_us: wall clock in microseconds since 1970 UTC.
    """

    def __init__(
        self,
        config: Config,
        specs: Mapping[str, Sequence[SourceSpec]],
        *,
        sources: Mapping[str, TopicIdentity] | None = None,
        counters: IngestCounters | None = None,
        stops: Stops | None = None,
        options: IngestOptions | None = None,
        instance_id: str | None = None,
        vitals: Vitals | None = None,
        deletions: Deletions | None = None,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        **service_settings: Any,
    ) -> None:
        super().__init__(**service_settings)
        self.counters = IngestCounters() if counters is None else counters
        self.stops = Stops.of(stream.name for stream in config.streams) if stops is None else stops
        self.partition_tasks: dict[TopicPartition, SourceTask] = {}
        self.vitals = Vitals() if vitals is None else vitals
        self._pulse = self.vitals.part("ingest")
        self._reading, self._reminder = Reading(), Reminder()
        book = next((spec.schemas for each in specs.values() for spec in each), SchemaBook())  # which all share
        self._schemas = SchemaWait(config.kafka.registry, book, self.counters, self.vitals)
        self._config = config
        self._specs = specs
        self._watch = SourceWatch(specs, sources or {})
        self._options = IngestOptions() if options is None else options
        self._deletions = Deletions(config) if deletions is None else deletions
        self._broker_clock = BrokerClock(config, now_us=now_us)
        self._step_ends = StepEnds()
        self._together_until_s = 0.0
        self._round_s = 0.0  # when what was fetched last had come together, until that is taken in
        self._took_s = LEAD_S  # to take in what had come together, the last time
        self._together_since_s, self._came = time.monotonic(), 0
        self._busy: set[TopicPartition] = set()
        self._resting: set[TopicPartition] = set()
        self._instance_id = instance_id
        self._grace_us = {stream.name: stream.time.grace_us for stream in config.streams}
        self._wanted: frozenset[TopicPartition] = frozenset()
        self._assigned = False
        self._generation = 0
        self._consumer: AIOKafkaConsumer | None = None
        self._opening: asyncio.Task[None] | None = None

    @Service.task
    async def _run(self) -> None:
        _calm_collector()
        patience_s = WORK_S + 2 * self._config.kafka.session_timeout_s  # a rebalance waits for all members
        self._consumer = consumer = self._new_consumer()
        try:
            with self._pulse.at("connects"):
                await consumer.start()
            heed(consumer._client, self.crash)
            keep_place(consumer, self.crash)
            ask_for_missing_topics(consumer)
            consumer.subscribe(sorted(self._specs), listener=_Listener(self))
            hand_out_bare_records(consumer)
            while not self.should_stop:
                await self._open_assigned(consumer)
                self._pulse.works("reads the sources" if self._pulse.ready else "joins its group", patience_s)
                asked = self._asked()
                fetched = await self._fetch(consumer, asked)
                await self._work(consumer, fetched)
                await self._catch_up(consumer, asked)
                self._schemas.go_on(consumer, self.partition_tasks)
                for source, task in list(self.partition_tasks.items()):
                    if task.due(len(self.partition_tasks)):
                        async with self._reopening(consumer, task):
                            await task.flush_if_due(len(self.partition_tasks))
                    task.leave_out_stopped()
                    if not task.machines and source in consumer.assignment():
                        consumer.pause(source)
        finally:
            self._pulse.waits("has ended")
            await finish_before_cancellation(self._leave(consumer))

    def _asked(self) -> list[TopicPartition]:
        """Return the partitions to read now: all of them or, while records come together, those that wait for the
        place where a step ends, or had many. To take in a few records costs as much as to take in hundreds.
        """
        come_together = self._pulse.ready and time.monotonic() < self._together_until_s
        return [
            source
            for source, task in self.partition_tasks.items()
            if task.awaited or source in self._busy or not come_together
        ]

    async def _fetch(
        self, consumer: AIOKafkaConsumer, asked: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Sequence[Any]]:
        """Return records of these partitions. With none to read, wait a little, but not beyond the end of a step. Once
        a fetch had room for all that was there, the next records come together for a while.
        """
        if self._round_s:
            self._took_s, self._round_s = time.monotonic() - self._round_s, 0.0
        until_end_s, most = self._until_next_end_s(), self._options.poll_records
        tasks = self.partition_tasks.values()
        self._wake(consumer, asked)
        if tasks and not asked:
            await self.sleep(min(until_end_s, max(LEAST_S, self._together_until_s - time.monotonic())))
            return {}
        poll_ms = min(self._options.poll_timeout_ms, 1 + int(1e3 * until_end_s))
        every = len(asked) == len(tasks)  # for which aiokafka is given none: each that is named is looked up
        fetched: Mapping[TopicPartition, Sequence[Any]] = await consumer.getmany(
            *(() if every else asked), timeout_ms=poll_ms, max_records=most
        )
        self._busy = {source for source, records in fetched.items() if len(records) >= FEW_RECORDS}
        came = sum(map(len, fetched.values()))
        self._came += came
        if every and came < most:
            now_s = time.monotonic()
            together_s = self._together_s(now_s - self._together_since_s)
            self._round_s = self._together_until_s
            self._together_since_s, self._came, self._together_until_s = now_s, 0, now_s + together_s
            if together_s >= REST_S:
                self._rest(consumer)
        return fetched

    def _together_s(self, since_s: float) -> float:
        """Return how long records are to come together: as long as their block would wait for them, or until shortly
        before a step ends, so that few are left for its end and none is taken in while its release is made.

        Args: since_s: seconds in which the last `self._came` records came.
        """
        tasks = self.partition_tasks.values()
        wait_s = min((task.flush_wait_s(len(tasks)) for task in tasks), default=0.0)
        most_s = min(wait_s, TOGETHER_RECORDS * since_s / max(1, self._came))
        if any(task.replayed for task in tasks):
            return min(most_s, REPLAYED_S)
        if most_s < REST_S:  # of few partitions records are taken in at little cost, and the client fetches on
            return most_s / 2
        if (now_us := self._broker_clock.bounded_us()) is None:
            return most_s
        lead_s = min(LEAD_S, 2 * self._took_s)
        # An end that is nearer is passed over: where steps end at many times, few records would come together.
        soonest_us = now_us + int(1e6 * (lead_s + most_s / 3))
        ends_us = [_over(machine, soonest_us, self._grace_us)[1] for task in tasks for machine in task.clocked]
        if not ends_us:
            return most_s
        until_s = (min(ends_us) - now_us) / 1e6 - lead_s
        return most_s if until_s > 2 * most_s else until_s / math.ceil(until_s / most_s)

    def _rest(self, consumer: AIOKafkaConsumer) -> None:
        """Fetch nothing while records come together: else the client goes on, and has the first few of each partition
        when all are asked for, which are taken in by themselves.
        """
        self._resting = consumer.assignment() - consumer.paused() - self._busy
        consumer.pause(*self._resting)

    def _wake(self, consumer: AIOKafkaConsumer, sources: Iterable[TopicPartition]) -> None:
        """Let the client fetch what is read now. A rebalance has woken all that it assigned anew."""
        woken = self._resting.intersection(sources)
        self._resting -= woken
        consumer.resume(*(woken & consumer.assignment()))

    async def _leave(self, consumer: AIOKafkaConsumer) -> None:
        await self._schemas.close()
        await self._give_up()
        give_place_up(consumer)
        await close_client(consumer)

    def _new_consumer(self) -> AIOKafkaConsumer:
        kafka = self._config.kafka
        session_ms = kafka.session_timeout_s * 1000
        return AIOKafkaConsumer(
            bootstrap_servers=kafka.bootstrap,
            group_id=self._config.topics.ingest_group,
            group_instance_id=self._instance_id,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            max_partition_fetch_bytes=FETCH_BYTES,
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=int(HEARTBEAT_S * 1000),
            rebalance_timeout_ms=session_ms + 2_000,
            **security_kwargs(kafka),
        )

    async def _open_assigned(self, consumer: AIOKafkaConsumer) -> None:
        """Make and restore the tasks of what is assigned but not owned. A rebalance meanwhile makes it all void."""
        if self._readable() <= self.partition_tasks.keys():
            self._pulse.ready = self._assigned
            return
        self._pulse.ready = False
        with self._pulse.at("restores bounds and places of what it was assigned", COMPUTE_S):
            await self._open(consumer)

    async def _open(self, consumer: AIOKafkaConsumer) -> None:
        await self._look(consumer)  # before anything of a changed topic is read, or fails because it is gone
        missing = sorted(self._readable() - self.partition_tasks.keys())
        if not missing:
            return
        generation = self._generation
        tasks = [
            SourceTask(
                self._config,
                source,
                self._specs[source.topic],
                options=self._options,
                counters=self.counters,
                stops=self.stops,
                deletions=self._deletions,
            )
            for source in missing
        ]
        restoring = raise_stray_cancellation(restore(self._config, consumer, tasks), "restoring what the ingest owns")
        opening = self._opening = asyncio.create_task(restoring)
        await asyncio.wait([opening])
        error = None if opening.cancelled() else opening.exception()
        if generation == self._generation and error is None and not opening.cancelled():
            self.partition_tasks.update(zip(missing, tasks, strict=True))
            self._step_ends.next_us = 0  # theirs may be over
            consumer.resume(*missing)
            for task in tasks:
                task.trim()  # of which a worker that ended did not come to it
            return
        for task in tasks:
            await task.close()
        if generation == self._generation and error is not None:
            raise error
        log.info("ingest: assignment changed while its partitions were opened")

    def _readable(self) -> set[TopicPartition]:
        topics = self._topics()
        return {source for source in self._wanted if source.topic in topics}

    def _topics(self) -> set[str]:
        """Return the topics that a stream still reads."""
        return {
            topic
            for topic, specs in self._specs.items()
            if not all(self.stops.has(spec.stream, part_of(spec), None) for spec in specs)
        }

    async def _work(self, consumer: AIOKafkaConsumer, fetched: Mapping[TopicPartition, Sequence[Any]]) -> None:
        """Take in what was fetched, giving way by time and not by partition: of hundreds each has a few records, and a
        turn of everything else is longer than they take.
        """
        begun = time.monotonic()
        for source, records in fetched.items():
            if time.monotonic() - begun > TURN_S:
                await asyncio.sleep(0)
                begun = time.monotonic()
            task = self.partition_tasks.get(source)
            if task is not None and records:
                async with self._reopening(consumer, task):
                    with about(role="ingest", topic=source.topic, partition=source.partition):
                        await self._pass_over(consumer, task, records[0].offset)
                        await task.take(records)
                        if self._schemas.hold(consumer, task):
                            self._resting.discard(source)
                        await task.flush_if_due(len(self.partition_tasks))
        await asyncio.sleep(0)

    @contextlib.asynccontextmanager
    async def _reopening(self, consumer: AIOKafkaConsumer, task: SourceTask) -> AsyncIterator[None]:
        """Let a task commit. Where the cluster has forgotten its transactional id, it is made anew as after an
        assignment: fenced, and restored from what is on the topics. One that has just been is not.
        """
        try:
            yield
        except ForgottenIdError:
            if time.monotonic() - task.fenced_s < REOPENED_S:
                raise
            log.info("ingest of %s: its transactional id was forgotten, as nobody had used it: it is fenced anew", task)
            if self.partition_tasks.get(task.source) is task:
                del self.partition_tasks[task.source]
                consumer.pause(task.source)
            await task.close()

    async def _pass_over(self, consumer: AIOKafkaConsumer, task: SourceTask, position: int) -> None:
        async def look() -> None:
            self._pulse.goes_on()  # a question is asked again for as long as the cluster is away
            await self._look(consumer)

        await pass_over(consumer, task, position, look=look)

    @Service.task
    async def _look_at_sources(self) -> None:
        pulse = self.vitals.part("watch of the sources")
        pulse.ready = True
        while not self.should_stop:
            pulse.waits("until the next look")
            await self.sleep(LOOK_S)
            if self._consumer is not None:
                with pulse.at("looks at the sources"):
                    await self._look(self._consumer)
                    with contextlib.suppress(KafkaError, OSError, TimeoutError):
                        await self._see_what_waits(self._consumer)

    async def _see_what_waits(self, consumer: AIOKafkaConsumer) -> None:
        """Note how far each source is taken in, and whether one is not though records wait there."""
        tasks = {source: task for source, task in self.partition_tasks.items() if task.machines and not task.closed}
        led = _led(consumer, tasks)
        for topic, partition in sorted(tasks.keys() - set(led)):
            if self._reminder.due(text := f"{topic}-{partition} has no leader: steps of what reads it wait"):
                log.warning("WAITING: %s. Fix: see to the brokers that hold it.", text)
        tasks = {source: tasks[source] for source in led}
        async with asyncio.timeout(GIVE_UP_S):
            # Records behind a transaction that hangs wait, too: steps wait for them, and lag is where people look.
            ends = await ends_of_everything(consumer, sorted(tasks)) if tasks else {}
        places = {(each.topic, each.partition): Reach(tasks[each].next_offset, end) for each, end in ends.items()}
        self.vitals.lags["ingest"] = places
        held = self._schemas.held(tasks)
        self.vitals.caught_up["ingest"] = self._reading.caught_up(places, held)
        self.vitals.fault("ingest", "; ".join(self._reading.look(places, held)) or None)

    async def _look(self, consumer: AIOKafkaConsumer) -> None:
        """Stop what reads a changed source, by itself. Raises: SourceError if nothing is left to do in this job."""
        for topic, change in (await self._watch.look(consumer, self._topics())).items():
            if topic not in self._topics():
                continue  # another look was faster
            tasks = [self.partition_tasks.pop(source) for source in list(self.partition_tasks) if source.topic == topic]
            for task in tasks:
                task.closed = True
            consumer.pause(*(source for source in consumer.assignment() if source.topic == topic))
            try:
                for spec in self._specs[topic]:
                    if not self.stops.has(spec.stream, part_of(spec), None):
                        self.stops.add(spec.stream, part_of(spec), None, change)
            finally:
                await finish_before_cancellation(_closed(tasks))

    @Service.task
    async def _clock(self) -> None:
        """Follow the wall clock: a step that is over is ticked where the partition ended when that was noticed. Beside
        the main loop, whose work on fetched records depends on how many people send: that must not decide where a tick
        stands, or a flood would draw other people's late events into an earlier step.
        """
        pulse = self.vitals.part("clock of the steps")
        pulse.ready = True
        while not self.should_stop:
            pulse.works("places the ends of steps")
            await self._place_ticks()
            await self.sleep(min(CLOCK_S, self._until_next_end_s()))

    def _until_next_end_s(self) -> float:
        """Return the time until a step ends here whose tick has no place yet; a moment where one is over, longer where
        its place is long in coming. At most a second.
        """
        now_us = self._broker_clock.bounded_us()
        left_s = 1.0 if now_us is None else (self._step_ends.next_us - now_us) / 1e6
        return min(1.0, max(LEAST_S, left_s, -left_s / 10))

    @Service.task
    async def _compare_clocks(self) -> None:
        """Compare clocks. Step ends wait for the first answer: until then nobody knows how wrong this clock is."""
        try:
            while not self.should_stop:
                await self._broker_clock.compare()
                self.counters.clock_ahead_s = self._broker_clock.ahead_s
                await self.sleep(ASK_S if self._broker_clock.ahead_s is not None else 1.0)
        finally:
            await self._broker_clock.close()

    async def _place_ticks(self) -> None:
        consumer, now_us = self._consumer, self._broker_clock.bounded_us()
        # A clock that was set back by more than a second is looked at again.
        if consumer is None or now_us is None or 0 < self._step_ends.next_us - now_us <= LONGEST_US:
            return
        due = self._step_ends.due(self.partition_tasks.values(), now_us, grace_us=self._grace_us)
        sources = {task.source for task, _, _ in due}
        led = sorted(_led(consumer, sources))
        if len(led) < len(sources):
            self._step_ends.next_us = now_us + AGAIN_US
        if not led:
            return
        try:
            async with asyncio.timeout(GIVE_UP_S):
                # Open transactions included: whoever keeps one open delays a step, and moves nobody's event out of it.
                ends = await ends_of_everything(consumer, led)
        except TimeoutError:
            return  # asked again at once; the look at the sources sees whether one is gone
        for task, machine, step in due:
            if not task.closed and task.source in ends:
                task.awaited.put(machine, step, ends[task.source])

    async def _catch_up(self, consumer: AIOKafkaConsumer, asked: Sequence[TopicPartition]) -> None:
        """Follow reading where it meets no record: ticks that have their place, offsets that hold nothing."""
        for source in asked:
            task = self.partition_tasks.get(source)
            if task is None or task.closed or source not in consumer.assignment():
                continue
            try:
                async with asyncio.timeout(1.0):
                    position = await consumer.position(source)
            except TimeoutError:
                continue  # Kafka's consumer is finding its place again
            await self._pass_over(consumer, task, position)
            if task.awaited and not task.closed:
                task.reached(position)

    async def revoked(self) -> None:
        """Give up all partitions, as Kafka takes them in a rebalance and assigns again what stays."""
        REBALANCES.labels("ingest").inc()
        await self._give_up()

    def assigned(self, sources: frozenset[TopicPartition]) -> None:
        """Opened by the main loop; until then nothing flows."""
        assert self._consumer is not None
        self._wanted = sources
        self._assigned = True
        self._generation += 1
        self._consumer.pause(*sources)

    async def _give_up(self) -> None:
        """Finish what is under way, open nothing more, and own nothing."""
        self._wanted, self._resting = frozenset(), set()
        self._assigned = self._pulse.ready = False
        self._generation += 1
        if self._opening is not None:
            # A fence that is still under way would hit whoever is given the partition next.
            self._opening.cancel()
            await asyncio.wait([self._opening])
        tasks, self.partition_tasks = list(self.partition_tasks.values()), {}
        for task in tasks:
            task.closed = True
        await _closed(tasks)


async def _closed(tasks: Sequence[SourceTask]) -> None:
    for task in tasks:
        await task.close()


def _led(consumer: Any, sources: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return those that have a leader: who asks for one that has none waits for it, and so would all others."""
    return [source for source in sources if consumer._client.cluster.leader_for_partition(source) != NO_LEADER]


def _calm_collector() -> None:
    """Keep Python's cyclic collector from walking the whole program for every few hundred records that come and go.

    Records hold no cycles and are freed at once all the same; measured: 3.2 to 2.4 us of CPU an event.
    """
    gc.collect()  # or what the start has left behind would stay for good
    gc.freeze()
    gc.set_threshold(200_000, 20, 50)


class _Listener(ConsumerRebalanceListener):
    def __init__(self, service: IngestService) -> None:
        self._service = service

    async def on_partitions_revoked(self, revoked: Any) -> None:
        await self._service.revoked()

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self._service.assigned(frozenset(assigned))

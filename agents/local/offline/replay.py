"""`replay`: a file into the source (and audit) topic, each row exactly once, with the ticks that close public steps.

One transactional producer per stream; a transaction holds a chunk of rows and one progress tick per partition, see
`agents.protocol.replay`. So what is committed says how far the replay has come, and a restart after any crash goes
on behind it: first it fences the producer before it, then it reads the last ticks, then it writes. Going live is a
transaction of its own behind all others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aiokafka.errors import KafkaError, MessageSizeTooLargeError, ProducerFenced

from agents.kafka.broker_clock import BrokerClock
from agents.kafka.clients import close_client, fenced_producer, tail
from agents.kafka.fingerprint import fingerprint_now, stored_fingerprints
from agents.kafka.topics import existing_topics
from agents.local.offline.files import FileError, Row, RowFile, rows_for
from agents.local.offline.seen import RowsSeen, check_fit, first_rows
from agents.protocol.clock import MANY_STEPS, StepClock, time_for
from agents.protocol.fingerprint import OF_WORKERS
from agents.protocol.formats.build import ROWS
from agents.protocol.formats.reader import paths_of
from agents.protocol.partitioner import home_partition
from agents.protocol.replay import (
    ReplayChunk,
    ReplayError,
    ReplayPlan,
    check_writable,
    clock_of,
    plan_of,
    progress_of,
    resumed,
    steps_of,
    times_of,
    until_of,
    without_added,
)
from schemas.blocks import Block
from schemas.config import Config, Kafka, Stream
from schemas.errors import BrokerError, FingerprintError, OutcomeUnknownError, WireError
from schemas.events import TICK_HEADER

MEANWHILE_S = 60.0


class StartCheck:
    """Compares streams with their fingerprints before rows are written, in all that a replay shares with workers.

    Ticks stand where steps begin by the configuration, the version and the time zone database of this machine, and rows
    where users are by its partitioner. Workers go by those with which the stream was started; rows written by others
    would be late, in another step or on another partition, and nobody would be told.
    A stream that was never started has none: there is nothing to compare with, until a worker starts it.

    Attributes:
        unstarted: streams of which that was so at the last check.
    """

    def __init__(self, config: Config, streams: Sequence[Stream]) -> None:
        self._config, self._streams = config, tuple(streams)
        self.unstarted = tuple(stream.name for stream in self._streams)
        self._checked = 0.0

    async def check(self) -> None:
        """Raises: FingerprintError with every field and its fix; BrokerError; WireError."""
        topic = self._config.topics.fingerprints
        read = {name for stream in self._streams for name in (stream.source, self._config.read_by(stream))}
        found = await existing_topics(self._config.kafka, sorted({topic, *read}))
        stored = await stored_fingerprints(self._config) if topic in found else {}
        for stream in self._streams:
            if (known := stored.get(stream.name)) is not None and {
                stream.source,
                self._config.read_by(stream),
            } <= found.keys():
                now = fingerprint_now(stream, self._config, found, None, insecure=False, stored=known)
                known.check(now, apart_from=OF_WORKERS)
        self.unstarted = tuple(stream.name for stream in self._streams if stream.name not in stored)
        self._checked = time.monotonic()

    async def check_again(self) -> None:
        """Check again where a worker may have started one of the streams since. Raises: as `check`."""
        if not self.unstarted:
            return
        try:
            await self.check()
        except FingerprintError as error:
            raise FingerprintError(
                f"{error}\n  A worker has started it while this replay was under way, and what was written does not "
                "fit it. Fix: replay into a new topic, for a new stream under another name."
            ) from None

    async def check_meanwhile(self) -> None:
        """Check again where `MEANWHILE_S` have passed. Raises: as `check`."""
        if time.monotonic() - self._checked > MEANWHILE_S:
            await self.check_again()


@dataclass(frozen=True, slots=True)
class Prospect:
    """What going live will do.

    Attributes:
        streams: all that go live: those that are replayed from these topics.
        history: last step of the history, -1 for none. over: last step that is over by now.
        doubts: why it is probably not meant; empty where it may be.
    """

    streams: tuple[str, ...]
    history: int
    over: int
    doubts: tuple[str, ...] = ()

    def __str__(self) -> str:
        first, between = max(self.history, self.over) + 1, max(0, self.over - self.history)
        return (
            f"{' and '.join(self.streams)}: history ends with step {self.history}; {between:,} steps after it are "
            f"over and are released first, empty or not, in about {time_for(between)}; from step {first} on steps "
            "end by the wall clock, for good"
        )


class GoingLive:
    """Says what it means to go live, by the brokers' time, before anything is written.

    Where history ends and the present begins there is a stretch of steps that nobody replays: they are over, and each
    is released. What is over is said by the record with which the partitions go live, by the brokers' time.

    Args: topics: source (and audit) topic of the replayed stream.
    Attributes: streams: all that go live together.
    Raises: ReplayError, if streams that would go live together do not count steps alike: one record says what is over.
    """

    def __init__(self, config: Config, stream: Stream, topics: Mapping[str, int]) -> None:
        self._config = config
        self.streams: Sequence[Stream] = [
            each for each in config.streams if each.time.clock == "replay" and {each.source, each.audit} & topics.keys()
        ]
        self._steps = steps = StepClock.from_stream(stream)
        for each in self.streams:
            if each.time.steps != steps.steps:
                raise ReplayError(
                    f"streams {stream.name} and {each.name} are replayed from the same topic and have another start or "
                    "step, so what is over for one is not for the other. Fix: give each a source of its own."
                )
        self._grace_us = max(each.time.grace_us for each in self.streams)
        self._clock = BrokerClock(config, now_us=lambda: time.time_ns() // 1000)

    async def prospect(self, history: int, *, yes: bool) -> Prospect:
        """Return what going live will do.

        Args: history: its last step. yes: doubts have been answered.

        Raises: ReplayError, if it makes no sense, or is probably not meant and nobody has said so; BrokerError.
        """
        now_us = await self._now_us()
        if history >= 0 and self._steps.end_of(history) > now_us:
            raise ReplayError(
                f"the history ends with step {history}, which is not over yet: live events would join steps of the "
                "future. Fix: give an --until that has passed, or check format and start in [streams.time]."
            )
        over = self._steps.last_over(now_us, grace_us=self._grace_us)
        doubts = []
        if (between := over - history) > MANY_STEPS:
            doubts.append(
                f"{between:,} steps are over since the history ended, and each is released, empty or not, which takes "
                f"about {time_for(between)}"
            )
        doubts += [
            f"stream {each.name} measures nothing after its options.horizon of {each.horizon:,} steps, and "
            f"{over + 1:,} are over"
            for each in self.streams
            if each.horizon is not None and each.horizon <= over + 1
        ]
        if doubts and not yes:
            raise ReplayError(
                f"going live is probably not what is meant: {'; and '.join(doubts)}. Fix: look at the end of the "
                "file, and at start, step and horizon in the configuration; add --yes if it is meant."
            )
        return Prospect(tuple(each.name for each in self.streams), history, over, tuple(doubts))

    async def over(self) -> int:
        """Return the last step that is over. Raises: BrokerError."""
        return self._steps.last_over(await self._now_us(), grace_us=self._grace_us)

    async def close(self) -> None:
        await self._clock.close()

    async def _now_us(self) -> int:
        kafka, name = self._config.kafka, self._config.topics.clock
        there = name in await existing_topics(kafka, [name])
        if there:
            await self._clock.compare()
        if not there or (now_us := self._clock.bounded_us()) is None:
            raise BrokerError(
                f"topic {name} does not tell the brokers' time, without which no live step ends. Fix: privstream "
                "topics CONFIG --create, and see that workers may write to it (privstream topics CONFIG --acls)."
            )
        return now_us


async def has_gone_live(config: Config, stream: Stream) -> bool:
    """Return whether the job says so of a stream that is replayed from the same topics, where what they said of it may
    be deleted by now. Raises: BrokerError.
    """
    topics = config.topics
    if topics.blocks not in await existing_topics(config.kafka, [topics.blocks]):
        return False
    mine = {stream.source, stream.audit} - {None}
    for each in config.streams:
        if each.time.clock == "replay" and {each.source, each.audit} & mine and await _is_live(config, each.name):
            return True
    return False


async def _is_live(config: Config, stream: str) -> bool:
    """Return whether the newest block of a stream says so."""
    place = (config.topics.blocks, home_partition(stream, config.kafka.partitions))
    async with tail(config.kafka, [place], wait=False) as end:
        newest = await end.newest(place, lambda record: record.key == stream.encode())
    try:
        return newest is not None and Block.decode(newest.value).live_from is not None
    except WireError:
        return False


CHUNK_ROWS = 8192
PACE_S = 0.1  # a paced replay looks so often for rows that are due


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did: rows written now, rows found written, last closed step, rows from `until` on; the first step
    that is not of the history, if it went live; and streams that no worker had started by then, see `StartCheck`.
    """

    stream: str
    rows: int
    rows_before: int
    step: int
    left_out: int
    seconds: float
    live_from: int | None = None
    unstarted: tuple[str, ...] = ()


async def replay(
    config: Config,
    stream: Stream,
    path: Path,
    *,
    speed: float | None = None,
    limit: int | None = None,
    until: str | None = None,
    append: bool = False,
    chunk_rows: int = CHUNK_ROWS,
    then_live: bool = False,
    yes: bool = False,
    allow_refused: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    on_prospect: Callable[[Prospect], None] = lambda prospect: None,
    on_rows_seen: Callable[[RowsSeen], None] = lambda seen: None,
    on_unstarted: Callable[[tuple[str, ...]], None] = lambda streams: None,
) -> Replayed:
    """Write what is not yet written.

    Args:
        speed: event seconds per second; None is as fast as possible.
        limit: only the first rows of the file; the step of the last one stays open.
        until: public end, a local time of the stream at which a step begins; None takes the end of the file for public.
        append: this file comes after another one that was replayed before.
        chunk_rows: most rows in one transaction.
        then_live: behind the history the source goes live, once and for all. yes: also where that is doubtful.
        allow_refused: also where fewer than half of the next rows can be used.
        progress: called after each commit with the rows that are done and the rows of the file (an estimate for CSV).
        on_prospect: called with what going live will do, before anything is written.
        on_rows_seen: called with what becomes of the next rows, before anything is written.
        on_unstarted: called before that with the streams that no worker has started yet: nothing says whether they fit.
    Raises: FileError, ReplayError, BrokerError, WireError; FingerprintError where a stream was started with something
        else than it is configured with here.
    """
    started = time.monotonic()
    check_writable(stream)
    clock = clock_of(stream)
    if then_live and limit is not None:
        raise ReplayError("--limit leaves a step open, and nothing live may join it. Fix: end by --until instead.")
    end = None if until is None else until_of(stream, clock, until)
    file = rows_for(path, stream)
    summary = await asyncio.to_thread(file.summary)
    if summary.rows == 0 and end is None and not then_live:
        raise FileError.empty(path)  # it closes no step
    topics = await _topics(config.kafka, stream)
    going_live = GoingLive(config, stream, topics) if then_live else None
    start = StartCheck(config, [stream] if going_live is None else going_live.streams)
    await start.check()
    if start.unstarted:
        on_unstarted(start.unstarted)
    producer = await fenced_producer(config.kafka, f"{config.job.name}-replay-{stream.name}")
    try:
        # Only now: what a former replay had under way is settled, and the partitions end where they end.
        ticks = await last_ticks(config.kafka, topics, history_may_be_gone=append)
        if None in ticks and append and await has_gone_live(config, stream):
            raise ReplayError(
                f"stream {stream.name} has gone live: rows of the past would all be late. Fix: new stream."
            )
        so_far = progress_of(without_added(ticks, topics))
        begin = resumed(so_far, source=summary.digest, append=append, then_live=then_live)
        live = begin.live_from is not None
        plan = plan_of(stream, topics, begin, until=None if live else end)  # refuses an `until` that is over
        if going_live is not None and not live:
            history = end - 1 if end is not None else await asyncio.to_thread(last_step, file, stream, clock)
            on_prospect(await going_live.prospect(max(begin.step, history), yes=yes))
        total = summary.rows if limit is None else min(summary.rows, limit)
        progress(begin.row, total)
        left = None if limit is None else max(limit - begin.row, 0)
        if not live:
            await asyncio.to_thread(look_ahead, stream, file, clock, plan, left)
            look = first_rows if allow_refused else check_fit
            on_rows_seen(await asyncio.to_thread(look, stream, file, skip=begin.row))
        feed = _Feed(stream, file, clock, plan, speed)
        # Partitions that were added behind the last tick have none: at its end a replay closes its steps there, too.
        committed = None if any(ticks) and None in ticks else begin
        batches = file.batches(skip=begin.row, batch_rows=chunk_rows)
        for rows in [] if live else _parts(batches, left):
            async for chunk in feed.end() if rows is None else feed.chunks(rows):
                if chunk.progress != committed:
                    await start.check_meanwhile()
                    await _commit(producer, chunk)
                    committed = chunk.progress
                progress(plan.row + plan.left_out, total)
        await start.check_again()
        if going_live is not None:  # where it is live already, too: for streams that were added since
            await _commit(producer, plan.go_live(await going_live.over()))
    except ProducerFenced:
        raise ReplayError(
            f"another replay of stream {stream.name} has taken over, or the broker took longer for a transaction than "
            "it allows. Fix: run one at a time, and run the same command again; it goes on behind the last commit."
        ) from None
    except MessageSizeTooLargeError:
        raise ReplayError(
            f"a row is larger than topic {stream.source} takes. Fix: raise max.message.bytes of the topic, or shorten "
            "the row; then run the same command again."
        ) from None
    except (KafkaError, OutcomeUnknownError) as error:
        raise BrokerError(
            f"the replay was cut off: {type(error).__name__}. Fix: run the same command again; it goes on behind the "
            "last commit."
        ) from error
    finally:
        await close_client(producer)
        if going_live is not None:
            await going_live.close()
    written, seconds = plan.row - begin.row, time.monotonic() - started
    return Replayed(stream.name, written, begin.row, plan.step, plan.left_out, seconds, plan.live_from, start.unstarted)


def _parts(batches: Iterator[list[Row]], left: int | None) -> Iterator[list[Row] | None]:
    """Yield batches of rows, so many rows where that is said; None behind the file's very last row."""
    for rows in batches:
        if left is not None:
            if len(rows) > left:
                yield rows[:left]
                return
            left -= len(rows)
        yield rows
    yield None


@dataclass(slots=True)
class _Feed:
    """Hands out chunks when they are due: at once, or at `speed` event seconds per second."""

    stream: Stream
    file: RowFile
    clock: StepClock
    plan: ReplayPlan
    speed: float | None
    _origin: tuple[float, int] | None = field(default=None, init=False)

    async def chunks(self, rows: list[Row]) -> AsyncIterator[ReplayChunk]:
        times = times_of(self.stream).parse(rows)
        steps = steps_of(self.clock, times)
        if self.speed is None:
            yield self.plan.chunk(rows, steps)
            return
        # Nobody waits for a row that is left out.
        waits = [None if self.plan.leaves_out(step) else time for time, step in zip(times, steps, strict=True)]
        at = 0
        while at < len(rows):
            due_us = self._due_us(waits[at])
            until = at
            # A row whose time cannot be read goes with the row before it.
            while until < len(rows) and ((wait := waits[until]) is None or (due_us is not None and wait <= due_us)):
                until += 1
            if until > at:
                yield self.plan.chunk(rows[at:until], steps[at:until])
                at = until
            elif due_us is not None and (over := self.clock.last_over(due_us, grace_us=0)) > self.plan.step:
                # Public time passes even where nothing happens.
                yield self.plan.close(over)
            await asyncio.sleep(PACE_S)

    async def end(self) -> AsyncIterator[ReplayChunk]:
        """Close, behind the last row, what the end of the file closes; where that is a time, when it has come."""
        plan = self.plan
        if plan.until is None:
            if plan.last < 0 and plan.row:
                # A replay before this one wrote the last row, and maybe not the tick behind it.
                plan.last = await asyncio.to_thread(last_step, self.file, self.stream, self.clock)
        elif self.speed is not None:
            while plan.step < plan.until - 1:
                due_us = self._due_us(self.clock.end_of(plan.step))
                over = min(self.clock.last_over(due_us, grace_us=0), plan.until - 1) if due_us is not None else -1
                if over > plan.step:
                    yield plan.close(over)
                await asyncio.sleep(PACE_S)
        yield plan.finish()

    def _due_us(self, first: int | None) -> int | None:
        """Return the event time that is now; the first readable row starts the clock. None before any."""
        assert self.speed is not None
        now = time.monotonic()
        if self._origin is None:
            if first is None:
                return None
            self._origin = (now, first)
        return self._origin[1] + int((now - self._origin[0]) * self.speed * 1e6)


def look_ahead(stream: Stream, file: RowFile, clock: StepClock, plan: ReplayPlan, left: int | None) -> None:
    """Pass over all rows that come next, so that what is wrong with one is said before any is written: behind rows of a
    file that is then put right nothing could go on, since it is another file, and their users have paid for them.

    Args: left: how many rows; None: all. Raises: FileError, ReplayError.
    """
    ahead, times = replace(plan, ahead=True), times_of(stream)
    columns = file.columns()
    if columns and times.mapping is None:
        field = times.field if times.field in columns else paths_of(ROWS, [times.field])[0].parts[0]
        file = replace(file, only=frozenset((field,)))
    for rows in _parts(file.batches(skip=plan.row, batch_rows=CHUNK_ROWS), left):
        if rows is not None:
            ahead.pass_over(steps_of(clock, times.parse(rows)))


def last_step(file: RowFile, stream: Stream, clock: StepClock) -> int:
    """Return the largest step of a row of the file, -1 for none. Reads all of it."""
    times = times_of(stream)
    steps = (step for rows in file.batches() for step in steps_of(clock, times.parse(rows)) if step is not None)
    return max(steps, default=-1)


async def _commit(producer: Any, chunk: ReplayChunk) -> None:
    """Write all of the chunk, or nothing of it."""
    async with producer.transaction():
        waiting = []
        for (topic, partition), records in chunk.records.items():
            batch = producer.create_batch()
            for record in records:
                # None where the batch is full: then it goes, and the record is the first of the next one.
                if batch.append(key=record.key, value=record.value, timestamp=None, headers=record.headers) is None:
                    waiting.append(await producer.send_batch(batch, topic, partition=partition))
                    batch = producer.create_batch()
                    batch.append(key=record.key, value=record.value, timestamp=None, headers=record.headers)
            waiting.append(await producer.send_batch(batch, topic, partition=partition))
        for sent in waiting:
            await sent


async def _topics(kafka: Kafka, stream: Stream) -> dict[str, int]:
    """Return the partitions of the topics that rows go to. Raises: BrokerError if one does not exist."""
    wanted = [topic for topic in (stream.source, stream.audit) if topic is not None]
    fix = "create it, for example with privstream topics CONFIG --create --source-partitions 4"
    found = await existing_topics(kafka, wanted, fix=fix)
    return {topic: found[topic].partitions for topic in wanted}


async def last_ticks(
    kafka: Kafka, topics: Mapping[str, int], *, history_may_be_gone: bool = False
) -> list[bytes | None]:
    """Return the last committed tick of every partition, None where there never was one.

    Raises: BrokerError; ReplayError if retention may have deleted the tick: then rows could be written twice.
    """
    tps = [(topic, partition) for topic, count in topics.items() for partition in range(count)]
    async with tail(kafka, tps) as end:
        records = [await end.newest(tp, lambda record: tick_of(record) is not None) for tp in tps]
        for (topic, partition), record in zip(tps, records, strict=True):
            if record is None and end.begins[topic, partition] > 0 and not history_may_be_gone:
                raise ReplayError(
                    f"topic {topic}, partition {partition} has lost its first records and holds no tick, so nobody can "
                    "tell which rows were written. Fix: replay into a new topic with retention.ms=-1, or add --append "
                    "to write the whole file behind what was there."
                )
    return [None if record is None else tick_of(record) for record in records]


def tick_of(record: Any) -> bytes | None:
    """Return the tick header of a Kafka record."""
    values = [value for name, value in record.headers if name == TICK_HEADER]
    return values[-1] if values else None

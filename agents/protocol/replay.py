"""What a replay writes: which record of a file goes where, and which tick comes after which row. No broker in sight.

Rows come in order of their steps. Before the first row of a later step, every partition of every topic gets a tick that
closes the steps before it. So each tick stands exactly at its public boundary, whatever single row is there or is not,
and that is why a row whose step is closed is refused: written, it would be in another step because of other rows. Each
chunk ends with one progress tick per partition: it repeats the last closed step and names the next row, so a chunk
written in one transaction is either wholly there, and says so, or not at all.

The file ends at the public time `until`: rows from the first one at or after it on are left out, and every step before
it is closed. Without one, the end of the file is taken as public: its last row's step is the last to be closed.

Behind the last row a replay can go live, once and for all: the last record of every partition says so, and closes what
is over by the clock there and then, so that no worker's speed has a part in where that stands. What follows it is
closed by the wall clock; no row and no tick is written behind it.

The plan is a function of the rows and of where it starts: however the rows are cut into chunks, and wherever a replay
broke off, the same rows get the same keys, partitions and steps.

When a row happened, which step that is and where it belongs is read with the very code of ingest, because ticks must
stand where ingest expects them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
import numpy as np

from agents.protocol.clock import StepClock
from agents.protocol.formats.build import ROWS
from agents.protocol.formats.contract import UnreadableError
from agents.protocol.formats.mapping import FieldMap
from agents.protocol.formats.reader import ABSENT, paths_of
from agents.protocol.formats.values import typed
from agents.protocol.ingest.times import TimeParser
from agents.protocol.partitioner import Partitioner, partitions_of
from agents.protocol.userhash import IdBytes
from schemas.config import Stream
from schemas.errors import PrivstreamError, RecordError
from schemas.events import LARGEST_JUMP, TICK_HEADER, encode_going_live, encode_tick, read_tick
from schemas.steps import epoch_us, instant
from schemas.topics import TopicAndPartition

Row = Mapping[str, Any] | bytes
"""The fields of an event; or what is none, as it stands in the file: written like that, ingest refuses it by itself."""
Place = Callable[[Sequence[Row], int, int], tuple[Sequence[bytes | None], Sequence[int]]]
"""`(rows, number of the first, partitions) -> (keys, partitions)`, one of each for every row and by that row alone."""


class ReplayError(PrivstreamError):
    """The file cannot be replayed into these topics as asked. Names rows by number, never by content."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One record to write. `tick` is the value of the tick header; a tick has neither key nor value."""

    key: bytes | None
    value: bytes | None
    tick: bytes | None = None

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        return [] if self.tick is None else [(TICK_HEADER, self.tick)]


@dataclass(frozen=True, slots=True)
class ReplayChunk:
    """The records that one transaction writes, all of it or nothing: in order by topic and partition. It ends at
    `progress`.
    """

    records: Mapping[TopicAndPartition, Sequence[Planned]]
    progress: Progress
    rows: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a replay has come, as the last tick of every partition says.

    Attributes:
        step: last closed step, -1 before any.
        row: first row of the file that is not yet written.
        source: digest of the file, empty before any.
        live_from: first step after the history, once the partitions have gone live.
    """

    step: int = -1
    row: int = 0
    source: str = ""
    live_from: int | None = None


@dataclass(slots=True)
class ReplayPlan:
    """Turns rows into chunks. `step` and `row` say where it is.

    Attributes:
        topics: topic -> partitions. Each topic gets every row and every tick.
        place: see `Place`.
        source: digest of the file.
        until: first step that is not replayed, public; None where the end of the file is.
        time_field: what the file must be sorted by, for messages. written: whether chunks are; they are not where a
            replay is tried without Kafka, as `simulate` does, and then messages have other advice. ahead: whether rows
            are only looked at, before any is written.
        last: largest step of a row so far, -1 before any. After a restart: of a row since then.
        left_out: rows so far from the first one at or after `until` on.
        live_from: first step after the history, once the partitions have gone live.
    """

    topics: Mapping[str, int]
    place: Place
    source: str
    step: int = -1
    row: int = 0
    until: int | None = None
    time_field: str = "time"
    written: bool = True
    ahead: bool = False
    last: int = -1
    left_out: int = 0
    live_from: int | None = None

    def __post_init__(self) -> None:
        if self.until is not None and self.step >= self.until:
            raise ReplayError(
                f"steps to {self.step} are closed already, and --until is the start of step {self.until}. Fix: give a "
                "later --until, or replay into new topics."
            )

    def chunk(self, rows: Sequence[Row], steps: Sequence[int | None]) -> ReplayChunk:
        """Return the records of the next rows, and their ticks.

        Args:
            steps: of each row, by its event time; None where that cannot be read, below 0 before the stream's start.
        Raises: ReplayError, and nothing has changed, if a row's step is closed by then or lies more than LARGEST_JUMP
            steps ahead.
        """
        kept = self._kept(steps)
        self.left_out += len(steps) - kept
        if kept < len(steps):
            rows, steps = rows[:kept], steps[:kept]
        written: dict[TopicAndPartition, list[Planned]] = {
            (topic, partition): [] for topic, count in self.topics.items() for partition in range(count)
        }
        places = [(topic, *self.place(rows, self.row, count)) for topic, count in self.topics.items()]
        for index, (row, step) in enumerate(zip(rows, steps, strict=True)):
            if step is not None and step >= 0:
                self.last = max(self.last, step)
                if step > self.step + 1:
                    self.step = step - 1
                    self._tick(written)
            value = row if isinstance(row, bytes) else msgspec.json.encode(row)
            for topic, keys, partitions in places:
                written[topic, partitions[index]].append(Planned(keys[index], value))
            self.row += 1
        self._tick(written)
        return ReplayChunk(written, self.progress, len(rows))

    def pass_over(self, steps: Sequence[int | None]) -> None:
        """Come behind the next rows without their records. Raises: ReplayError, where `chunk` would."""
        kept = self._kept(steps)
        self.left_out += len(steps) - kept
        self.row += kept
        self.last = max([self.last, *(step for step in steps[:kept] if step is not None)])
        self.step = max(self.step, self.last - 1)

    def close(self, step: int) -> ReplayChunk:
        """Close every step up to `step`: public time has passed it and no row of it is left."""
        self.step = max(self.step, step)
        return self.chunk([], [])

    def finish(self) -> ReplayChunk:
        """Close every step before `until`, or else that of the last row, at the true end of the file.

        Raises: ReplayError if `until` lies more than LARGEST_JUMP steps ahead.
        """
        if self.until is None:
            return self.close(self.last)
        if self.until - self.step > LARGEST_JUMP:
            raise ReplayError(
                f"--until lies {self.until - self.step} steps after the last closed one. Fix: check its year, and "
                "time.start and time.step in the configuration."
            )
        return self.close(self.until - 1)

    def go_live(self, over: int) -> ReplayChunk:
        """Return the last record of every partition, behind the history: from there on the wall clock closes steps.

        Args: over: last step that is over, public; closed there with what nobody has closed before it.
        """
        self.live_from = self.step + 1 if self.live_from is None else self.live_from
        self.step = max(self.step, over)
        value = encode_going_live(self.step, live_from=self.live_from, row=self.row, source=self.source)
        last = Planned(None, None, value)
        places = [(topic, partition) for topic, count in self.topics.items() for partition in range(count)]
        return ReplayChunk({place: [last] for place in places}, self.progress, 0)

    def leaves_out(self, step: int | None) -> bool:
        """Return whether a row of this step is at or after the public end."""
        return step is not None and self.until is not None and step >= self.until

    @property
    def progress(self) -> Progress:
        return Progress(self.step, self.row, self.source, self.live_from)

    def _kept(self, steps: Sequence[int | None]) -> int:
        """Check the next rows, and return how many are written: those before the first one at or after `until`."""
        closed, kept, ended = self.step, 0, self.left_out > 0
        for number, step in enumerate(steps, self.row + self.left_out + 1):
            if self.leaves_out(step):
                ended = True
            elif step is not None and step >= 0:
                if ended or step <= closed:
                    raise ReplayError(self._too_late(number))
                if step - closed > LARGEST_JUMP:
                    raise ReplayError(
                        f"row {number} of the file lies {step - closed} steps after the row before it. Fix: check "
                        "time.format, time.start and time.step in the configuration, and the row; rows must be sorted "
                        f"by {self.time_field}."
                    )
                closed = max(closed, step - 1)
            kept += not ended
        return kept

    def _too_late(self, row: int) -> str:
        closed = "a row before it, by --until or by what was replayed before" if self.written else "a row before it"
        told = (
            f"row {row} of the file comes too late: its step is closed by {closed}, and if it moved to another step, "
            f"one row could move other people's. Fix: sort the file by {self.time_field}, as times and not as texts"
        )
        if not self.written:
            return f"{told}; replay would refuse it, too."
        if self.ahead:
            return f"{told}; with --append, start behind the steps that are closed. Nothing was written."
        return (
            f"{told}. What was replayed in part needs new topics; with --append, start behind the steps that are "
            "closed."
        )

    def _tick(self, written: Mapping[TopicAndPartition, list[Planned]]) -> None:
        tick = Planned(None, None, encode_tick(self.step, row=self.row, source=self.source))
        for records in written.values():
            records.append(tick)


def progress_of(ticks: Iterable[bytes | None]) -> Progress:
    """Return where a replay goes on, from the last committed tick of every partition of its topics; None where there is
    none.

    Raises: ReplayError if they do not agree: then these topics were not written by one replay.
    """
    try:
        found = {Progress() if tick is None else Progress(*read_tick(tick)) for tick in ticks}
    except RecordError:
        raise ReplayError(
            "a tick in the source topics cannot be read. Fix: replay into topics that only `privstream replay` ticks."
        ) from None
    if len(found) > 1:
        raise ReplayError(
            "the partitions of the source (and audit) topics end with different ticks, so they were not written by one "
            "replay, or a topic was added since. Fix: replay into new topics."
        )
    return found.pop() if found else Progress()


def without_added(ticks: Sequence[bytes | None], topics: Mapping[str, int]) -> list[bytes | None]:
    """Return the ticks without those of partitions that a topic has got since: its last ones, of which none was ever
    ticked though others were.

    Their first ticks are those of the rows to come: what was closed before, ingest knows of the partitions whose users
    they got (`agents.protocol.ingest.added`).

    Args: ticks: of each partition, topic by topic. topics: topic -> partitions.
    """
    left: list[bytes | None] = []
    begin = 0
    for partitions in topics.values():
        mine = list(ticks[begin : begin + partitions])
        begin += partitions
        while mine and mine[-1] is None and any(tick is not None for tick in mine):
            mine.pop()
        left += mine
    return left


def resumed(progress: Progress, *, source: str, append: bool, then_live: bool = False) -> Progress:
    """Return where a replay of the file `source` starts, given what is written already.

    Raises: ReplayError if another file was begun and `append` is not set, or if nothing more can be replayed since the
        topics have gone live; the very replay that did it may say so again (`then_live`).
    """
    if progress.live_from is not None and (progress.source != source or not then_live):
        raise ReplayError(
            f"the topic has gone live behind the history of {progress.row} rows (SHA-256 {progress.source[:12]}...): "
            "its steps end by the clock on the wall, and rows of the past would all be late. Fix: nothing is left to "
            "replay; other history is for a new stream, with a source of its own."
        )
    if progress.source in ("", source):
        return Progress(progress.step, progress.row, source, progress.live_from)
    if not append:
        raise ReplayError(
            f"the topic already holds {progress.row} rows of another file (SHA-256 {progress.source[:12]}...). "
            "Fix: replay that file, or add --append to write this one after it; it must begin behind the closed steps."
        )
    return Progress(progress.step, 0, source)


def row_field(name: str, mapping: FieldMap | None) -> Callable[[Row], Any]:
    """Return what gives a field of a row as ingest has it; `ABSENT` where there is none, or no event."""
    [path] = paths_of(ROWS, [name])
    if mapping is None:
        return path.find

    def find(row: Row) -> Any:
        if isinstance(row, bytes):
            return ABSENT
        try:
            if mapping.drops(row):
                return ABSENT
            return mapping.value(name, row) if name in mapping else path.find(row)
        except UnreadableError:
            return ABSENT

    return find


@dataclass(frozen=True, slots=True)
class RowTimes:
    """Reads the public time of rows exactly as ingest does: the ticks must stand where ingest expects them."""

    field: str
    parser: TimeParser
    mapping: FieldMap | None = None

    def parse(self, rows: Sequence[Row]) -> list[int | None]:
        """Return the microseconds since 1970 UTC of each row; None where the time cannot be read."""
        value_of = row_field(self.field, self.mapping)
        values = [typed(value_of(row), self.parser.kinds) for row in rows]
        wanted = (int, float, str) if self.parser.numeric else (str,)
        known = [index for index, value in enumerate(values) if type(value) in wanted]
        times, usable, _ = self.parser.parse([values[index] for index in known])
        found: list[int | None] = [None] * len(rows)
        for index, time, good in zip(known, times.tolist(), usable.tolist(), strict=True):
            if good:
                found[index] = time
        return found


def place_in_turn(rows: Sequence[Row], first: int, partitions: int) -> tuple[list[bytes | None], list[int]]:
    """Return a `Place` for events without users: no key, partitions in turn by row number."""
    return [None] * len(rows), [(first + index) % partitions for index in range(len(rows))]


def place_by_user(field: str, partitioner: Partitioner, mapping: FieldMap | None = None) -> Place:
    """Return a `Place` for events of users: their id as key, and the partition to which `partitioner` puts it.

    A row whose user is missing or unusable has no key and goes where its number says: a dead letter anywhere.
    """
    # "none" is not checked by the job, but the bound still needs each user on one partition.
    hashing: Partitioner = "murmur2" if partitioner == "none" else partitioner

    user_of = row_field(field, mapping)

    def place(rows: Sequence[Row], first: int, partitions: int) -> tuple[list[bytes | None], list[int]]:
        ids = IdBytes.from_ids(list(map(user_of, rows)))
        homes = partitions_of(ids, partitioner=hashing, partitions=partitions).tolist()
        data = ids.data.tobytes()
        keys: list[bytes | None] = []
        for index, (start, length, usable) in enumerate(
            zip(ids.starts.tolist(), ids.lengths.tolist(), ids.usable.tolist(), strict=True)
        ):
            keys.append(data[start : start + length] if usable else None)
            if not usable:
                homes[index] = (first + index) % partitions
        return keys, homes

    return place


def clock_of(stream: Stream) -> StepClock:
    """Return the steps of a stream that is driven by ticks in its records. Raises: ReplayError for one that is not."""
    if stream.time.clock != "replay" or stream.time.start_us is None:
        raise ReplayError(
            f'stream {stream.name} has clock = "{stream.time.clock}": its steps end by the clock on the wall, so a '
            'file of the past would be late as a whole. Fix: set clock = "replay" and a start in [streams.time].'
        )
    return StepClock.from_stream(stream)


def check_writable(stream: Stream) -> None:
    """Check that the stream reads JSON objects, which a replay writes. Raises: ReplayError."""
    fix = (
        f"Fix: write the history to {stream.source} with the producer's own serializers, and let the stream read it "
        'with clock = "wall"; or replay it with format = "json" into a topic and a stream of its own.'
    )
    if stream.format != "json" or stream.envelope != "none":
        what = f'format = "{stream.format}"' if stream.format != "json" else f'envelope = "{stream.envelope}"'
        raise ReplayError(f"stream {stream.name} has {what}, and a replay writes plain JSON objects. {fix}")
    user = stream.privacy.user
    if beside := sorted({*beside_the_value(stream)} - ({user} if user == "$key" else set())):
        raise ReplayError(
            f"stream {stream.name} reads {', '.join(beside)}, which a replay does not write: it writes columns of "
            f"the file into the value. {fix}"
        )


def beside_the_value(stream: Stream) -> list[str]:
    """Return the fields that a stream reads from elsewhere than the value of a record, such as `$timestamp`."""
    names = (stream.time.field, *(field for _, field in stream.domain.roles()), stream.privacy.user)
    return [name for name in names if name is not None and name.startswith("$")]


def times_of(stream: Stream) -> RowTimes:
    """Return what reads the times of a stream's rows."""
    return RowTimes(stream.time.field, TimeParser(stream.time.format, stream.time.zone), FieldMap.of(stream))


def until_of(stream: Stream, clock: StepClock, text: str) -> int:
    """Return the step that begins at a local time of the stream. Raises: ReplayError if none does."""
    start = _local(stream, clock.start_of(0))
    try:
        local = datetime.fromisoformat(text)
    except ValueError:
        raise ReplayError(f"--until is not an ISO time. Fix: write a local time such as {start}.") from None
    if local.tzinfo is not None:
        raise ReplayError(
            f"--until has an offset of its own. Fix: write the local time without it; it is in {stream.time.timezone}."
        )
    at_us = epoch_us(local.replace(tzinfo=stream.time.zone))
    step = clock.steps.index(at_us)
    if step < 0:
        raise ReplayError(f"--until lies before the start of the stream. Fix: give {start} or a later step boundary.")
    if clock.start_of(step) != at_us:
        raise ReplayError(
            f"--until lies within step {step}, and a step is closed as a whole. Fix: give the time where it begins, "
            f"{_local(stream, clock.start_of(step))}, or where it ends, {_local(stream, clock.end_of(step))}."
        )
    return step


def _local(stream: Stream, at_us: int) -> str:
    try:
        return instant(at_us).astimezone(stream.time.zone).replace(tzinfo=None).isoformat()
    except OverflowError:
        return "the end of the calendar"


def plan_of(
    stream: Stream,
    topics: Mapping[str, int],
    begin: Progress,
    *,
    until: int | None = None,
    written: bool = True,
) -> ReplayPlan:
    """Return the plan of a stream's rows from `begin` on: by user where there are users, in turn otherwise.

    Args: written: see `ReplayPlan`.
    """
    field = stream.privacy.user
    place = place_in_turn if field is None else place_by_user(field, stream.placed_by, FieldMap.of(stream))
    return ReplayPlan(
        topics=topics,
        place=place,
        source=begin.source,
        step=begin.step,
        row=begin.row,
        until=until,
        time_field=stream.time.field,
        written=written,
        live_from=begin.live_from,
    )


def steps_of(clock: StepClock, times: Sequence[int | None]) -> list[int | None]:
    """Return the step of each time; None stays None."""
    known = np.array([0 if at is None else at for at in times], np.int64)
    return [None if at is None else step for at, step in zip(times, clock.step_of(known).tolist(), strict=True)]

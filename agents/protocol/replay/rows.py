"""Rows of a file as a configured stream sees them: when they happened, which step that is, and where they belong.

Read with the very code of ingest, because ticks must stand where ingest expects them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np

from agents.protocol.clock import StepClock
from agents.protocol.formats.build import ROWS
from agents.protocol.formats.reader import paths_of
from agents.protocol.ingest.times import EPOCH, ONE_US, TimeParser
from agents.protocol.partitioner import Partitioner, partitions_of
from agents.protocol.release.public_records import instant
from agents.protocol.replay.plan import Place, Progress, ReplayError, ReplayPlan, Row
from agents.protocol.userhash import IdBytes

if TYPE_CHECKING:
    from schemas.config import Stream


@dataclass(frozen=True, slots=True)
class RowTimes:
    """Reads the public time of rows exactly as ingest does: the ticks must stand where ingest expects them."""

    field: str
    parser: TimeParser

    def of(self, rows: Sequence[Row]) -> list[int | None]:
        """Microseconds since 1970 UTC of each row; None where the time cannot be read."""
        [path] = paths_of(ROWS, [self.field])
        values = [path.find(row) for row in rows]
        wanted = (int, float, str) if self.parser.numeric else (str,)
        known = [index for index, value in enumerate(values) if type(value) in wanted]
        times, usable = self.parser.parse([values[index] for index in known])
        found: list[int | None] = [None] * len(rows)
        for index, time, good in zip(known, times.tolist(), usable.tolist(), strict=True):
            if good:
                found[index] = time
        return found


def place_in_turn(rows: Sequence[Row], first: int, partitions: int) -> tuple[list[bytes | None], list[int]]:
    """A `Place` for events without users: no key, partitions in turn by row number."""
    return [None] * len(rows), [(first + index) % partitions for index in range(len(rows))]


def place_by_user(field: str, partitioner: Partitioner) -> Place:
    """A `Place` for events of users: their id as key, and the partition where a producer with `partitioner` puts it.

    A row whose user is missing or unusable has no key and goes where its number says: a dead letter anywhere.
    """
    # "none" is not checked by the job, but the bound still needs each user on one partition.
    hashing: Partitioner = "murmur2" if partitioner == "none" else partitioner

    [path] = paths_of(ROWS, [field])

    def place(rows: Sequence[Row], first: int, partitions: int) -> tuple[list[bytes | None], list[int]]:
        ids = IdBytes.of([path.find(row) for row in rows])
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
    """The steps of a stream that is driven by ticks in its records. Raises: ReplayError for one that is not."""
    if stream.time.clock != "replay" or stream.time.start_us is None:
        raise ReplayError(
            f'stream {stream.name} has clock = "{stream.time.clock}": its steps end by the clock on the wall, so a '
            'file of the past would be late as a whole. Fix: set clock = "replay" and a start in [streams.time].'
        )
    return StepClock.of(stream)


def check_writable(stream: Stream) -> None:
    """A replay writes rows as JSON objects. Raises: ReplayError where the stream would not read these."""
    fix = (
        f"Fix: write the history to {stream.source} with the producer's own serializers, and let the stream read it "
        'with clock = "wall"; or replay it with format = "json" into a topic and a stream of its own.'
    )
    if stream.format != "json" or stream.envelope != "none":
        what = f'format = "{stream.format}"' if stream.format != "json" else f'envelope = "{stream.envelope}"'
        raise ReplayError(f"stream {stream.name} has {what}, and a replay writes plain JSON objects. {fix}")
    user = stream.privacy.user
    names = [stream.time.field, *(field for _, field in stream.domain.roles()), *([] if user is None else [user])]
    beside = sorted({name for name in names if name.startswith("$")} - ({user} if user == "$key" else set()))
    if beside:
        raise ReplayError(
            f"stream {stream.name} reads {', '.join(beside)}, which a replay does not write: it writes columns of "
            f"the file into the value. {fix}"
        )


def times_of(stream: Stream) -> RowTimes:
    return RowTimes(stream.time.field, TimeParser(stream.time.format, stream.time.zone))


def until_of(stream: Stream, clock: StepClock, text: str) -> int:
    """The step that begins at a local time of the stream. Raises: ReplayError if none does."""
    start = _local(stream, clock.start_of(0))
    try:
        local = datetime.fromisoformat(text)
    except ValueError:
        raise ReplayError(f"--until is not an ISO time. Fix: write a local time such as {start}.") from None
    if local.tzinfo is not None:
        raise ReplayError(
            f"--until has an offset of its own. Fix: write the local time without it; it is in {stream.time.timezone}."
        )
    at_us = (local.replace(tzinfo=stream.time.zone) - EPOCH) // ONE_US
    step = clock.steps.of_one(at_us)
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
    user_field: str | None = None,
    until: int | None = None,
    written: bool = True,
) -> ReplayPlan:
    """The plan of a stream's rows from `begin` on: by user where there are users, in turn otherwise.

    Args: written: see `ReplayPlan`.
    """
    field = user_field or stream.privacy.user
    place = place_in_turn if field is None else place_by_user(field, stream.partitioner)
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
    """The step of each time; None stays None."""
    known = np.array([0 if at is None else at for at in times], np.int64)
    return [None if at is None else step for at, step in zip(times, clock.step_of(known).tolist(), strict=True)]

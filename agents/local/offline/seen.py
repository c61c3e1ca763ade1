"""Counts of the rows of a file: how many are refused, why, in which field, and in which row first. Never a value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from agents.kafka.lifecycle.refusals import REPORT_ROWS, WHAT_TO_DO, Seen, by_reason_and_field, percent
from agents.local.job import LocalIngest
from agents.local.offline.files import BrokenLine, FileError, RowFile
from agents.local.offline.names import time_forms
from agents.protocol.formats.json_text import read_json
from agents.protocol.formats.mapping import FieldMap
from agents.protocol.formats.reader import ABSENT
from agents.protocol.ingest.dead_letters import DeadLetter
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.replay import Planned, Progress, Row, clock_of, plan_of, row_field, steps_of, times_of
from agents.protocol.userhash import KEY_BYTES
from agents.show.text import number_of
from engines.core.registry import build_domain
from schemas.blocks import Block
from schemas.config import Stream
from schemas.config.timing import Timing
from schemas.events import LARGEST_JUMP, Reason
from schemas.steps import instant

LOOKED_AT = 200
"""Number of values from which the format of a field is recognised."""


def how_to_read(values: Iterable[Any], configured: str) -> str:
    """Return what to write into the configuration, where that is known, and is not what is there.

    >>> how_to_read(["31.12.2016"], "iso")
    'set [streams.time] format = "%d.%m.%Y", as the field is written'
    """
    forms = time_forms(values)
    if not forms or configured in forms:
        return "set [streams.time] format to how the field is written"
    named = " or ".join(f'"{form}"' for form in forms)
    return f"set [streams.time] format = {named}, as the field is written"


LEAST_USABLE = 0.5
"""Share of usable rows below which the configuration does not fit the file."""
NO_TIME = (Reason.BAD_TIME, Reason.WRONG_TYPE)
"""Reasons for which the format of the time may be wrong; a text has the wrong type if numbers are configured."""
FIRST_ROWS = 10_000
"""Number of rows that are checked before a replay writes anything."""


@dataclass(frozen=True, slots=True)
class RefusedRows:
    """Rows that were refused for one reason: how many, which share of all, and the first of them, from 1 on.

    Attributes:
        name: the configured field at fault; "" for the row as a whole.
        first_line: the first line that is not a row in the format of the file; None if there is none.

    >>> print(RefusedRows("NOT_JSON", "", 1, 0.25, None, "", first_line=6))
    NOT_JSON: 1 row, 25%, first in line 6
    """

    reason: str
    name: str
    rows: int
    share: float
    first_row: int | None
    what_to_do: str
    first_line: int | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of a row of a table."""
        first = "" if self.first_row is None else f"{self.first_row:,}"
        return self.reason, self.name, f"{self.rows:,}", percent(self.share), first, self.what_to_do

    def __str__(self) -> str:
        about = f" of {self.name}" if self.name else ""
        first = "" if self.first_row is None else f", first in row {self.first_row:,}"
        first = first if self.first_line is None else f", first in line {self.first_line:,}"
        return f"{self.reason}{about}: {number_of(self.rows, 'row')}, {percent(self.share)}{first}"


@dataclass(slots=True)
class RowsSeen:
    """Counts of rows by reason and field, in the order of the file, of which `before` rows were skipped.

    The sum of the counts can be larger than `rows`: a clipped row is also accepted.
    """

    time: Timing
    before: int = 0
    rows: int = 0
    seen: Seen = field(default_factory=Seen)
    mapping: FieldMap | None = None
    _first: dict[tuple[str, str], int] = field(default_factory=dict)
    _lines: dict[tuple[str, str], int] = field(default_factory=dict)
    _times: list[Any] = field(default_factory=list)

    def take(self, records: Sequence[Planned], block: Block, letters: Sequence[DeadLetter]) -> None:
        """Count the next records, given the block and the dead letters that ingest made of them."""
        self.seen.tally.update(by_reason_and_field(block))
        for letter in letters:
            key = letter.reason.name, letter.field
            if key not in self._first:
                earlier = sum(record.tick is None for record in records[: letter.offset - block.lo])
                self._first[key] = self.before + self.rows + earlier + 1
                if isinstance(line := records[letter.offset - block.lo].value, BrokenLine):
                    self._lines[key] = line.number
            if letter.field == self.time.field and letter.reason in NO_TIME:
                self._keep_time(records[letter.offset - block.lo])
        self.rows += sum(record.tick is None for record in records)

    def _keep_time(self, record: Planned) -> None:
        """Keep the first times that cannot be read, to recognise their format."""
        if len(self._times) < LOOKED_AT and record.value is not None:
            found = row_field(self.time.field, self.mapping)(read_json(record.value))
            self._times.append(None if found is ABSENT else found)

    def _what_to_do(self, reason: str, name: str) -> str:
        if (reason, name) in self._lines and not name:
            return "each line must be one JSON object in UTF-8: correct or remove those that are not"
        if name == self.time.field and Reason[reason] in NO_TIME:
            return how_to_read(self._times, self.time.format)
        return WHAT_TO_DO.get(reason, REPORT_ROWS)

    @property
    def refused(self) -> tuple[RefusedRows, ...]:
        """The reasons for which rows were refused, the most frequent first."""
        return tuple(
            RefusedRows(
                reason,
                name,
                rows,
                rows / max(1, self.seen.records),
                self._first.get((reason, name)),
                self._what_to_do(reason, name),
                self._lines.get((reason, name)),
            )
            for (reason, name), rows in self.seen.refused.most_common()
        )

    @property
    def misfit(self) -> bool:
        """Whether fewer than `LEAST_USABLE` can be used."""
        return self.seen.share > 1 - LEAST_USABLE


def replayed_from(stream: Stream, first_us: int) -> Stream:
    """Return the stream with `clock = "replay"`, and if it starts "now" with a start at this time."""
    time = stream.time
    start = time.start if time.start_us is not None else time.started_at(instant(first_us).astimezone(time.zone))
    return stream.model_copy(update={"time": time.model_copy(update={"clock": "replay", "start": start})})


def first_rows(stream: Stream, file: RowFile, *, skip: int = 0, most: int = FIRST_ROWS) -> RowsSeen:
    """Return the counts of the next rows in a replay, without writing anything.

    Raises: FileError; ReplayError for rows that are not sorted by time.
    """
    return _taken(stream, file.batches(skip=skip), skip=skip, most=most)


def tried(stream: Stream, rows: Sequence[Row]) -> RowsSeen | None:
    """Return the counts of rows in order of their times; a stream that starts "now" starts with the first of them.

    Return None if two rows are so many steps apart that no replay could contain both.
    """
    times = times_of(stream).parse(rows)
    driven = replayed_from(stream, min((at for at in times if at is not None), default=0))
    order = sorted(range(len(rows)), key=lambda row: times[row] or 0)
    steps = [step for step in steps_of(clock_of(driven), [times[row] for row in order]) if step is not None]
    if any(later - max(earlier, -1) > LARGEST_JUMP for earlier, later in pairwise([-1, *steps])):
        return None
    return _taken(driven, [[rows[row] for row in order]], skip=0, most=len(rows))


def _taken(stream: Stream, batches: Iterable[Sequence[Row]], *, skip: int, most: int) -> RowsSeen:
    # The key is a constant: users are only validated here, and never identified.
    ingest = LocalIngest(
        SourceSpec.from_stream(stream, build_domain(stream), key=bytes(KEY_BYTES), partitions=1, rows=True)
    )
    clock, times = clock_of(stream), times_of(stream)
    plan, found = (
        plan_of(stream, {stream.source: 1}, Progress(row=skip)),
        RowsSeen(stream.time, before=skip, mapping=ingest.spec.mapping),
    )
    for rows in batches:
        records = plan.chunk(rows, steps_of(clock, times.parse(rows))).records[stream.source, 0]
        block, letters = ingest.take_planned(records)
        assert block is not None, "a chunk ends with a tick"
        found.take(records, block, letters)
        if found.rows >= most:
            break
    return found


def check_fit(stream: Stream, file: RowFile, *, skip: int = 0) -> RowsSeen:
    """Return `first_rows`. Raises: FileError if fewer than `LEAST_USABLE` can be used; see `first_rows`."""
    found = first_rows(stream, file, skip=skip)
    if found.misfit:
        listed = "; ".join(map(str, found.refused))
        raise FileError(
            f"{file.path}: stream {stream.name} would refuse {percent(found.seen.share)} of the next {found.rows:,} "
            f"rows: {listed}. Nothing was written. Fix: {found.refused[0].what_to_do}; or say --allow-refused."
        )
    return found

"""`[streams.time]`: how the time of an event is read, and the public steps.

Step s is [start + s * step, start + (s + 1) * step) in elapsed time, or in calendar units of `timezone`
(`schemas.steps`). All times in the program are integer microseconds since 1970-01-01 UTC. Local times are those of
`timezone`; the earlier of two equal local times counts.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, ClassVar, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field, StrictInt, WithJsonSchema

from schemas import zones
from schemas.config.values import Duration, FieldName, Section, StepLength, microseconds, refusal
from schemas.errors import ConfigProblem
from schemas.releases import STEP_LIMIT
from schemas.steps import LAST_YEAR, CalendarLength, CalendarSteps, FixedSteps, Steps, epoch_us, min_length_us

RecordTimes = Literal["dated", "released"]
NUMERIC_FORMATS: Mapping[str, int] = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
"""Format of times that are numbers -> nanoseconds of its unit."""
_MIN_SPAN_US = 366 * 86_400_000_000
"""Shortest time that all steps of a stream together may take."""
_OLD_START = datetime(1900, 1, 1)
"""A Monday on which a year begins, so that every calendar unit begins there."""
_PROBE = datetime(2019, 11, 23, 17, 45, 56)
_BEGINS = {
    "day": "midnight",
    "week": "midnight, on any day",
    "month": "midnight of a first of the month",
    "quarter": "midnight of the first of January, April, July or October",
    "year": "midnight of the first of January",
}
_START_FIX = 'write a local time such as "2016-01-01T00:00:00", or "now" with clock = "wall"'


def _format(value: str) -> str:
    if value in ("iso", *NUMERIC_FORMATS):
        return value
    fix = 'write iso, s, ms, us or ns, or a strptime pattern such as "%Y-%m-%d %H:%M:%S"'
    if "%" not in value:
        raise refusal("is neither iso, s, ms, us, ns nor a strptime pattern", fix)
    if "Z" in re.findall("%(.)", value):
        raise refusal(
            "reads a name with %Z, which takes names of the machine's own zone alone, and no hour from them",
            'write %z for an offset such as +01:00, or the name as it stands, such as "%Y-%m-%d %H:%M:%S UTC", and in '
            "timezone the zone that it means",
        )
    try:
        probe = _PROBE.replace(tzinfo=UTC)
        read = datetime.strptime(probe.strftime(value), value)
    except (ValueError, KeyError):
        raise refusal("is not a usable strptime pattern", fix) from None
    if read.date() != _PROBE.date():
        raise refusal("does not hold year, month and day", fix)
    return value


def _timezone(value: str) -> str:
    try:
        zones.zone(value)
    except KeyError:
        raise refusal("is not a known time zone", _zone_hint(value)) from None
    return value


def _zone_hint(value: str) -> str:
    """Return a fix for an unknown zone: a similar name, or which names exist.

    The last part of the name must be similar too, because most cities that name zones are far from each other.

    >>> _zone_hint("Europe/Berln")
    'did you mean "Europe/Berlin"?'
    """
    for name in difflib.get_close_matches(value, sorted(zones.names()), n=3, cutoff=0.8):
        if difflib.get_close_matches(value.rpartition("/")[2], [name.rpartition("/")[2]], cutoff=0.75):
            return f'did you mean "{name}"?'
    return (
        'write a name of the IANA database, such as "America/New_York" or "UTC"; if it lacks your city, name a large '
        "city with the same time"
    )


def _start(value: object) -> str:
    if value == "now":
        return "now"
    if isinstance(value, datetime):
        moment = value
    elif isinstance(value, date):
        moment = datetime.combine(value, time())
    elif isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise refusal("is not an ISO time", _START_FIX) from None
    else:
        raise refusal("is not an ISO time", _START_FIX)
    if moment.tzinfo is not None:
        raise refusal("has an offset from UTC", "write the local time without an offset; timezone names its zone")
    return moment.isoformat()


class Timing(Section):
    """`[streams.time]`: times of events, and steps."""

    header: ClassVar[str] = "[streams.time]"
    unpinned: ClassVar[frozenset[str]] = frozenset({"grace", "records"})
    """Of `records` a stream pins what it comes to."""

    field: FieldName = Field(examples=["pickup_datetime"])
    """Field of the raw events that holds their time."""
    format: Annotated[str, Field(strict=True), AfterValidator(_format)] = Field("iso", examples=["%Y-%m-%d %H:%M:%S"])
    """Format of times: `iso`; `s`, `ms`, `us` or `ns` since 1970 UTC; or a strptime pattern (docs/time.md)."""
    timezone: Annotated[str, Field(strict=True), AfterValidator(_timezone)] = Field(
        "UTC", examples=["America/New_York"]
    )
    """Time zone of event times without an offset, and of `start`."""
    start: Annotated[str, BeforeValidator(_start), WithJsonSchema({"type": "string"})] = Field(
        examples=["2016-01-01T00:00:00"]
    )
    """Local time at which step 0 begins, or `now` for the first start of the stream."""
    step: StepLength = Field(examples=["6h"])
    """Length of a step, each of which has one release: a duration such as `"6h"`, or calendar units of `timezone` such
    as `"1 day"` or `"1 month"`, one of which begins at `start`. `"1d"` is always 24 hours, `"1 day"` is 23 to 25."""
    grace: Duration = Field(timedelta(seconds=30), examples=["30s"])
    """How long a step waits for events after its end; with the wall clock only."""
    clock: Literal["wall", "replay"] = Field("wall", examples=["wall"])
    """What closes steps: the wall clock, or the ticks of `privstream replay`."""
    max_ahead: StrictInt = Field(10, ge=0, le=10_000, examples=[10])
    """Number of steps that an event may be ahead of the open step; events further ahead are refused."""

    records: RecordTimes | None = Field(None, examples=["dated"])
    """Time of a synthetic record if records together stand for everything alive: the step that it stands for (`dated`),
    or the one that `released` it (docs/time.md). Absent: `dated`, or with `op`, `ttl` or weighted records `released`.
    Engines whose records are of one step always date them.
    """

    @property
    def zone(self) -> ZoneInfo:
        """The time zone."""
        return zones.zone(self.timezone)

    @property
    def start_us(self) -> int | None:
        """Begin of step 0 in microseconds since 1970 UTC; None if `start` is `now`."""
        if self.start == "now":
            return None
        if (steps := self.calendar_from(self.start)) is not None:
            return steps.begin(0)
        return epoch_us(datetime.fromisoformat(self.start).replace(tzinfo=self.zone))

    @property
    def steps(self) -> Steps | None:
        """The steps from `start` on; None if it is `now`."""
        return None if self.start_us is None else self.steps_from(self.start_us)

    def steps_from(self, start_us: int) -> Steps:
        """Return the steps: fixed ones from `start_us` on, those of a calendar from `start` on.

        If `start` is `now`, calendar steps are counted from 1900 on.
        """
        if isinstance(self.step, timedelta):
            return FixedSteps(start_us, microseconds(self.step))
        return CalendarSteps(
            _OLD_START if self.start == "now" else datetime.fromisoformat(self.start), self.step, self.timezone
        )

    def calendar_from(self, start: str) -> CalendarSteps | None:
        """Return the calendar steps from a local time on; None if steps have a fixed length."""
        if not isinstance(self.step, CalendarLength):
            return None
        return CalendarSteps(datetime.fromisoformat(start), self.step, self.timezone)

    def started_at(self, now: datetime) -> str:
        """Return the `start`, a local time, of a stream that starts now.

        With calendar steps it is the begin of the current unit.
        """
        local = now.replace(microsecond=0, tzinfo=None)
        return (self.step.floor(local) if isinstance(self.step, CalendarLength) else local).isoformat()

    @property
    def start_in_week_us(self) -> int | None:
        """Local time from Monday, 0:00, to `start`, in microseconds; None if it is `now`."""
        if self.start == "now":
            return None
        local = datetime.fromisoformat(self.start)
        midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
        return microseconds(local - midnight + timedelta(days=local.weekday()))

    @property
    def shortest_us(self) -> int:
        """Shortest length of a step in microseconds."""
        return min_length_us(self.step)

    def begins_from(self, start: str) -> dict[str, Any]:
        """Return what the fingerprint has of calendar steps beside the keys: their begins from a local time on, and the
        zone database. With another database that moves a begin, an event would join another step.
        """
        calendar = self.calendar_from(start)
        return {} if calendar is None else {"begins": calendar.digest(), "tzdata": zones.database_version()}

    @property
    def grace_us(self) -> int:
        """`grace` in microseconds."""
        return microseconds(self.grace)

    def records_problems(self, *, own: bool, deletion_key: str | None, weighted: bool) -> Iterator[ConfigProblem]:
        """Refuse dated records where they cannot be dated, and either choice where they always are.

        Args:
            own: whether the engine dates its records.
            deletion_key: the key that says how events are deleted; None if they stay.
            weighted: whether a record stands for several events (`[streams.records]`).
        """
        if own and self.records is not None:
            yield ConfigProblem("records", "has no effect: this engine always dates its records", "remove the key")
        elif deletion_key is not None and self.records == "dated":
            yield ConfigProblem(
                "records",
                f'"dated" is for events that stay: with {deletion_key} records stand for the events alive now, and '
                "their ages are not measured",
                f"remove the key, or domain.{deletion_key}; the measurements show when events came",
            )
        elif weighted and self.records == "dated":
            yield ConfigProblem(
                "records",
                'is "dated", but with records.form = "weighted" a record stands for events of many steps',
                'remove the key, or set records.form = "single"; the measurements show when events came',
            )

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse steps that are too short, and a start that does not exist or that a replay cannot have."""
        if STEP_LIMIT * self.shortest_us < _MIN_SPAN_US:
            yield ConfigProblem(
                "step",
                f"is so short that the {STEP_LIMIT:,} steps of a stream are over within a year",
                'write 15 ms or more; with "1min" they last for 4,000 years',
            )
        if self.start == "now":
            if self.clock == "replay":
                yield ConfigProblem(
                    "start",
                    'is "now", but a replay uses the times of its file',
                    'write the local time of the first step, such as "2016-01-01T00:00:00"',
                )
            return
        local = datetime.fromisoformat(self.start)
        if isinstance(self.step, CalendarLength):
            yield from self._calendar_problems(local, self.step)
            return
        try:
            back = local.replace(tzinfo=self.zone).astimezone(UTC).astimezone(self.zone).replace(tzinfo=None)
        except OverflowError:
            yield ConfigProblem("start", "is too close to the end of the calendar", _START_FIX)
            return
        if back != local:
            yield ConfigProblem(
                "start",
                f"does not exist in {self.timezone}: the clocks go forward over it",
                f'write "{back.isoformat()}", or set timezone = "UTC"',
            )

    def _calendar_problems(self, local: datetime, step: CalendarLength) -> Iterator[ConfigProblem]:
        """Refuse a start within a unit, or outside of the years with calendar steps."""
        if not step.begins(local):
            here = step.floor(local)
            later = step.after(here.date(), 1)
            yield ConfigProblem(
                "start",
                f'lies within a {step.unit}, but a step of "{step}" begins at {_BEGINS[step.unit]}',
                f'write "{here.isoformat()}" or "{later.isoformat()}T00:00:00"',
            )
        elif not 1800 <= local.year < LAST_YEAR - 100:
            yield ConfigProblem(
                "start", f"is not between 1800 and {LAST_YEAR - 101}, the years with calendar steps", _START_FIX
            )

"""`[streams.time]`: how an event's time is read, and the public steps it falls into.

Step s covers [start + s * step, start + (s + 1) * step) in elapsed time, or so many units of the calendar of `timezone`
(`schemas.steps`); all times in the program are integer microseconds since 1970-01-01 UTC. Local times are those of
`timezone`; of two equal ones in autumn the earlier counts.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, ClassVar, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from schemas import zones
from schemas.config.values import Duration, FieldName, Section, StepLength, Whole, microseconds, refusal
from schemas.errors import ConfigProblem
from schemas.releases import STEP_LIMIT
from schemas.steps import EPOCH, LAST_YEAR, CalendarLength, CalendarSteps, FixedSteps, Steps, min_length_us

NUMERIC_FORMATS = ("s", "ms", "us")
_LEAST_US = 366 * 86_400_000_000
_OF_OLD = datetime(1900, 1, 1)
"""A Monday on which a year begins."""
_PROBE = datetime(2019, 11, 23, 17, 45, 56)
_BEGINS = {
    "day": "midnight",
    "week": "midnight, on any day",
    "month": "midnight of a first of the month",
    "quarter": "midnight of the first of January, April, July or October",
    "year": "midnight of the first of January",
}
_START_MEND = 'write a local time such as "2016-01-01T00:00:00", or "now" with clock = "wall"'


def _format(value: str) -> str:
    if value in ("iso", *NUMERIC_FORMATS):
        return value
    fix = 'write iso, s, ms or us, or a strptime pattern such as "%Y-%m-%d %H:%M:%S"'
    if "%" not in value:
        raise refusal("is neither iso, s, ms, us nor a strptime pattern", fix)
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
    """Return the name that somebody may have meant, or what names there are.

    It must be alike in its last part, too: zones are named by few cities, and most are far from any other.

    >>> _zone_hint("Europe/Berln")
    'did you mean "Europe/Berlin"?'
    """
    for name in difflib.get_close_matches(value, sorted(zones.names()), n=3, cutoff=0.8):
        if difflib.get_close_matches(value.rpartition("/")[2], [name.rpartition("/")[2]], cutoff=0.75):
            return f'did you mean "{name}"?'
    return (
        'write a name of the IANA database, such as "America/New_York" or "UTC"; a city without a name of its own has '
        "that of the next large one in its zone"
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
            raise refusal("is not an ISO time", _START_MEND) from None
    else:
        raise refusal("is not an ISO time", _START_MEND)
    if moment.tzinfo is not None:
        raise refusal("has an offset of its own", "write the local time without an offset; timezone says where it is")
    return moment.isoformat()


def to_us(moment: datetime) -> int:
    """Microseconds since 1970-01-01 UTC of an aware datetime; exact."""
    return (moment - EPOCH) // timedelta(microseconds=1)


class Timing(Section):
    """`[streams.time]`."""

    header: ClassVar[str] = "[streams.time]"
    unpinned: ClassVar[frozenset[str]] = frozenset({"grace"})

    field: FieldName = Field(examples=["pickup_datetime"])
    """Field of the raw event that holds its time."""
    format: Annotated[str, Field(strict=True), AfterValidator(_format)] = Field("iso", examples=["%Y-%m-%d %H:%M:%S"])
    """`iso`, seconds `s`, milliseconds `ms`, microseconds `us` since 1970 UTC, or a strptime pattern."""
    timezone: Annotated[str, Field(strict=True), AfterValidator(_timezone)] = Field(
        "UTC", examples=["America/New_York"]
    )
    """Zone of event times without an offset, and of `start`."""
    start: Annotated[str, BeforeValidator(_start), WithJsonSchema({"type": "string"})] = Field(
        examples=["2016-01-01T00:00:00"]
    )
    """Local time at which step 0 begins, or `now`: when the stream is first started."""
    step: StepLength = Field(examples=["6h"])
    """Length of a step, with one release for each: a duration, the same for each step, such as `"6h"`; or units of the
    calendar of `timezone`, such as `"1 day"` or `"1 month"`, of which one begins at `start`. `"1d"` is 24 hours,
    `"1 day"` 23 to 25."""
    grace: Duration = Field(timedelta(seconds=30), examples=["30s"])
    """How long after its end a step still waits for events; by the wall clock only."""
    clock: Literal["wall", "replay"] = Field("wall", examples=["wall"])
    """What closes steps: the wall clock, or the ticks of `privstream replay`."""
    max_ahead: Whole = Field(10, ge=0, le=10_000, examples=[10])
    """Whole steps an event may lie beyond the open step; one further ahead is a dead letter."""

    records: Literal["released", "dated"] = Field("released", examples=["released"])
    """What the time of a synthetic record says where records together stand for all that is alive: the step that
    released it, or the one that it stands for (docs/time.md). Engines whose records are of one step always say that.
    """

    @property
    def zone(self) -> ZoneInfo:
        """The time zone."""
        return zones.zone(self.timezone)

    @property
    def start_us(self) -> int | None:
        """Begin of step 0 in microseconds since 1970 UTC, or None where it is `now`."""
        if self.start == "now":
            return None
        if (steps := self.calendar_from(self.start)) is not None:
            return steps.begin(0)
        return to_us(datetime.fromisoformat(self.start).replace(tzinfo=self.zone))

    @property
    def steps(self) -> Steps | None:
        """The steps from `start` on, or None where it is `now`."""
        return None if self.start_us is None else self.steps_from(self.start_us)

    def steps_from(self, start_us: int) -> Steps:
        """The steps, where those of one length begin at this time, and those of the calendar at `start`.

        Where that is `now` too, they are those of old: of the units that local clocks have shown since 1900.
        """
        if isinstance(self.step, timedelta):
            return FixedSteps(start_us, microseconds(self.step))
        return CalendarSteps(
            _OF_OLD if self.start == "now" else datetime.fromisoformat(self.start), self.step, self.timezone
        )

    def calendar_from(self, start: str) -> CalendarSteps | None:
        """The steps from a local time on, where they are those of a calendar."""
        if not isinstance(self.step, CalendarLength):
            return None
        return CalendarSteps(datetime.fromisoformat(start), self.step, self.timezone)

    def started_at(self, now: datetime) -> str:
        """The `start` of a stream that starts "now", a local time: with steps of the calendar it is the begin of the
        unit that is under way.
        """
        local = now.replace(microsecond=0, tzinfo=None)
        return (self.step.floor(local) if isinstance(self.step, CalendarLength) else local).isoformat()

    @property
    def start_in_week_us(self) -> int | None:
        """Local time from Monday, 0:00, to the start, in microseconds; None where it is `now`."""
        if self.start == "now":
            return None
        local = datetime.fromisoformat(self.start)
        midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
        return microseconds(local - midnight + timedelta(days=local.weekday()))

    @property
    def shortest_us(self) -> int:
        """Microseconds that a step has at least; the length of each where `step` is a duration."""
        return min_length_us(self.step)

    def fingerprint_fields(self) -> dict[str, Any]:
        fields = super().fingerprint_fields()
        return fields if self.records != "released" else {key: fields[key] for key in fields.keys() - {"records"}}

    def fingerprint_from(self, start: str) -> dict[str, Any]:
        """`fingerprint_fields`, with when steps of the calendar begin from a local time on, and by which database of
        zones: another one that moves a begin would let an event join another step."""
        calendar = self.calendar_from(start)
        pinned = {} if calendar is None else {"begins": calendar.digest(), "tzdata": zones.database_version()}
        return {**self.fingerprint_fields(), **pinned}

    @property
    def grace_us(self) -> int:
        """Grace in microseconds."""
        return microseconds(self.grace)

    def dated_problems(self, *, own: bool, deletion_key: str | None) -> Iterator[ConfigProblem]:
        """Refuse dated records where they cannot be dated, or need not be.

        Args: own: they say their own step. deletion_key: by which events are deleted, None where they stay.
        """
        if self.records != "dated":
            return
        if own:
            yield ConfigProblem("records", "is of no use: records of this engine say their own step", "remove the key")
        elif deletion_key is not None:
            yield ConfigProblem(
                "records",
                f'"dated" is for events that stay: with {deletion_key} records stand for what is alive now, and which '
                "of it is old is not measured",
                f"remove the key, or domain.{deletion_key}; what came when is in the measurements",
            )

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse steps that are soon used up, and a start that does not exist, or that a replay cannot have."""
        if STEP_LIMIT * self.shortest_us < _LEAST_US:
            yield ConfigProblem(
                "step",
                f"is so short that all {STEP_LIMIT:,} steps that a stream can have are over within a year",
                'write a step of 15 ms or more; one such as "1min" has enough of them for 4,000 years',
            )
        if self.start == "now":
            if self.clock == "replay":
                yield ConfigProblem(
                    "start",
                    'is "now", but a replay runs in the time of its file',
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
            yield ConfigProblem("start", "is too close to the end of the calendar", _START_MEND)
            return
        if back != local:
            yield ConfigProblem(
                "start",
                f"does not exist in {self.timezone}: clocks go forward over it",
                f'write "{back.isoformat()}", or set timezone = "UTC"',
            )

    def _calendar_problems(self, local: datetime, step: CalendarLength) -> Iterator[ConfigProblem]:
        """Refuse a start in the middle of a unit, or behind the last step that there can be."""
        if not step.begins(local):
            here = step.floor(local)
            later = step.after(here.date(), 1)
            yield ConfigProblem(
                "start",
                f'lies within a {step.unit}, and a step of "{step}" begins at {_BEGINS[step.unit]}',
                f'write "{here.isoformat()}" or "{later.isoformat()}T00:00:00"',
            )
        elif not 1800 <= local.year < LAST_YEAR - 100:
            yield ConfigProblem(
                "start", f"is outside of 1800 to {LAST_YEAR - 101}, where there are steps of the calendar", _START_MEND
            )

"""`[streams.time]`: how an event's time is read, and the public steps it falls into.

Step s covers [start + s * step, start + (s + 1) * step) in elapsed time; all times in the program are integer
microseconds since 1970-01-01 UTC. Local times are those of `timezone`; of two equal ones in autumn the earlier counts.
"""

from __future__ import annotations

import difflib
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from schemas.config.section import Section, refusal
from schemas.config.values import Duration, FieldName, PositiveDuration, Whole, microseconds
from schemas.errors import ConfigProblem

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NUMERIC_FORMATS = ("s", "ms", "us")
_PROBE = datetime(2019, 11, 23, 17, 45, 56)
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
        zoneinfo.ZoneInfo(value)
    except (KeyError, ValueError, OSError):
        raise refusal("is not a known time zone", _zone_hint(value)) from None
    return value


def _zone_hint(value: str) -> str:
    """A name that is like it in its last part, too: zones are named by few cities, and most are far from any other.

    >>> _zone_hint("Europe/Berln")
    'did you mean "Europe/Berlin"?'
    """
    for name in difflib.get_close_matches(value, sorted(zoneinfo.available_timezones()), n=3, cutoff=0.8):
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
    step: PositiveDuration = Field(examples=["6h"])
    """Length of a step; each ends with one release, empty ones too."""
    grace: Duration = Field(timedelta(seconds=30), examples=["30s"])
    """How long after its end a step still waits for events; by the wall clock only."""
    clock: Literal["wall", "replay"] = Field("wall", examples=["wall"])
    max_ahead: Whole = Field(10, ge=0, le=10_000, examples=[10])
    """Whole steps an event may lie beyond the open step; one further ahead is a dead letter."""

    @property
    def zone(self) -> zoneinfo.ZoneInfo:
        """The time zone."""
        return zoneinfo.ZoneInfo(self.timezone)

    @property
    def start_us(self) -> int | None:
        """Begin of step 0 in microseconds since 1970 UTC, or None where it is `now`."""
        if self.start == "now":
            return None
        return to_us(datetime.fromisoformat(self.start).replace(tzinfo=self.zone))

    @property
    def start_in_week_us(self) -> int | None:
        """Local time from Monday, 0:00, to the start, in microseconds; None where it is `now`."""
        if self.start == "now":
            return None
        local = datetime.fromisoformat(self.start)
        midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
        return microseconds(local - midnight + timedelta(days=local.weekday()))

    @property
    def step_us(self) -> int:
        """Length of a step in microseconds."""
        return microseconds(self.step)

    @property
    def grace_us(self) -> int:
        """Grace in microseconds."""
        return microseconds(self.grace)

    def problems(self) -> Iterator[ConfigProblem]:
        """A start that does not exist, or that a replay cannot have."""
        if self.start == "now":
            if self.clock == "replay":
                yield ConfigProblem(
                    "start",
                    'is "now", but a replay runs in the time of its file',
                    'write the local time of the first step, such as "2016-01-01T00:00:00"',
                )
            return
        local = datetime.fromisoformat(self.start)
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

"""Lengths of steps, periods and lifetimes, and the begin and end of each step.

A length is an exact duration or a number of calendar units. A duration is always the same number of microseconds:
"1d" is 24 hours. A calendar unit follows the local clock: "1 day" goes from midnight to midnight, and has 23 or 25
hours when the clocks change. All times are int64 microseconds since 1970-01-01 UTC.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from typing import Literal
from zoneinfo import ZoneInfo

import numpy as np

from schemas.arrays import IntArray
from schemas.errors import StepError
from schemas.zones import zone

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ONE_US = timedelta(microseconds=1)
Unit = Literal["day", "week", "month", "quarter", "year"]

DAYS: dict[str, int] = {"day": 1, "week": 7}
MONTHS: dict[str, int] = {"month": 1, "quarter": 3, "year": 12}
CALENDAR_PATTERN = r"[1-9][0-9]* (day|week|month|quarter|year)s?"
MAX_DAYS, MAX_MONTHS = 36_600, 1_200
"""Longest length of the calendar: a hundred years."""
_CALENDAR = re.compile(CALENDAR_PATTERN, re.ASCII)
_DAY_US = 86_400_000_000
_MAX_FORWARD_US = 12 * 3_600_000_000
"""More than the clocks of any place have gone forward at once: those of Macquarie Island did by 10 hours. The whole
day that Samoa skipped in 2011 is an exception: a step of one day is then no step, and a longer step lacks that day."""


def instant(at_us: int) -> datetime:
    """Return microseconds since 1970 as a datetime in UTC. Raises: OverflowError outside the years 1 to 9999."""
    return EPOCH + timedelta(microseconds=at_us)


def epoch_us(moment: datetime) -> int:
    """Return the exact number of microseconds since 1970 of an aware datetime."""
    return (moment - EPOCH) // ONE_US


@dataclass(frozen=True, slots=True)
class CalendarLength:
    """A number of calendar units: days, weeks, months, quarters or years."""

    number: int
    unit: Unit

    def __str__(self) -> str:
        return f"{self.number} {self.unit}{'s' if self.number > 1 else ''}"

    def __mul__(self, times: int) -> CalendarLength:
        return CalendarLength(self.number * times, self.unit)

    @property
    def days(self) -> int:
        """Number of days; 0 for a length in months."""
        return self.number * DAYS.get(self.unit, 0)

    @property
    def months(self) -> int:
        """Number of months; 0 for a length in days."""
        return self.number * MONTHS.get(self.unit, 0)

    @property
    def within_century(self) -> bool:
        """Whether it is a hundred years or shorter."""
        return self.days <= MAX_DAYS and self.months <= MAX_MONTHS

    def after(self, start: date, count: int) -> date:
        """Return the date that is `count` times this length after `start`.

        >>> CalendarLength(1, "quarter").after(date(2019, 10, 1), 1)
        datetime.date(2020, 1, 1)
        """
        if self.days:
            return start + timedelta(days=count * self.days)
        month = start.year * 12 + start.month - 1 + count * self.months
        return start.replace(year=month // 12, month=month % 12 + 1)

    def floor(self, local: datetime) -> datetime:
        """Return the begin of the unit that contains a local time; weeks begin on Monday.

        >>> CalendarLength(1, "week").floor(datetime(2024, 5, 2, 17, 30))
        datetime.datetime(2024, 4, 29, 0, 0)
        """
        day = local.date()
        if self.unit == "week":
            day -= timedelta(days=day.weekday())
        elif self.months:
            units = MONTHS[self.unit]
            day = day.replace(month=(day.month - 1) // units * units + 1, day=1)
        return datetime.combine(day, time())

    def begins(self, local: datetime) -> bool:
        """Return whether a unit may begin at this local time.

        Days and weeks may begin at any midnight, the other units at midnight of the first day of one.
        """
        return self.floor(local) == local or (self.unit == "week" and local.time() == time())


Length = timedelta | CalendarLength


def parse_calendar(text: str) -> CalendarLength | None:
    """Return the length that a text such as `"1 day"` or `"2 weeks"` denotes; None for any other text."""
    if not _CALENDAR.fullmatch(text):
        return None
    number, unit = text.split()
    units: dict[str, Unit] = {"day": "day", "week": "week", "month": "month", "quarter": "quarter", "year": "year"}
    return CalendarLength(int(number), units[unit.removesuffix("s")])


def steps_in(length: Length, step: Length) -> int | None:
    """Return the number of steps in a length; None if it is not an integer, or not the same everywhere.

    >>> steps_in(CalendarLength(1, "year"), CalendarLength(1, "month"))
    12
    >>> steps_in(CalendarLength(1, "month"), CalendarLength(1, "day")) is None
    True
    """
    if isinstance(length, timedelta) and isinstance(step, timedelta):
        count, rest = divmod(length, step) if step > timedelta(0) else (0, length)
        return None if rest else count
    if isinstance(length, CalendarLength) and isinstance(step, CalendarLength):
        for whole, part in ((length.days, step.days), (length.months, step.months)):
            if whole and part:
                return None if whole % part else whole // part
    return None


def length_fields(name: str, length: Length | None) -> dict[str, int | str | None]:
    """Return a length as the key and value of a fingerprint: a duration in microseconds, a calendar length as text.

    >>> length_fields("per", timedelta(seconds=1)), length_fields("per", CalendarLength(1, "day"))
    ({'per_us': 1000000}, {'per': '1 day'})
    """
    if isinstance(length, CalendarLength):
        return {name: str(length)}
    return {f"{name}_us": None if length is None else length // ONE_US}


@cache
def min_length_us(length: Length) -> int:
    """Return the fewest microseconds that a length can have, in any zone and at any time.

    >>> min_length_us(CalendarLength(1, "day")) / 3_600_000_000
    12.0
    """
    if isinstance(length, timedelta):
        return length // ONE_US
    if length.days:
        days = length.days
    else:
        # These years contain two turns of a century without a leap day.
        starts = [date(1795 + month // 12, month % 12 + 1, 1) for month in range(72)]
        days = min((length.after(start, 1) - start).days for start in starts)
    skipped = 1 if days > 1 else 0
    return (days - skipped) * _DAY_US - _MAX_FORWARD_US


LAST_YEAR = 2400
"""First year in which no calendar step begins, so that the begins of all steps fit into memory."""
PINNED_YEARS = 100
"""Years from the start of a stream for which its fingerprint holds the begin of each step."""
BEYOND_LAST_STEP = 1 << 62
"""Index for times after the last step; it is too far ahead for any stream."""
_CHUNK = 512


class Steps(ABC):
    """A sequence of steps, strictly increasing in time."""

    @abstractmethod
    def indices(self, times_us: IntArray) -> IntArray:
        """Return the step that contains each time; negative before the start."""

    @abstractmethod
    def begin(self, step: int) -> int:
        """Return the first microsecond of a step. Raises: StepError if a calendar has no such step."""

    @abstractmethod
    def index(self, at_us: int) -> int:
        """Return the step that contains a time; negative before the start."""


@dataclass(frozen=True, slots=True)
class FixedSteps(Steps):
    """Steps of one length."""

    start_us: int
    step_us: int

    def indices(self, times_us: IntArray) -> IntArray:
        return (times_us - self.start_us) // self.step_us

    def begin(self, step: int) -> int:
        return self.start_us + step * self.step_us

    def index(self, at_us: int) -> int:
        return (at_us - self.start_us) // self.step_us


@dataclass(frozen=True, slots=True)
class CalendarSteps(Steps):
    """Steps of a calendar length in one time zone.

    A step begins when local clocks first show 0:00 of its date or later: if 0:00 is skipped, at the first time that
    exists; if 0:00 occurs twice, at the first occurrence. A unit that the clocks skip as a whole, as Samoa skipped a
    day in 2011, is no step.

    Attributes:
        start: local time at which step 0 begins, without a zone; the begin of a unit.
        zone: name of the zone in the IANA database.
    """

    start: datetime
    length: CalendarLength
    zone: str

    def indices(self, times_us: IntArray) -> IntArray:
        if not len(times_us):
            return np.zeros(0, np.int64)
        begins = self._begins.until(int(times_us.max()))
        first, last = np.searchsorted(begins, [times_us.min(), times_us.max()], side="right").tolist()
        # The times of a batch are in few steps, so only these are searched.
        steps = np.searchsorted(begins[first:last], times_us, side="right").astype(np.int64, copy=False) + (first - 1)
        return np.where(steps == len(begins) - 1, BEYOND_LAST_STEP, steps) if last == len(begins) else steps

    def begin(self, step: int) -> int:
        return self._begins.at(step)

    def index(self, at_us: int) -> int:
        return int(self.indices(np.array([at_us], np.int64))[0])

    def digest(self) -> str:
        """Return the SHA-256 of the begins of all steps within `PINNED_YEARS`."""
        begins = self._begins
        end = begins.at(0) + PINNED_YEARS * 366 * 86_400_000_000
        pinned = begins.until(end)
        return hashlib.sha256(pinned[pinned < end].astype("<i8").tobytes()).hexdigest()

    @property
    def _begins(self) -> BeginCache:
        return _begins(self)


class BeginCache:
    """The begins of calendar steps, computed as far as they were requested.

    Threads that extend it at the same time replace an array by an equal or a longer one.
    """

    def __init__(self, steps: CalendarSteps) -> None:
        self._steps, self._zone = steps, zone(steps.zone)
        self._computed = (np.array([first_us(steps.start, self._zone)], np.int64), 1)

    def until(self, at_us: int) -> IntArray:
        """Return the begins up to the first one after `at_us`; all begins if there is none after it."""
        begins, unit = self._computed
        while begins[-1] <= at_us and unit:
            begins, unit = self._extended(begins, unit)
        return begins

    def at(self, step: int) -> int:
        """Return the begin of a step. Raises: StepError if there is no such step."""
        begins, unit = self._computed
        while len(begins) <= step and unit:
            begins, unit = self._extended(begins, unit)
        if not 0 <= step < len(begins):
            raise StepError(f"there is no step {step}: calendar steps go from 0 to the year {LAST_YEAR}")
        return int(begins[step])

    def _extended(self, begins: IntArray, unit: int) -> tuple[IntArray, int]:
        """Return the begins with those of the next units, and the number of the unit after them; 0 if there is none."""
        start, length = self._steps.start.date(), self._steps.length
        last, more = int(begins[-1]), []
        for number in range(unit, unit + _CHUNK):
            day = length.after(start, number)
            if day.year >= LAST_YEAR:
                unit = 0
                break
            begin = first_us(datetime.combine(day, time()), self._zone)
            if begin > last:
                more.append(begin)
                last = begin
        else:
            unit += _CHUNK
        self._computed = extended = (np.concatenate([begins, np.array(more, np.int64)]), unit)
        return extended


@cache
def _begins(steps: CalendarSteps) -> BeginCache:
    return BeginCache(steps)


def first_us(local: datetime, where: ZoneInfo) -> int:
    """Return the first instant at which the clocks of a zone show this local time or a later one."""
    aware = local.replace(tzinfo=where)
    at = epoch_us(aware)
    # Both folds have the same offset unless the time is skipped or occurs twice.
    if aware.utcoffset() == aware.replace(fold=1).utcoffset() or _shown(at, where) == local:
        return at
    # The clocks go forward over the time, at a whole second and by at most two days.
    low, high = at // 1_000_000 - 2 * 86_400, -(-at // 1_000_000)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _shown(middle * 1_000_000, where) >= local else (middle, high)
    return high * 1_000_000


def _shown(at_us: int, where: ZoneInfo) -> datetime:
    return instant(at_us).astimezone(where).replace(tzinfo=None)

"""Lengths of steps, periods and lifetimes, and where each step begins and ends.

A length is an exact duration or so many units of the calendar. A duration is the same number of microseconds
wherever it stands: "1d" is 24 hours. A unit of the calendar is what local clocks say: "1 day" goes from midnight to
midnight, and has 23 or 25 hours when they change. All times are int64 microseconds since 1970-01-01 UTC.
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

Unit = Literal["day", "week", "month", "quarter", "year"]

DAYS: dict[str, int] = {"day": 1, "week": 7}
MONTHS: dict[str, int] = {"month": 1, "quarter": 3, "year": 12}
CALENDAR_PATTERN = r"[1-9][0-9]* (day|week|month|quarter|year)s?"
MOST_DAYS, MOST_MONTHS = 36_600, 1_200
"""A hundred years."""
_WHOLE = re.compile(CALENDAR_PATTERN, re.ASCII)
_DAY_US = 86_400_000_000
_CLOCKS_US = 12 * 3_600_000_000
"""More than clocks of one place have ever gone forward, Macquarie Island's by 10 hours; but for a whole day, which
Samoa skipped in 2011: a step of one day is then no step, and a longer one lacks that day."""


@dataclass(frozen=True, slots=True)
class CalendarLength:
    """So many units of the calendar: days and weeks, or months, quarters and years, in which a day is always whole."""

    number: int
    unit: Unit

    def __str__(self) -> str:
        return f"{self.number} {self.unit}{'s' if self.number > 1 else ''}"

    def __mul__(self, times: int) -> CalendarLength:
        return CalendarLength(self.number * times, self.unit)

    @property
    def days(self) -> int:
        """Number of days; 0 where it is counted in months."""
        return self.number * DAYS.get(self.unit, 0)

    @property
    def months(self) -> int:
        """Number of months; 0 where it is counted in days."""
        return self.number * MONTHS.get(self.unit, 0)

    @property
    def most(self) -> bool:
        """True where it is within a hundred years."""
        return self.days <= MOST_DAYS and self.months <= MOST_MONTHS

    def after(self, start: date, count: int) -> date:
        """Return the day on which, `count` of these after `start`, another one begins.

        >>> CalendarLength(1, "quarter").after(date(2019, 10, 1), 1)
        datetime.date(2020, 1, 1)
        """
        if self.days:
            return start + timedelta(days=count * self.days)
        month = start.year * 12 + start.month - 1 + count * self.months
        return start.replace(year=month // 12, month=month % 12 + 1)

    def floor(self, local: datetime) -> datetime:
        """Return the begin of the unit that a local time is in; weeks begin on Monday.

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
        """Return whether a unit begins at this local time.

        It does at any midnight for days and weeks, and at that of the first of a month, a quarter or a year.
        """
        return self.floor(local) == local or (self.unit == "week" and local.time() == time())


Length = timedelta | CalendarLength


def parse_calendar(text: str) -> CalendarLength | None:
    """Return `"1 day"`, `"2 weeks"` as units of the calendar; None for anything else."""
    if not _WHOLE.fullmatch(text):
        return None
    number, unit = text.split()
    name: dict[str, Unit] = {"day": "day", "week": "week", "month": "month", "quarter": "quarter", "year": "year"}
    return CalendarLength(int(number), name[unit.removesuffix("s")])


def steps_in(length: Length, step: Length) -> int | None:
    """Return how many steps a length has; None where that is no whole number, or not the same everywhere.

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
    """Return a length as a fingerprint holds it: a duration in microseconds, units of the calendar as text.

    >>> length_fields("per", timedelta(seconds=1)), length_fields("per", CalendarLength(1, "day"))
    ({'per_us': 1000000}, {'per': '1 day'})
    """
    if isinstance(length, CalendarLength):
        return {name: str(length)}
    return {f"{name}_us": None if length is None else length // timedelta(microseconds=1)}


@cache
def least_us(length: Length) -> int:
    """Return how many microseconds it has at least, wherever it stands, in whichever zone; of a duration, those it has.

    >>> least_us(CalendarLength(1, "day")) / 3_600_000_000, least_us(CalendarLength(1, "month")) / 86_400_000_000 > 26
    (12.0, True)
    """
    if isinstance(length, timedelta):
        return length // timedelta(microseconds=1)
    if length.days:
        days = length.days
    else:
        # Over two turns of centuries that have no leap day.
        starts = [date(1795 + month // 12, month % 12 + 1, 1) for month in range(72)]
        days = min((length.after(start, 1) - start).days for start in starts)
    skipped = 1 if days > 1 else 0
    return (days - skipped) * _DAY_US - _CLOCKS_US


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_YEAR = 2400
"""No calendar step begins in it or later: all that there can ever be are few enough to be written down."""
PINNED_YEARS = 100
"""From the start of a stream on, for which its fingerprint says when each step begins."""
FAR = 1 << 62
"""The step of a time behind the last one: too far ahead for whoever asks."""
_ONE_US = timedelta(microseconds=1)
_CHUNK = 512


class Steps(ABC):
    """A sequence of steps, strictly increasing in time."""

    @abstractmethod
    def of(self, times_us: IntArray) -> IntArray:
        """Return the step that covers each time; negative before the start."""

    @abstractmethod
    def begin(self, step: int) -> int:
        """Return the first microsecond of a step. Raises: StepError where a calendar has no such step."""

    @abstractmethod
    def of_one(self, at_us: int) -> int:
        """Return the step that covers a time; negative before the start."""


@dataclass(frozen=True, slots=True)
class FixedSteps(Steps):
    """Steps of one length."""

    start_us: int
    step_us: int

    def of(self, times_us: IntArray) -> IntArray:
        return (times_us - self.start_us) // self.step_us

    def begin(self, step: int) -> int:
        return self.start_us + step * self.step_us

    def of_one(self, at_us: int) -> int:
        return (at_us - self.start_us) // self.step_us


@dataclass(frozen=True, slots=True)
class CalendarSteps(Steps):
    """Steps of so many units of the calendar in one zone.

    A step begins when local clocks first show its date, 0:00 or later: where 0:00 is skipped, at the first time that
    there is; where it comes twice, the first time. A unit that clocks skip as a whole, as Samoa did a day in 2011, is
    no step.

    Attributes:
        start: local time at which step 0 begins, without a zone; a unit begins there.
        zone: name in the IANA database.
    """

    start: datetime
    length: CalendarLength
    zone: str

    def of(self, times_us: IntArray) -> IntArray:
        if not len(times_us):
            return np.zeros(0, np.int64)
        begins = self._begins.until(int(times_us.max()))
        first, last = np.searchsorted(begins, [times_us.min(), times_us.max()], side="right").tolist()
        # Times of a batch are of few steps: these alone are searched.
        steps = np.searchsorted(begins[first:last], times_us, side="right").astype(np.int64, copy=False) + (first - 1)
        return np.where(steps == len(begins) - 1, FAR, steps) if last == len(begins) else steps

    def begin(self, step: int) -> int:
        return self._begins.at(step)

    def of_one(self, at_us: int) -> int:
        return int(self.of(np.array([at_us], np.int64))[0])

    def digest(self) -> str:
        """Return the SHA-256 of the begins of all steps of `PINNED_YEARS`: who agrees on it agrees on each of them."""
        begins = self._begins
        end = begins.at(0) + PINNED_YEARS * 366 * 86_400_000_000
        pinned = begins.until(end)
        return hashlib.sha256(pinned[pinned < end].astype("<i8").tobytes()).hexdigest()

    @property
    def _begins(self) -> Begins:
        return _begins(self)


class Begins:
    """Begins of calendar steps, worked out as far as somebody has asked.

    A cache of a pure function: threads that extend it at the same time replace an array by an equal or a longer one.
    """

    def __init__(self, steps: CalendarSteps) -> None:
        self._steps, self._zone = steps, zone(steps.zone)
        self._found = (np.array([first_us(steps.start, self._zone)], np.int64), 1)

    def until(self, at_us: int) -> IntArray:
        """Return begins up to one behind `at_us`, or all."""
        begins, unit = self._found
        while begins[-1] <= at_us and unit:
            begins, unit = self._longer(begins, unit)
        return begins

    def at(self, step: int) -> int:
        """Return the begin of a step. Raises: StepError."""
        begins, unit = self._found
        while len(begins) <= step and unit:
            begins, unit = self._longer(begins, unit)
        if not 0 <= step < len(begins):
            raise StepError(f"there is no step {step}: steps of the calendar go from 0 to the year {LAST_YEAR}")
        return int(begins[step])

    def _longer(self, begins: IntArray, unit: int) -> tuple[IntArray, int]:
        """Return begins with the next units, and the number of the unit behind them; 0 where there is none."""
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
        self._found = found = (np.concatenate([begins, np.array(more, np.int64)]), unit)
        return found


@cache
def _begins(steps: CalendarSteps) -> Begins:
    return Begins(steps)


def first_us(local: datetime, where: ZoneInfo) -> int:
    """Return the first instant at which clocks of a zone show this local time or a later one."""
    aware = local.replace(tzinfo=where)
    at = (aware - EPOCH) // _ONE_US
    # Only where it is skipped, or comes twice, is its offset two.
    if aware.utcoffset() == aware.replace(fold=1).utcoffset() or _shown(at, where) == local:
        return at
    # Clocks go forward over it, at a whole second, and by two days at most.
    low, high = at // 1_000_000 - 2 * 86_400, -(-at // 1_000_000)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _shown(middle * 1_000_000, where) >= local else (middle, high)
    return high * 1_000_000


def _shown(at_us: int, where: ZoneInfo) -> datetime:
    return (EPOCH + timedelta(microseconds=at_us)).astimezone(where).replace(tzinfo=None)

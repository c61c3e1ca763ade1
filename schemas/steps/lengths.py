"""How long a step, a period or a lifetime is: an exact duration, or so many units of the calendar.

A duration is the same number of microseconds wherever it stands: "1d" is 24 hours. A unit of the calendar is what local
clocks say: "1 day" goes from midnight to midnight, and has 23 or 25 hours when they change.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import cache
from typing import Literal

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
        """0 where it is counted in months."""
        return self.number * DAYS.get(self.unit, 0)

    @property
    def months(self) -> int:
        """0 where it is counted in days."""
        return self.number * MONTHS.get(self.unit, 0)

    @property
    def most(self) -> bool:
        """Whether it is within a hundred years."""
        return self.days <= MOST_DAYS and self.months <= MOST_MONTHS

    def after(self, start: date, count: int) -> date:
        """The day on which, `count` of these after `start`, another one begins.

        >>> CalendarLength(1, "quarter").after(date(2019, 10, 1), 1)
        datetime.date(2020, 1, 1)
        """
        if self.days:
            return start + timedelta(days=count * self.days)
        month = start.year * 12 + start.month - 1 + count * self.months
        return start.replace(year=month // 12, month=month % 12 + 1)

    def floor(self, local: datetime) -> datetime:
        """The begin of the unit that a local time is in; weeks begin on Monday.

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
        """Whether a unit begins at this local time: any midnight for days and weeks, the first of a month, a quarter,
        a year."""
        return self.floor(local) == local or (self.unit == "week" and local.time() == time())


Length = timedelta | CalendarLength


def parse_calendar(text: str) -> CalendarLength | None:
    """`"1 day"`, `"2 weeks"` as units of the calendar; None for anything else."""
    if not _WHOLE.fullmatch(text):
        return None
    number, unit = text.split()
    name: dict[str, Unit] = {"day": "day", "week": "week", "month": "month", "quarter": "quarter", "year": "year"}
    return CalendarLength(int(number), name[unit.removesuffix("s")])


def steps_in(length: Length, step: Length) -> int | None:
    """How many steps a length has; None where that is no whole number, or not the same everywhere.

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
    """A length among the facts of a stream that must not change: a duration in microseconds, as ever; or as text.

    >>> length_fields("per", timedelta(seconds=1)), length_fields("per", CalendarLength(1, "day"))
    ({'per_us': 1000000}, {'per': '1 day'})
    """
    if isinstance(length, CalendarLength):
        return {name: str(length)}
    return {f"{name}_us": None if length is None else length // timedelta(microseconds=1)}


@cache
def least_us(length: Length) -> int:
    """Microseconds that it has at least, wherever it stands, in whichever zone; of a duration, those it has.

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

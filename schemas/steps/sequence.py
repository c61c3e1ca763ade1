"""Where each step begins and ends, and which step a time is in. Pure, exact; all times are int64 microseconds since
1970-01-01 UTC.

Step s covers `[begin(s), begin(s + 1))`, so steps leave out nothing and share nothing. `of` is the inverse of `begin`.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import numpy as np

from schemas.arrays import IntArray
from schemas.errors import StepError
from schemas.steps.lengths import CalendarLength
from schemas.steps.zones import zone

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
        """The step that covers each time; negative before the start."""

    @abstractmethod
    def begin(self, step: int) -> int:
        """First microsecond of a step. Raises: StepError where a calendar has no such step."""

    @abstractmethod
    def of_one(self, at_us: int) -> int:
        """The step that covers a time; negative before the start."""


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
        """SHA-256 of the begins of all steps of `PINNED_YEARS`: two machines that agree on it agree on each of them."""
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
        """Begins up to one behind `at_us`, or all."""
        begins, unit = self._found
        while begins[-1] <= at_us and unit:
            begins, unit = self._longer(begins, unit)
        return begins

    def at(self, step: int) -> int:
        """Raises: StepError."""
        begins, unit = self._found
        while len(begins) <= step and unit:
            begins, unit = self._longer(begins, unit)
        if not 0 <= step < len(begins):
            raise StepError(f"there is no step {step}: steps of the calendar go from 0 to the year {LAST_YEAR}")
        return int(begins[step])

    def _longer(self, begins: IntArray, unit: int) -> tuple[IntArray, int]:
        """With the next units, and the number of the one behind them; 0 where there is none."""
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
    """The first instant at which clocks of a zone show this local time or a later one."""
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

"""What a series stream measures: its fields, each on a public lattice of integers, and events as keys on it.

A key has one word for each field, the event's value in lattice steps (two's complement); folding equal keys loses
nothing, so the total of a step is an exact integer sum. Lattice steps are powers of two: a float is scaled exactly.
Guarantee: sensitivity, proven at `SeriesField.shift`.
Source: ours; noise goes on integers only (docs/guarantee.md section 2).
Units: values and limits in the raw field's units, totals and shifts in lattice steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np

from engines.core.contract import Columns, ScalarKind
from engines.core.noise import aggregate
from engines.core.noise.private import revealed
from schemas.arrays import BoolArray, FloatArray, IntArray, KeyArray, ReasonArray
from schemas.blocks import Folded
from schemas.errors import EngineInputError
from schemas.events import Reason

Of = Literal["sum", "count", "value", "histogram"]
Total = Any
"""What a step has of a field: a whole number, or `(bins,)` int64 counts of a histogram."""
_SUM_BITS = 13
"""A summed event of the largest size is at least 2**13 lattice steps: rounding is far below any useful noise."""
_VALUE_BITS = 10
"""As much for the declared sensitivity of a reading."""
_END = 2**60
_LARGEST = 2**45
"""Of a single value, in lattice steps; totals of 2**17 of them still are exact."""
_FULL = 2**40
"""Events that a bin counts at most."""
_READ = Fraction(1, 2**8)
"""Lattice steps by which reading two decimals as float64 can take them further apart: a last digit at `_LARGEST`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesField:
    """One number per step.

    Args:
        name: of the raw events' field, and of the released one. With `of = "count"` no field is read.
        of: `sum` of the field over a step's events; their `count`; the `value` of a reading that was aggregated
            upstream (the mean where a step has several); or the `histogram` of the field.
        limits: values outside are clipped to them; not for a count or a histogram.
        sensitivity: `value` only: how much one user can move a reading.
        share: of the budget, relative to the other fields' shares.
        edges: of a histogram's bins, ascending. There is a bin below the first and one above the last.
    Raises: EngineInputError.
    """

    written_as: ClassVar[str] = "SeriesField"

    name: str
    of: Of = "count"
    limits: tuple[float, float] | None = None
    sensitivity: float | None = None
    share: Fraction = Fraction(1)
    edges: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.share <= 0:
            raise EngineInputError("share must be positive")
        if (self.of == "histogram") != (self.edges is not None):
            raise EngineInputError("a histogram has edges, and nothing else has")
        if self.edges is not None and not (len(self.edges) > 1 and all(a < b for a, b in pairwise(self.edges))):
            raise EngineInputError("edges must be two or more numbers in ascending order")
        if self.of in ("count", "histogram"):
            return
        if self.limits is None or not -math.inf < self.limits[0] < self.limits[1] < math.inf:
            raise EngineInputError("limits must be two finite numbers, the lower one first")
        if self.of == "value" and not (self.sensitivity is not None and 0 < self.sensitivity < math.inf):
            raise EngineInputError("sensitivity must be positive for a field that is a value")
        if max(map(abs, self.bounds)) > _LARGEST:
            raise EngineInputError("limits are too wide for this sensitivity: 2**35 times it at most")

    @property
    def exponent(self) -> int:
        """The lattice step is 2**exponent."""
        if self.of in ("count", "histogram"):
            return 0
        if self.of == "value":
            assert self.sensitivity is not None
            return math.frexp(self.sensitivity)[1] - 1 - _VALUE_BITS
        assert self.limits is not None
        return math.frexp(max(map(abs, self.limits)))[1] - 1 - _SUM_BITS

    @property
    def unit(self) -> float:
        """The lattice step."""
        return math.ldexp(1.0, self.exponent)

    @property
    def bounds(self) -> tuple[int, int]:
        """Limits of one event's value on the lattice; of a histogram, its first and its last bin."""
        if self.edges is not None:
            return 0, len(self.edges)
        if self.limits is None:
            return 1, 1
        low, high = self.lattice(np.array(self.limits)).tolist()
        return int(low), int(high)

    @property
    def shift(self) -> int:
        """How far one event moves the total of its step, at most, in lattice steps.

        `sum` and `count`: an event adds its clipped, rounded value v, and rounding is monotone, so |v| is at most
        that of a limit. `value`: neighbouring readings differ by at most the sensitivity s as they are written. Read as
        float64 and clipped, each is off by at most 2^-9 of a lattice step (no limit is beyond 2^45 of them), so they
        differ by s + 2^-8 steps at most; and floor(a) - floor(b) is at most ceil(d) where a - b is at most d. The mean
        of n readings is floor(sum / n): sums differ by n times that at most, so the floors by that at most.
        `histogram`: an event has one bin (`lattice` is a function), so it moves one count by 1 and the others by
        nothing: the vector of counts by 1, in L1 and in L2 norm.
        """
        if self.of == "histogram":
            return 1
        if self.of == "value":
            assert self.sensitivity is not None
            return math.ceil(Fraction(self.sensitivity) / Fraction(self.unit) + _READ)
        return max(map(abs, self.bounds))

    @property
    def range(self) -> tuple[float, float]:
        """Where the released total can lie by what is public; infinite where nothing is known."""
        if self.of == "value":
            assert self.limits is not None
            return self.limits
        if self.of == "sum":
            assert self.limits is not None
            low, high = self.limits
            return (0.0 if low >= 0 else -math.inf), (0.0 if high <= 0 else math.inf)
        return 0.0, math.inf

    def lattice(self, values: FloatArray) -> IntArray:
        """Clip to the limits and put on the lattice. Exact but for the rounding that is meant: 2**-exponent is a
        power of two. A reading is rounded down (see `shift`), a summed value to the nearest. Of a histogram, the number
        of the bin: 0 below the first edge, and the number of edges above the last.
        """
        if self.of == "count":
            return np.ones(len(values), np.int64)
        if self.edges is not None:
            bins = np.searchsorted(self.edges, values, "right")
            return np.where(values == self.edges[-1], len(self.edges) - 1, bins).astype(np.int64)
        assert self.limits is not None
        scaled = np.ldexp(np.clip(values, *self.limits), -self.exponent)
        return (np.floor(scaled) if self.of == "value" else np.rint(scaled)).astype(np.int64)

    def real(self, total: float) -> float:
        """Return a total in the field's units; the middle of the lattice step where values are rounded down."""
        return (total + (0.5 if self.of == "value" else 0.0)) * self.unit


@dataclass(frozen=True, slots=True)
class GroupedBy:
    """Events are counted apart by a field with public values: an event is in the one group that its value names.

    Raises: EngineInputError if values are missing or come twice.
    """

    written_as: ClassVar[str] = "GroupedBy"

    field: str
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.values or len(set(self.values)) < len(self.values):
            raise EngineInputError("values must be at least one, each once")

    def numbers(self, columns: Columns) -> IntArray:
        """Return the number of each event's group, `(events,)`; -1 where its value names none."""
        known = {value: number for number, value in enumerate(self.values)}
        texts = columns.texts[self.field]
        return np.fromiter((known.get(text, -1) for text in texts), np.int64, len(texts))


@dataclass(frozen=True, slots=True)
class SeriesDomain:
    """Implements `engines.core.contract.Domain`. All fields are readings, or none is; so with histograms.

    A key has one word for each field and, with groups, a last one for the number of the event's group.
    """

    written_as: ClassVar[str] = "SeriesDomain"
    value_fields: ClassVar[Mapping[str, frozenset[ScalarKind]]] = {}

    fields: tuple[SeriesField, ...]
    by: GroupedBy | None = None

    def __post_init__(self) -> None:
        if self.by is not None and self.readings:
            raise EngineInputError("readings have no groups: every user is in each of them")
        if not self.fields or len({field.name for field in self.fields}) < len(self.fields):
            raise EngineInputError("fields must be at least one, with different names")
        if len({field.of == "value" for field in self.fields}) > 1:
            raise EngineInputError("readings and sums over users cannot be in one stream")
        if len({field.of == "histogram" for field in self.fields}) > 1:
            raise EngineInputError("histograms and other numbers cannot be in one stream")

    @property
    def readings(self) -> bool:
        """Whether every record is a reading of all fields."""
        return self.fields[0].of == "value"

    @property
    def groups(self) -> tuple[str | None, ...]:
        """Values of the groups, None where all events are one."""
        return (None,) if self.by is None else self.by.values

    @property
    def parts(self) -> tuple[tuple[SeriesField, str | None], ...]:
        """Field and group of each total of a step, in their order: all groups of the first field come first."""
        return tuple((field, group) for field in self.fields for group in self.groups)

    @property
    def histograms(self) -> bool:
        """Whether every field is a histogram."""
        return self.fields[0].of == "histogram"

    @property
    def number_fields(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields if field.of != "count")

    @property
    def text_fields(self) -> tuple[str, ...]:
        return () if self.by is None else (self.by.field,)

    @property
    def words(self) -> int:
        return len(self.fields) + (self.by is not None)

    def encode(self, columns: Columns) -> tuple[KeyArray, ReasonArray]:
        """See `engines.core.contract.Domain.encode`. Values outside the limits are clipped: see `clipped`.

        >>> domain = SeriesDomain((SeriesField(name="km", of="sum", limits=(0.0, 100.0)),))
        >>> keys, _ = domain.encode(Columns({"km": np.array([1.5, 400.0])}, {}, np.ones(2, np.int8)))
        >>> (keys * domain.fields[0].unit).tolist()
        [[1.5], [100.0]]
        """
        size = len(columns.operations)
        reasons = np.full(size, Reason.ACCEPTED, np.uint8)
        keys = np.zeros((size, self.words), np.int64)
        for word, field in enumerate(self.fields):
            if field.of == "count":
                keys[:, word] = 1
                continue
            values = columns.numbers[field.name]
            finite = np.isfinite(values)
            reasons[~finite] = Reason.NOT_FINITE
            keys[:, word] = field.lattice(np.where(finite, values, field.limits[0] if field.limits else 0.0))
        if self.by is not None:
            group = self.by.numbers(columns)
            reasons[group < 0] = Reason.OUTSIDE_DOMAIN
            keys[:, -1] = np.maximum(group, 0)
        reasons[columns.operations != 1] = Reason.BAD_OPERATION
        return keys.view(np.uint64), reasons

    def at_fault(self, columns: Columns) -> list[str]:
        """See `engines.core.contract.FaultNamingDomain`: numbers that are not finite, and groups that are not there.

        >>> domain = SeriesDomain((SeriesField(name="n"),), by=GroupedBy("region", ("north", "south")))
        >>> domain.at_fault(Columns({}, {"region": ["west"]}, np.ones(1, np.int8)))
        ['region']
        """
        wrong = {name: ~np.isfinite(columns.numbers[name]) for name in self.number_fields}
        if self.by is not None:
            wrong[self.by.field] = self.by.numbers(columns) < 0
        return [
            " and ".join(name for name, rows in wrong.items() if rows[row]) for row in range(len(columns.operations))
        ]

    def clipped(self, columns: Columns) -> BoolArray:
        """See `engines.core.contract.ClippingDomain`."""
        outside = np.zeros(len(columns.operations), np.bool_)
        for field in self.fields:
            if field.limits is not None and field.of != "count":
                values = columns.numbers[field.name]
                outside |= (values < field.limits[0]) | (values > field.limits[1])
        return outside

    def totals(self, events: Folded) -> tuple[list[Total], bool]:
        """Return the totals of a step in lattice steps, one for each of `parts`, exact up to 2**60; and whether there
        are any. Of a histogram they are the events in each bin, `(bins,)`, exact up to 2**40.

        A step without events has totals of 0. A step without readings has none: the second value is False. Totals are
        private; whether there are any is public.
        Raises: EngineInputError if a key is not of this domain; it does not say which.
        """
        return self.sums(events), not self.readings or readings_came(events)

    @aggregate
    def sums(self, events: Folded) -> list[Total]:
        """Return the totals of `totals`; private. One event moves each by its field's shift at most."""
        if events.keys.ndim != 2 or events.keys.shape[1] != self.words or (events.counts <= 0).any():
            raise EngineInputError("events are of another domain")
        values = events.keys.view(np.int64)
        limits = [*(field.bounds for field in self.fields), (0, len(self.groups) - 1)]
        for word, (low, high) in zip(range(self.words), limits, strict=False):
            if ((values[:, word] < low) | (values[:, word] > high)).any():
                raise EngineInputError("a key is outside the domain")
        return [
            _total(field, values[rows, word], events.counts[rows])
            for word, field in enumerate(self.fields)
            for rows in self._rows(values)
        ]

    def _rows(self, values: IntArray) -> Sequence[IntArray | slice]:
        """Return the rows of each group, in order. A row is in one of them: they are parts of one permutation."""
        if self.by is None:
            return [slice(None)]
        order = np.argsort(values[:, -1], kind="stable")
        begins = np.searchsorted(values[order, -1], np.arange(1, len(self.groups)))
        return np.split(order, begins)


def _total(field: SeriesField, values: IntArray, counts: IntArray) -> Total:
    """Return what a field has of these events."""
    if field.of == "histogram":
        return _counts(field, values, counts)
    # Python's integers: no overflow that would tell of the values.
    total = sum(value * count for value, count in zip(values.tolist(), counts.tolist(), strict=True))
    if field.of == "value" and len(counts):
        total //= sum(counts.tolist())
    # Moved to an end that is never met: monotone, so that totals of neighbours come no further apart.
    return max(-_END, min(_END, total))


def _counts(field: SeriesField, bins: IntArray, counts: IntArray) -> IntArray:
    """Return events in each bin. Cut at an end that is never met, which moves no neighbours further apart."""
    found = np.zeros(field.bounds[1] + 1, np.int64)
    np.add.at(found, bins, counts)
    return np.minimum(found, _FULL)


def readings_came(events: Folded) -> bool:
    """Whether a step has a reading. Public by declaration, see `guarantee`.

    Readings are aggregated upstream, where nobody's presence decides whether one is sent, and neighbours are readings
    of other values: as many in each step.
    """
    return len(revealed(events).counts) > 0


def shares(fields: Sequence[SeriesField]) -> tuple[Fraction, ...]:
    """Return shares of the budget that add up to one."""
    whole = sum((field.share for field in fields), Fraction(0))
    return tuple(field.share / whole for field in fields)

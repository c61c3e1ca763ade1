"""What an adversary sees, as a table: a row for each secret bit, a column for each number that was released.

A column that a row does not have (a cell that was no leaf) is NaN there: presence is information too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from schemas.arrays import BoolArray, FloatArray

_MANTISSA_BITS = 53
FOCUS = "focus: "
"""Begin of the names of columns that are known to tell: they have a likelihood ratio of their own."""


@dataclass(frozen=True, slots=True, eq=False)
class Observations:
    """Attributes:

    columns: name -> `(runs,)` float64, NaN where a row has none.
    runs: rows of every column.
    """

    columns: Mapping[str, FloatArray]
    runs: int

    @staticmethod
    def of_rows(rows: Sequence[Mapping[str, float]]) -> Observations:
        """One mapping for each row; names may differ from row to row."""
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {name: np.full(len(rows), np.nan) for name in names}
        for index, row in enumerate(rows):
            for name, value in row.items():
                columns[name][index] = value
        return Observations(columns, len(rows))

    @staticmethod
    def of_arrays(**columns: npt.ArrayLike) -> Observations:
        arrays = {name: np.asarray(column, np.float64) for name, column in columns.items()}
        return Observations(arrays, len(next(iter(arrays.values()))))

    def part(self, begin: int, end: int) -> Observations:
        return Observations({name: column[begin:end] for name, column in self.columns.items()}, end - begin)

    def where(self, which: BoolArray) -> Observations:
        return Observations({name: column[which] for name, column in self.columns.items()}, int(which.sum()))


@dataclass(frozen=True, slots=True, eq=False)
class Marked:
    """Observations and the secret bits that they may give away.

    Attributes:
        bits: `(rows,)`, drawn by fair coins: whether the row's unit was in the input (or which of two was).
        each: rows of one run; the rows of a run follow each other, and always in one order.
    """

    bits: BoolArray
    observed: Observations
    each: int = 1

    def part(self, begin: int, end: int) -> Marked:
        """Runs `begin` to `end`."""
        rows = slice(begin * self.each, end * self.each)
        return Marked(self.bits[rows], self.observed.part(rows.start, rows.stop), self.each)

    def side(self, bit: int) -> Observations:
        return self.observed.where(self.bits == bool(bit))

    @property
    def runs(self) -> int:
        return len(self.bits) // self.each


def interleaved(bits: BoolArray, sides: Sequence[Observations]) -> Marked:
    """Runs of input 0 and of input 1, as many as the bits say, in the order of the bits: as if each had chosen."""
    columns = {}
    for name in names_of(*sides):
        column = np.full(len(bits), np.nan)
        for bit, side in enumerate(sides):
            if (found := side.columns.get(name)) is not None:
                column[bits == bool(bit)] = found
        columns[name] = column
    return Marked(bits, Observations(columns, len(bits)))


def names_of(left: Observations, right: Observations) -> list[str]:
    """Columns of either side, in a fixed order."""
    return sorted(left.columns.keys() | right.columns.keys())


def with_low_bits(observed: Observations) -> Observations:
    """The same with two more columns for each column of non-integers: what its low bits are.

    `fraction` is the value modulo 1: integer noise on a real number leaves it bare. `lowest bit` is the position of the
    last bit of the mantissa that is set: noise rounded to float64 leaves the grid of the value it was added to.
    """
    more = {}
    for name, column in observed.columns.items():
        known = np.isfinite(column)
        if not known.any() or (column[known] == np.round(column[known])).all():
            continue
        more[f"{name}: fraction"] = column - np.floor(column)
        more[f"{name}: lowest bit"] = lowest_bit(column)
    return Observations({**observed.columns, **more}, observed.runs)


def lowest_bit(values: FloatArray) -> FloatArray:
    """Exponent of the lowest set bit of each float64; NaN stays NaN, 0 has that of 1.

    >>> lowest_bit(np.array([0.75, 6.0, 0.1, 0.0])).tolist()
    [-2.0, 1.0, -55.0, 0.0]
    """
    known = np.isfinite(values) & (values != 0)
    fraction, exponent = np.frexp(np.where(known, values, 1.0))
    mantissa = np.abs(np.ldexp(fraction, _MANTISSA_BITS)).astype(np.int64)
    trailing = np.frexp((mantissa & -mantissa).astype(np.float64))[1] - 1
    bits = (exponent - _MANTISSA_BITS + trailing).astype(np.float64)
    return np.where(np.isnan(values), np.nan, bits)


def aligned(marked: Marked, taught: int) -> Marked:
    """Make the rows of a run comparable: each column less its mean, turned so that bit 1 is the larger side.

    Means and directions are of the first `taught` runs, separately for each of a run's rows, and those runs must teach
    nothing else. Columns under `FOCUS` are comparable already.
    """
    if marked.each == 1:
        return marked
    bits = marked.bits.reshape(-1, marked.each)
    columns = {}
    for name, column in marked.observed.columns.items():
        if name.startswith(FOCUS):
            columns[name] = column
            continue
        table = column.reshape(-1, marked.each)
        means = [_means(table[:taught], bits[:taught] == bit) for bit in (False, True)]
        middle = _means(table[:taught], np.isfinite(table[:taught]))
        turned = np.where(means[1] < means[0], -1.0, 1.0)
        columns[name] = ((table - middle) * turned).reshape(-1)
    return Marked(marked.bits, Observations(columns, marked.observed.runs), marked.each)


def _means(table: FloatArray, which: BoolArray) -> FloatArray:
    """Of each column over the rows that are marked and there; 0 where there is none."""
    there = which & np.isfinite(table)
    count = there.sum(axis=0)
    means: FloatArray = np.where(there, table, 0.0).sum(axis=0) / np.maximum(count, 1)
    return means

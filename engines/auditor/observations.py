"""What an adversary sees of many runs on one input, as a table: a row for each run, a column for each released number.

A column that a run did not release (a cell that was no leaf) is NaN there: presence is information too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
_MANTISSA_BITS = 53


@dataclass(frozen=True, slots=True, eq=False)
class Observations:
    """Attributes:

    columns: name -> `(runs,)` float64, NaN where a run has none.
    runs: rows of every column.
    """

    columns: Mapping[str, FloatArray]
    runs: int

    @staticmethod
    def of_rows(rows: Sequence[Mapping[str, float]]) -> Observations:
        """One mapping for each run; names may differ from run to run."""
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

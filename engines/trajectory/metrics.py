"""Utility of the trajectory engine: how far synthetic trips are from true ones, by the five figures of the paper.

Not private: for operators only.
Source: [kumar2024], section 5.6.2, equations 5.11 to 5.17.
| figure | of |
|---|---|
| SE_ARE, SE_JSD | numbers of trips by pair of start and end cell |
| FP_ARE, FP_JSD | the 200 most frequent patterns of 2 to 5 cells among the true trips |
| CP_ARE, CP_JSD | the same after runs of one cell are collapsed: most frequent patterns are of staying in a cell |
| QE | numbers of trips that touch a rectangle; 500 of 0.01 % to 0.1 % of the box; divided by 0.1 % of trips at least |

ARE is a mean relative error, JSD the Jensen-Shannon distance (the root of the divergence, natural logarithm).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from engines.core.contract import Columns
from engines.core.noise import seeded
from engines.trajectory.chance import uniforms
from engines.trajectory.domain import HASH, PLACE, TIME, TripDomain, places
from engines.trajectory.grid import Grid
from engines.trajectory.trips import LATTICE, Trips
from schemas.arrays import FloatArray, IntArray
from schemas.blocks import Folded

FIGURES = ("SE_ARE", "SE_JSD", "FP_ARE", "FP_JSD", "QE", "CP_ARE", "CP_JSD")
PATTERNS, LONGEST = 200, 5
QUERIES, SMALLEST, LARGEST = 500, 1e-4, 1e-3
_BUCKETS = Grid(128)


def distance(left: FloatArray | IntArray, right: FloatArray | IntArray) -> float:
    """Return the Jensen-Shannon distance of two vectors of counts; 1 where one of them alone is empty."""
    if left.sum() <= 0 or right.sum() <= 0:
        return float(left.sum() != right.sum())
    p, q = left / left.sum(), right / right.sum()
    m = (p + q) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0, p * np.log(p / m), 0.0) + np.where(q > 0, q * np.log(q / m), 0.0)
    return float(max(terms.sum() / 2, 0.0) ** 0.5)


def _patterns(cells: IntArray, owners: IntArray, base: int) -> IntArray:
    """Number each occurrence of 2 to `LONGEST` cells in a row in a trip; longer ones have larger numbers."""
    parts = [np.zeros(0, np.int64)]
    for length in range(2, min(LONGEST, len(cells)) + 1):
        last = len(cells) - length + 1
        codes = np.full(last, length)
        for place in range(length):
            codes = codes * base + cells[place : place + last]
        parts.append(codes[owners[:last] == owners[length - 1 :]])
    return np.concatenate(parts)


@dataclass(frozen=True, slots=True, eq=False)
class Frequent:
    """The most frequent patterns, `(patterns,)` each: their numbers in ascending order, and how often they occur."""

    grid: Grid
    codes: IntArray
    counts: IntArray

    @staticmethod
    def of(cells: IntArray, owners: IntArray, grid: Grid) -> Frequent:
        codes, counts = np.unique(_patterns(cells, owners, grid.size), return_counts=True)
        top = np.sort(np.argsort(-counts, kind="stable")[:PATTERNS])
        return Frequent(grid, codes[top], counts[top])

    def errors(self, cells: IntArray, owners: IntArray) -> tuple[float, float]:
        """Return ARE and JSD of other trips' patterns."""
        if not len(self.codes):
            return 0.0, 0.0
        found = _patterns(cells, owners, self.grid.size)
        at = np.minimum(np.searchsorted(self.codes, found), len(self.codes) - 1)
        others = np.bincount(at[self.codes[at] == found], minlength=len(self.codes))
        return float(np.mean(np.abs(self.counts - others) / self.counts)), distance(self.counts, others)


def rectangles() -> FloatArray:
    """Return xmin, xmax, ymin, ymax in the unit square, `(QUERIES, 4)`; always the same."""
    area, aspect, left, low = uniforms(4 * QUERIES, seeded(99).child("rectangles")).reshape(4, -1)
    area = SMALLEST + (LARGEST - SMALLEST) * area
    width = np.sqrt(area * np.exp(2 * aspect - 1))
    height = area / width
    x, y = left * (1 - width), low * (1 - height)
    return np.stack([x, x + width, y, y + height], axis=1)


def touched(trips: Trips) -> IntArray:
    """Count the trips with a point in each rectangle, `(QUERIES,)`."""
    buckets = _BUCKETS.cells(trips.x, trips.y)
    order = np.argsort(buckets, kind="stable")
    bounds = np.searchsorted(buckets[order], np.arange(_BUCKETS.size + 1))
    x, y, owners = trips.x[order], trips.y[order], trips.owners[order]
    answers = np.zeros(QUERIES, np.int64)
    for query, (left, right, low, high) in enumerate(rectangles() * LATTICE):
        columns = range(int(left * 128) >> 20, (int(right * 128) >> 20) + 1)
        first, last = int(low * 128) >> 20, min((int(high * 128) >> 20), 127)
        near = np.concatenate(
            [np.arange(bounds[c * 128 + first], bounds[c * 128 + last + 1]) for c in columns if c < 128]
        )
        inside = (x[near] >= left) & (x[near] < right) & (y[near] >= low) & (y[near] < high)
        answers[query] = len(np.unique(owners[near[inside]]))
    return answers


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """True trips, worked out once, to compare synthetic ones with."""

    grid: Grid
    trips: int
    pairs: IntArray
    pair_counts: IntArray
    frequent: Frequent
    collapsed: Frequent
    queries: IntArray

    @staticmethod
    def of(trips: Trips, *, side: int = 40) -> Truth:
        """Work out true trips. Args: trips: at least one. side: of the scoring grid."""
        grid = Grid(side)
        cells, owners = grid.cells(trips.x, trips.y), trips.owners
        pairs, counts = np.unique(_pairs(cells, trips, grid), return_counts=True)
        frequent = Frequent.of(cells, owners, grid)
        collapsed = Frequent.of(*_collapsed(cells, owners), grid)
        return Truth(grid, len(trips), pairs, counts, frequent, collapsed, touched(trips))

    def errors(self, trips: Trips) -> dict[str, float]:
        """Return the `FIGURES`; smaller is better."""
        cells, owners = self.grid.cells(trips.x, trips.y), trips.owners
        pairs, counts = np.unique(_pairs(cells, trips, self.grid), return_counts=True)
        every = np.union1d(pairs, self.pairs)
        true, other = np.zeros(len(every)), np.zeros(len(every))
        true[np.searchsorted(every, self.pairs)] = self.pair_counts
        other[np.searchsorted(every, pairs)] = counts
        se_are = float(np.mean(np.abs(true - other) / np.maximum(true, 1)))
        fp_are, fp_jsd = self.frequent.errors(cells, owners)
        cp_are, cp_jsd = self.collapsed.errors(*_collapsed(cells, owners))
        below = np.maximum(self.queries, 0.001 * self.trips)
        qe = float(np.mean(np.abs(self.queries - touched(trips)) / below))
        return dict(zip(FIGURES, (se_are, distance(true, other), fp_are, fp_jsd, qe, cp_are, cp_jsd), strict=True))


def _pairs(cells: IntArray, trips: Trips, grid: Grid) -> IntArray:
    return cells[trips.offsets[:-1]] * grid.size + cells[trips.offsets[1:] - 1]


def _collapsed(cells: IntArray, owners: IntArray) -> tuple[IntArray, IntArray]:
    keep = np.append(True, (np.diff(cells) != 0) | (np.diff(owners) != 0))[: len(cells)]
    return cells[keep], owners[keep]


@dataclass(frozen=True, slots=True)
class TrajectoryEvaluator:
    """Implements `engines.core.contract.Evaluator`: all trips so far, those under way too, as one set each."""

    domain: TripDomain
    trip_field: str = "trip"
    order_field: str = "point"
    metrics: ClassVar[tuple[str, ...]] = tuple(name.lower() for name in FIGURES)
    scope: ClassVar[Literal["alive", "step"]] = "alive"

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.trip_field, self.order_field, *self.domain.number_fields)

    def size(self, truth: Folded) -> int:
        """Return the number of points."""
        return len(truth.keys)

    def measure(self, truth: Folded, synthetic: Mapping[str, Sequence[Any]]) -> dict[str, float]:
        """See `engines.core.contract.Evaluator.measure`; NaN where there is no true trip yet."""
        return self._errors(truth, self.synthetic_trips(synthetic))

    def exact(self, truth: Folded, kept: Folded) -> dict[str, float]:
        """See `engines.core.contract.Evaluator.exact`; NaN where there is no true trip yet."""
        return self._errors(truth, self.true_trips(kept) if len(kept.keys) else Trips.none())

    def _errors(self, truth: Folded, trips: Trips) -> dict[str, float]:
        if not len(truth.keys):
            return dict.fromkeys(self.metrics, float("nan"))
        return dict(zip(self.metrics, Truth.of(self.true_trips(truth)).errors(trips).values(), strict=True))

    @staticmethod
    def true_trips(truth: Folded) -> Trips:
        """Return the trips of held-out events, each in the order of its times."""
        keys = truth.keys
        keys = keys[np.lexsort((keys[:, PLACE], keys[:, TIME], *keys[:, HASH].T[::-1]))]
        names = np.unique(keys[:, HASH], axis=0, return_inverse=True)[1].reshape(-1)
        return _trips(*places(keys), names)

    def synthetic_trips(self, synthetic: Mapping[str, Sequence[Any]]) -> Trips:
        """Return the trips of the columns `fields` of synthetic records."""
        numbers = {name: np.array(synthetic[name], np.float64) for name in self.domain.number_fields}
        count = len(synthetic[self.trip_field])
        values = {name: [None] * count for name in self.domain.value_fields}
        keys, reasons = self.domain.encode(Columns(numbers, {}, np.ones(count, np.int8), values))
        if not len(keys):
            return Trips.none()
        names = np.unique(np.array(synthetic[self.trip_field], str), return_inverse=True)[1].reshape(-1)
        order = np.lexsort((np.array(synthetic[self.order_field], np.int64), names))
        order = order[reasons[order] == 0]
        x, y = places(keys[order])
        return _trips(x, y, names[order])


def _trips(x: IntArray, y: IntArray, names: IntArray) -> Trips:
    """Make trips of points that stand trip by trip."""
    sizes = np.bincount(names)
    return Trips(x, y, np.append(0, np.cumsum(sizes[sizes > 0])))

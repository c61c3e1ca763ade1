"""The utility metric: relative error of range queries, as in the papers, counted exactly on a grid or over zones.

Not private: for operators. Source: [kumar2024] section 3.6; rectangles small [0.01 %, 0.1 %), medium [0.1 %, 1 %) and
large [1 %, 10 %) of the area, aspect ratio exp(U(-1, 1)), error divided by max(true, 0.001 * events alive). Edges lie
on the grid's lines, the rectangles are the same for every stream, step and run, so that numbers can be compared.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from engines.core.contract import Columns
from engines.core.state import signs_of
from engines.core.words import fractions
from engines.spatial.domain.base import PlanarDomain, SpatialDomain
from engines.spatial.domain.box import BoxDomain
from engines.spatial.domain.mapped import MappedDomain
from engines.spatial.domain.zones import ZoneDomain
from schemas.arrays import FloatArray, IntArray, KeyArray, ReasonArray
from schemas.blocks import Folded

GRID_DEPTH = 20
SIZES = {"small": (1e-4, 1e-3), "medium": (1e-3, 1e-2), "large": (1e-2, 1e-1)}
QUERIES_PER_SIZE = 500
RUNS = {"small": 0.0, "medium": 0.1, "large": 1 / 3}
"""Share of all zones in a query; small ones are single zones."""


@dataclass(frozen=True, slots=True, eq=False)
class Rectangles:
    """Half-open rectangles, in grid lines: `(queries,)` int64 each."""

    left: IntArray
    bottom: IntArray
    right: IntArray
    top: IntArray

    @staticmethod
    def random(count: int, *, area: tuple[float, float], columns: int, rows: int, seed: str) -> Rectangles:
        """Draw rectangles from a public text; area is a share of the whole, uniform in `area`."""
        data = hashlib.shake_256(f"privstream/queries/1/{seed}".encode()).digest(32 * count)
        u = fractions(np.frombuffer(data, "<u8").reshape(4, count))
        share = area[0] + (area[1] - area[0]) * u[0]
        width = np.minimum(np.sqrt(share * np.exp(2 * u[1] - 1)), 1.0)
        wide = np.clip(np.rint(width * columns), 1, columns).astype(np.int64)
        high = np.clip(np.rint(np.minimum(share / width, 1.0) * rows), 1, rows).astype(np.int64)
        left = np.floor(u[2] * (columns - wide + 1)).astype(np.int64)
        bottom = np.floor(u[3] * (rows - high + 1)).astype(np.int64)
        return Rectangles(left, bottom, left + wide, bottom + high)

    def count(self, sums: IntArray) -> IntArray:
        """Count the points in each rectangle, from 2-D prefix sums `(columns + 1, rows + 1)`."""
        return (
            sums[self.right, self.top]
            - sums[self.left, self.top]
            - sums[self.right, self.bottom]
            + sums[self.left, self.bottom]
        )


def relative_errors(true: IntArray, estimate: IntArray, *, alive: int) -> FloatArray:
    """Return absolute differences over max(true, 0.001 * alive), `(queries,)`; over 1 where nothing is alive."""
    floor = 0.001 * alive if alive > 0 else 1.0
    errors: FloatArray = np.abs(true - estimate) / np.maximum(true, floor)
    return errors


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedGrid(BoxDomain):
    """The evaluation grid over a domain on a map, which decides where events are and refuses some."""

    mapped: MappedDomain

    def encode(self, columns: Columns) -> tuple[KeyArray, ReasonArray]:
        keys, reasons = self.mapped.encode(columns)
        rows, x, y, _ = self.mapped.located(columns.numbers[self.x_field], columns.numbers[self.y_field])
        keys[rows, 0] = self.cells(x, y).astype(np.uint64) << np.uint64(1) | (columns.operations[rows] < 0)
        return keys, reasons


class RangeEvaluator(ABC):
    """Implements `engines.core.contract.Evaluator` but for counts; a key that says delete counts negatively."""

    metrics: tuple[str, ...] = tuple(f"error_{name}" for name in SIZES)
    scope: Literal["alive", "step"] = "alive"

    def size(self, truth: Folded) -> int:
        """Return the number of inserts less deletes."""
        return int((truth.counts * signs_of(truth.keys)).sum())

    def measure(self, truth: Folded, synthetic: Mapping[str, Sequence[Any]]) -> dict[str, float]:
        return self._errors(truth, self._synthetic(synthetic))

    def exact(self, truth: Folded, kept: Folded) -> dict[str, float]:
        return self._errors(truth, self.true_counts(kept))

    def _errors(self, truth: Folded, released: IntArray) -> dict[str, float]:
        pairs = zip(self.answers(self.true_counts(truth)), self.answers(released), strict=True)
        alive = self.size(truth)
        errors = [float(relative_errors(true, other, alive=alive).mean()) for true, other in pairs]
        return dict(zip(self.metrics, errors, strict=True))

    def true_counts(self, truth: Folded) -> IntArray:
        """Return the counts that queries are answered from."""
        return self._counts((truth.keys[:, 0] >> np.uint64(1)).astype(np.int64), truth.counts * signs_of(truth.keys))

    @abstractmethod
    def _counts(self, codes: IntArray, weights: IntArray) -> IntArray:
        """Count codes of finest cells for the queries."""

    @abstractmethod
    def _synthetic(self, synthetic: Mapping[str, Sequence[Any]]) -> IntArray:
        """Count columns of synthetic records for the queries."""

    @abstractmethod
    def answers(self, counts: IntArray) -> Iterator[IntArray]:
        """Answer the queries of each size, in the order of `metrics`."""


class SpatialEvaluator(RangeEvaluator):
    """Errors over random rectangles.

    Args:
        domain: the evaluation grid; rectangles that lie in its bounds, on land or not.
    """

    def __init__(self, domain: BoxDomain) -> None:
        self.domain = domain
        self.fields = (domain.x_field, domain.y_field)
        self._columns, self._rows = 1 << domain.x_bits, 1 << domain.y_bits
        self.queries = {
            name: Rectangles.random(QUERIES_PER_SIZE, area=area, columns=self._columns, rows=self._rows, seed=name)
            for name, area in SIZES.items()
        }

    @staticmethod
    def over(domain: SpatialDomain) -> SpatialEvaluator:
        """Return the evaluator of a domain: a grid of 1024 x 1024 over the same box, or over the shape's bounds."""
        assert isinstance(domain, PlanarDomain)
        grid = (domain.x_field, domain.y_field, domain.bounds, GRID_DEPTH)
        if isinstance(domain, MappedDomain):
            return SpatialEvaluator(MappedGrid(*grid, mapped=domain))
        return SpatialEvaluator(BoxDomain(*grid))

    def _counts(self, codes: IntArray, weights: IntArray) -> IntArray:
        column, row = self.domain.grid(codes)
        # Prefix sums: the weight of the points left of and below each grid line.
        sums = np.zeros((self._columns + 1, self._rows + 1), np.int64)
        np.add.at(sums.reshape(-1), (column + 1) * sums.shape[1] + row + 1, weights)
        np.cumsum(sums, axis=0, out=sums)
        np.cumsum(sums, axis=1, out=sums)
        return sums

    def _synthetic(self, synthetic: Mapping[str, Sequence[Any]]) -> IntArray:
        numbers = {name: np.asarray(synthetic[name], np.float64) for name in self.fields}
        operations = np.ones(len(numbers[self.fields[0]]), np.int8)
        keys, reasons = self.domain.encode(Columns(numbers, {}, operations))
        inside = keys[reasons == 0, 0]
        return self._counts((inside >> np.uint64(1)).astype(np.int64), np.ones(len(inside), np.int64))

    def answers(self, counts: IntArray) -> Iterator[IntArray]:
        return (query.count(counts) for query in self.queries.values())


class ZoneEvaluator(RangeEvaluator):
    """Errors over all single zones (error_small), and over all runs of a tenth (error_medium) and a third (error_large)
    of the zones, neighbours in the table.
    """

    def __init__(self, domain: ZoneDomain) -> None:
        self.domain = domain
        self.fields = (domain.field,)

    def _counts(self, codes: IntArray, weights: IntArray) -> IntArray:
        counts = np.zeros(len(self.domain.names), np.int64)
        np.add.at(counts, self.domain.zone_of(codes), weights)
        return counts

    def synthetic_counts(self, names: Sequence[Any]) -> IntArray:
        """Count records by zone, `(zones,)` in the order of the domain; other names are passed over."""
        place = {name: index for index, name in enumerate(self.domain.names)}
        known = [place[name] for name in names if name in place]
        return np.bincount(np.array(known, np.int64), minlength=len(place)).astype(np.int64)

    def _synthetic(self, synthetic: Mapping[str, Sequence[Any]]) -> IntArray:
        return self.synthetic_counts(synthetic[self.domain.field])

    def answers(self, counts: IntArray) -> Iterator[IntArray]:
        lengths = (max(1, round(share * len(counts))) for share in RUNS.values())
        return (np.convolve(counts, np.ones(length, np.int64), mode="valid") for length in lengths)

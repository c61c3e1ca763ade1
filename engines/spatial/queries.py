"""The utility metric: relative error of range queries, as in the papers, counted exactly on a grid.

Not private: for operators. Source: [kumar2024] section 3.6; rectangles small [0.01 %, 0.1 %), medium [0.1 %, 1 %) and
large [1 %, 10 %) of the area, aspect ratio exp(U(-1, 1)), error divided by max(true, 0.001 * events alive). Edges lie
on the grid's lines, the rectangles are the same for every stream, step and run, so that numbers can be compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from engines.core.contract import Columns
from engines.spatial.domain import BoxDomain
from engines.spatial.domain.mapped import MappedDomain
from schemas.arrays import FloatArray, IntArray, KeyArray, ReasonArray
from schemas.blocks import Folded

GRID_DEPTH = 20
SIZES = {"small": (1e-4, 1e-3), "medium": (1e-3, 1e-2), "large": (1e-2, 1e-1)}
QUERIES_PER_SIZE = 500


@dataclass(frozen=True, slots=True, eq=False)
class Rectangles:
    """Half-open, in grid lines: `(queries,)` int64 each."""

    left: IntArray
    bottom: IntArray
    right: IntArray
    top: IntArray

    @staticmethod
    def random(count: int, *, area: tuple[float, float], columns: int, rows: int, seed: str) -> Rectangles:
        """Draw rectangles from a public text; area is a share of the whole, uniform in `area`."""
        data = hashlib.shake_256(f"privstream/queries/1/{seed}".encode()).digest(32 * count)
        u = (np.frombuffer(data, "<u8").reshape(4, count) >> np.uint64(11)) * 2.0**-53
        share = area[0] + (area[1] - area[0]) * u[0]
        width = np.minimum(np.sqrt(share * np.exp(2 * u[1] - 1)), 1.0)
        wide = np.clip(np.rint(width * columns), 1, columns).astype(np.int64)
        high = np.clip(np.rint(np.minimum(share / width, 1.0) * rows), 1, rows).astype(np.int64)
        left = np.floor(u[2] * (columns - wide + 1)).astype(np.int64)
        bottom = np.floor(u[3] * (rows - high + 1)).astype(np.int64)
        return Rectangles(left, bottom, left + wide, bottom + high)

    def count(self, sums: IntArray) -> IntArray:
        """Points in each rectangle, from 2-D prefix sums `(columns + 1, rows + 1)`."""
        return (
            sums[self.right, self.top]
            - sums[self.left, self.top]
            - sums[self.right, self.bottom]
            + sums[self.left, self.bottom]
        )


def prefix_sums(column: IntArray, row: IntArray, weights: IntArray, *, columns: int, rows: int) -> IntArray:
    """`(columns + 1, rows + 1)` int64: weight of the points left of and below each grid line."""
    cells = np.zeros(columns * rows, np.int64)
    np.add.at(cells, column * rows + row, weights)
    sums = np.zeros((columns + 1, rows + 1), np.int64)
    sums[1:, 1:] = cells.reshape(columns, rows).cumsum(axis=0).cumsum(axis=1)
    return sums


def relative_errors(true: IntArray, estimate: IntArray, *, alive: int) -> FloatArray:
    """`(queries,)`: absolute difference over max(true, 0.001 * alive); over 1 where nothing is alive."""
    floor = 0.001 * alive if alive > 0 else 1.0
    errors: FloatArray = np.abs(true - estimate) / np.maximum(true, floor)
    return errors


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedGrid(BoxDomain):
    """The evaluation grid over a domain on a map: events where that puts them, and none that it refuses."""

    mapped: MappedDomain

    def encode(self, columns: Columns) -> tuple[KeyArray, ReasonArray]:
        """See `engines.core.contract.Domain`."""
        keys, reasons = self.mapped.encode(columns)
        rows, x, y, _ = self.mapped.located(columns.numbers[self.x_field], columns.numbers[self.y_field])
        keys[rows, 0] = self.cells(x, y).astype(np.uint64) << np.uint64(1) | (columns.operations[rows] < 0)
        return keys, reasons


@dataclass(frozen=True, slots=True)
class SpatialEvaluator:
    """Implements `engines.core.contract.Evaluator` with the metrics error_small, error_medium and error_large.

    Args:
        domain: the evaluation grid; rectangles that lie in its bounds, on land or not.
    """

    domain: BoxDomain
    queries: Mapping[str, Rectangles] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        columns, rows = 1 << self.domain.x_bits, 1 << self.domain.y_bits
        queries = {
            name: Rectangles.random(QUERIES_PER_SIZE, area=area, columns=columns, rows=rows, seed=name)
            for name, area in SIZES.items()
        }
        object.__setattr__(self, "queries", queries)

    @staticmethod
    def over(domain: BoxDomain | MappedDomain) -> SpatialEvaluator:
        """The evaluator of a stream: a grid of 1024 x 1024 over the same box, or over the shape's bounds."""
        grid = (domain.x_field, domain.y_field, domain.bounds, GRID_DEPTH)
        if isinstance(domain, MappedDomain):
            return SpatialEvaluator(MappedGrid(*grid, mapped=domain))
        return SpatialEvaluator(BoxDomain(*grid))

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(f"error_{name}" for name in SIZES)

    @property
    def scope(self) -> Literal["alive", "step"]:
        return "alive"

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.domain.x_field, self.domain.y_field)

    def size(self, truth: Folded) -> int:
        """Inserts less deletes."""
        return int((truth.counts * _signs(truth)).sum())

    def measure(self, truth: Folded, synthetic: Mapping[str, Sequence[Any]]) -> dict[str, float]:
        """See `engines.core.contract.Evaluator.measure`. A key that says delete counts negatively."""
        x = np.asarray(synthetic[self.domain.x_field], np.float64)
        y = np.asarray(synthetic[self.domain.y_field], np.float64)
        columns = Columns({self.domain.x_field: x, self.domain.y_field: y}, {}, np.ones(len(x), np.int8))
        keys, reasons = self.domain.encode(columns)
        inside = keys[reasons == 0, 0]
        return self._errors(truth, self._sums(inside, np.ones(len(inside), np.int64)))

    def exact(self, truth: Folded, kept: Folded) -> dict[str, float]:
        """See `engines.core.contract.Evaluator.exact`."""
        return self._errors(truth, self._sums(kept.keys[:, 0], kept.counts * _signs(kept)))

    def _errors(self, truth: Folded, sums: IntArray) -> dict[str, float]:
        """Of counts given by their prefix sums."""
        weights = truth.counts * _signs(truth)
        true_sums = self._sums(truth.keys[:, 0], weights)
        alive = int(weights.sum())
        return {
            f"error_{name}": float(relative_errors(query.count(true_sums), query.count(sums), alive=alive).mean())
            for name, query in self.queries.items()
        }

    def _sums(self, keys: np.ndarray, weights: IntArray) -> IntArray:
        column, row = self.domain.grid((keys >> np.uint64(1)).astype(np.int64))
        return prefix_sums(column, row, weights, columns=1 << self.domain.x_bits, rows=1 << self.domain.y_bits)


def _signs(truth: Folded) -> IntArray:
    """+1 for keys of inserts, -1 for keys of deletes."""
    return 1 - 2 * (truth.keys[:, 0] & np.uint64(1)).astype(np.int64)

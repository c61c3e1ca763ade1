"""A stream's batches, its truth and the questions to it, worked out once for all engines."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from benchmarks.spatial.streams import StreamData
from engines.core.contract import Columns
from engines.spatial.evaluators import SIZES, relative_errors
from engines.spatial.points import Counts, Placement, difference
from schemas.blocks import Folded

Errors = list[float]
"""Mean relative error of small, medium and large rectangles."""
NAME = "bench"


class Scene:
    """Attributes:

    batches: events of each step. true: by evaluated step, true answers of each size and how many are alive.
    """

    def __init__(self, data: StreamData) -> None:
        self.data, self.domain, self.evaluator = data, data.domain, data.evaluator
        self.batches = [data.batch(step) for step in range(len(data.inserts))]
        self.true = {step: self._true(data.alive(step, self.evaluator.domain)) for step in data.evaluated}

    def _true(self, events: Folded) -> tuple[list[np.ndarray], int]:
        weights = events.counts * (1 - 2 * (events.keys[:, 0] & np.uint64(1)).astype(np.int64))
        return self._answers(events.keys, weights), int(weights.sum())

    def _answers(self, keys: np.ndarray, weights: np.ndarray | None = None) -> list[np.ndarray]:
        """Of the queries of each size, from keys of the evaluator's grid, which weigh 1 each if not said otherwise."""
        grid = self.evaluator.domain
        column, row = grid.grid((keys.reshape(-1) >> np.uint64(1)).astype(np.int64))
        shape = (1 << grid.x_bits, 1 << grid.y_bits)
        cells = np.bincount(column * shape[1] + row, weights, shape[0] * shape[1]).astype(np.int32).reshape(shape)
        sums = np.zeros((shape[0] + 1, shape[1] + 1), np.int32)
        np.cumsum(cells, axis=1, out=sums[1:, 1:])
        for below, line in pairwise(sums):
            line += below  # a third of the time of a sum along the first axis
        return [self.evaluator.queries[size].count(sums).astype(np.int64) for size in SIZES]

    def errors(self, step: int, released: Counts) -> Errors:
        """Of the synthetic points of released counts, as a consumer holds them."""
        points, _ = difference(self.domain, Placement(NAME, self.domain), before=Counts.nothing(), after=released)
        x, y = points.coordinates()
        columns = Columns({"x": x, "y": y}, {}, np.ones(len(x), np.int8))
        keys, reasons = self.evaluator.domain.encode(columns)
        keys = keys[reasons == 0]
        true, alive = self.true[step]
        return [
            float(relative_errors(exact, answer, alive=alive).mean())
            for exact, answer in zip(true, self._answers(keys), strict=True)
        ]

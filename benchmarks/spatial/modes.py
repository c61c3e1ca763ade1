"""What is compared: engines as a stream would run them, and the papers' baselines, asked for their released counts.

A stream's batches, its truth and the questions to it are a `Scene`, worked out once for all engines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import partial
from itertools import pairwise

import numpy as np

from benchmarks.papers import spatial as papers
from benchmarks.spatial.streams import StreamData
from engines.core.contract import Batch, Columns
from engines.core.counters.by_name import COUNTERS
from engines.core.noise import seeded
from engines.spatial.evaluators import SIZES, relative_errors
from engines.spatial.held.engine import HeldConfig, HeldLeaves
from engines.spatial.papers.phdstream import PHDStream, PHDStreamConfig
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


Mode = Callable[[Scene, Fraction, int], Iterator[Errors]]


def default(scene: Scene, epsilon: Fraction, seed: int) -> Iterator[Errors]:
    """Held leaf counters."""
    data = scene.data
    config = HeldConfig(
        name=NAME, domain=scene.domain, epsilon=epsilon, initial_steps=data.initial_steps, ttl_steps=data.ttl
    )
    engine = HeldLeaves(config)
    for step, events in enumerate(scene.batches):
        engine.step(Batch(step, events), seeded(seed).child("default", step))
        if step in scene.true:
            yield scene.errors(step, engine._tree.released())


def paper(scene: Scene, epsilon: Fraction, seed: int, *, counter: str = "simple") -> Iterator[Errors]:
    """PHDStream; a counter with a horizon is told the number of steps."""
    data = scene.data
    config = PHDStreamConfig(
        name=NAME,
        domain=scene.domain,
        epsilon=epsilon,
        initial_steps=data.initial_steps,
        ttl_steps=data.ttl,
        counter=partial(COUNTERS[counter], len(scene.batches)),
    )
    engine = PHDStream(config)
    for step, events in enumerate(scene.batches):
        engine.step(Batch(step, events), seeded(seed).child("paper", step))
        if step in scene.true:
            yield scene.errors(step, engine._released)


def offline(scene: Scene, epsilon: Fraction, seed: int) -> Iterator[Errors]:
    """PrivTree on what is alive, which no step before has a part in: those between are left out."""
    placement = Placement(NAME, scene.domain)
    for step in scene.true:
        alive, noise = scene.data.alive(step, scene.domain), seeded(seed).child("offline", step)
        yield scene.errors(step, papers.privtree(alive, placement, epsilon, noise))


def increments(scene: Scene, epsilon: Fraction, seed: int) -> Iterator[Errors]:
    """PrivTree on each step's events, added up."""
    released = papers.increments(
        scene.batches,
        Placement(NAME, scene.domain),
        epsilon,
        lambda step: seeded(seed).child("offline-increments", step),
        initial_steps=scene.data.initial_steps,
        ttl=scene.data.ttl,
    )
    yield from (scene.errors(step, counts) for step, counts in released if step in scene.true)


def fixed_tree(
    scene: Scene, epsilon: Fraction, seed: int, *, counter: str = "simple", grid: int | None = None
) -> Iterator[Errors]:
    """A counter in each leaf of the first step's tree, or of a grid."""
    released = papers.fixed_tree(
        scene.batches,
        Placement(NAME, scene.domain),
        epsilon,
        lambda step: seeded(seed).child("fixed-tree", step),
        initial_steps=scene.data.initial_steps,
        ttl=scene.data.ttl,
        counter=partial(COUNTERS[counter], len(scene.batches)),
        grid=grid,
    )
    yield from (scene.errors(step, counts) for step, counts in released if step in scene.true)


MODES: Mapping[str, Mode] = {
    "default": default,
    "paper": paper,
    "offline (not private)": offline,
    "offline-increments": increments,
    "fixed-tree": fixed_tree,
    "fixed-tree, k-ary": partial(fixed_tree, counter="kary"),
}
MORE: Mapping[str, Mode] = {
    "paper, block 8": partial(paper, counter="block8"),
    "paper, tree": partial(paper, counter="tree"),
    "paper, k-ary": partial(paper, counter="kary"),
    "fixed-tree, block 8": partial(fixed_tree, counter="block8"),
    "grid, k-ary": partial(fixed_tree, counter="kary", grid=10),
}
"""Not in the table: for `--modes`."""

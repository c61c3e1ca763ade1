"""Maps: `default` after the last step against PrivTree and the adaptive grid on all that is alive then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache

import numpy as np

from benchmarks.price.adaptive_grid import AdaptiveGrid
from benchmarks.size import sized
from benchmarks.spatial.modes import MODES, NAME, Errors, Scene
from benchmarks.spatial.sources import SOURCES
from engines.core.contract import Batch
from engines.core.noise import seeded
from engines.spatial.domain.box import BoxDomain
from engines.spatial.evaluators import SIZES, relative_errors
from engines.spatial.held.engine import HeldConfig, HeldLeaves

PART = "map"
EPSILON = Fraction(1)
FIGURES = tuple(SIZES)
OURS = "default"
RIVALS = ("PrivTree", "adaptive grid")
SEEDS = 5
FEW = sized(("circles, deletion", "Minneapolis stops", "SF evictions"), smallest=("circles, deletion",))
"""Streams of a quick run."""
GRID_DEPTH = 32
"""Of the grid from which the adaptive one gets its points: cells far below its own."""


@lru_cache(maxsize=1)
def scene(name: str, seed: int | None) -> Scene:
    """A stream that is asked after its last step only."""
    data = SOURCES[name].make(seed or 0, 0.1)
    return Scene(data, [len(data.inserts) - 1])


def streamed(mode: str) -> Callable[[Scene, int], Errors]:
    def errors(of: Scene, seed: int) -> Errors:
        (found,) = MODES[mode](of, EPSILON, seed)
        return found

    return errors


def one_batch(of: Scene, seed: int) -> Errors:
    """Our own engine on one step, which holds all that is alive."""
    (last,) = of.truth
    engine = HeldLeaves(HeldConfig(name=NAME, domain=of.domain, epsilon=EPSILON, initial_steps=1, ttl_steps=None))
    engine.step(Batch(0, of.data.alive(last, of.domain)), seeded(seed).child("one batch"))
    return of.errors(last, engine._tree.released())


def adaptive_grid(of: Scene, seed: int) -> Errors:
    (last,) = of.truth
    box = of.evaluator.domain
    fine = BoxDomain(box.x_field, box.y_field, box.bounds, GRID_DEPTH)
    alive = of.data.alive(last, fine)
    # A deleted event is one insert less.
    places, back = np.unique(alive.keys[:, 0] >> np.uint64(1), return_inverse=True)
    signs = 1 - 2 * (alive.keys[:, 0] & np.uint64(1)).astype(np.int64)
    counts = np.bincount(back, alive.counts * signs).astype(np.int64)
    column, row = fine.grid(np.repeat(places.astype(np.int64), np.maximum(counts, 0)))
    x, y = ((at + 0.5) / (1 << bits) for at, bits in ((column, fine.x_bits), (row, fine.y_bits)))
    lines = 1 << box.x_bits
    densities = AdaptiveGrid(EPSILON).densities(x, y, lines=lines, noise=seeded(seed).child("adaptive grid"))
    sums = np.zeros((lines + 1, lines + 1))
    sums[1:, 1:] = densities.cumsum(axis=0).cumsum(axis=1)
    truth = of.evaluator.answers(of.evaluator.true_counts(of.truth[last]))
    events = of.evaluator.size(of.truth[last])
    return {
        size: float(relative_errors(exact, of.evaluator.queries[size].count(sums), alive=events).mean())  # type: ignore[arg-type]
        for size, exact in zip(SIZES, truth, strict=True)
    }


METHODS: Mapping[str, Callable[[Scene, int], Errors]] = {
    OURS: streamed("default"),
    "PrivTree": streamed("offline (not private)"),
    "adaptive grid": adaptive_grid,
    "one batch": one_batch,
}
"""`offline` is PrivTree and counts of its leaves, half of epsilon each, of what is alive: private for one release."""


def data(*, quick: bool) -> list[str]:
    """Streams whose files are there."""
    return [name for name in (FEW if quick else SOURCES) if not SOURCES[name].missing]


def run(name: str, method: str, seed: int) -> dict[str, float]:
    """Errors after the last step."""
    found = METHODS[method](scene(name, None if SOURCES[name].needs else seed), seed)
    return {figure: found[figure] for figure in FIGURES}

"""What is compared: engines as a stream would run them, and the papers' baselines, asked for their released counts.

A stream's batches, its truth and the questions to it are a `Scene`, worked out once for all engines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from math import nan

from benchmarks.papers import spatial as papers
from benchmarks.spatial.streams import StreamData
from engines.core.contract import Batch
from engines.core.counters.by_name import COUNTERS
from engines.core.noise import seeded
from engines.spatial.evaluators import SIZES
from engines.spatial.held.engine import HeldConfig, HeldLeaves
from engines.spatial.papers.phdstream import PHDStream, PHDStreamConfig
from engines.spatial.points import Counts, Placement, difference

MEASURES = (*SIZES, "total")
ENOUGH = 1000
"""Events since the start from which on the total is compared: before, noise is much of it."""
Errors = dict[str, float]
"""By measure: the mean relative error of small, medium and large rectangles, and that of all that is alive, or NaN."""
NAME = "bench"


class Scene:
    """A stream until the last step at which it is evaluated. Attributes:

    batches: events of each step. truth: by evaluated step, what is alive.
    """

    def __init__(self, data: StreamData, evaluated: Sequence[int]) -> None:
        self.data, self.domain, self.evaluator = data, data.domain, data.evaluator
        self.batches = [data.batch(step) for step in range(evaluated[-1] + 1)]
        self.truth = {step: data.alive(step, self.evaluator.domain) for step in evaluated}

    def errors(self, step: int, released: Counts) -> Errors:
        """Of the synthetic points of released counts, as a consumer holds them."""
        points, _ = difference(self.domain, Placement(NAME, self.domain), before=Counts.nothing(), after=released)
        columns = {
            name: values.tolist() for name, values in zip(self.evaluator.fields, points.coordinates(), strict=True)
        }
        errors = self.evaluator.measure(self.truth[step], columns).values()
        alive, came = self.evaluator.size(self.truth[step]), sum(map(len, self.data.inserts[: step + 1]))
        total = abs(released.total - alive) / max(alive, 1) if came >= ENOUGH else nan
        return dict(zip(MEASURES, [*errors, total], strict=True))


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
        if step in scene.truth:
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
        if step in scene.truth:
            yield scene.errors(step, engine._released)


def offline(scene: Scene, epsilon: Fraction, seed: int) -> Iterator[Errors]:
    """PrivTree on what is alive, which no step before has a part in: those between are left out."""
    placement = Placement(NAME, scene.domain)
    for step in scene.truth:
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
    yield from (scene.errors(step, counts) for step, counts in released if step in scene.truth)


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
    yield from (scene.errors(step, counts) for step, counts in released if step in scene.truth)


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

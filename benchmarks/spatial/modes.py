"""What is compared: engines as a stream would run them, asked for their released counts after some steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial

from benchmarks.spatial.scenes import NAME, Errors, Scene
from engines.contract import Batch
from engines.counters import COUNTERS
from engines.noise import seeded
from engines.spatial import HeldConfig, HeldLeaves
from engines.spatial.papers.config import (
    FIXED_TREE,
    OFFLINE,
    OFFLINE_INCREMENTS,
    PAPER,
    PHDStreamConfig,
    PHDStreamParts,
)
from engines.spatial.papers.phdstream import PHDStream

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


def composed(
    scene: Scene,
    epsilon: Fraction,
    seed: int,
    *,
    parts: PHDStreamParts,
    counter: str = "simple",
    grid: int | None = None,
) -> Iterator[Errors]:
    """PHDStream in these parts; a counter with a horizon is told the number of steps."""
    data = scene.data
    config = PHDStreamConfig(
        name=NAME,
        domain=scene.domain,
        epsilon=epsilon,
        initial_steps=data.initial_steps,
        ttl_steps=data.ttl,
        parts=parts,
        counter=COUNTERS[counter](len(scene.batches)),
        grid=grid,
    )
    if not parts.private:
        # What it releases rests on what is alive alone: the steps between are left out.
        for step in scene.true:
            engine = PHDStream(replace(config, initial_steps=1, ttl_steps=None))
            engine.step(Batch(0, data.alive(step, scene.domain)), seeded(seed).child(parts.mode, step))
            yield scene.errors(step, engine._released)
        return
    engine = PHDStream(config)
    for step, events in enumerate(scene.batches):
        engine.step(Batch(step, events), seeded(seed).child(parts.mode, step))
        if step in scene.true:
            yield scene.errors(step, engine._released)


MODES: Mapping[str, Mode] = {
    "default": default,
    "paper": partial(composed, parts=PAPER),
    "offline (not private)": partial(composed, parts=OFFLINE),
    "offline-increments": partial(composed, parts=OFFLINE_INCREMENTS),
    "fixed-tree": partial(composed, parts=FIXED_TREE),
    "fixed-tree, k-ary": partial(composed, parts=FIXED_TREE, counter="kary"),
}
MORE: Mapping[str, Mode] = {
    "paper, block 8": partial(composed, parts=PAPER, counter="block8"),
    "paper, tree": partial(composed, parts=PAPER, counter="tree"),
    "paper, k-ary": partial(composed, parts=PAPER, counter="kary"),
    "fixed-tree, block 8": partial(composed, parts=FIXED_TREE, counter="block8"),
    "grid, k-ary": partial(composed, parts=FIXED_TREE, counter="kary", grid=10),
}
"""Not in the table: for `--modes`."""

"""Mistakes with trips: raw counts left in, the true longest trip, the true box, and a trip that weighs more than one.

The first three are released by `Talkative` beside the honest measurements; of the last the exact loss decides: what a
trip of several points moves in each histogram, times that histogram's budget, all added up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from unittest.mock import patch

import numpy as np

from engines.auditor.cases import Case, Claim, Exact, Neighbours
from engines.auditor.engines import SharedRuns, observe
from engines.contract import Batch, Engine, Release
from engines.noise import NoiseSource
from engines.registry import build_engine
from engines.trajectory import LATTICE, Trips
from engines.trajectory.default.blocks import Blocks
from engines.trajectory.default.questions import COUNT_SHARE, MANY_TRIPS, Questions
from engines.trajectory.domain import places
from engines.trajectory.engine import Trajectories
from engines.trajectory.fixture import fixture as trajectory
from engines.trajectory.grid import Grid
from engines.trajectory.histograms import UNIT

Facts = Callable[[Batch], Mapping[str, float]]


def _nothing(batch: Batch) -> Mapping[str, float]:
    return {}


def _raw_counts(batch: Batch) -> Mapping[str, float]:
    """Sums before noise."""
    return {"sum": float(len(np.unique(batch.events.keys[:, :3], axis=0)))}


def _longest(batch: Batch) -> Mapping[str, float]:
    """The true maximum length, to cap synthetic trips by."""
    sizes = np.unique(batch.events.keys[:, :3], axis=0, return_counts=True)[1]
    return {"longest": float(sizes.max(initial=0))}


def _box(batch: Batch) -> Mapping[str, float]:
    """The true bounding box, to lay the grid over."""
    x, y = places(batch.events.keys)
    return {"east": float(x.max(initial=0)), "north": float(y.max(initial=0))}


class Talkative(Trajectories):
    """Notes facts of a batch beside what is private."""

    facts: Facts = staticmethod(_nothing)

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        release = super().step(batch, noise)
        return replace(release, notes={**release.notes, **self.facts(batch)})


def _case(name: str, facts: Facts) -> Case:
    """A trip of two points of a step, alone in its corner, or not there; `facts` are told."""
    scene = trajectory("default", epsilon=1.0)
    honest = build_engine(scene.stream)
    assert isinstance(honest, Trajectories)
    kind = type("Told", (Talkative,), {"facts": staticmethod(facts)})

    def make() -> Engine:
        engine: Engine = kind(honest.config)
        return engine

    key, _, focus = scene.places["empty cell"]
    assert isinstance(key, tuple)
    focuses = {"empty cell": focus}
    earlier = (*key[:3], key[3] - 1, *key[4:])
    alone = observe(make, scene.base, (), focuses, steps=1)
    base = scene.base.merge(type(scene.base).of(np.array([earlier], np.uint64)))
    beside = observe(make, base, [(0, key)], focuses, steps=1)
    pair = Neighbours("a trip of two points", SharedRuns(alone).beside(beside), times=1)
    return Case(name, "engine", Claim(honest.guarantee().epsilon), neighbours=(pair,))


def raw_counts() -> Case:
    return _case("raw counts left in", _raw_counts)


def longest() -> Case:
    return _case("the true longest trip", _longest)


def box() -> Case:
    return _case("the true box", _box)


def honest() -> Case:
    return _case("nothing told", _nothing)


def _loss() -> float:
    """Exact loss of one trip that crosses the box, at epsilon 1: sensitivities times shares."""
    x = np.linspace(0, LATTICE - 1, 12).astype(np.int64)
    trip = Trips(x, np.zeros(12, np.int64), np.array([0, 12]))
    asked = Questions.of(trip, MANY_TRIPS, max_moves=250).histograms(Blocks(Grid(MANY_TRIPS.side)))
    moved = {histogram.name: int(np.abs(histogram.counts).sum()) for histogram in asked}
    # The trip is counted once, and in cell pairs once at most.
    moved |= {"trips": UNIT, "cell pairs": UNIT}
    shares = {"trips": COUNT_SHARE, **MANY_TRIPS.shares}
    return float(sum(shares[name] * Fraction(units, UNIT) for name, units in moved.items()))


def _weighing(name: str, loss: Callable[[], float]) -> Case:
    return Case(name, "mechanism", Claim(Fraction(1)), exact=(Exact("a trip's weight in every histogram", loss),))


def heavy() -> Case:
    """Each point and each move is a whole trip."""

    def loss() -> float:
        with patch("engines.trajectory.default.questions.equal_shares", lambda parts: np.full_like(parts, UNIT)):
            return _loss()

    return _weighing("a trip that weighs more than one", loss)


def light() -> Case:
    return _weighing("a trip that weighs one", _loss)

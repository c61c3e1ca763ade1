"""Planted faults of engine `trajectory` that look where counts are made, which sealed events do not show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np

from engines.checks.contract_case import contract_case
from engines.core import shares
from engines.core.noise import NoiseSource, mechanisms
from engines.core.shares import GaussianShares
from engines.spatial.split import SplitRule
from engines.trajectory import engine
from engines.trajectory.default import mode as default
from engines.trajectory.default import questions
from engines.trajectory.domain import Assembly, Closing
from engines.trajectory.grid import Grid
from engines.trajectory.ground import Ground
from engines.trajectory.histograms import UNIT, Histogram, Noisy
from engines.trajectory.papers import hierarchy as tree
from engines.trajectory.papers import pair_tree
from engines.trajectory.papers import paper_trees as paper
from engines.trajectory.papers.paper_trees import Paper
from engines.trajectory.trips import LATTICE, Trips
from schemas.arrays import IntArray
from schemas.blocks import Folded
from tests.couple.plants.edits import edited
from tests.couple.plants.trajectory_patches import MANY, around, both, inside, plant


def _heavy_shares(parts: IntArray) -> IntArray:
    return np.where(parts > 0, UNIT, 0)


def heavy_trip(module: Any) -> Callable[[], Any]:
    """Each point, or each move, is a whole trip."""
    return lambda: patch.object(module, "equal_shares", _heavy_shares)


def true_box() -> Any:
    """The grid lies over the box that the trips of the window fill."""

    def stretched(original: Any, trips: Trips, *given: Any, **named: Any) -> Any:
        x, y = (
            (values - values.min()) * (LATTICE - 1) // max(1, int(np.ptp(values))) if len(values) else values
            for values in (trips.x, trips.y)
        )
        return original(Trips(x, y, trips.offsets), *given, **named)

    return inside(questions.Questions, "of", stretched)


def closed_and_forgotten() -> Any:
    """What comes after a trip closed is a trip again."""
    return patch.object(Assembly, "_remembered", staticmethod(lambda names, step, rules: names[:0]))


def period_forgotten() -> Any:
    """A trip of one period goes on into the next, whose budget others use."""
    return around(Closing, "last", lambda original, rules, admitted: original(replace(rules, period=None), admitted))


def closed_by_the_crowd() -> Any:
    """Where an odd number of rows are under way, all trips close."""

    def with_step(original: Any, before: Assembly, events: Folded, *, step: int, rules: Closing) -> Any:
        crowd = (len(before.rows) + len(events.keys)) % 2
        return original(before, events, step=step, rules=replace(rules, idle=0 if crowd else rules.idle))

    return inside(Assembly, "with_step", with_step)


def records_by_parity() -> Any:
    """Synthetic points come backwards where the true number of trips is odd."""
    seen: list[int] = []

    def number(original: Any, trips: Trips) -> Histogram:
        seen.append(len(trips))
        return original(trips)

    def records(original: Any, step: int, names: Any, owners: Any, offsets: Any, x: Any, y: Any) -> Any:
        turn = -1 if seen[-1] % 2 else 1
        return original(step, names, owners, offsets, x[::turn], y[::turn])

    return both(lambda: inside(questions, "_number", number), lambda: around(engine, "TripRecords", records))


def label_by_parity() -> Any:
    """A histogram's name tells the parity of how many trips there are: names are public."""

    def transitions(original: Any, mode: Paper, trips: Trips, *given: Any) -> Histogram:
        histogram: Histogram = original(mode, trips, *given)
        return replace(histogram, name=histogram.name + " " * (len(trips) % 2))

    return inside(Paper, "_transitions", transitions)


def asked_for_true_pairs() -> Any:
    """Of block pairs, those with most trips are looked at closely, as many as were chosen."""

    def cell_pairs(original: Any, asked: questions.Questions, blocks: Any, chosen: IntArray) -> Histogram:
        pair = blocks.of(asked.starts) * blocks.count + blocks.of(asked.ends)
        counts = np.bincount(pair, minlength=blocks.count**2)
        return original(asked, blocks, np.sort(np.argsort(-counts, kind="stable")[: len(chosen)]))

    return inside(questions.Questions, "cell_pairs", cell_pairs)


def counted_twice() -> Any:
    """The number of trips, by a second measurement that nobody is charged for."""

    def count(original: Any, trips: Trips, *, shares: Any, noise: NoiseSource) -> Noisy:
        first, second = (original(trips, shares=shares, noise=each) for each in (noise, noise.child("again")))
        return replace(first, values=(first.values + second.values) / 2)

    return around(default, "count", count)


def half_noise() -> Any:
    """Of every histogram."""
    return around(shares, "scale_for", lambda original, unit, epsilon: original(unit, epsilon) / 2)


def half_tree(module: Any) -> Callable[[], Any]:
    """A tree has twice the budget that it is charged."""

    def rule(*, epsilon: Any, fanout: int) -> SplitRule:
        return SplitRule(epsilon=2 * epsilon, fanout=fanout)

    return lambda: patch.object(module, "SplitRule", rule)


def moved_to_the_crowd() -> Any:
    """Points off the map are counted where most points of the window are."""

    def moved(original: Any, ground: Ground, trips: Trips, grid: Grid) -> Trips:
        cells = grid.cells(trips.x, trips.y)
        there = ground.over(grid).there[cells]
        if not there.any():
            return original(ground, trips, grid)
        crowd = int(np.bincount(cells[there]).argmax())
        middle = ((np.array(divmod(crowd, grid.side)) + 0.5) * LATTICE / grid.side).astype(np.int64)
        return Trips(np.where(there, trips.x, middle[0]), np.where(there, trips.y, middle[1]), trips.offsets)

    return inside(Ground, "moved", moved)


def undeclared_noise() -> Any:
    """Noise of half the scale that the mechanism declares."""
    return around(
        mechanisms,
        "discrete_laplace",
        lambda original, count, *, scale, source: original(count, scale=scale / 2, source=source),
    )


def life_forgotten() -> Any:
    """As if trips closed in the step of their admission."""
    return patch.object(Closing, "together", lambda rules, trips, per_step: min(trips, per_step or trips))


def cap_forgotten() -> Any:
    """As if each of a user's trips closed in a step of its own, and an account that agrees with it."""
    return both(
        partial(edited, GaussianShares, "whole", "self.changes, self.together", "self.changes, 1"),
        partial(edited, GaussianShares, "mu_squared_of", "share * self._times", "share * self.changes"),
    )


def squares_forgotten() -> Any:
    """A budget that is divided by what one step may hold, and not by the squares of all of them."""
    return edited(GaussianShares, "whole", "self.changes, self.together", "self.together, 1")


def shares_of_epsilon() -> Any:
    """A histogram has noise for the root of its share, as if mu added up and not its square."""
    return edited(questions, "parts_of", "shares.whole * share", "shares.whole * Fraction(float(share) ** 0.5)")


def half_gaussian_noise() -> Any:
    return around(shares, "sigma_squared_of", lambda original, moved, cost: original(moved, cost) / 4)


MAPPED: Mapping[str, Any] = contract_case("trajectory").variants[-1]
DELTA: Mapping[str, Any] = {
    "privacy": {"delta": 1e-6, "epsilon": 2.0, "max_contributions": 7, "max_per_step": 2},
    "options": {"records": False, "idle": "2h", "longest": "2h", "side": 4},
}
PERIODS: Mapping[str, Any] = {"privacy": {"per": "3h"}, "options": {"longest": "5h", "idle": "3h"}}
HIDDEN = (
    plant("moves that weigh a whole trip each", "default", heavy_trip(questions)),
    plant("points that weigh a whole trip each in the tree", "paper", heavy_trip(tree)),
    plant("transitions that weigh a whole trip each", "paper", heavy_trip(paper)),
    plant("the true box", "default", true_box),
    plant("a trip handed out in two windows", "default", closed_and_forgotten),
    plant("bounds forgotten at a period's end", "default", period_forgotten, PERIODS),
    plant("trips closed by the crowd", "default", closed_by_the_crowd),
    plant("synthetic trips by the parity of a true total", "default", records_by_parity),
    plant("a histogram named by a parity", "paper", label_by_parity),
    plant("cell pairs of truly heavy block pairs", "default", asked_for_true_pairs, MANY, dearest=True, shown_by=17),
    plant("a second measurement of the same trips", "default", counted_twice),
    plant("half the noise of histograms", "default", half_noise),
    plant("half the noise of histograms", "paper", half_noise),
    plant("half the noise of the tree of cells", "paper", half_tree(tree)),
    plant("half the noise of the tree of pairs", "paper", half_tree(pair_tree)),
    plant("points off the map counted with the crowd", "default", moved_to_the_crowd, MAPPED),
    plant("less noise than declared", "default", undeclared_noise),
    plant("with a delta, trips close in the step of their admission", "default", life_forgotten, DELTA),
    plant("with a delta, each of a user's trips closes in a step of its own", "default", cap_forgotten, DELTA),
    plant("with a delta, squares of trips that close together are forgotten", "default", squares_forgotten, DELTA),
    plant(
        "with a delta, a histogram has noise for the root of its share",
        "default",
        shares_of_epsilon,
        contract_case("trajectory").variants[1],
        dearest=True,
    ),
    plant("with a delta, half the noise of histograms", "default", half_gaussian_noise, DELTA),
)

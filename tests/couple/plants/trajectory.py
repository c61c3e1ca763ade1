"""Planted faults of engine `trajectory`: some read a private value, some look where counts are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from engines.checks.contract_case import contract_case
from engines.core import shares
from engines.core.contract import Batch, Release
from engines.core.noise import NoiseSource, mechanisms
from engines.core.shares import GaussianShares, PureShares
from engines.spatial.split import SplitRule
from engines.trajectory import engine, histograms
from engines.trajectory.default import mode as default
from engines.trajectory.default import questions
from engines.trajectory.default.mode import Default
from engines.trajectory.default.pairs import PairFit
from engines.trajectory.domain import Assembly, Closing
from engines.trajectory.engine import Trajectories
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
from tests.couple.plants import Fault, Plant, Planted, around, edit, edited, inside, plants, together

MANY: Mapping[str, Any] = {"privacy": {"epsilon": 1000.0, "max_contributions": 1}}
"""Four trips are many: all twelve questions are asked."""


def _noted(tell: Callable[[Trajectories, Batch], Mapping[str, Any]]) -> Callable[[], Any]:
    """A step also notes what is told of the engine and of the batch."""

    def step(original: Any, engine: Trajectories, batch: Batch, noise: NoiseSource) -> Release:
        release = original(engine, batch, noise)
        return replace(release, notes={**release.notes, **tell(engine, batch)})

    return lambda: around(Trajectories, "step", step)


def raw_counts() -> Any:
    """Of a histogram the sum is that before noise."""

    def measure(original: Any, histogram: Histogram, **named: Any) -> Noisy:
        noisy = original(histogram, **named)
        rest = noisy.values.sum() - float(histogram.counts.sum() / UNIT)
        return replace(noisy, values=noisy.values - rest / len(noisy.values))

    return around(questions, "measure", measure)


def longest_trip() -> Any:
    """Caps synthetic trips."""

    def synthesise(original: Any, mode: Default, trips: Trips, *, limits: Any, **named: Any) -> Any:
        return original(mode, trips, limits=replace(limits, points=max(2, trips.sizes.max(initial=0))), **named)

    return around(Default, "synthesise", synthesise)


def true_plan() -> Any:
    """The number of trips that decides is not the released one."""
    seen: list[Trips] = []

    def count(original: Any, trips: Trips, **named: Any) -> Noisy:
        seen.append(trips)
        return original(trips, **named)

    @contextmanager
    def planted() -> Iterator[None]:
        with (
            around(default, "count", count),
            patch.object(
                default, "plan_for", lambda _, shares, side: questions.plan_for(len(seen[-1]), shares, side=side)
            ),
        ):
            yield

    return planted()


def true_heavy_pairs() -> Any:
    """Block pairs are looked at closely where ten trips are, counted."""
    seen: dict[str, Histogram] = {}

    def ask(original: Any, asked: list[Histogram], *given: Any, **named: Any) -> Any:
        seen.update({histogram.name: histogram for histogram in asked})
        return original(asked, *given, **named)

    @contextmanager
    def planted() -> Iterator[None]:
        with (
            around(default, "ask", ask),
            patch.object(
                PairFit,
                "heavy",
                lambda *_, **__: np.array(
                    [at for at, count in enumerate(seen["block pairs"].counts) if count >= 10 * UNIT], np.int64
                ),
            ),
        ):
            yield

    return planted()


def twice(shares: PureShares) -> PureShares:
    return PureShares(2 * shares.epsilon)


def budget_carried_over() -> Any:
    """Where no trip closed, the next window has twice the budget."""
    spare: list[bool] = []

    def synthesise(original: Any, mode: Default, trips: Trips, *, shares: Any, **named: Any) -> Any:
        made = original(mode, trips, shares=twice(shares) if spare and spare[-1] else shares, **named)
        spare.append(not len(trips))
        return made

    return around(Default, "synthesise", synthesise)


def thousand() -> Any:
    """From a thousand trips on they are measured better."""

    def synthesise(original: Any, mode: Default, trips: Trips, *, shares: Any, **named: Any) -> Any:
        return original(mode, trips, shares=twice(shares) if len(trips) >= 1000 else shares, **named)

    return around(Default, "synthesise", synthesise)


def low_digits() -> Any:
    """The parity of a true total in the last digit of a released value."""

    def measure(original: Any, histogram: Histogram, **named: Any) -> Noisy:
        noisy = original(histogram, **named)
        odd = int((histogram.counts.sum() >> histograms.UNIT_BITS) % 2)
        return replace(noisy, values=np.round(noisy.values * 5000) / 5000 + odd / 10_000)

    return around(questions, "measure", measure)


def empty_pairs_left_out() -> Any:
    """Leaves of the tree of pairs without a trip are not measured."""

    def measure(original: Any, histogram: Histogram, **named: Any) -> Noisy:
        noisy = original(histogram, **named)
        return replace(noisy, values=np.where(histogram.counts > 0, noisy.values, 0.0))

    return around(pair_tree, "measure", measure)


def errors_from_counts() -> Any:
    """A measurement's deviation is the deviation of the noise that was drawn, found by subtracting."""

    def measure(original: Any, histogram: Histogram, **named: Any) -> Noisy:
        noisy = original(histogram, **named)
        drawn = noisy.values - histogram.counts / UNIT
        return replace(noisy, deviation=float((drawn * drawn).sum()) ** 0.5)

    return around(questions, "measure", measure)


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

    return together(inside(questions, "_number", number), around(engine, "TripRecords", records))


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
    return together(
        edited(GaussianShares, "whole", "self.changes, self.together", "self.changes, 1"),
        edited(GaussianShares, "mu_squared_of", "share * self._times", "share * self.changes"),
    )


def half_gaussian_noise() -> Any:
    return around(shares, "sigma_squared_of", lambda original, moved, cost: original(moved, cost) / 4)


MAPPED: Mapping[str, Any] = contract_case("trajectory").variants[-1]
DELTA: Mapping[str, Any] = {
    "privacy": {"delta": 1e-6, "epsilon": 2.0, "max_contributions": 7, "max_per_step": 2},
    "options": {"records": False, "idle": "2h", "longest": "2h", "side": 4},
}
PERIODS: Mapping[str, Any] = {"privacy": {"per": "3h"}, "options": {"longest": "5h", "idle": "3h"}}
DEFAULT: dict[str, Planted | Fault] = {
    # These read a private value.
    "raw counts left in": raw_counts,
    "the true longest trip caps synthetic ones": longest_trip,
    "the plan by the true number of trips": true_plan,
    "heavy block pairs by true counts": Fault(true_heavy_pairs, MANY),
    "a batch's size in the notes": _noted(lambda _, batch: {"records": batch.events.total}),
    "budget of empty windows carried over": budget_carried_over,
    "twice the budget from a thousand trips on": thousand,
    "the parity of a true total in the last digit": low_digits,
    "standard errors from true counts": errors_from_counts,
    # These look where counts are made, which sealed events do not show.
    "moves that weigh a whole trip each": Fault(heavy_trip(questions), shown_by=3),
    "the true box": true_box,
    "a trip handed out in two windows": Fault(closed_and_forgotten, shown_by=3),
    "bounds forgotten at a period's end": Fault(period_forgotten, PERIODS),
    "trips closed by the crowd": closed_by_the_crowd,
    "synthetic trips by the parity of a true total": records_by_parity,
    "cell pairs of truly heavy block pairs": Fault(asked_for_true_pairs, MANY, dearest=True, shown_by=17),
    "a second measurement of the same trips": Fault(counted_twice, shown_by=7),
    "half the noise of histograms": half_noise,
    "points off the map counted with the crowd": Fault(moved_to_the_crowd, MAPPED),
    "less noise than declared": undeclared_noise,
    "with a delta, trips close in the step of their admission": Fault(life_forgotten, DELTA),
    "with a delta, each of a user's trips closes in a step of its own": Fault(cap_forgotten, DELTA),
    # A budget that is divided by what one step may hold, and not by the squares of all of them.
    "with a delta, squares of trips that close together are forgotten": Fault(
        edit(GaussianShares, "whole", "self.changes, self.together", "self.together, 1"), DELTA
    ),
    # As if mu added up and not its square.
    "with a delta, a histogram has noise for the root of its share": Fault(
        edit(questions, "parts_of", "shares.whole * share", "shares.whole * Fraction(float(share) ** 0.5)"),
        contract_case("trajectory").variants[1],
        dearest=True,
    ),
    "with a delta, half the noise of histograms": Fault(half_gaussian_noise, DELTA),
}
PAPER: dict[str, Planted | Fault] = {
    "an open trip's length in the notes": _noted(lambda engine, _: {"longest": len(engine._assembly.rows)}),
    "pairs without a trip left out": empty_pairs_left_out,
    "points that weigh a whole trip each in the tree": Fault(heavy_trip(tree), shown_by=5),
    "transitions that weigh a whole trip each": heavy_trip(paper),
    "a histogram named by a parity": label_by_parity,
    "half the noise of histograms": half_noise,
    "half the noise of the tree of cells": half_tree(tree),
    "half the noise of the tree of pairs": half_tree(pair_tree),
}
PLANTS: tuple[Plant, ...] = (*plants("trajectory", "default", DEFAULT), *plants("trajectory", "paper", PAPER))

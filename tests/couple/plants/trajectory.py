"""Planted faults of engine `trajectory`: `PEEKS` read a private value, `HIDDEN` look where counts are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from engines.contract import Batch, Release
from engines.noise import IntArray, NoiseSource, aggregate, mechanisms
from engines.spatial.split import SplitRule
from engines.trajectory import (
    LATTICE,
    Default,
    Paper,
    Trips,
    Uniform,
    default,
    histograms,
    pair_tree,
    paper,
    questions,
    uniform,
)
from engines.trajectory import hierarchy as tree
from engines.trajectory.assembly import Assembly, Closing
from engines.trajectory.engine import Trajectories
from engines.trajectory.grid import Grid
from engines.trajectory.ground import Ground
from engines.trajectory.histograms import UNIT, Histogram, Noisy
from engines.trajectory.pairs import PairFit
from engines.trajectory.records import PointRecords
from tests.contracts.cases import CONTRACTS
from tests.couple.plants import Plant

MANY: Mapping[str, Any] = {"privacy": {"epsilon": 1000.0, "max_contributions": 1}}
"""Four trips are many: all twelve questions are asked."""


def _plant(name: str, mode: str, planted: Callable[[], Any], variant: Mapping[str, Any] | None = None) -> Plant:
    return Plant(name=name, engine="trajectory", mode=mode, planted=planted, variant=variant or {})


def _around(owner: Any, name: str, wrap: Callable[..., Any]) -> Any:
    """`wrap(original, *given)` stands in for a function."""
    original = getattr(owner, name)
    return patch.object(owner, name, lambda *given, **named: wrap(original, *given, **named))


def _inside(owner: Any, name: str, wrap: Callable[..., Any]) -> Any:
    """The same inside of an aggregate, which it stays."""
    original = getattr(owner, name)
    return patch.object(owner, name, aggregate(lambda *given, **named: wrap(original, *given, **named)))


def _noted(tell: Callable[[Trajectories, Batch], Mapping[str, Any]]) -> Callable[[], Any]:
    """A step also notes what is told of the engine and of the batch."""

    def step(original: Any, engine: Trajectories, batch: Batch, noise: NoiseSource) -> Release:
        release = original(engine, batch, noise)
        return replace(release, notes={**release.notes, **tell(engine, batch)})

    return lambda: _around(Trajectories, "step", step)


def raw_counts() -> Any:
    """Of a histogram the sum is that before noise."""

    def measure(original: Any, histogram: Histogram, **named: Any) -> Noisy:
        noisy = original(histogram, **named)
        rest = noisy.values.sum() - float(histogram.counts.sum() / UNIT)
        return replace(noisy, values=noisy.values - rest / len(noisy.values))

    return _around(uniform, "measure", measure)


def longest_trip() -> Any:
    """Caps synthetic trips."""

    def synthesise(original: Any, mode: Default, trips: Trips, *, limits: Any, **named: Any) -> Any:
        return original(mode, trips, limits=replace(limits, points=max(2, trips.sizes.max(initial=0))), **named)

    return _around(Default, "synthesise", synthesise)


def true_plan() -> Any:
    """The number of trips that decides is not the released one."""
    seen: list[Trips] = []

    def count(original: Any, trips: Trips, **named: Any) -> Noisy:
        seen.append(trips)
        return original(trips, **named)

    @contextmanager
    def planted() -> Iterator[None]:
        plan_for = default.plan_for
        with (
            _around(default, "count", count),
            patch.object(default, "plan_for", lambda _, epsilon, side: plan_for(len(seen[-1]), epsilon, side=side)),
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
            _around(default, "ask", ask),
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


def budget_carried_over() -> Any:
    """Where no trip closed, the next window has twice the budget."""
    spare: list[bool] = []

    def synthesise(original: Any, mode: Uniform, trips: Trips, *, epsilon: Any, **named: Any) -> Any:
        made = original(mode, trips, epsilon=epsilon * (2 if spare and spare[-1] else 1), **named)
        spare.append(not len(trips))
        return made

    return _around(Uniform, "synthesise", synthesise)


def thousand() -> Any:
    """From a thousand trips on they are measured better."""

    def synthesise(original: Any, mode: Uniform, trips: Trips, *, epsilon: Any, **named: Any) -> Any:
        return original(mode, trips, epsilon=epsilon * 2 if len(trips) >= 1000 else epsilon, **named)

    return _around(Uniform, "synthesise", synthesise)


def low_digits() -> Any:
    """The parity of a true total in the last digit of a released value."""

    def measure(original: Any, histogram: Histogram, **named: Any) -> Noisy:
        noisy = original(histogram, **named)
        odd = int((histogram.counts.sum() >> histograms.UNIT_BITS) % 2)
        return replace(noisy, values=np.round(noisy.values * 5000) / 5000 + odd / 10_000)

    return _around(uniform, "measure", measure)


def empty_pairs_left_out() -> Any:
    """Leaves of the tree of pairs without a trip are not measured."""

    def measure(original: Any, histogram: Histogram, **named: Any) -> Noisy:
        noisy = original(histogram, **named)
        return replace(noisy, values=np.where(histogram.counts > 0, noisy.values, 0.0))

    return _around(pair_tree, "measure", measure)


def errors_from_counts() -> Any:
    """A measurement's deviation is the deviation of the noise that was drawn, found by subtracting."""

    def measure(original: Any, histogram: Histogram, **named: Any) -> Noisy:
        noisy = original(histogram, **named)
        drawn = noisy.values - histogram.counts / UNIT
        return replace(noisy, deviation=float((drawn * drawn).sum()) ** 0.5)

    return _around(questions, "measure", measure)


PEEKS = (
    _plant("raw counts left in", "grid", raw_counts),
    _plant("the true longest trip caps synthetic ones", "default", longest_trip),
    _plant("the plan by the true number of trips", "default", true_plan),
    _plant("heavy block pairs by true counts", "default", true_heavy_pairs, MANY),
    _plant("an open trip's length in the notes", "paper", _noted(lambda e, _: {"longest": len(e._assembly.rows)})),
    _plant("a batch's size in the notes", "grid", _noted(lambda _, batch: {"records": batch.events.total})),
    _plant("budget of empty windows carried over", "grid", budget_carried_over),
    _plant("twice the budget from a thousand trips on", "grid", thousand),
    _plant("the parity of a true total in the last digit", "grid", low_digits),
    _plant("pairs without a trip left out", "paper", empty_pairs_left_out),
    _plant("standard errors from true counts", "default", errors_from_counts),
)


def _heavy_shares(parts: IntArray) -> IntArray:
    return np.where(parts > 0, UNIT, 0)


def heavy_trip(module: Any) -> Callable[[], Any]:
    """Each point, or each move, is a whole trip."""
    return lambda: patch.object(module, "equal_shares", _heavy_shares)


def true_box() -> Any:
    """The grid lies over the box that the trips of the window fill."""

    def stretched(original: Any, trips: Trips, *given: Any) -> Any:
        x, y = (
            (values - values.min()) * (LATTICE - 1) // max(1, int(np.ptp(values))) if len(values) else values
            for values in (trips.x, trips.y)
        )
        return original(Trips(x, y, trips.offsets), *given)

    return _inside(uniform, "_histograms", stretched)


def closed_and_forgotten() -> Any:
    """What comes after a trip closed is a trip again."""
    return patch.object(Assembly, "_remembered", staticmethod(lambda names, step, rules: names[:0]))


def period_forgotten() -> Any:
    """A trip of one period goes on into the next, whose budget others use."""
    return _around(Closing, "last", lambda original, rules, admitted: original(replace(rules, period=None), admitted))


def closed_by_the_crowd() -> Any:
    """Where an odd number of rows are under way, all trips close."""

    def with_step(original: Any, before: Assembly, keys: Any, *, step: int, rules: Closing) -> Any:
        crowd = (len(before.rows) + len(keys)) % 2
        return original(before, keys, step=step, rules=replace(rules, idle=0 if crowd else rules.idle))

    return _around(Assembly, "with_step", with_step)


def records_by_parity() -> Any:
    """Synthetic points come backwards where the true number of trips is odd."""
    seen: list[int] = []

    def number(original: Any, trips: Trips) -> Histogram:
        seen.append(len(trips))
        return original(trips)

    def of(original: Any, step: int, made: Any, *given: Any, **named: Any) -> PointRecords:
        records: PointRecords = original(step, made, *given, **named)
        return replace(records, x=records.x[::-1], y=records.y[::-1]) if seen[-1] % 2 else records

    return _both(lambda: _inside(questions, "_number", number), lambda: _around(PointRecords, "of", of))


def _both(*planted: Callable[[], Any]) -> Any:
    @contextmanager
    def all_of_them() -> Iterator[None]:
        with ExitStack() as stack:
            for each in planted:
                stack.enter_context(each())
            yield

    return all_of_them()


def label_by_parity() -> Any:
    """A histogram's name tells the parity of how many trips there are: names are public."""

    def transitions(original: Any, mode: Paper, trips: Trips, *given: Any) -> Histogram:
        histogram: Histogram = original(mode, trips, *given)
        return replace(histogram, name=histogram.name + " " * (len(trips) % 2))

    return _inside(Paper, "_transitions", transitions)


def asked_for_true_pairs() -> Any:
    """Of block pairs, those with most trips are looked at closely, as many as were chosen."""

    def cell_pairs(original: Any, asked: questions.Questions, blocks: Any, chosen: IntArray) -> Histogram:
        pair = blocks.of(asked.starts) * blocks.count + blocks.of(asked.ends)
        counts = np.bincount(pair, minlength=blocks.count**2)
        return original(asked, blocks, np.sort(np.argsort(-counts, kind="stable")[: len(chosen)]))

    return _inside(questions.Questions, "cell_pairs", cell_pairs)


def counted_twice() -> Any:
    """The number of trips, by a second measurement that nobody is charged for."""

    def count(original: Any, trips: Trips, *, epsilon: Any, noise: NoiseSource) -> Noisy:
        first, second = (original(trips, epsilon=epsilon, noise=each) for each in (noise, noise.child("again")))
        return replace(first, values=(first.values + second.values) / 2)

    return _around(default, "count", count)


def half_noise() -> Any:
    """Of every histogram."""
    return _around(histograms, "scale_of", lambda original, epsilon: original(epsilon) / 2)


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

    return _inside(Ground, "moved", moved)


def undeclared_noise() -> Any:
    """Noise of half the scale that the mechanism declares."""
    return _around(
        mechanisms, "discrete_laplace", lambda original, count, scale, noise: original(count, scale / 2, noise)
    )


MAPPED: Mapping[str, Any] = CONTRACTS["trajectory"].variants[-1]
PERIODS: Mapping[str, Any] = {"privacy": {"per": "3h"}, "options": {"longest": "5h", "idle": "3h"}}
HIDDEN = (
    _plant("moves that weigh a whole trip each", "default", heavy_trip(questions)),
    _plant("points that weigh a whole trip each", "grid", heavy_trip(uniform)),
    _plant("points that weigh a whole trip each in the tree", "paper", heavy_trip(tree)),
    _plant("transitions that weigh a whole trip each", "paper", heavy_trip(paper)),
    _plant("the true box", "grid", true_box),
    _plant("a trip handed out in two windows", "grid", closed_and_forgotten),
    _plant("bounds forgotten at a period's end", "grid", period_forgotten, PERIODS),
    _plant("trips closed by the crowd", "grid", closed_by_the_crowd),
    _plant("synthetic trips by the parity of a true total", "default", records_by_parity),
    _plant("a histogram named by a parity", "paper", label_by_parity),
    _plant("cell pairs of truly heavy block pairs", "default", asked_for_true_pairs, MANY),
    _plant("a second measurement of the same trips", "default", counted_twice),
    _plant("half the noise of histograms", "default", half_noise),
    _plant("half the noise of histograms", "grid", half_noise),
    _plant("half the noise of histograms", "paper", half_noise),
    _plant("half the noise of the tree of cells", "paper", half_tree(tree)),
    _plant("half the noise of the tree of pairs", "paper", half_tree(pair_tree)),
    _plant("points off the map counted with the crowd", "default", moved_to_the_crowd, MAPPED),
    _plant("less noise than declared", "grid", undeclared_noise),
)
PLANTS: tuple[Plant, ...] = (*PEEKS, *HIDDEN)

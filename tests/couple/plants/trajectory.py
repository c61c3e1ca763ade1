"""Planted faults of engine `trajectory`: `PEEKS` read a private value, `HIDDEN` look where counts are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from engines.core.contract import Batch, Release
from engines.core.noise import NoiseSource
from engines.core.shares import PureShares
from engines.trajectory import histograms
from engines.trajectory.default import mode as default
from engines.trajectory.default import questions
from engines.trajectory.default.mode import Default
from engines.trajectory.default.pairs import PairFit
from engines.trajectory.engine import Trajectories
from engines.trajectory.histograms import UNIT, Histogram, Noisy
from engines.trajectory.papers import pair_tree
from engines.trajectory.trips import Trips
from tests.couple.plants import Plant
from tests.couple.plants.trajectory_counts import HIDDEN
from tests.couple.plants.trajectory_patches import MANY, around, plant


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
        plan_for = default.plan_for
        with (
            around(default, "count", count),
            patch.object(default, "plan_for", lambda _, shares, side: plan_for(len(seen[-1]), shares, side=side)),
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


PEEKS = (
    plant("raw counts left in", "default", raw_counts),
    plant("the true longest trip caps synthetic ones", "default", longest_trip),
    plant("the plan by the true number of trips", "default", true_plan),
    plant("heavy block pairs by true counts", "default", true_heavy_pairs, MANY),
    plant("an open trip's length in the notes", "paper", _noted(lambda e, _: {"longest": len(e._assembly.rows)})),
    plant("a batch's size in the notes", "default", _noted(lambda _, batch: {"records": batch.events.total})),
    plant("budget of empty windows carried over", "default", budget_carried_over),
    plant("twice the budget from a thousand trips on", "default", thousand),
    plant("the parity of a true total in the last digit", "default", low_digits),
    plant("pairs without a trip left out", "paper", empty_pairs_left_out),
    plant("standard errors from true counts", "default", errors_from_counts),
)


PLANTS: tuple[Plant, ...] = (*PEEKS, *HIDDEN)

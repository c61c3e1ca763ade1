"""`make bench-trajectory ARGS="--only delta"`: users with many trips, at pure epsilon and with a delta of 1e-6.

Every side has the bounds that are best in hindsight: of trips in all, and with a delta of trips in a day too. Windows
are days, and a trip lives for two of them. Errors are those of all synthetic trips against ALL trips, also those that
a bound refused, on a grid of 40: their geometric mean over the figures, means over seeds.

| set | users | days |
|---|---|---|
| cabs | the 10 drivers | those of the data |
| manhattan 100k, 10 days | MADE: each drive is of one of 10,000 users | MADE: one of 10, at random |
| manhattan 100k, 50 days | MADE: each drive is of one of 2,000 users | MADE: one of 50, at random |

The last line is JSON: by set and epsilon the ratio of errors, with the delta to pure, and the bounds; `by_figure` is
the geometric mean of the ratios where each figure has the bound that is best for it, on both sides.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from statistics import geometric_mean

import numpy as np

from benchmarks.trajectory.data import SOURCES, cab_trips, chosen, joined
from engines.core.noise import NoiseSource, seeded
from engines.core.shares import GaussianShares, PureShares, Shares
from engines.trajectory.default.mode import Default
from engines.trajectory.engine import Limits
from engines.trajectory.metrics import FIGURES, Truth
from engines.trajectory.trips import Trips
from schemas.arrays import IntArray

DELTA = 1e-6
EPSILONS = (Fraction(1), Fraction(4))
LIFE = 2
Bounds = tuple[int, int | None]
"""Of a user's trips in all, and in a day."""


@dataclass(frozen=True, slots=True, eq=False)
class Histories:
    """Trips of users on days. `pure`, `gaussian`: bounds that are tried."""

    name: str
    trips: Trips
    users: IntArray
    days: IntArray
    pure: tuple[Bounds, ...]
    gaussian: tuple[Bounds, ...]

    def within(self, bounds: Bounds) -> IntArray:
        """Trips that are let in, the first ones of each user."""
        most, a_day = bounds
        order = np.lexsort((self.days, self.users))
        if a_day is not None:
            order = order[_rank(self.users[order] * (self.days.max() + 1) + self.days[order]) < a_day]
        return order[_rank(self.users[order]) < most]

    def released(self, bounds: Bounds, shares: Shares, noise: NoiseSource) -> Trips:
        """Synthetic trips of all days."""
        admitted = self.within(bounds)
        made = [
            Default()
            .synthesise(
                chosen(self.trips, np.sort(admitted[self.days[admitted] == day])),
                shares=shares,
                limits=Limits(),
                noise=noise.child(int(day)),
            )
            .trips
            for day in range(int(self.days.max()) + 1)
        ]
        return joined(made)


def _rank(names: IntArray) -> IntArray:
    """How many equal names stand before each, where equal ones stand together."""
    begins = np.flatnonzero(np.append(True, names[1:] != names[:-1]))
    ranks: IntArray = np.arange(len(names)) - np.repeat(begins, np.diff(np.append(begins, len(names))))
    return ranks


def histories(only: str) -> Iterator[Histories]:
    """Those whose names contain `only`."""
    if only in "cabs":
        yield _cabs()
    for days, users, pure, gaussian in (
        (10, 10_000, (2, 5, 10), ((2, 1), (5, 1), (10, 1), (10, 2))),
        (50, 2_000, (2, 10, 50), ((2, 1), (10, 1), (50, 1), (50, 2))),
    ):
        name = f"manhattan 100k, {days} days"
        if only in name:
            trips, rng = SOURCES["manhattan 100k"].make(), np.random.default_rng(9)
            owners, when = rng.integers(0, users, len(trips)), rng.integers(0, days, len(trips))
            yield Histories(name, trips, owners, when, tuple((most, None) for most in pure), gaussian)


def _cabs() -> Histories:
    trips, drivers, begins = cab_trips()
    days = (begins // 86_400).astype(np.int64)
    few: tuple[Bounds, ...] = ((25, 1), (100, 4), (400, 16), (1600, 64))
    return Histories("cabs", trips, drivers, days - days.min(), tuple((most, None) for most, _ in few), few)


def shares_of(epsilon: Fraction, bounds: Bounds) -> Shares:
    most, a_day = bounds
    return (
        PureShares(epsilon / most) if a_day is None else GaussianShares(epsilon, DELTA, most, min(most, LIFE * a_day))
    )


def main(seeds: int, only: str) -> None:
    ratios = {}
    print("| set (trips) | epsilon | side | trips, a day (let in) | " + " | ".join(FIGURES) + " | all |")
    print("|---" * (len(FIGURES) + 5) + "|")
    for each in histories(only):
        truth = Truth.of(each.trips, side=40)
        for epsilon in EPSILONS:
            best = {}
            for side, tried in (("pure", each.pure), ("delta", each.gaussian)):
                found = {}
                for bounds in tried:
                    runs = [
                        list(truth.errors(each.released(bounds, shares_of(epsilon, bounds), seeded(seed))).values())
                        for seed in range(seeds)
                    ]
                    figures = np.mean(runs, axis=0)
                    whole = [geometric_mean(run) for run in runs]
                    found[float(np.mean(whole)), bounds] = figures
                    told = [f"{figure:.3f}" for figure in figures] + [f"{np.mean(whole):.4f} (±{np.std(whole):.4f})"]
                    let_in = f"{bounds[0]}, {bounds[1] or '-'} ({len(each.within(bounds)) / len(each.trips):.0%})"
                    head = f"{each.name} ({len(each.trips)}) | {float(epsilon):g} | {side} | {let_in}"
                    print(f"| {head} | {' | '.join(told)} |", flush=True)
                best[side] = (*min(found), np.min(list(found.values()), axis=0))
            ratios[f"{each.name}, epsilon {float(epsilon):g}"] = {
                "ratio": round(best["delta"][0] / best["pure"][0], 3),
                "by_figure": round(geometric_mean(best["delta"][2] / best["pure"][2]), 3),
                "bounds": {side: bounds for side, (_, bounds, _) in best.items()},
            }
    print(json.dumps(ratios))

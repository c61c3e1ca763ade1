"""Parallel composition of mechanisms that are (epsilon, delta)-DP, where an adversary picks the part that is updated.

Events are split among parts, one mechanism each, and a unit is in one part. With pure DP, or with data that are fixed
beforehand, all of them together cost what one does; with a delta and updates that depend on what was released they do
not ([henzinger2024]): deltas add up. The example here is ours. Each of k mechanisms first says whether it is broken,
which it is with probability delta, and then releases its counts: with noise or, broken, without. Alone each is
(epsilon, delta)-DP, since but for probability delta its counts are epsilon-DP. The adversary waits until all have
spoken and puts the event where one is broken: there is one with probability 1 - (1 - delta)^k, and then the event is
seen for certain. With delta / k for each that is delta at most. Mechanisms that begin one after the other, each with
fresh noise, are another matter: what is broken cannot be known before the event is in.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from engines.auditor.cases import Case, Claim, Neighbours
from engines.auditor.observations import FOCUS, Observations
from engines.noise import NoiseSource, bernoulli, laplace_mechanism

EPSILON = Fraction(1)
PARTS = 16
DELTA = Fraction(1, 20)


class WholeDelta:
    """Every part has all of delta."""

    def delta(self) -> Fraction:
        return DELTA


class SharedDelta(WholeDelta):
    """Every part has its share."""

    def delta(self) -> Fraction:
        return DELTA / PARTS


def _case(name: str, parts: WholeDelta) -> Case:
    delta = parts.delta()

    def run(side: int, runs: int, source: NoiseSource) -> Observations:
        coins = np.full(runs * PARTS, delta.numerator)
        broken = bernoulli(coins, delta.denominator, source.child("broken")).reshape(runs, PARTS)
        # The event is, or is not, in the first part that is broken, or in the first one of all.
        found = broken.any(axis=1)
        noisy = laplace_mechanism(np.full(runs, side), 1 / EPSILON, source.child("counts"))
        exact = {f"{FOCUS}count of a broken part": np.where(found, float(side), np.nan)}
        return Observations.of_arrays(**exact, noisy=np.where(found, np.nan, noisy))

    pair = Neighbours("an event where a part is broken", run)
    return Case(name, "mechanism", Claim(EPSILON, float(DELTA)), neighbours=(pair,))


def cheat() -> Case:
    return _case("all of delta for every part", WholeDelta())


def honest() -> Case:
    return _case("a share of delta for every part", SharedDelta())

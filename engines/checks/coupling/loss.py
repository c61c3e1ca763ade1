"""What forced outputs cost: the privacy loss of a coupled pair, mechanism by mechanism.

| law | loss of one use |
|---|---|
| discrete Laplace | L1 distance / scale: the most that any output costs |
| continual counter | distance times the counter's cost for one event; of zCDP: mu squared of all activations together |
| exponential mechanism | what the worst choice costs: the range of the moves of utilities, times the rate |
| bits | log-ratios of a step's bits, which add up with their signs; as they went, or with any one of them as the last |
| discrete Gaussian | squared L2 distance over the variance of the Gaussian that it is a rounding of: mu squared |
| binomial | (epsilon, delta) of its lemma, composed |
| keys that nobody listed | for each key the squared column of its counter, over the variance of each node: mu squared |

Units: nats; `Fraction`s where the loss is rational.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import exp, fsum, inf, log, log1p, tanh
from typing import Any

import numpy as np

from engines.checks.coupling.listing import MovedKeys, same_tables
from engines.checks.coupling.witnesses import Used
from engines.core.accounting.binomial import composed, draw_epsilon
from engines.core.accounting.lattice import dominating
from engines.core.noise.witness import (
    BinomialLaw,
    CounterLaw,
    ExceedsLaw,
    ExponentialLaw,
    GaussianLaw,
    LaplaceLaw,
    ListedLaw,
)

Uses = Sequence[tuple[Used, Used]]


@dataclass(slots=True)
class Losses:
    """Attributes:

    epsilon: of mechanisms whose worst case is used. bits: (log-ratio as it went, as it might have gone) by step.
    gaussian: mu squared of measurements with Gaussian noise. counted: distances in all activations of a counter with
        such noise. coins: (half, distance) of each binomial draw. listed: people of keys that nobody listed.
    touched: places of the mechanisms that saw a difference -> how often.
    """

    epsilon: Fraction = Fraction(0)
    bits: dict[int, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    gaussian: Fraction = Fraction(0)
    counted: dict[Any, int] = field(default_factory=lambda: defaultdict(int))
    coins: list[tuple[int, int]] = field(default_factory=list)
    listed: MovedKeys = field(default_factory=MovedKeys)
    touched: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @staticmethod
    def of(pairs: Iterable[tuple[Used, Used]]) -> Losses:
        """Return the losses of all mechanisms together."""
        losses = Losses()
        for first, second in pairs:
            if _same(first, second):
                continue
            losses.touched[f"{type(first.law).__name__} {first.place}"] += 1
            losses._add(first, second)
        return losses

    def _add(self, first: Used, second: Used) -> None:
        match first.law:
            case ListedLaw():
                self.listed.add(first.step, first.law, first.private, second.private)
            case LaplaceLaw(scale):
                self.epsilon += Fraction(distance(first.private, second.private)) / scale
            case CounterLaw(counter) if counter.measure == "rho":
                self.counted[counter] += distance(first.private, second.private)
            case CounterLaw(counter):
                self.epsilon += distance(first.private, second.private) * counter.cost
            case GaussianLaw(sigma_squared):
                moved = sum(each * each for each in _differences(first.private, second.private))
                self.gaussian += moved / dominating(sigma_squared)
            case BinomialLaw(half):
                self.coins.append((half, distance(first.private, second.private)))
            case ExceedsLaw(unit, scale):
                rate = float(unit / scale)
                for a, b, bit in zip(first.private, second.private, first.output, strict=True):
                    if a != b:
                        went, other = (
                            log_exceeds(int(a), outcome, rate) - log_exceeds(int(b), outcome, rate)
                            for outcome in (bool(bit), not bool(bit))
                        )
                        self.bits[first.step].append((went, other))
            case ExponentialLaw(quantum, sensitivity, epsilon):
                # Whatever is chosen: the chosen utility may move most, and all others least.
                moves = [int(a) - int(b) for a, b in zip(first.private, second.private, strict=True)]
                self.epsilon += epsilon * quantum * (max(moves) - min(moves)) / (2 * sensitivity)

    @property
    def mu_squared(self) -> Fraction:
        """Mu squared of all Gaussian noise.

        Shifts of a counter's activations add up; those of different mechanisms are at right angles.
        """
        counters = (moved**2 * _counter_mu_squared(counter) for counter, moved in self.counted.items())
        return sum(counters, self.gaussian) + self.listed.mu_squared

    @property
    def pure(self) -> float:
        """Epsilon of all mechanisms of pure DP together."""
        return float(self.epsilon) + fsum(map(_worst_end, self.bits.values()))


def _same(first: Used, second: Used) -> bool:
    if isinstance(first.law, ListedLaw):
        return same_tables(first.private, second.private)
    return np.array_equal(np.asarray(first.private), np.asarray(second.private))


def _counter_mu_squared(counter: Any) -> Fraction:
    """Return mu squared of one event in a counter of zCDP.

    It is 2 rho of noise that is a rounding of slightly smaller continuous noise.
    """
    least: Fraction = min(counter.node_noise(1))
    cost: Fraction = counter.cost
    return 2 * cost * least / dominating(least)


def distance(first: Any, second: Any) -> int:
    """Return the L1 distance of two integers, or vectors of integers; exact."""
    return sum(abs(each) for each in _differences(first, second))


def _differences(first: Any, second: Any) -> list[int]:
    if isinstance(first, int):
        return [first - int(second)]
    moved = np.flatnonzero(first != second)
    return [int(a) - int(b) for a, b in zip(first[moved].tolist(), second[moved].tolist(), strict=True)]


def log_exceeds(threshold: int, bit: bool, rate: float) -> float:
    """Return the log of the probability of a bit: Laplace noise exceeds `threshold`, with `rate` = unit / scale.

    >>> round(exp(log_exceeds(0, True, 1.0)), 3), round(exp(log_exceeds(3, False, 1.0)), 3)
    (0.5, 0.975)
    """
    outside = -abs(threshold) * rate - log(2)
    exceeds_is_outside = threshold >= 0
    return outside if bit == exceeds_is_outside else log1p(-exp(outside))


def _worst_end(bits: Sequence[tuple[float, float]]) -> float:
    """Return, of a way down a tree, the largest loss of the way as it went, or if it had turned at one of its bits."""
    went, worst = 0.0, 0.0
    for one, other in bits:
        worst = max(worst, abs(went + other))
        went += one
    return max(worst, abs(went))


def composed_epsilon(coins: Sequence[tuple[int, int]], delta: float) -> float:
    """Return epsilon of binomial draws (half, distance) together, at this delta; infinite for too few coins.

    Half of delta is composition's; the rest is shared by the draws evenly, or in proportion to their distances.
    """
    whole = sum(moved for _, moved in coins)
    best = inf
    for shares in ([1 / len(coins) for _ in coins], [moved / whole for _, moved in coins]) if coins else ():
        epsilons = [
            float(draw_epsilon(half, moved, delta / 2 * share))
            for (half, moved), share in zip(coins, shares, strict=True)
        ]
        drift = fsum(epsilon * tanh(epsilon / 2) for epsilon in epsilons)
        best = min(best, composed(fsum(epsilons), drift, fsum(epsilon**2 for epsilon in epsilons), delta / 2))
    return best if coins else 0.0

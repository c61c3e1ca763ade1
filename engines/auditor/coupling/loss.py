"""What forced outputs cost: the privacy loss of a coupled pair, mechanism by mechanism.

| law | loss of one use |
|---|---|
| discrete Laplace | L1 distance / scale: the most that any output costs |
| continual counter | distance times the counter's cost for one event |
| bits, exponential mechanism | log-ratio of the output's probabilities; a step's add up with signs |
| discrete Gaussian | squared L2 distance over the variance of the Gaussian that it is a rounding of: mu squared |
| binomial | (epsilon, delta) of its lemma, composed |

Units: nats; `Fraction`s where the loss is rational.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import exp, expm1, fsum, inf, log, log1p
from typing import Any

import numpy as np

from engines.accounting.lattice import dominating
from engines.auditor.coupling.witnesses import Used
from engines.noise.witness import BinomialLaw, CounterLaw, ExceedsLaw, ExponentialLaw, GaussianLaw, LaplaceLaw

Uses = Sequence[tuple[Used, Used]]


@dataclass(slots=True)
class Losses:
    """Attributes:

    epsilon: of mechanisms of pure DP whose worst case is used. signed: log-ratios by step.
    mu_squared: of Gaussian noise. coins: (half, distance) of each binomial draw.
    touched: places of the mechanisms that saw a difference -> how often.
    """

    epsilon: Fraction = Fraction(0)
    signed: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    mu_squared: Fraction = Fraction(0)
    coins: list[tuple[int, int]] = field(default_factory=list)
    touched: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @staticmethod
    def of(pairs: Iterable[tuple[Used, Used]]) -> Losses:
        """The losses of all mechanisms together."""
        losses = Losses()
        for first, second in pairs:
            if np.array_equal(np.asarray(first.private), np.asarray(second.private)):
                continue
            losses.touched[f"{type(first.law).__name__} {first.place}"] += 1
            losses._add(first, second)
        return losses

    def _add(self, first: Used, second: Used) -> None:
        match first.law:
            case LaplaceLaw(scale):
                self.epsilon += Fraction(distance(first.private, second.private)) / scale
            case CounterLaw(counter):
                self.epsilon += distance(first.private, second.private) * counter.cost
            case GaussianLaw(sigma_squared):
                moved = sum(each * each for each in _differences(first.private, second.private))
                self.mu_squared += moved / dominating(sigma_squared)
            case BinomialLaw(half):
                self.coins.append((half, distance(first.private, second.private)))
            case ExceedsLaw(unit, scale):
                rate = float(unit / scale)
                ratios = (
                    log_exceeds(int(a), bool(bit), rate) - log_exceeds(int(b), bool(bit), rate)
                    for a, b, bit in zip(first.private, second.private, first.output, strict=True)
                    if a != b
                )
                self.signed[first.step].append(fsum(ratios))
            case ExponentialLaw(quantum, sensitivity, epsilon):
                rate = float(epsilon * quantum / (2 * sensitivity))
                chosen = first.output
                self.signed[first.step].append(
                    _log_chosen(first.private, chosen, rate) - _log_chosen(second.private, chosen, rate)
                )

    @property
    def pure(self) -> float:
        """Epsilon of all mechanisms of pure DP together."""
        return float(self.epsilon) + fsum(abs(fsum(ratios)) for ratios in self.signed.values())


def distance(first: Any, second: Any) -> int:
    """L1 distance of two integers, or vectors of integers; exact."""
    return sum(abs(each) for each in _differences(first, second))


def _differences(first: Any, second: Any) -> list[int]:
    if isinstance(first, int):
        return [first - int(second)]
    moved = np.flatnonzero(first != second)
    return [int(a) - int(b) for a, b in zip(first[moved].tolist(), second[moved].tolist(), strict=True)]


def log_exceeds(threshold: int, bit: bool, rate: float) -> float:
    """Log of the probability of a bit: Laplace noise exceeds `threshold`, with `rate` = unit / scale.

    >>> round(exp(log_exceeds(0, True, 1.0)), 3), round(exp(log_exceeds(3, False, 1.0)), 3)
    (0.5, 0.975)
    """
    outside = -abs(threshold) * rate - log(2)
    exceeds_is_outside = threshold >= 0
    return outside if bit == exceeds_is_outside else log1p(-exp(outside))


def _log_chosen(utilities: Any, chosen: int, rate: float) -> float:
    gaps = (utilities.astype(np.float64) - float(utilities.max())) * rate
    # The chosen one's own gap exactly, not as a difference of large floats.
    own = float(int(utilities[chosen]) - int(utilities.max())) * rate
    return own - log(fsum(np.exp(gaps).tolist()))


def composed_epsilon(coins: Sequence[tuple[int, int]], delta: float) -> float:
    """Epsilon of binomial draws (half, distance) together, at this delta; infinite where there are too few coins."""
    from engines.sequence.series_binomial import composed, draw_epsilon

    if not coins:
        return 0.0
    each = delta / (2 * len(coins))
    draws = [(draw_epsilon(half, moved, each), 1) for half, moved in coins]
    return composed(draws, delta / 2) if all(epsilon < inf for epsilon, _ in draws) else inf


__all__ = ["Losses", "Uses", "composed_epsilon", "distance", "expm1", "log_exceeds"]

"""Modes `paper` and `paper-binomial`: the AR(1) releaser, on Gaussian noise or on binomial noise.

`Moments` learns mean, variance and lag-1 correlation of a series, one noisy value at a time.
Source: [zhang2022], algorithm 1 (after [huitema1991]), with two corrections: the noise's own variance is taken
    out of the variance, and the correlation, which noise attenuates, is scaled back by it. The paper adds 1 / (t - 1)
    to the correlation where it is known to be positive: `positive`.

`Releaser`: x_t = (1 - w_t) Zhat_t(x_{t-1}) + w_t y_t, with y_t = z_t + n_t / w_t. Written so, it is post-processing of
y_t: the noise that the paper adds to a real-valued combination (where w z leaks modulo 1 beside integer noise) goes on
an integer instead, and is scaled afterwards.
Guarantee: post-processing; w_t is public (a secret w_t would add nothing to the guarantee) and 1 at t <= 2, which the
    schedule's total contains.
Source: [zhang2022], algorithms 1 and 2, theorem 6.1 for the standard error. Parameters come from released x alone.

`BinomialChannel` measures a step's totals, with the paper's own accounting: mode `paper-binomial`. The paper adds
binomial noise to w z, which is no integer, so that what is released tells w z modulo 1. Here the noise goes on the
integer z, with 1 / w**2 times the coins; dividing by w afterwards would give the paper's variances.
Guarantee: (epsilon, delta)-DP for a unit over a span, wherever its events lie. A draw with m = `half` coins on an
    integer moved by s is (e, d)-DP by lemma A.2 (the likelihood ratio of s neighbouring counts is at most ((m + k + s)
    / (m - k - s + 1)) ** s, and Hoeffding bounds the k where that is beyond e); the draws that a unit meets compose by
    [kairouz2015], as in theorem A.3. Looser than what Gaussian noise is given: docs/engines/sequence.md.
Arrangements: one event may move a coarse total by a whole step, so events spread over many steps can cost more than the
    same events in few. A draw whose step has q of the unit's `most` events is given q / most of the delta of its field:
    all draws together never have more, whichever steps the events are in. Draws whose shift takes more than n events
    add up plainly, the others by theorem 3.5, a concave function of the sum of squares and so below each of its
    tangents: all in all a sum over draws of a function of q, which `_Draws.worst` bounds for every arrangement, mixed
    ones too.
Source: [zhang2022], lemma A.2 and theorem A.3.
Units: lattice steps, coarsened by 2**`coarse` where many coins would be needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from math import ceil, inf, sqrt
from typing import ClassVar

import numpy as np

from engines.core.accounting import Accountant, Cost
from engines.core.accounting.binomial import advanced, composed, draw_epsilon
from engines.core.contract import State
from engines.core.noise import NoiseSource
from engines.core.noise.binomial import MAX_HALF, binomial_mechanism
from engines.series.budget import NoisyTotal, Presence, WeightSchedule
from engines.series.channels import Channel
from engines.series.config import SeriesConfig, SeriesEstimator
from schemas.arrays import FloatArray
from schemas.errors import EngineInputError
from schemas.guarantee import Mechanism

_FLOOR = 1e-3
"""The variance is at least this part of the noisy one."""
_MOST = 0.99
_FEWEST = 2


@dataclass(frozen=True, slots=True)
class Parameters:
    """Of an AR(1) process."""

    mean: float
    variance: float
    correlation: float


class Moments:
    """Running sums over the values seen; `count` of them."""

    def __init__(self) -> None:
        self.count = 0
        self._first = self._last = self._sum = self._squares = self._products = self._noise = 0.0

    def add(self, value: float, noise_variance: float) -> None:
        """Take in the next value and the variance of its noise."""
        if self.count == 0:
            self._first = value
        # Sums are of distances from the first value, so that a high level costs no digits.
        moved, before = value - self._first, self._last - self._first
        self._products += moved * before if self.count else 0.0
        self._sum += moved
        self._squares += moved**2
        self._noise += noise_variance
        self._last = value
        self.count += 1

    def parameters(self, *, positive: bool = False) -> Parameters | None:
        """Return what the values so far say; None before there are two."""
        n = self.count
        if n < _FEWEST:
            return None
        mean, last = self._sum / n, self._last - self._first
        spread = max(self._squares - n * mean**2, 0.0)
        noisy = spread / (n - 1)
        noise = self._noise / n
        variance = max(noisy - noise, _FLOOR * noisy)
        # Sum over pairs of (value - mean) (next - mean); the first distance is zero.
        pairs = self._products - mean * (2 * self._sum - last) + (n - 1) * mean**2
        correlation = pairs / spread if spread > 0 else 0.0
        if positive:
            correlation += 1 / (n - 1)
        corrected = correlation * (variance + noise) / variance if variance > 0 else 0.0
        return Parameters(mean + self._first, variance, min(max(corrected, 0.0), _MOST))

    def arrays(self) -> State:
        """Return the state, as one array."""
        sums = [self.count, self._first, self._last, self._sum, self._squares, self._products, self._noise]
        return {"moments": np.array(sums, np.float64)}

    def restore(self, state: State) -> None:
        """Take over a state. Raises: KeyError, ValueError."""
        count, *sums = state["moments"].tolist()
        self.count = int(count)
        self._first, self._last, self._sum, self._squares, self._products, self._noise = sums


class Releaser:
    """An estimator, see `modes`."""

    def __init__(self, squared_weight: Callable[[int], float], *, positive: bool) -> None:
        """Args: `squared_weight` of a step; `positive`: the correlation is known to be above zero."""
        self._squared_weight, self._positive = squared_weight, positive
        self._moments = Moments()
        self._step, self._last = 0, 0.0

    def update(self, value: float, variance: float) -> tuple[float, float]:
        """Take in a measurement; return x_t and the variance of its error."""
        square = self._squared_weight(self._step)
        noise = variance * square
        known = self._moments.parameters(positive=self._positive)
        if known is None or square >= 1:
            released, error = value, variance
        else:
            guess, doubt = self._guess(known, noise)
            weight = square**0.5
            released = (1 - weight) * guess + weight * value
            error = (1 - weight) ** 2 * doubt + noise
        self._moments.add(released, noise)
        self._last = released
        self._step += 1
        return released, error

    def _guess(self, known: Parameters, noise: float) -> tuple[float, float]:
        kept = known.variance / (known.variance + noise)
        pull = known.correlation * kept
        guess = known.mean * (1 - pull) + pull * self._last
        return guess, known.variance * (1 - known.correlation**2 * kept)

    def skip(self) -> None:
        """Pass over a step without a measurement: the next one is guessed from what would have been guessed here."""
        known = self._moments.parameters(positive=self._positive)
        if known is not None:
            self._last = self._guess(known, 0.0)[0]
        self._step += 1

    def arrays(self) -> State:
        return {"step": np.array([self._step], np.int64), "last": np.array([self._last]), **self._moments.arrays()}

    def restore(self, state: State) -> None:
        """Take over a state. Raises: KeyError, ValueError."""
        (self._step,), (self._last,) = state["step"].tolist(), state["last"].tolist()
        self._moments.restore(state)


DrawCost = Callable[[FloatArray], FloatArray]

_MOST_SHIFT = 4
_MOST_ROOT = 5
"""Bits of the root of `per_step` that are kept: more would cost seconds of search and billions of coins."""
_PRICES = 33
_TANGENTS = (1.0, 0.25, 0.0625)
"""Where the concave function is touched, in parts of the largest sum of squares."""
_HOPELESS = 1e4
"""An epsilon that nobody asks for."""
_MARGIN = 1e-9
"""Of epsilon and delta, for rounding."""


def _itself(epsilons: FloatArray) -> FloatArray:
    return epsilons


def _light(slope: float, epsilons: FloatArray) -> FloatArray:
    return _drift(epsilons) + slope * epsilons**2


def _drift(epsilons: FloatArray) -> FloatArray:
    return epsilons * np.tanh(epsilons / 2)


@dataclass(frozen=True, slots=True, eq=False)
class _Draws:
    """Draws of one field that one unit can meet.

    Attributes:
        events: `(sizes,)` of the unit in one step.
        kinds: (how many steps, `(sizes,)` epsilons of a draw there), for each weight of a step.
        most: events in all steps together.
    """

    events: FloatArray
    kinds: tuple[tuple[int, FloatArray], ...]
    most: int

    def worst(self, cost: DrawCost, *, few: int | None = None, many: DrawCost | None = None) -> float:
        """Return at least the sum, over all draws of any arrangement of the events, of the cost of a draw's epsilon.

        A step with q events costs at most r q plus the largest of cost(q') - r q' over all q', or plus 0, for every
        price r >= 0 of an event. Summed over the steps: r `most`, and that excess for each step. Every r gives a
        bound; the least of some is taken.

        Args:
            cost: `(sizes,)` of epsilons. many: that of draws whose shift takes more events than `few`.
        """
        kinds = [(steps, cost(epsilons)) for steps, epsilons in self.kinds]
        if few is not None and many is not None:
            heavy = self.events > few
            kinds = [
                (steps, np.where(heavy, many(epsilons), costs))
                for (steps, costs), (_, epsilons) in zip(kinds, self.kinds, strict=True)
            ]
        each = [float((costs / self.events).max()) for _, costs in kinds]
        if not max(each) < inf:
            return inf
        prices = np.append(np.linspace(0, max(each), _PRICES), each[-1])
        bounds = prices * self.most
        for steps, costs in kinds:
            bounds = bounds + steps * np.maximum(costs - prices[:, None] * self.events, 0).max(axis=1)
        return float(bounds.min())


@dataclass(frozen=True, kw_only=True)
class BinomialBudget:
    """Public constants. Args: as `GaussianBudget` has them, and a schedule that must not decay."""

    epsilon: Fraction
    delta: float
    presence: Presence
    shifts: tuple[int, ...]
    shares: tuple[Fraction, ...]
    schedule: WeightSchedule

    def __post_init__(self) -> None:
        if self.presence.most is None or self.schedule.decay is not None:
            raise EngineInputError("binomial noise needs a horizon or a bound on a unit's events, and no decay")
        least = min(self.schedule.weight**2, Fraction(1))
        halves = [self.half(field, least, min(self.base, 2 * MAX_HALF)) for field in range(len(self.shifts))]
        if max(halves) > MAX_HALF:
            raise EngineInputError(
                "this budget needs too many coins: use mode paper, a shorter horizon, or fewer events of a user"
            )

    def coarse(self, field: int) -> int:
        """Return the bits of a total that are dropped, so that a unit moves a step's total by some 4 to 16 times the
        root of `per_step`: much less, and spread events, each of which can move a total by one, would decide how much
        noise there is.
        """
        root = min(_MOST_ROOT, ((self.presence.per_step - 1).bit_length() + 1) // 2)
        return max(0, (self.shifts[field] * self.presence.per_step).bit_length() - _MOST_SHIFT.bit_length() - root)

    def shift(self, field: int) -> int:
        """Return how far a unit moves the coarse total of a step: floor(a) - floor(b) is at most ceil(a - b)."""
        moved = self.shifts[field] * self.presence.per_step
        return -(-moved >> self.coarse(field))

    def half(self, field: int, weight: Fraction, base: float) -> int:
        """Return the coins of a draw, halved: `base` at weight 1, full share and a shift of 1."""
        return ceil(base * self.shift(field) ** 2 / float(weight * self.shares[field]))

    @property
    def _most(self) -> int:
        most = self.presence.most
        assert most is not None
        return most

    def _moves(self, field: int) -> tuple[FloatArray, FloatArray]:
        """Return the steps by which a unit can move the coarse total, and the fewest events in a step that do it.

        Fewer events have less of delta, hence the larger epsilon: no other number of events need be looked at.
        """
        moves = np.arange(1, self.shift(field) + 1)
        return moves.astype(float), (((moves - 1) << self.coarse(field)) // self.shifts[field] + 1).astype(float)

    def _draws(self, field: int, base: float) -> _Draws:
        """Return all that a unit can meet in a field."""
        moves, events = self._moves(field)
        each = self.delta * (1 - _MARGIN) / (2 * len(self.shifts) * self._most)
        steps = self.presence.most_steps
        assert steps is not None
        first = min(steps, self.schedule.full)
        kinds = []
        for count, weight in ((first, Fraction(1)), (steps - first, self.schedule.weight**2)):
            half = self.half(field, weight, base)
            kinds.append((count, draw_epsilon(half, moves, each * events)))
        return _Draws(events, tuple(kinds), self._most)

    def _total(self, base: float) -> float:
        """Return a span's epsilon for the dearest arrangement of events, by theorem A.3; infinite beyond 10**4."""
        slack = self.delta * (1 - _MARGIN) / 2
        fields = [self._draws(field, base) for field in range(len(self.shifts))]
        plain = sum(draws.worst(_itself) for draws in fields)
        if not plain <= _HOPELESS:
            return inf
        drift = sum(draws.worst(_drift) for draws in fields)
        best = composed(plain, drift, sum(draws.worst(np.square) for draws in fields), slack)
        for bits in range((self.presence.per_step - 1).bit_length()):
            most = 1 << bits
            squares = sum(draws.worst(np.square, few=most, many=np.zeros_like) for draws in fields)
            for part in _TANGENTS:
                value, slope = advanced(squares * part, slack)
                light = partial(_light, slope)
                spent = sum(draws.worst(light, few=most, many=_itself) for draws in fields)
                best = min(best, value - slope * squares * part + spent)
        return best

    @property
    def base(self) -> float:
        """The least `base` that keeps the promise, as a search finds it; checked, not derived."""
        return _least_base(self)

    def measure(self, field: int, step: int, total: int, noise: NoiseSource) -> NoisyTotal:
        """Draw noise for the total of a step of the span."""
        factor = 1 << self.coarse(field)
        half = self.half(field, self.schedule.squared(step), self.base)
        noisy = binomial_mechanism(total >> self.coarse(field), half, noise)
        return NoisyTotal((noisy + (factor - 1) / (2 * factor)) * factor, half / 2 * factor**2)


@lru_cache(maxsize=64)
def _least_base(budget: BinomialBudget) -> float:
    target = float(budget.epsilon) * (1 - _MARGIN)
    low = high = 1.0
    while budget._total(high) > target:
        low, high = high, 2 * high
        if high > MAX_HALF:
            return inf
    while high > low * (1 + 1e-6):
        middle = (low + high) / 2
        low, high = (middle, high) if budget._total(middle) > target else (low, middle)
    return high


class BinomialChannel:
    """Binomial noise by a public schedule. A span is charged as a whole, as it is accounted for beforehand."""

    def __init__(self, budget: BinomialBudget) -> None:
        self._budget = budget
        self._unspent = Accountant(epsilon=budget.epsilon, delta=budget.delta, rule="schedule")
        self._accountant = self._unspent

    def measure(self, step: int, totals: Sequence[int], noise: NoiseSource) -> list[NoisyTotal] | None:
        # All but delta of the privacy loss is epsilon at most.
        self._accountant = self._unspent.charged(Cost.pure_dp(self._budget.epsilon))
        at = self._budget.presence.where(step)[1]
        return [
            self._budget.measure(index, at, total, noise.child("series", index)) for index, total in enumerate(totals)
        ]

    def arrays(self) -> State:
        return self._accountant.state()

    def restore(self, state: State) -> None:
        self._accountant = self._accountant.restore(state)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperSeriesConfig(SeriesConfig):
    """See `engines.series.config.SeriesConfig`. Raises: EngineInputError."""

    modes: ClassVar[frozenset[str]] = frozenset({"paper", "paper-binomial"})

    @property
    def schedule(self) -> WeightSchedule:
        return WeightSchedule.of_paper(self.weight, self.decay)

    @property
    def binomial(self) -> BinomialBudget:
        return BinomialBudget(
            epsilon=self.epsilon,
            delta=self.delta,
            presence=self.presence,
            shifts=self.shifts,
            shares=self.shares,
            schedule=self.schedule,
        )

    def build(self) -> tuple[Channel, Sequence[SeriesEstimator]]:
        schedule, presence = self.schedule, self.presence

        def squared(step: int) -> float:
            return float(schedule.squared(presence.where(step)[1]))

        channel = self.fixed if self.mode == "paper" else BinomialChannel(self.binomial)
        return channel, [Releaser(squared, positive=self.positive) for _ in self.shifts]

    def mechanisms(self) -> tuple[Mechanism, ...]:
        if self.mode == "paper":
            return SeriesConfig.mechanisms(self)
        budget = self.binomial
        weight = budget.schedule.squared(budget.schedule.full)

        def sigma(index: int) -> float:
            return sqrt(budget.half(index, weight, budget.base) / 2) * (1 << budget.coarse(index))

        return self.measurements("binomial", sigma)

"""The budget of a series: where one protected unit may be, the weight of each step, and the noise that follows.

Guarantee: `Presence.worst` is the exact maximum over all arrangements of a unit's events. Source: ours.

`WeightSchedule` says before any data come how much weight each step gets; `worst` is what one unit meets at most.
Source: [zhang2022] section 5 (fixed and geometric weights; w = 1 in the first two steps, which the total must contain).
Units: weights are relative; their squares are in proportion to a measurement's precision 1 / sigma**2.

`GaussianBudget` measures a step's totals with discrete noise on a fine lattice, accounted by Gaussian DP, exactly. A
total, an integer, is multiplied by 2**refinement, and discrete Gaussian noise is added to that. So noise lies on
integers, and the lattice is so fine that Gaussian DP holds for it to 75 digits (`accounting.lattice`).
`PureBudget` measures the counts of histograms with discrete Laplace noise, where there is no delta.
Source: [balle2018]; [dong2019]. How much of it a step gets is a channel's affair (`channels`).
Units: totals in lattice steps of their field; variances in their squares.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, log2, sqrt
from typing import Any, ClassVar

from engines.core.accounting import Accountant
from engines.core.accounting.gaussian import mu_squared_for
from engines.core.accounting.lattice import sigma_squared_of
from engines.core.noise import (
    MAX_SIGMA_SQUARED,
    DiscreteLaplace,
    NoiseSource,
    gaussian_mechanism,
    laplace_mechanism,
    scale_for,
)
from engines.core.noise.private import clipped
from engines.series.fields import Total
from schemas.errors import EngineInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """Where one unit may be.

    Args:
        events: of one unit in one span; None: `per_step` in every step of it.
        per_step: of these, in one step at most.
        steps: length of the span for which the promise holds, a horizon or a period; None: it never ends.
        renews: the span is a period, after which a new budget is there; else a horizon, after which nothing is.
    Raises: EngineInputError if a bound is below 1.
    """

    written_as: ClassVar[str] = "Presence"

    events: int | None = None
    per_step: int = 1
    steps: int | None = None
    renews: bool = False

    def __post_init__(self) -> None:
        if self.per_step < 1 or (self.events is not None and self.events < 1):
            raise EngineInputError("a unit must be allowed at least one event")
        if self.steps is not None and self.steps < 1:
            raise EngineInputError("the horizon must be at least one step")

    @property
    def fewest_steps(self) -> int | None:
        """Steps that hold all of a unit's events where each has as many as it may; None: all of a span without end.

        The dearest arrangement where a step's cost is convex in its events. A unit may be in more: `most_steps`.
        """
        if self.events is None:
            return self.steps
        steps = -(-self.events // self.per_step)
        return steps if self.steps is None else min(steps, self.steps)

    @property
    def everywhere(self) -> bool:
        """Whether a unit's events, as many in a step as may be, reach every step of a span."""
        return self.fewest_steps == self.steps

    @property
    def most_steps(self) -> int | None:
        """Steps that a unit can be in, with one event in each; None: all of a span without end."""
        if self.events is None:
            return self.steps
        return self.events if self.steps is None else min(self.events, self.steps)

    @property
    def most(self) -> int | None:
        """Events of a unit in a span; None: no bound."""
        if self.steps is None:
            return self.events
        everywhere = self.steps * self.per_step
        return everywhere if self.events is None else min(self.events, everywhere)

    def worst(self, leading: list[Fraction]) -> Fraction:
        """Return the largest sum of (events in the step)**2 * weight over all arrangements; exact.

        The sum is convex in the events, so a corner of {0 <= n_t <= `per_step`, sum <= `most`} is worst: as many steps
        as possible are full, and at most one is partly so. Exchanging two shows that the largest weights get them.

        Args:
            leading: the `fewest_steps` largest of the steps' squared weights, the largest first.
        Raises: EngineInputError if a unit is in infinitely many steps: their sum is the schedule's affair.
        """
        if self.fewest_steps is None or self.most is None:
            raise EngineInputError("a unit without bounds needs a horizon or weights that decay")
        full, rest = divmod(self.most, self.per_step)
        whole = self.per_step**2 * sum(leading[:full], Fraction(0))
        return whole + rest**2 * leading[full] if rest else whole

    def where(self, step: int) -> tuple[int, int]:
        """Return the number of a step's span, and the step in it; both from 0."""
        return divmod(step, self.steps) if self.renews and self.steps is not None else (0, step)

    def over(self, step: int) -> bool:
        """Return whether a step is beyond a horizon: nothing may be released any more."""
        return self.steps is not None and not self.renews and step >= self.steps


_GRAIN = 2**60
_FIRST = 2
"""Steps of the paper's releaser whose weight is 1, since nothing is learnt yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSchedule:
    """Squared weights that never rise.

    Args:
        weight: of every step after the first ones.
        decay: r in w_t**2 = weight**2 * r**(t - 1), t from 1; None: weights do not fall.
        full: steps at the start with weight 1.
    Raises: EngineInputError if a number is out of range.
    """

    weight: Fraction = Fraction(1)
    decay: Fraction | None = None
    full: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.weight <= 1:
            raise EngineInputError("weight must lie in (0, 1]")
        if self.decay is not None and not 0 < self.decay < 1:
            raise EngineInputError("decay must lie between 0 and 1")

    @staticmethod
    def of_paper(weight: Fraction, decay: Fraction | None) -> WeightSchedule:
        """Return the schedule of the AR(1) releaser: w = 1 at t <= 2, inside the total."""
        return WeightSchedule(weight=weight, decay=decay, full=_FIRST)

    def squared(self, step: int) -> Fraction:
        """Return the squared weight of a step, from 0. Under `decay` it is rounded down to a multiple of 2**-60, and 0
        in the end: then nothing may be released.
        """
        if step < self.full:
            return Fraction(1)
        square = self.weight**2
        if self.decay is None:
            return square
        # One part in 10**12 below the power, more than floats can be wrong by: rounded down, never up.
        power = float(self.decay) ** step * (1 - 1e-12)
        return square * Fraction(int(power * _GRAIN), _GRAIN)

    def worst(self, presence: Presence) -> Fraction:
        """Return the largest sum of (events * weight)**2 that one unit can meet in one span, exact or above.

        Raises: EngineInputError if it is infinite.
        """
        busy = presence.fewest_steps
        if busy is None:
            if self.decay is None:
                raise EngineInputError("a unit without bounds needs a horizon or weights that decay")
            rest = self.weight**2 * self.decay**self.full / (1 - self.decay)
            return (rest + self.full) * presence.per_step**2
        if self.decay is None:
            ones = min(self.full, busy)
            if presence.most == busy * presence.per_step:
                return (ones + (busy - ones) * self.weight**2) * presence.per_step**2
        # Weights never rise, so the first steps hold the largest ones.
        return presence.worst([self.squared(step) for step in range(busy)])


_LEAST_SIGMA = 2**11
_LARGEST = 2**61
_MOST_SIGMA_SQUARED = MAX_SIGMA_SQUARED * (1 - Fraction(1, 2**16))
"""Squares are rounded up before noise is drawn."""


@dataclass(frozen=True, slots=True)
class NoisyTotal:
    """One noisy total. Public. Units: lattice steps, and their squares.

    Attributes:
        value: a float, or `(bins,)` counts of a histogram, of which `variance` is that of each.
        share: of the budget of a span that it cost, where that is not the same for every step.
    """

    value: Any
    variance: float
    share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianBudget:
    """Public constants: what a span may cost, and the noise that any part of it buys.

    Args:
        epsilon, delta: of one unit over a span.
        presence: where a unit can be.
        shifts: of one event, by field, in lattice steps.
        shares: of the budget, by field; they add up to one at most.
    """

    epsilon: Fraction
    delta: float
    presence: Presence
    shifts: tuple[int, ...]
    shares: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        if len(self.shifts) != len(self.shares) or sum(self.shares) > 1 or min(self.shifts) < 1:
            raise EngineInputError("shifts and shares must be positive, one for each field, shares at most one in all")
        _ = self.mu_squared  # refuses a delta that is out of range

    @property
    def mu_squared(self) -> Fraction:
        """Mu squared of the whole span."""
        return mu_squared_for(self.epsilon, self.delta)

    def accountant(self) -> Accountant:
        """Return an unspent budget of one span."""
        return Accountant(epsilon=self.epsilon, delta=self.delta, rule="gaussian")

    def refinement(self, field: int) -> int:
        """Return the exponent of the factor that makes the lattice fine enough for all of the budget in one draw."""
        least = self.shifts[field] / sqrt(self.mu_squared)
        return max(0, ceil(log2(_LEAST_SIGMA / least)))

    def sigma_squared(self, field: int, *, moved: Fraction, mu_squared: Fraction) -> Fraction:
        """Return the noise on the refined lattice for which a field costs at most `mu_squared`.

        Args:
            moved: squared events that a unit moves it by, all in all.
        """
        return sigma_squared_of(moved * self.shifts[field] ** 2 * (1 << 2 * self.refinement(field)), mu_squared)

    def least_part(self, field: int, *, moved: Fraction) -> Fraction:
        """Return the least part of the budget that may be spent on a field at once: less would ask for more noise than
        can be drawn.

        Args: moved: as of `sigma_squared`.
        """
        refined = moved * self.shifts[field] ** 2 * (1 << 2 * self.refinement(field))
        return refined / (self.mu_squared * _MOST_SIGMA_SQUARED)

    def precision(self, field: int) -> float:
        """Return 1 / variance of a field's measurement if all of it were spent at once, up to rounding."""
        return float(self.mu_squared * self.shares[field]) / (self.shifts[field] * self.presence.per_step) ** 2

    def measure(self, field: int, total: Total, sigma_squared: Fraction, noise: NoiseSource) -> NoisyTotal:
        """Draw noise for one total, or for each count of a histogram.

        A total that would leave int64 is moved to its end: a monotone function with steps of one at most, so
        sensitivity stays.
        """
        factor = 1 << self.refinement(field)
        refined = clipped(total, -(_LARGEST // factor), _LARGEST // factor) * factor
        noisy = gaussian_mechanism(refined, sigma_squared, noise)
        return NoisyTotal(noisy / factor, float(sigma_squared) / factor**2)


@dataclass(frozen=True, slots=True, kw_only=True)
class PureBudget:
    """Public constants of histograms without a delta: discrete Laplace noise of one scale for all steps.

    An event moves one count of one step by 1 (`SeriesField.shift`), so a unit moves all counts of a histogram in all
    steps of a span by its events at most, in L1 norm, wherever they are.

    Args: as `GaussianBudget` has them.
    """

    epsilon: Fraction
    presence: Presence
    shares: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        if self.presence.most is None:
            raise EngineInputError("histograms need a bound on a unit's events")

    def scale(self, field: int) -> Fraction:
        """Return the scale of a field's noise, in events."""
        assert self.presence.most is not None
        return scale_for(self.presence.most, self.epsilon * self.shares[field])

    def accountant(self) -> Accountant:
        """Return an unspent budget of one span."""
        return Accountant(epsilon=self.epsilon)

    def measure(self, field: int, counts: Total, noise: NoiseSource) -> NoisyTotal:
        """Draw noise for each count of a histogram."""
        scale = self.scale(field)
        return NoisyTotal(laplace_mechanism(counts, scale, noise), DiscreteLaplace(scale).variance)

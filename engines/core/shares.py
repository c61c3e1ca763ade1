"""What an event may spend over a whole stream, and the noise that a share of it buys: pure, or Gaussian with a delta.

An engine that divides a budget among its measurements is handed one of the two, divides `whole`, and asks for the noise
of each part. It need not know which of them it has: what is left to it are the weights, since the best ones differ.

| | `whole` of one event | what adds up | variance of k equal parts |
|---|---|---|---|
| `PureShares` | epsilon | epsilon | 2 (k/epsilon)^2 |
| `GaussianShares` | mu^2, from the unit's (epsilon, delta) | mu^2 | k/mu^2 |

Guarantee: measurements whose parts add up to `whole` for any one event, chosen adaptively or not, are epsilon-DP for
    one event; or (epsilon, delta)-DP for a unit of so many `changes`. Proof: docs/guarantee.md, section 4a.
Source: [dwork2014] (composition); [dong2019], [smith2022] (mu^2 adds up); ours: the lattice (`accounting.lattice`).
Units: counts are events; noise too.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, isqrt, log2, sqrt
from typing import ClassVar

from engines.core.accounting.lattice import sigma_squared_of
from engines.core.accounting.user_level import event_mu_squared, times_mu_squared
from engines.core.counters import Counter
from engines.core.counters.epochs import EpochsCounter, Family
from engines.core.noise import DiscreteLaplace, NoiseSource, gaussian_mechanism, laplace_mechanism, scale_for
from schemas.arrays import IntArray
from schemas.errors import EngineInputError

FINE = 2**11
"""Standard deviation of Gaussian noise in lattice steps at least: two parts in a million of the variance are lost."""
COUNTED = Fraction((1 << 16) - 1, 1 << 16)
"""Of a share, what a counter may spend by zCDP: the rest is what its noise is above the continuous noise that it is
accounted as. Enough below `LARGEST`, see `GaussianShares.counter`."""
COUNTERS: tuple[tuple[Fraction, Family], ...] = (
    (Fraction(1, 2**10), "blt"),
    (Fraction(1, 2**22), "blt-coarse"),
    (Fraction(0), "blt-coarsest"),
)
"""Least share for which each family is used: its lattice must be fine enough for the noise."""
LARGEST = 2**16
"""Largest mu^2, far beyond any useful guarantee."""
_SHORT = 2**20


@dataclass(frozen=True, slots=True)
class LaplaceCells:
    """Discrete Laplace noise in each cell of a histogram, of which one event moves cells by `unit` in L1 norm.

    Args: cost: epsilon. unit: of the counts, to an event.
    """

    cost: Fraction
    unit: int = 1

    @property
    def scale(self) -> Fraction:
        """Scale of the noise."""
        return scale_for(self.unit, self.cost)

    @property
    def variance(self) -> float:
        """Variance of one cell, in squared events."""
        return DiscreteLaplace(self.scale).variance / self.unit**2

    def added(self, counts: IntArray, source: NoiseSource) -> IntArray:
        """Return noisy counts `(n,)` of PRIVATE ones.

        Raises: EngineInputError if the cost is too small for exact noise.
        """
        return laplace_mechanism(counts, self.scale, source)


@dataclass(frozen=True, slots=True)
class GaussianCells:
    """Discrete Gaussian noise in each cell of a histogram, of which one event moves cells by `unit` in L2 norm.

    Counts are multiplied by 2**`refined`, so that the lattice is fine, and rounded back after the noise.
    Args: cost: mu^2. unit: of the counts, to an event.
    """

    cost: Fraction
    unit: int = 1

    @property
    def refined(self) -> int:
        """Exponent of the factor by which counts are multiplied."""
        return max(0, ceil(log2(FINE * sqrt(self.cost) / self.unit)))

    @property
    def sigma_squared(self) -> Fraction:
        """Squared scale of the noise on the refined lattice."""
        least = sigma_squared_of(Fraction(4**self.refined * self.unit**2), self.cost)
        if self.unit == 1:
            return least
        # Draws are a hundred times as fast if sigma is an integer, since these numbers are long.
        return Fraction((isqrt(ceil(least) - 1) + 1) ** 2)

    @property
    def variance(self) -> float:
        """Variance of one cell, in squared events; rounding adds at most 1/12 squared unit."""
        noise = float(self.sigma_squared / 4**self.refined)
        return (noise + (1 / 12 if self.refined else 0.0)) / self.unit**2

    def added(self, counts: IntArray, source: NoiseSource) -> IntArray:
        """Return noisy counts `(n,)` of PRIVATE ones.

        Sums beyond int64 wrap around. That is post-processing of the noisy count, and raises no error.
        Raises: EngineInputError if the cost is too small for exact noise.
        """
        return _rounded(gaussian_mechanism(counts * (1 << self.refined), self.sigma_squared, source), self.refined)


CellNoise = LaplaceCells | GaussianCells


def _rounded(values: IntArray, bits: int) -> IntArray:
    """Return values / 2**bits rounded to the nearest, halves to even, so that symmetric noise stays symmetric."""
    if not bits:
        return values
    whole, rest, half = values >> bits, values & ((1 << bits) - 1), 1 << (bits - 1)
    nearest: IntArray = whole + ((rest > half) | ((rest == half) & (whole & 1 == 1)))
    return nearest


@dataclass(frozen=True, slots=True)
class PureShares:
    """Args: epsilon: of one event over the whole stream."""

    epsilon: Fraction

    def __post_init__(self) -> None:
        if self.epsilon <= 0:
            raise EngineInputError("epsilon must be positive")

    @property
    def whole(self) -> Fraction:
        """Budget of one event."""
        return self.epsilon

    @property
    def delta(self) -> float:
        return 0.0

    def cells(self, share: Fraction, unit: int = 1) -> LaplaceCells:
        """Return the noise of a histogram in which one event counts as `unit` units."""
        return LaplaceCells(share, unit)

    def counter(self, share: Fraction) -> Counter:
        """Return a counter of events for an unbounded number of steps."""
        return EpochsCounter(cost=share, family="kary")

    def epsilon_of(self, share: Fraction) -> Fraction:
        """Return the epsilon of a share by itself."""
        return share

    def mu_squared_of(self, share: Fraction) -> None:
        """Return None: pure noise is not accounted in mu^2."""
        return


@dataclass(frozen=True, slots=True)
class GaussianShares:
    """Args:

    epsilon, delta: of one UNIT over the whole stream. changes: by one event that it makes at most. together: of
    these, that meet the same draws; None: all.

    >>> shares = GaussianShares(Fraction(1), 1e-6, 1)
    >>> round(shares.cells(shares.whole / 105).variance)
    1874
    >>> round(PureShares(Fraction(1)).cells(Fraction(1, 105)).variance)
    22050
    """

    written_as: ClassVar[str] = "GaussianShares"

    epsilon: Fraction
    delta: float
    changes: int = 1
    together: int | None = None

    def __post_init__(self) -> None:
        if self.whole > LARGEST:
            raise EngineInputError("epsilon is too large for Gaussian noise")

    @property
    def whole(self) -> Fraction:
        """Budget of one event, as mu^2."""
        return event_mu_squared(self.epsilon, self.delta, self.changes, self.together)

    def cells(self, share: Fraction, unit: int = 1) -> GaussianCells:
        """Return the noise of a histogram in which one event counts as `unit` units."""
        return GaussianCells(share, unit)

    def counter(self, share: Fraction) -> Counter:
        """Return a counter of events for an unbounded number of steps.

        An event is in one epoch, and moves the noise there by D in L2 norm, at least by s, its lattice steps to an
        event. sigma^2 >= D^2/(share * COUNTED), so sigma^2 - 9 >= D^2/share: it is enough that D^2/share >= 9 * 2^16.
        That is so at s = 2^20 for any share up to `LARGEST`, and on coarser lattices for the small ones that they are
        for.
        """
        family: Family = next(family for least, family in COUNTERS if share >= least)
        return EpochsCounter(cost=share * COUNTED / 2, family=family)

    def epsilon_of(self, share: Fraction) -> Fraction:
        """Return the epsilon of a unit at its delta for this share. Such epsilons do not add up; mu^2 does."""
        from engines.core.accounting import gaussian  # here: what is pure need not load scipy

        epsilon = gaussian.epsilon(self.delta, sqrt(self._times) * sqrt(share))
        return max(Fraction(epsilon).limit_denominator(_SHORT), Fraction(1, _SHORT))

    def mu_squared_of(self, share: Fraction) -> Fraction:
        """Return the mu^2 of a unit: shifts of its events add up."""
        return share * self._times

    @property
    def _times(self) -> int:
        return times_mu_squared(self.changes, self.together)


Shares = PureShares | GaussianShares

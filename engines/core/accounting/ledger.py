"""What a release costs, as frozen data: a small tree of events that accountants fold.

PureEvent                 one mechanism that is epsilon-DP
GaussianEvent             continuous Gaussian noise
DiscreteGaussianEvent     discrete Gaussian noise on integers
Sequential                all of them, on the same data; later ones may look at earlier releases
Parallel                  one of them at most: each event of the stream is in one part of a partition
Contributions             what one user pays where one event of theirs pays this, and they have so many

`fold` turns a tree into its `Cost`, exact fractions in a normal form: the order of composition cannot matter.
Guarantee: every rule of `fold` is an upper bound on the privacy loss of whoever is protected.
Source: [dwork2014] (composition, groups); [dong2019] (mu of Gaussian noise adds in squares).
Units: `sigma_squared` and sensitivities are those of the values that get the noise; epsilon is in nats.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from engines.core.accounting.arguments import check_epsilon, check_positive, check_whole
from schemas.errors import EngineInputError


@dataclass(frozen=True, slots=True)
class PureEvent:
    """A mechanism that is `epsilon`-DP: discrete Laplace noise, split bits, a choice by the exponential mechanism."""

    epsilon: Fraction

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianEvent:
    """Real-valued Gaussian noise on a vector: `count` uses, each moved by at most sqrt(`l2_squared`) in L2."""

    sigma_squared: Fraction
    l2_squared: Fraction = Fraction(1)
    count: int = 1

    def __post_init__(self) -> None:
        _check_fraction(sigma_squared=self.sigma_squared, l2_squared=self.l2_squared)
        check_whole(count=self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscreteGaussianEvent:
    """Discrete Gaussian noise on `count` integers, of which one event moves each by at most `l2_sensitivity`.

    Integers that the event does not move cost nothing and are not counted. Where one event moves some integers more
    than others, write one of these for each size, side by side in a `Sequential`.
    """

    sigma_squared: Fraction
    l2_sensitivity: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        _check_fraction(sigma_squared=self.sigma_squared)
        check_whole(l2_sensitivity=self.l2_sensitivity, count=self.count)


@dataclass(frozen=True, slots=True)
class Sequential:
    """All of these, on the same data."""

    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Parallel:
    """Of these, one event of the stream meets one at most: the parts of the data are disjoint."""

    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Contributions:
    """What a user with at most `most` events pays, where `event` is what one of them pays.

    Every shift becomes `most` times as large: triangle inequality, wherever the events fall.
    """

    event: Event
    most: int

    def __post_init__(self) -> None:
        check_whole(most=self.most)


Event = PureEvent | GaussianEvent | DiscreteGaussianEvent | Sequential | Parallel | Contributions


@dataclass(frozen=True, slots=True, order=True)
class Shift:
    """Discrete Gaussian noise of this parameter on an integer that moves by `shift`."""

    sigma_squared: Fraction
    shift: int

    @property
    def rho(self) -> Fraction:
        """Its zCDP."""
        return Fraction(self.shift**2) / (2 * self.sigma_squared)


@dataclass(frozen=True, slots=True)
class Cost:
    """The normal form of a tree of events. Exact.

    Attributes:
        pure: epsilon of all pure mechanisms.
        pure_rho: their zCDP, the sum of epsilon**2 / 2 of each.
        mu_squared: of all continuous Gaussian noise together, as one Gaussian-DP mechanism.
        discrete: uses of each discrete Gaussian noise, in ascending order.
    """

    pure: Fraction = Fraction(0)
    pure_rho: Fraction = Fraction(0)
    mu_squared: Fraction = Fraction(0)
    discrete: tuple[tuple[Shift, int], ...] = ()

    def __add__(self, other: Cost) -> Cost:
        """Both, on the same data."""
        return Cost(
            self.pure + other.pure,
            self.pure_rho + other.pure_rho,
            self.mu_squared + other.mu_squared,
            _ordered(Counter(dict(self.discrete)) + Counter(dict(other.discrete))),
        )

    def either(self, other: Cost) -> Cost:
        """One of both at most: an upper bound, part by part; exact where one is above the other in every part."""
        return Cost(
            max(self.pure, other.pure),
            max(self.pure_rho, other.pure_rho),
            max(self.mu_squared, other.mu_squared),
            _ordered(Counter(dict(self.discrete)) | Counter(dict(other.discrete))),
        )

    def times(self, most: int) -> Cost:
        """Every shift `most` times as large: the price of a group of that many."""
        return Cost(
            self.pure * most,
            self.pure_rho * most**2,
            self.mu_squared * most**2,
            tuple((Shift(s.sigma_squared, s.shift * most), count) for s, count in self.discrete),
        )

    @property
    def rho(self) -> Fraction:
        """zCDP of everything together."""
        discrete = sum((s.rho * count for s, count in self.discrete), Fraction(0))
        return self.pure_rho + self.mu_squared / 2 + discrete


NOTHING = Cost()


def _ordered(uses: Counter[Shift]) -> tuple[tuple[Shift, int], ...]:
    return tuple(sorted(uses.items()))


def fold(event: Event) -> Cost:
    """Return the cost of a tree of events.

    Raises: EngineInputError if something in it is not an event.

    >>> step = Sequential((PureEvent(Fraction(1, 3)), PureEvent(Fraction(1, 6))))
    >>> fold(Contributions(step, 2)).pure
    Fraction(1, 1)
    """
    match event:
        case PureEvent():
            return Cost(pure=event.epsilon, pure_rho=event.epsilon**2 / 2)
        case GaussianEvent():
            return Cost(mu_squared=event.count * event.l2_squared / event.sigma_squared)
        case DiscreteGaussianEvent():
            return Cost(discrete=((Shift(event.sigma_squared, event.l2_sensitivity), event.count),))
        case Sequential():
            return sum(map(fold, event.events), NOTHING)
        case Parallel():
            total = NOTHING
            for part in event.events:
                total = total.either(fold(part))
            return total
        case Contributions():
            return fold(event.event).times(event.most)
    raise EngineInputError(f"{type(event).__name__} is not an event of the ledger")


def _check_fraction(**values: Fraction) -> None:
    for name, value in values.items():
        if not isinstance(value, Fraction):
            raise EngineInputError(f"{name} must be a Fraction")
    check_positive(**values)

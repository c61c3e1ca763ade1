"""A guarantee as data: the neighbouring relation, epsilon and delta, and the mechanisms among which they are split."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

Unit = Literal["user", "event", "replace"]
Neighbouring = Literal["add_remove", "replace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """One mechanism as it runs: its noise, and the privacy loss of one event. Public.

    Attributes:
        name: the quantity that the mechanism decides or measures.
        distribution: name of the noise distribution: "discrete Laplace", "Laplace (one bit)", ...
        l1_sensitivity: how far one event moves the measured quantity.
        scale: scale of the distribution, in events.
        epsilon: privacy loss of one event for each use.
        uses: number of uses that one event can affect over the whole stream.
        account: the budget of the engine that is charged. Not published.
        mu_squared: privacy loss of the unit in Gaussian DP, for noise that composes by mu squared and not by epsilon;
            `epsilon` is then the loss of this mechanism alone.
        shift: how far one event moves the noisy quantities in all uses together, in the unit of `scale`: the L1 norm,
            or the squared L2 norm for Gaussian noise. None: it follows from `l1_sensitivity` and `uses`. Not published.
    """

    name: str
    distribution: str
    l1_sensitivity: int
    scale: Fraction
    epsilon: Fraction
    uses: int = 1
    account: str = ""
    mu_squared: Fraction | None = None
    shift: Fraction | None = None

    @property
    def total_shift(self) -> Fraction:
        """`shift`, computed from `l1_sensitivity` and `uses` if it is None."""
        if self.shift is not None:
            return self.shift
        return Fraction(self.l1_sensitivity * self.uses if self.mu_squared is None else self.l1_sensitivity**2)

    def as_json(self) -> dict[str, Any]:
        """Return the published attributes as a JSON object."""
        return {
            "name": self.name,
            "distribution": self.distribution,
            "l1_sensitivity": self.l1_sensitivity,
            "scale": float(self.scale),
            "epsilon": float(self.epsilon),
            "epsilon_exact": str(self.epsilon),
            "uses": self.uses,
            **({} if self.mu_squared is None else {"mu_squared": float(self.mu_squared)}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """The guarantee of an engine for one event over the whole stream: `(epsilon, delta)`-DP.

    `Stream.contributions` lifts it to the configured unit: a user with `contributions` events has the guarantee
    `contributions * epsilon`.

    Attributes:
        kept_back: epsilon of one event that no mechanism spends, for what `note` says. Not published.
    """

    epsilon: Fraction
    mechanisms: tuple[Mechanism, ...]
    delta: float = 0.0
    neighbouring: Neighbouring = "add_remove"
    private: bool = True
    note: str = ""
    kept_back: Fraction = Fraction(0)

    def __iter__(self) -> Iterator[Mechanism]:
        return iter(self.mechanisms)

    @property
    def spent(self) -> Fraction:
        """Largest epsilon that one event can lose to all mechanisms, by sequential composition."""
        return _sum(self.mechanisms)

    @property
    def accounts(self) -> dict[str, Fraction]:
        """Largest epsilon that one event can lose to the mechanisms of each account, in the order of the mechanisms."""
        names = dict.fromkeys(mechanism.account for mechanism in self.mechanisms)
        return {name: _sum(m for m in self.mechanisms if m.account == name) for name in names}

    @property
    def mu_squared(self) -> Fraction | None:
        """Sum of `mu_squared` of all mechanisms; None if one of them has none."""
        parts = [mechanism.mu_squared for mechanism in self.mechanisms]
        known = [part for part in parts if part is not None]
        return sum(known, Fraction(0)) if known and len(known) == len(parts) else None

    def as_json(self) -> dict[str, Any]:
        """Return the guarantee as a JSON object."""
        return {
            "epsilon": float(self.epsilon),
            "epsilon_exact": str(self.epsilon),
            "delta": self.delta,
            "neighbouring": self.neighbouring,
            "private": self.private,
            "note": self.note,
            "mechanisms": [mechanism.as_json() for mechanism in self.mechanisms],
        }


def _sum(mechanisms: Iterable[Mechanism]) -> Fraction:
    return sum((mechanism.epsilon * mechanism.uses for mechanism in mechanisms), Fraction(0))


def max_posterior(epsilon: float) -> float:
    """Return the largest posterior probability of a fact about one unit after even prior odds: e^eps / (1 + e^eps)."""
    return 1 / (1 + math.exp(-epsilon))


def format_percent(probability: float) -> str:
    """Return a probability as a percentage, with enough digits to show that it is not 1, up to 99.9999 %.

    >>> format_percent(max_posterior(1.0)), format_percent(max_posterior(8.0)), format_percent(max_posterior(50.0))
    ('73.1 %', '99.97 %', 'over 99.9999 %')
    """
    for digits in (1, 2, 3, 4):
        if 1 - probability > 10.0 ** -(digits + 2):
            return f"{probability:.{digits}%}".replace("%", " %")
    return "over 99.9999 %"

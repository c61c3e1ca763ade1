"""A guarantee as data: what is protected, against what difference, at what price, and how the price is split."""

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
    """One mechanism as it runs: its noise and what one event costs there. Public.

    Attributes:
        name: what it decides or measures, in the field's words.
        distribution: "discrete Laplace", "Laplace (one bit)", ...
        l1_sensitivity: how far one event moves what is measured.
        scale: of the distribution, in events.
        epsilon: of one event, per use.
        uses: how many uses one event can touch over the whole stream.
        account: the one of the engine's budgets that is charged for it. Not published.
        mu_squared: what it costs the guarantee's unit, where Gaussian noise adds up by it and not by
        epsilon; `epsilon`
            is then what it would cost alone.
        shift: how far one event moves what is hidden, in all of its uses, in the unit of `scale`: the L1 norm; of
            Gaussian noise the squared L2 norm. None: as `l1_sensitivity` and `uses` say. Not published.
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
    def moved(self) -> Fraction:
        """`shift`, whether or not it is stated apart."""
        if self.shift is not None:
            return self.shift
        return Fraction(self.l1_sensitivity * self.uses if self.mu_squared is None else self.l1_sensitivity**2)

    def as_json(self) -> dict[str, Any]:
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
    """What one event is promised by an engine over the whole stream: `epsilon`-DP (`delta` = 0 for pure DP).

    `unit` and `contributions` lift it to the configured unit: one user with `contributions` events is promised
    `contributions * epsilon`.
    """

    epsilon: Fraction
    mechanisms: tuple[Mechanism, ...]
    delta: float = 0.0
    neighbouring: Neighbouring = "add_remove"
    private: bool = True
    note: str = ""

    def __iter__(self) -> Iterator[Mechanism]:
        return iter(self.mechanisms)

    @property
    def spent(self) -> Fraction:
        """What the mechanisms cost one event at most, where they add up."""
        return _sum(self.mechanisms)

    @property
    def accounts(self) -> dict[str, Fraction]:
        """What the mechanisms of each account cost one event at most, in the order of the mechanisms."""
        names = dict.fromkeys(mechanism.account for mechanism in self.mechanisms)
        return {name: _sum(m for m in self.mechanisms if m.account == name) for name in names}

    @property
    def mu_squared(self) -> Fraction | None:
        """What all mechanisms cost the unit together, if all of them add up by it."""
        parts = [mechanism.mu_squared for mechanism in self.mechanisms]
        known = [part for part in parts if part is not None]
        return sum(known, Fraction(0)) if known and len(known) == len(parts) else None

    def as_json(self) -> dict[str, Any]:
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


def surest(epsilon: float) -> float:
    """Return how sure somebody can become of a fact about one unit whose odds were even before: e^eps / (1 + e^eps)."""
    return 1 / (1 + math.exp(-epsilon))


def chance(probability: float) -> str:
    """Return a probability as a percentage, with as many nines as there are, within reason.

    >>> chance(surest(1.0)), chance(surest(8.0)), chance(surest(50.0))
    ('73.1 %', '99.97 %', 'over 99.9999 %')
    """
    for digits in (1, 2, 3, 4):
        if 1 - probability > 10.0 ** -(digits + 2):
            return f"{probability:.{digits}%}".replace("%", " %")
    return "over 99.9999 %"

"""What can be audited: a claim, neighbouring inputs to run, and what can be computed exactly.

A `Case` is data and closures: the mechanisms, counters and engines of `engines` are made into cases by the modules
beside this one, a configured stream by `agents`, and your own mechanism by you:

>>> from engines.noise import discrete_laplace, seeded
>>> def observe(side, runs, source):
...     return Observations.of_arrays(count=side + discrete_laplace(runs, Fraction(1), source))
>>> case = Case("mine", "mechanism", Claim(Fraction(1)), neighbours=(Neighbours("one more event", observe),))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from engines.auditor.observations import Observations
from engines.noise import NoiseSource

Kind = Literal["mechanism", "counter", "engine", "stream"]
Observe = Callable[[int, int, NoiseSource], Observations]
"""`(side, runs, source)`: that many independent runs on input `side`, 0 or 1, all their noise from `source`."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What is promised for every pair of neighbours of a case: (epsilon, delta)-DP."""

    epsilon: Fraction
    delta: float = 0.0


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Two inputs that differ in one protected unit.

    Attributes:
        name: what differs, in words.
        observe: see `Observe`.
        times: runs for each one that is asked for: array operations give them by the ten thousand.
    """

    name: str
    observe: Observe
    times: int = 50


@dataclass(frozen=True, slots=True)
class Exact:
    """A loss that can be computed.

    Attributes:
        name: what is computed.
        epsilon: returns the true epsilon at the claimed delta, of all neighbours or of the worst ones searched.
    """

    name: str
    epsilon: Callable[[], Fraction | float]


@dataclass(frozen=True, slots=True)
class Fresh:
    """Everything released on one fixed input: two runs with fresh seeds of the operating system must differ.

    Make noise large for it: honest outputs then differ surely, while a generator with a seed of its own repeats itself.

    Attributes:
        release: all released bytes, from a source.
        collision: upper bound of the probability that two honest runs are equal.
        runs: how many are compared, each with each.
    """

    release: Callable[[NoiseSource], bytes]
    collision: float
    runs: int = 40


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that makes a claim, and the ways to check it."""

    name: str
    kind: Kind
    claim: Claim
    neighbours: tuple[Neighbours, ...] = ()
    exact: tuple[Exact, ...] = ()
    fresh: tuple[Fresh, ...] = ()

"""What can be audited: a claim, secret bits to guess, and what can be computed exactly.

A `Case` is data and closures: the mechanisms, counters and engines of `engines` are made into cases by the modules
beside this one, a configured stream by `agents`, and your own mechanism by you:

>>> from engines.noise import discrete_laplace, seeded
>>> def observe(side, runs, source):
...     return Observations.of_arrays(count=side + discrete_laplace(runs, Fraction(1), source))
>>> case = Case("mine", "mechanism", Claim(Fraction(1)), neighbours=(Neighbours("one more event", observe),))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from engines.auditor.observations import Marked, Observations
from engines.noise import NoiseSource

Kind = Literal["mechanism", "counter", "engine", "stream"]
Observe = Callable[[int, int, NoiseSource], Observations]
"""`(side, runs, source)`: that many independent runs on input `side`, 0 or 1, all their noise from `source`."""

COVERED = ("first release", "burst", "merge", "divide", "ttl", "delete", "period's end")
"""What an audit must come across; `Trials.coverage` counts how often it did."""


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


@dataclass(frozen=True, slots=True, eq=False)
class Trials:
    """Runs in which every canary was there or not, by a coin of its own.

    Attributes:
        marked: a row for each canary and run, by kind of canary.
        coverage: how often runs came across what is in `COVERED`.
    """

    marked: Mapping[str, Marked]
    coverage: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class Canaries:
    """Many units in one input, each there or not by its own fair coin, all to be guessed from one run.

    The units must be different ones (users, trips, events), so that the claim holds for each of them beside any
    others. That their releases have nothing to do with each other is NOT needed (`bounds`, pure); it only helps the
    guesses. Not for a claim with delta.

    Attributes:
        name: of the world that they are put into.
        each: kind of canary -> how many of it are in one run. A kind is a row of the audit.
        observe: `(runs, source)`: that many independent runs, coins and noise from `source`.
        times: runs for each one that is asked for.
        covers: what of `COVERED` must occur in these runs; the audit fails where it does not.
    """

    name: str
    each: Mapping[str, int]
    observe: Callable[[int, NoiseSource], Trials]
    times: int = 1
    covers: tuple[str, ...] = ()


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
    """One thing that makes a claim, and the ways to check it.

    `contributions` is how many events the protected unit has: more than one of a user.
    """

    name: str
    kind: Kind
    claim: Claim
    neighbours: tuple[Neighbours, ...] = ()
    exact: tuple[Exact, ...] = ()
    fresh: tuple[Fresh, ...] = ()
    canaries: tuple[Canaries, ...] = ()
    contributions: int = 1

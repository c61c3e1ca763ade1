"""The laws of SampCert's samplers, computed instead of sampled: each of its programs as a distribution, in fractions.

SampCert ([demedeiros2024]) is a set of samplers in Lean with proofs of their laws. Restated here from its description,
step by step, and run as arithmetic: a program is the list of all it can do with the probability of each. Nothing of
`engines.core.noise` is used, and exp is never called: its coins are tossed.

A `Law` is exact up to what it says: loops are cut off where little is left, and probabilities are rounded down to
`GRID`; `missing` is what that takes away in all, so each true probability lies between `mass` and `mass + missing`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

GRID = 2**160
ROUNDS = 30
"""Of von Neumann's loop; so many are needed with probability 1/30!."""
LEFT = Fraction(1, 2**70)
"""A loop is cut off where it goes on with less than this."""


@dataclass(frozen=True)
class Law:
    """Attributes:

    mass: value -> at most its probability. missing: what these do not add up to, up to 1.
    """

    mass: Mapping[Any, Fraction]

    @property
    def missing(self) -> Fraction:
        return 1 - sum(self.mass.values(), Fraction(0))

    @staticmethod
    def of(pairs: Any) -> Law:
        """Of values, which may come several times, and their probabilities."""
        mass: dict[Hashable, Fraction] = {}
        for value, probability in pairs:
            mass[value] = mass.get(value, Fraction(0)) + probability
        return Law({value: Fraction(p * GRID // 1, GRID) for value, p in mass.items()})

    def then(self, program: Callable[[Any], Law]) -> Law:
        """The next program, which may look at the value."""
        return Law.of((value, p * q) for before, p in self.mass.items() for value, q in program(before).mass.items())

    def map(self, change: Callable[[Any], Any]) -> Law:
        return Law.of((change(value), p) for value, p in self.mass.items())

    def until(self, accept: Callable[[Any], bool]) -> Law:
        """Repeat until a value is accepted. If a of it is seen to be accepted and m is missing, each accepted value has
        at least p / (a + m).
        """
        accepted = {value: p for value, p in self.mass.items() if accept(value)}
        total = sum(accepted.values()) + self.missing
        return Law.of((value, p / total) for value, p in accepted.items())


def always(value: Any) -> Law:
    return Law({value: Fraction(1)})


def uniform(bound: int) -> Law:
    return Law.of((value, Fraction(1, bound)) for value in range(bound))


def coin(probability: Fraction) -> Law:
    return Law.of([(True, probability), (False, 1 - probability)])


def exp_unit(x: Fraction) -> Law:
    """True with exp(-x), x at most 1: coins of x/1, x/2, x/3 ... up to the first False; True if it is an odd one."""
    ends: list[tuple[bool, Fraction]] = []
    going = Fraction(1)
    for k in range(1, ROUNDS + 1):
        tossed = coin(x / k)
        ends.append((k % 2 == 1, going * tossed.mass[False]))
        going *= tossed.mass[True]
    return Law.of(ends)


@cache
def exp_coin(x: Fraction) -> Law:
    """True with exp(-x): whole parts one after the other, then the rest."""
    if x <= 1:
        return exp_unit(x)
    whole, rest = divmod(x, 1)
    heads = always(True)
    for part in [Fraction(1)] * whole + [rest]:
        if not heads.mass.get(True):
            # Rounded down to nothing: so few are left that it does not matter what they do.
            break
        tossed = {True: exp_coin(part), False: always(False)}
        heads = heads.then(tossed.__getitem__)
    return heads


def geometric(again: Law) -> Law:
    """How often a coin shows True before it shows False."""
    ends, going, k = [], Fraction(1), 0
    while going > LEFT:
        ends.append((k, going * again.mass[False]))
        going, k = going * again.mass[True], k + 1
    return Law.of(ends)


def signed(magnitude: Law) -> Law:
    """With a sign; minus zero is drawn again."""
    both = magnitude.then(lambda y: coin(Fraction(1, 2)).map(lambda minus: (minus, y)))
    return both.until(lambda drawn: drawn != (True, 0)).map(lambda drawn: -drawn[1] if drawn[0] else drawn[1])


@cache
def laplace(scale: Fraction) -> Law:
    """Its program for small scales: a coin of exp(-1 / scale) as long as it shows True."""
    return signed(geometric(exp_coin(1 / scale)))


@cache
def laplace_by_parts(scale: Fraction) -> Law:
    """Its program for large ones, Canonne, Kamath and Steinke's: a rest below the numerator, and whole parts."""
    num, den = scale.numerator, scale.denominator
    rest = uniform(num).then(lambda u: exp_coin(Fraction(u, num)).map(lambda kept: (u, kept)))
    rest = rest.until(lambda drawn: drawn[1])
    wholes = geometric(exp_coin(Fraction(1)))
    return signed(rest.then(lambda drawn: wholes.map(lambda v: (drawn[0] + num * v) // den)))


@cache
def gaussian(sigma: Fraction) -> Law:
    """Laplace noise of a whole scale t above sigma; y is kept with exp(-(|y| - sigma^2 / t)^2 / (2 sigma^2))."""
    t = sigma.numerator // sigma.denominator + 1
    squared = sigma**2

    def thinned(y: int) -> Law:
        return exp_coin((abs(y) - squared / t) ** 2 / (2 * squared)).map(lambda kept: (y, kept))

    return laplace(Fraction(t)).then(thinned).until(lambda drawn: drawn[1]).map(lambda drawn: drawn[0])

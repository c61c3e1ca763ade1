"""What a mechanism must let out: worked out from its law, the private numbers and what samplers drew, a second time.

| law | what leaves |
|---|---|
| additive | private numbers times the resolution of the law, plus the noise |
| bits | the side of a fair coin, and a coin of probability exp(-|threshold|/scale) where that fell outside |
| exponential mechanism | the first of some uniform proposals whose coin, of its own gap, shows heads |

A mechanism is a function of private numbers and draws. So it can be tried on any of both (`probes`), and there is a
draw for any output (`giving`): the coupling of a proof.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from engines.core.noise.witness import (
    CoinsLaw,
    CounterLaw,
    Drawn,
    ExceedsLaw,
    ExponentialLaw,
    Law,
    ListedLaw,
    UniformLaw,
)
from schemas.arrays import BoolArray, IntArray

Given = Callable[[Drawn], Any]
"""What samplers give, by the law that they are asked for."""
NUMBERS = (0, 1, -1, 1000, 2**20, -(2**20), 2**45, -(2**45))
"""Private numbers: nothing, a little, and a crowd beside any noise."""
NOISES = (1, -1, 1000, 2**61, -(2**61))
"""A little, and as much as any sampler gives."""
PROBES = 2
"""Of each run of a mechanism; over some twenty runs each of its numbers is all of these, beside all noise."""


def expected(law: Law, private: Any, drawn: Sequence[tuple[Drawn, Any]]) -> Any:
    """Return what a mechanism of this law lets out; None where something else was drawn for it."""
    match law:
        case ExceedsLaw():
            return _bits(law, private, drawn)
        case ExponentialLaw():
            return _choice(law, private, drawn)
        case ListedLaw():
            raise TypeError("tests of a table of keys are made again in `listing`")
        case _:
            parts = [values for each, values in drawn if each == law]
            alone = isinstance(law, CounterLaw) or len(drawn) == 1
            if not alone or len(parts) != 1 or np.size(parts[0]) != np.size(private):
                return None
            return law.resolution * private + (int(parts[0][0]) if isinstance(private, int) else parts[0])


def _bits(law: ExceedsLaw, thresholds: Any, drawn: Sequence[tuple[Drawn, Any]]) -> Any:
    match drawn:
        case [(UniformLaw(2, count), sides), (CoinsLaw(multiples, rate), coins)] if (
            count == thresholds.size
            and rate == law.unit / law.scale
            and np.array_equal(multiples, np.abs(thresholds[sides]).view(np.uint64))
        ):
            outside = np.zeros(count, np.bool_)
            outside[sides] = coins
            return np.where(thresholds < 0, ~outside, outside)
    return None


def _choice(law: ExponentialLaw, utilities: Any, drawn: Sequence[tuple[Drawn, Any]]) -> Any:
    scores, rate = utilities.tolist(), law.epsilon * law.quantum / (2 * law.sensitivity)
    for (asked, proposed), (tossed, heads) in zip(drawn[0::2], drawn[1::2], strict=True):
        gaps = [max(scores) - scores[each] for each in proposed.tolist()]
        match asked, tossed:
            case UniformLaw(bound, _), CoinsLaw(multiples, paid) if (
                bound == len(scores) and paid == rate and multiples.tolist() == gaps
            ):
                if heads.any():
                    return int(proposed[np.argmax(heads)])
            case _:
                return None
    return None


def giving(law: Law, private: Any, output: Any) -> Given:
    """Return draws that make a mechanism let out `output`, whatever the private numbers are."""
    match law:
        case ExceedsLaw():
            return lambda asked: output ^ (private < 0) if isinstance(asked, UniformLaw) else _heads(asked)
        case ExponentialLaw():
            return lambda asked: np.full(asked.count, output) if isinstance(asked, UniformLaw) else _heads(asked)
        case ListedLaw():
            raise TypeError("its noise is found in `listing`")
        case _:
            # Python's whole numbers, where there may be such: they are of any size.
            noise = int(output) - private if isinstance(private, int) else output - law.resolution * private
            return lambda _: np.array([noise], object) if isinstance(private, int) else noise


def _heads(asked: Drawn) -> Any:
    assert isinstance(asked, CoinsLaw)
    return np.ones(asked.multiples.size, np.bool_)


def probes(law: Law, private: Any, number: int) -> Iterator[tuple[Any, Given]]:
    """Yield private numbers like these, and draws, for run `number` of a mechanism."""
    for probe in range(PROBES * number, PROBES * (number + 1)):
        match law:
            case ExceedsLaw():
                thresholds, sides, coins = _rows(private.size, probe, NUMBERS, (True, False), (True, False))
                yield thresholds, _tossing(sides.astype(np.bool_), coins.astype(np.bool_))
            case ExponentialLaw():
                [utilities] = _rows(private.size, probe, NUMBERS)
                yield utilities, _proposing(probe)
            case _:
                values, noise = _rows(np.size(private), probe, NUMBERS, NOISES)
                yield int(values[0]) if isinstance(private, int) else values.astype(private.dtype), _adding(noise)


def _rows(size: int, probe: int, *each: Sequence[int]) -> IntArray:
    """Return for each of `size` numbers one entry of the product, another one in each probe: `(len(each), size)`."""
    every = np.array(list(product(*each)), np.int64)
    return every[(np.arange(size) + probe) % len(every)].T


def _adding(noise: IntArray) -> Given:
    return lambda _: noise


def _tossing(sides: BoolArray, coins: BoolArray) -> Given:
    return lambda asked: sides if isinstance(asked, UniformLaw) else coins[sides]


def _proposing(probe: int) -> Given:
    def given(asked: Drawn) -> Any:
        if isinstance(asked, UniformLaw):
            return (np.arange(asked.count) * (probe + 1) + probe) % asked.bound
        assert isinstance(asked, CoinsLaw)
        return np.arange(asked.multiples.size) >= probe % asked.multiples.size

    return given

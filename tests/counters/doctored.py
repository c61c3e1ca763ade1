"""Noise that is told what to be: counters draw through two functions of `engines.core.counters.linear`, replaced
here.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from unittest import mock

import numpy as np

from engines.core.counters import Counter
from engines.core.noise import NoiseSource, discrete_gaussian, discrete_laplace
from engines.core.noise.source import seeded
from schemas.arrays import IntArray, WordArray

Draw = Callable[[int], IntArray]


@contextmanager
def drawing(draw: Draw) -> Iterator[None]:
    """Within it, every draw of `count` noises returns `draw(count)`."""

    def instead(count: int, _: Fraction, __: NoiseSource) -> IntArray:
        return draw(count)

    with (
        mock.patch("engines.core.counters.linear.discrete_laplace", instead),
        mock.patch("engines.core.counters.linear.discrete_gaussian", instead),
    ):
        yield


@contextmanager
def negated() -> Iterator[None]:
    """Within it, every draw is the negative of what it would be."""
    with (
        mock.patch("engines.core.counters.linear.discrete_laplace", lambda *a: -discrete_laplace(*a)),
        mock.patch("engines.core.counters.linear.discrete_gaussian", lambda *a: -discrete_gaussian(*a)),
    ):
        yield


def no_noise(count: int) -> IntArray:
    return np.zeros(count, dtype=np.int64)


class Untouchable(NoiseSource):
    """A source that must not be asked for anything."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(bytes(32), "untouchable")

    def words(self, count: int) -> WordArray:
        raise AssertionError("noise was drawn")


def sums_of_single_draws(counter: Counter, t: int, nodes: int, size: int) -> np.ndarray:
    """`(t, nodes)`: what the running sums are if draw number i alone is `size`, and all others are zero.

    Coordinate i of the counter is the run in which draw i is not zero.
    """
    drawn = 0

    def one_each(count: int) -> IntArray:
        nonlocal drawn
        here = np.zeros((nodes, count // nodes), dtype=np.int64)
        for column in range(here.shape[1]):
            here[drawn, column] = size
            drawn += 1
        return here.ravel()

    state, zeros, rows = counter.initial(nodes), np.zeros(nodes, dtype=np.int64), []
    with drawing(one_each):
        for _ in range(t):
            _, state = counter.step(zeros, state, seeded(0))
            rows.append(counter.running_sum(state))
    assert drawn == nodes
    return np.array(rows)

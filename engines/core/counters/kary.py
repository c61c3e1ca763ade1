"""The balanced k-ary counter with subtraction: the default where a horizon is known.

With k odd, each t up to (k^h - 1)/2 is sum of d_l k^l over h digits between -(k-1)/2 and (k-1)/2. From the left, level
by level, [1, t] is d_l intervals of length k^l, added where d_l > 0 and taken away, to the right of t, where d_l < 0.
So a prefix costs |d_0| + ... + |d_(h-1)| nodes and an event is in at most one interval of each level.

Guarantee: epsilon-DP for one event, also under adaptive continual release: h nodes of scale h/epsilon. That an interval
    that is taken away holds values that are yet to come is no obstacle: `linear` has the argument, which asks only that
    the release is the true sum plus noise that does not depend on data. Noise of intervals to the right is drawn when
    the first of them is used and dropped one by one: it is in the state.
Source: [andersson2024] and "Improved
    Counting under Continual Observation with Pure Differential Privacy" (2025): variance 2 h^2 / epsilon^2 sum |d_l|.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from engines.core.counters.linear import LaplaceCounter, Memory, check_activation, check_whole, laplace_nodes
from engines.core.noise import NoiseSource
from schemas.arrays import FloatArray, IntArray
from schemas.errors import EngineInputError


@dataclass(frozen=True, kw_only=True, slots=True)
class KaryCounter(LaplaceCounter):
    """A balanced tree of one odd arity, at least 3, over `horizon` activations.

    Raises: EngineInputError if epsilon is not a positive Fraction, or horizon or arity is none.
    """

    epsilon: Fraction
    horizon: int
    arity: int

    def __post_init__(self) -> None:
        check_whole("horizon", self.horizon)
        check_whole("arity", self.arity, least=3)
        if self.arity % 2 == 0:
            raise EngineInputError("arity must be odd")
        LaplaceCounter.__post_init__(self)

    @classmethod
    def with_best_arity(cls, epsilon: Fraction, horizon: int) -> "KaryCounter":
        """Return the counter of the arity with the least mean variance over t up to the horizon.

        >>> counter = KaryCounter.with_best_arity(Fraction(1), 100)
        >>> counter.arity, counter.height, counter.scale
        (15, 2, Fraction(2, 1))
        """
        check_whole("horizon", horizon)
        return cls(epsilon=epsilon, horizon=horizon, arity=best_arity(horizon))

    @property
    def height(self) -> int:
        """Levels h: the least with (arity^h - 1)/2 >= horizon."""
        return height_for(self.arity, self.horizon)

    @property
    def l1_sensitivity(self) -> int:
        """One node of each level."""
        return self.height

    def _memory(self, width: int) -> dict[str, IntArray]:
        # Lowest level first. `left`: noise of the intervals added at that level, together. `right`: noise of each
        # interval still to be taken away, the nearest first; the top level has none, but shares the shape.
        half = (self.arity - 1) // 2 if self.height > 1 else 0
        return {
            "left": np.zeros((width, self.height), dtype=np.int64),
            "right": np.zeros((width, (self.height - 1) * half), dtype=np.int64),
        }

    def _advance(self, t: IntArray, memory: Memory, source: NoiseSource) -> tuple[IntArray, dict[str, IntArray]]:
        half = (self.arity - 1) // 2
        left = memory["left"].copy()
        right = memory["right"].copy().reshape(t.size, self.height - 1, half if self.height > 1 else 0)
        before = left.sum(axis=1) - right.sum(axis=(1, 2))
        changes = np.ones(t.size, dtype=np.bool_)
        for level in range(self.height):
            digits = balanced_digits(t, self.arity, level)
            wraps = changes & (digits == -half)
            grows = np.flatnonzero(changes & (digits > 0))
            left[grows, level] += laplace_nodes(grows.size, 1, self.scale, source)[:, 0]
            if level < self.height - 1:
                shrinks = np.flatnonzero(changes & ~wraps & (digits <= 0))
                right[shrinks, level, -digits[shrinks]] = 0
                rows = np.flatnonzero(wraps)
                left[rows, level] = 0
                right[rows, level] = laplace_nodes(rows.size, half, self.scale, source)
            # A level moves on when the one below it wraps around.
            changes = wraps
        noise = left.sum(axis=1) - right.sum(axis=(1, 2)) - before
        return noise, {"left": left, "right": right.reshape(t.size, -1) if t.size else memory["right"].copy()}

    def variance(self, t: int) -> float:
        """Return the sum of the absolute values of the digits of t times the variance of a node."""
        check_activation(t, self.horizon)
        return digit_sum(t, self.arity, self.height) * self.node_variance

    def strategy(self, t: int) -> IntArray:
        """Return a row for each interval that a prefix up to t uses; what lies beyond t is cut off."""
        rows = np.zeros((len(nodes := self._nodes(t)), t), dtype=np.int64)
        for row, (level, index) in enumerate(nodes):
            length = self.arity**level
            rows[row, index * length : (index + 1) * length] = 1
        return rows

    def decoder(self, t: int) -> FloatArray:
        """Return 1 for an interval that is added, -1 for one that is taken away."""
        column = {node: i for i, node in enumerate(self._nodes(t))}
        rows = np.zeros((t, len(column)))
        for now in range(1, t + 1):
            for node, sign in self._used(now):
                rows[now - 1, column[node]] = sign
        return rows

    def _nodes(self, t: int) -> list[tuple[int, int]]:
        """Return (level, index) of all intervals of the first t prefixes, in the order in which they are drawn."""
        nodes: dict[tuple[int, int], None] = {}
        for now in range(1, t + 1):
            nodes |= dict.fromkeys(node for node, _ in self._used(now))
        return list(nodes)

    def _used(self, t: int) -> list[tuple[tuple[int, int], int]]:
        """Return the intervals of [1, t] with their signs: `index` counts intervals of that level from 0."""
        used = []
        for level in range(self.height):
            digit = int(balanced_digits(np.array([t]), self.arity, level)[0])
            # t rounded to this level, in its intervals.
            at = (t + (self.arity**level - 1) // 2) // self.arity**level
            used += [((level, at - i), 1) for i in range(digit, 0, -1)]
            used += [((level, at + i), -1) for i in range(-digit)][::-1] if digit < 0 else []
        return used


def height_for(arity: int, horizon: int) -> int:
    """Return the least h with (arity^h - 1)/2 >= horizon."""
    height = 1
    while (arity**height - 1) // 2 < horizon:
        height += 1
    return height


def balanced_digits(t: IntArray, arity: int, level: int) -> IntArray:
    """Return digit number `level` of each t, between -(arity-1)/2 and (arity-1)/2.

    >>> [balanced_digits(np.array([7, 8]), 5, level).tolist() for level in range(2)]
    [[2, -2], [1, 2]]
    """
    unit = arity**level
    digits: IntArray = (t + (unit - 1) // 2) // unit % arity
    return np.where(digits > arity // 2, digits - arity, digits)


def digit_sum(t: int, arity: int, height: int) -> int:
    """Return |d_0| + ... + |d_(height-1)|."""
    return sum(abs(int(balanced_digits(np.array([t]), arity, level)[0])) for level in range(height))


@lru_cache(maxsize=256)
def best_arity(horizon: int) -> int:
    """Return the odd k of least mean variance over 1..horizon; the smaller one of equals.

    For each height the least arity that reaches the horizon, and eight more: a larger one only adds digits.

    >>> best_arity(100), best_arity(1)
    (15, 3)
    """
    best: tuple[int, int] | None = None
    height = 1
    while True:
        arity = _least_arity(height, horizon)
        for candidate in range(arity, arity + 18, 2):
            if height_for(candidate, horizon) == height:
                total = _total(horizon, candidate, height)
                best = min(best or (height**2 * total, candidate), (height**2 * total, candidate))
        if arity == 3 and best is not None:
            return best[1]
        height += 1


def _least_arity(height: int, horizon: int) -> int:
    low, high = 1, 3
    while (high**height - 1) // 2 < horizon:
        low, high = high, 2 * high + 1
    while high - low > 2:
        middle = (low + high) // 4 * 2 + 1
        low, high = (low, middle) if (middle**height - 1) // 2 >= horizon else (middle, high)
    return high


def _total(horizon: int, arity: int, height: int) -> int:
    """Return the sum of all digits' absolute values over t = 0..horizon, in closed form for each level."""
    total, half = 0, arity // 2
    for level in range(height):
        unit = arity**level
        full, rest = divmod(horizon + 1 + (unit - 1) // 2, unit)
        periods, left = divmod(full, arity)
        up, down = min(left, half + 1), max(left - half - 1, 0)
        # Digits 0..half, then half..1 in absolute value; one period of them sums to half * (half + 1).
        inside = up * (up - 1) // 2 + down * (2 * half - down + 1) // 2
        digit = left if left <= half else arity - left
        total += unit * (periods * half * (half + 1) + inside) + rest * digit
    return total

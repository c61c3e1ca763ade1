"""PrivTree split rule: which cells of one tree level are divided further.

Guarantee: `epsilon`-DP per step and per event, inserted or deleted, for all levels of the tree together.
Source: [zhang2016]. Departures: docs/notes/0003-deletes-add.md. Proof, and why less noise
    than the paper's is enough: docs/guarantee.md, theorem P.
Units: scores and thresholds are events; depth counts noisy decisions, root = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil

import numpy as np

from engines.core.noise import NoiseSource, aggregate
from engines.core.noise.split import laplace_exceeds
from schemas.arrays import BoolArray, IntArray
from schemas.errors import EngineInputError
from schemas.guarantee import Mechanism

UNIT_BITS = 20
UNIT = Fraction(1, 1 << UNIT_BITS)
MAX_SCORE = 1 << 40
MAX_SCALE = 1 << 32  # times the greatest depth, 32, and 2**UNIT_BITS it still fits into int64
# ln 2 and ln 4 from above, to 20 digits: rounding the decay up keeps the proof, rounding it down does not.
_LOG = {2: Fraction(693147180559945309418, 10**21), 4: Fraction(1386294361119890618836, 10**21)}
_TERMS = 64


@lru_cache(maxsize=len(_LOG))
def path_cost(fanout: int) -> Fraction:
    """Return what all bits of one path cost together, in reciprocals of the scale: 1 + the sum over j >= 0 of
    1/(2 fanout**j - 1).

    Rounded up, to a multiple of `UNIT`: the terms left out are below fanout**-j each, since 2 fanout**j - 1 is at least
    fanout**j, so together below fanout**(1 - _TERMS) / (fanout - 1). Source: docs/guarantee.md, theorem P.

    >>> round(float(path_cost(2)), 5), round(float(path_cost(4)), 5)
    (2.6067, 2.1856)
    """
    terms = sum((Fraction(1, 2 * fanout**j - 1) for j in range(_TERMS)), Fraction(1))
    left_out = Fraction(fanout, fanout - 1) / fanout**_TERMS
    cost: Fraction = ceil((terms + left_out) / UNIT) * UNIT
    return cost


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitRule:
    """Public constants. Holds a budget and no data, so it may be printed and logged.

    Args:
        epsilon: of one event, for the whole path from the root to a leaf.
        fanout: children of a cell, 2 or 4.
    Raises: EngineInputError.
    """

    epsilon: Fraction
    fanout: int = 2

    def __post_init__(self) -> None:
        if self.epsilon <= 0 or self.fanout not in _LOG:
            raise EngineInputError("epsilon must be positive and fanout 2 or 4")
        if self.scale > MAX_SCALE:
            raise EngineInputError("epsilon is too small: its noise would not fit into 64 bits")

    @property
    def scale(self) -> Fraction:
        """Scale of the Laplace noise, in events."""
        return path_cost(self.fanout) / self.epsilon

    @property
    def decay_units(self) -> int:
        """Score lost per level, in `UNIT`s: scale * ln(fanout), rounded up; neighbours then differ by exactly 1."""
        return ceil(self.scale * _LOG[self.fanout] / UNIT)

    def mechanism(self, name: str, account: str) -> Mechanism:
        """Return what a guarantee says of all bits of a tree together."""
        return Mechanism(
            name=name,
            distribution="Laplace (one bit)",
            l1_sensitivity=1,
            scale=self.scale,
            epsilon=self.epsilon,
            account=account,
            shift=path_cost(self.fanout),
        )

    def margins(self, scores: IntArray, *, depth: int, threshold: int) -> IntArray:
        """Return what the noise of each cell has to exceed, `(cells,)` in `UNIT`s.

        At the floor an event changes nothing: deep cells cost no privacy, and half a child on average ends the tree.
        """
        gap = (np.int64(threshold) - np.minimum(scores, MAX_SCORE)) << UNIT_BITS
        margins: IntArray = np.minimum(gap + depth * self.decay_units, self.decay_units)
        return margins


@aggregate
def check_counts(**arrays: IntArray) -> None:
    """Refuse arrays of different shapes or with negative entries. Raises: EngineInputError; it names no value."""
    if len({array.shape for array in arrays.values()}) > 1:
        raise EngineInputError(f"shapes of {', '.join(arrays)} differ")
    for name, array in arrays.items():
        if array.dtype != np.int64:
            raise EngineInputError(f"{name} must be int64")
        if array.size and int(array.min()) < 0:
            raise EngineInputError(f"{name} has a negative entry")


def split_bits(
    prior: IntArray, changes: IntArray, *, depth: int, threshold: int, rule: SplitRule, noise: NoiseSource
) -> BoolArray:
    """Draw one split bit for each cell of a level.

    Args:
        prior: `(cells,)` int64, events per cell in the last release; public, no child above its parent.
        changes: `(cells,)` int64, inserts PLUS deletes of this step; private.
        depth: noisy decisions above these cells.
        threshold: events, at least 0; public.
    Returns: `(cells,)` True where the cell is split; safe to publish, unlike `changes`.
    Raises: EngineInputError if shapes differ or an entry is negative; it names the argument, never a value.
    Privacy: one event adds one to one cell of each level, so a root-to-leaf path costs at most `rule.epsilon`.
        The proof needs child <= parent; subtracting deletes breaks it.

    >>> from engines.core.noise import seeded
    >>> rule = SplitRule(epsilon=Fraction(1))
    >>> split_bits(np.array([10_000]), np.array([3]), depth=1, threshold=0, rule=rule, noise=seeded(7))
    array([ True])
    """
    check_counts(prior=prior, changes=changes)
    if threshold < 0:
        raise EngineInputError("threshold must not be negative")
    # Two capped summands can not overflow; min() keeps order between parent and child and moves by 1 at most.
    scores = np.minimum(prior, MAX_SCORE) + np.minimum(changes, MAX_SCORE)
    margins = rule.margins(scores, depth=depth, threshold=min(threshold, MAX_SCORE))
    return laplace_exceeds(margins, unit=UNIT, scale=rule.scale, source=noise)

"""Counters without a horizon from counters with one: epochs of doubling length, each a new counter.

The running sum is that of the epochs that are over, each as its counter had it in the end, plus the present one's.

Guarantee: what one epoch's counter costs, for one event over an endless stream: an event is in one epoch, and the
    others run on data without it (parallel composition). When epochs begin is public. Also under adaptive continual
    release: what was released before the event's epoch is the same with and without it, and what comes after depends
    on it only through releases.
Source: folklore; [chan2011] split the budget instead, for the sake of the sum of old epochs (`HybridCounter`). With
    few epochs a whole budget each is better: docs/engines/counters.md has the figures.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np

from engines.core.counters.linear import Counter, Measure, Memory, check_activation, check_whole
from engines.core.noise import NoiseSource
from engines.core.noise.arguments import check_fraction
from schemas.arrays import FloatArray, IntArray
from schemas.errors import EngineInputError

Family = Literal["kary", "blt", "blt-coarse", "blt-coarsest"]
_FAMILIES: dict[Family, Measure] = {"kary": "epsilon", "blt": "rho", "blt-coarse": "rho", "blt-coarsest": "rho"}
FINE = (2**20, 2**18)
COARSE: dict[Family, tuple[int, int]] = {"blt-coarse": (2**14, 2**18), "blt-coarsest": (2**10, 2**12)}
"""Lattice and longest epoch where rho is so small that noise on a finer lattice would leave int64."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochsCounter(Counter):
    """Epochs without end: `first` activations, then twice as many each time, up to 2^18.

    Args: cost: epsilon for `kary`, rho for the other families.
    Raises: EngineInputError if the cost is not a positive Fraction or is too small for the family, the family is
        unknown, or first is not a whole number from 1 to 2^18.
    """

    cost: Fraction
    family: Family
    first: int = 64

    horizon: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        if self.family not in _FAMILIES:
            raise EngineInputError(f"family must be one of {', '.join(_FAMILIES)}")
        check_whole("first", self.first)
        check_fraction(self.measure, self.cost)
        if self.first > self._longest:
            raise EngineInputError(f"first must be at most {self._longest}")
        self._counter(0)
        self._counter(self._longest.bit_length())

    @property
    def measure(self) -> Measure:
        """The measure of the family."""
        return _FAMILIES[self.family]

    @property
    def resolution(self) -> int:
        """The resolution of the family's counters."""
        return self._counter(0).resolution

    def epoch_of(self, t: int) -> tuple[int, int]:
        """Return the number of the epoch of activation t, and how many activations there were before it.

        >>> [EpochsCounter(cost=Fraction(1), family="kary").epoch_of(t) for t in (1, 64, 65, 192, 193)]
        [(0, 0), (0, 0), (1, 64), (1, 64), (2, 192)]
        """
        number = start = 0
        while t > start + (length := self._length(number)):
            # From the longest on all are alike.
            jump = (t - 1 - start) // length if length == self._longest else 1
            number, start = number + jump, start + jump * length
        return number, start

    def _length(self, number: int) -> int:
        return min(self.first << min(number, 20), self._longest)

    @property
    def _longest(self) -> int:
        return COARSE.get(self.family, FINE)[1]

    def _counter(self, number: int) -> Counter:
        return _calibrated(self.family, self._length(number), self.cost)

    def _memory(self, width: int) -> dict[str, IntArray]:
        return self._counter(0)._memory(width)

    def _advance(self, t: IntArray, memory: Memory, source: NoiseSource) -> tuple[IntArray, dict[str, IntArray]]:
        noise = np.zeros(t.size, dtype=np.int64)
        epochs = {now: self.epoch_of(now) for now in np.unique(t).tolist()}
        numbers = np.array([epochs[now][0] for now in t.tolist()], dtype=np.int64)
        starts = np.array([epochs[now][1] for now in t.tolist()], dtype=np.int64)
        parts: list[tuple[IntArray, dict[str, IntArray]]] = []
        for number in sorted({number for number, _ in epochs.values()}):
            rows, counter = np.flatnonzero(numbers == number), self._counter(number)
            inside = t[rows] - starts[rows]
            own = counter._memory(rows.size)
            # An epoch begins with nothing: the noise of the one before stays in the running sum for good.
            going = np.flatnonzero(inside > 1)
            for name, array in own.items() if going.size else ():
                array[going] = memory[name][rows[going], : array.shape[1]]
            # The noise of a counter that is over is not taken back, since increments alone are added up.
            noise[rows], following = counter._advance(inside, own, source)
            parts.append((rows, following))
        result = {}
        for name, array in memory.items():
            longest = max([array.shape[1], *(part[name].shape[1] for _, part in parts)])
            result[name] = np.zeros((t.size, longest), dtype=np.int64)
            for rows, part in parts:
                result[name][rows, : part[name].shape[1]] = part[name]
        return noise, result

    def _spans(self, t: int) -> list[tuple[Counter, int, int]]:
        """Return (counter, activations before it, activations in it) of the epochs up to t."""
        spans, start = [], 0
        while start < t:
            number, _ = self.epoch_of(start + 1)
            spans.append((self._counter(number), start, min(self._length(number), t - start)))
            start += self._length(number)
        return spans

    def variance(self, t: int) -> float:
        """Return the sum over epochs of their counters' variances, at their ends and now."""
        check_activation(t, self.horizon)
        return sum((counter.variance(inside) for counter, _, inside in self._spans(t)), 0.0)

    def strategy(self, t: int) -> IntArray:
        """Return the epochs' strategies along the diagonal."""
        parts = [(start, counter.strategy(inside)) for counter, start, inside in self._spans(t)]
        rows = np.zeros((sum(len(part) for _, part in parts), t), dtype=np.int64)
        at = 0
        for start, part in parts:
            rows[at : at + part.shape[0], start : start + part.shape[1]] = part
            at += part.shape[0]
        return rows

    def decoder(self, t: int) -> FloatArray:
        """Return the epochs' decoders along the diagonal, the last row of each repeated to the end."""
        parts = [(start, counter.decoder(inside)) for counter, start, inside in self._spans(t)]
        rows = np.zeros((t, sum(part.shape[1] for _, part in parts)))
        at = 0
        for start, part in parts:
            rows[start : start + part.shape[0], at : at + part.shape[1]] = part
            rows[start + part.shape[0] :, at : at + part.shape[1]] = part[-1]
            at += part.shape[1]
        return rows

    def node_noise(self, t: int) -> tuple[Fraction, ...]:
        """Return the epochs' noise, one after the other."""
        return tuple(noise for counter, _, inside in self._spans(t) for noise in counter.node_noise(inside))


@lru_cache(maxsize=256)
def _calibrated(family: Family, horizon: int, cost: Fraction) -> Counter:
    # An engine with pure noise need not load the other family.
    if family == "kary":
        from engines.core.counters.kary import KaryCounter

        return KaryCounter.with_best_arity(cost, horizon)
    from engines.core.counters.blt import BltCounter

    return BltCounter.fitted_to(horizon, cost, COARSE.get(family, FINE)[0])

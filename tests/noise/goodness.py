"""Does a sample fit an exact law? An exact binomial test of each of a fixed list of events.

Null hypothesis: each event has its stated probability. False-positive rate: at most ALPHA for a call, by Bonferroni
over the events, exact for every sample size; nothing is lumped or approximated, so tails can be events of their own.
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from engines.core.noise import DiscreteLaplace, NoiseSource, seeded
from schemas.arrays import WordArray

ALPHA = 1e-6


def misfit(hits: Sequence[int], probabilities: Sequence[float], draws: int) -> str:
    """Return what does not fit, or an empty string."""
    for event, (hit, probability) in enumerate(zip(hits, probabilities, strict=True)):
        law = stats.binom(draws, min(1.0, probability))
        p_value = 2 * min(law.cdf(hit), law.sf(hit - 1))
        if p_value < ALPHA / len(hits):
            return f"event {event}: {hit} of {draws} where {probability} is claimed, p = {p_value:.2g}"
    return ""


def laplace_cells(scale: Fraction) -> list[int]:
    """Edges around zero and out to 12 scales, where a hundred of a million draws fall into the two tails."""
    near = range(-3, 5)
    far = [int(scale * Fraction(c, 4)) for c in (1, 2, 4, 8, 12, 20, 28, 36, 44)]
    return sorted({*near, *far, *(-k for k in far)})


def laplace_hits(values: NDArray[Any], scale: Fraction) -> tuple[list[int], list[float]]:
    """Events X = k at the edges, and tails beyond each on its own side; with their exact probabilities."""
    law = DiscreteLaplace(scale)
    hits, probabilities = [], []
    for k in laplace_cells(scale):
        hits.append(int(np.sum(values == k)))
        probabilities.append(law.pmf(k))
        # By symmetry; written as a tail on the small side, where floats have their precision.
        hits.append(int(np.sum(values >= k)) if k > 0 else int(np.sum(values <= k)))
        probabilities.append(law.tail(abs(k)) if k else 1 - law.tail(1))
    return hits, probabilities


class Scripted(NoiseSource):
    """A source that first gives the words it was told, then repeats `forever`, or else draws like `seeded(0)`."""

    __slots__ = ("_forever", "_honest", "_script")

    def __init__(self, *script: int, forever: int | None = None) -> None:
        super().__init__(bytes(32), "scripted")
        self._script = list(script)
        self._forever = forever
        self._honest = seeded(0)

    def words(self, count: int) -> WordArray:
        honest = self._honest.words(count)
        words = honest.copy() if self._forever is None else np.full(count, self._forever, dtype=np.uint64)
        told = self._script[:count]
        del self._script[:count]
        words[: len(told)] = np.array(told, dtype=np.uint64)
        return words


class _UndecidedError(Exception):
    def __init__(self, weights: Sequence[float]) -> None:
        self.weights = weights


Choose = Callable[[Sequence[float]], int]


def exact_law(run: Callable[[Choose], Any], floor: float) -> tuple[Mapping[Any, float], float]:
    """Walk through everything a sampler can do, and add up the probability of each of its results.

    `run(choose)` is the sampler, with every draw replaced by `choose(weights)`. Branches of probability below `floor`
    are cut off. Returns: the probability of each result, and how much was cut off.
    """
    law: dict[Any, float] = {}
    cut_off = 0.0
    todo: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    while todo:
        path, mass = todo.pop()
        steps = iter(path)

        def choose(weights: Sequence[float], steps: Any = steps) -> int:
            for step in steps:
                return int(step)
            raise _UndecidedError(weights)

        try:
            result = run(choose)
            law[result] = law.get(result, 0.0) + mass
        except _UndecidedError as undecided:
            for branch, weight in enumerate(undecided.weights):
                if mass * weight > floor:
                    todo.append(((*path, branch), mass * weight))
                else:
                    cut_off += mass * weight
    return law, cut_off

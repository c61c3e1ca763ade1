"""What right guesses of secret bits say about epsilon, and how much a number of guesses can say at most.

An adversary guesses bits that were drawn by fair coins, each of which decides whether one protected unit is in the
input, and may pass on any of them. If the mechanism is epsilon-DP, the number of right ones among `made` guesses is
stochastically at most Binomial(made, p), p = e^epsilon / (1 + e^epsilon). So a Clopper-Pearson bound of p is one of
epsilon.

Statistics, pure: this holds for any number of bits in ONE run, with no independence of the mechanism's answers. Given
    the output and the bits before the i-th one (the others averaged over), both values of the i-th bit were equally
    likely beforehand, and the likelihood ratio of the output is at most e^epsilon either way, as it is a mixture of
    neighbouring inputs. So each guess is right with probability at most p whatever the earlier ones were, which is the
    claim; which bits are guessed is a function of the output. Runs under seeds of their own are one mechanism on all
    their bits.
Statistics, delta > 0: one bit in each run. An (epsilon, delta)-DP mechanism on one bit is a function of: the bit
    itself with probability delta, else a bit that is right with probability p. At most `leaks` of the runs gave their
    bit away, but for probability alpha / 2; without so many right guesses the rest is as above, at alpha / 2.
Source: [steinke2023], theorem 3.1 (pure); [kairouz2015] (one bit);
    [clopper1934].
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.arrays import FloatArray

POWER = 0.95
"""Probability with which the smallest visible fault is seen."""
_LARGEST = 60.0
"""Epsilon beyond which nothing is looked for."""


def lower(hits: npt.ArrayLike, runs: npt.ArrayLike, *, alpha: float) -> FloatArray:
    """One-sided lower confidence bound of a probability, elementwise; 0 where nothing was hit.

    Statistics: above the true probability with probability `alpha` at most; exact, no approximation.

    >>> round(float(lower(90, 100, alpha=0.025)), 4)
    0.8238
    """
    k: npt.NDArray[Any] = np.asarray(hits, np.float64)
    n: npt.NDArray[Any] = np.asarray(runs, np.float64)
    bound = _special().betaincinv(np.maximum(k, 1e-9), n - k + 1.0, alpha)
    return np.where(k > 0, bound, 0.0)


def leaks(watched: int, *, alpha: float, delta: float) -> int:
    """Runs of `watched` that may have given their bit away: more have probability `alpha` / 2 at most."""
    return int(_binomial().isf(alpha / 2, watched, delta)) if delta else 0


def epsilon_shown(
    right: npt.ArrayLike, made: npt.ArrayLike, *, watched: int, alpha: float, delta: float = 0.0
) -> FloatArray:
    """Lower bound of epsilon from right guesses among those made; never below 0; elementwise.

    Args:
        watched: bits that could have been guessed, in runs of their own if `delta` is not 0.
        alpha: probability that the result is above the true epsilon.

    >>> round(float(epsilon_shown(731, 1000, watched=1000, alpha=1e-6)), 3)
    0.666
    """
    each = alpha / 2 if delta else alpha
    given = leaks(watched, alpha=alpha, delta=delta)
    p = lower(np.maximum(np.asarray(right, np.float64) - given, 0.0), made, alpha=each)
    return np.where(p > 0.5, _special().logit(np.clip(p, 0.5, 1 - 1e-15)), 0.0)


def ceiling(guesses: int, *, alpha: float, delta: float = 0.0) -> float:
    """The largest lower bound that so many guesses can give: that of a total leak, where all are right.

    >>> round(ceiling(200, alpha=1e-6), 3), round(ceiling(1000, alpha=1e-6), 3)
    (2.638, 4.275)
    """
    return float(epsilon_shown(guesses, guesses, watched=guesses, alpha=alpha, delta=delta))


def visible(claim: float, guesses: int, *, alpha: float, delta: float = 0.0) -> float:
    """The smallest true epsilon that is found to be above `claim` with probability `POWER`; infinite if none is.

    Of the mechanism that shows its epsilon best, randomised response: no other with that epsilon is seen sooner.

    >>> round(visible(1.0, 1000, alpha=1e-6), 2), visible(3.0, 200, alpha=1e-6)
    (1.49, inf)
    """

    def seen(epsilon: float) -> bool:
        right = float(_binomial().ppf(1 - POWER, guesses, _special().expit(epsilon)))
        return float(epsilon_shown(right, guesses, watched=guesses, alpha=alpha, delta=delta)) > claim

    low, high = claim, _LARGEST
    if not seen(high):
        return float("inf")
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if seen(middle) else (middle, high)
    return high


def guesses_needed(claim: float, *, alpha: float, delta: float = 0.0) -> int:
    """Guesses from which on the ceiling lies above `claim`; 0 if 2**40 are too few.

    >>> guesses_needed(3.0, alpha=1e-6), guesses_needed(1.0, alpha=1e-6)
    (285, 45)
    """
    high = 1
    while ceiling(high, alpha=alpha, delta=delta) <= claim:
        high *= 2
        if high > 2**40:
            return 0
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if ceiling(middle, alpha=alpha, delta=delta) > claim else (middle, high)
    return high


def guesses_to_see(claim: float, *, alpha: float, delta: float = 0.0) -> int:
    """Guesses from which on a true epsilon of `claim` gives a bound above 0 with probability `POWER`; 0: 2**40 do not.

    Of randomised response again, which shows its epsilon best: of anything else it takes more.

    >>> guesses_to_see(1.0, alpha=1e-6), guesses_to_see(0.05, alpha=1e-6) > 50_000
    (183, True)
    """

    def seen(guesses: int) -> bool:
        right = float(_binomial().ppf(1 - POWER, guesses, _special().expit(claim)))
        return float(epsilon_shown(right, guesses, watched=guesses, alpha=alpha, delta=delta)) > 0

    high = 1
    while not seen(high):
        high *= 2
        if high > 2**40:
            return 0
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if seen(middle) else (middle, high)
    return high


def _binomial() -> Any:
    """Imported where a bound is asked for: scipy takes longer to load than anything else here, and what only names the
    auditor's fixtures would wait for it, as the live page does.
    """
    from scipy.stats import binom

    return binom


def _special() -> Any:
    """The same."""
    from scipy import special

    return special

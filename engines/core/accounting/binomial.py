"""What draws of binomial noise cost: (epsilon, delta) of one on an integer, and of several together.

Guarantee: see each function; a draw has `half` pairs of coins, so a variance of half / 2.
Source: [zhang2022], lemma A.2 and theorem A.3; [kairouz2015], theorem 3.5.
"""

from __future__ import annotations

from math import e, inf, log, sqrt

import numpy as np
import numpy.typing as npt

from schemas.arrays import FloatArray


def draw_epsilon(half: int, shift: npt.ArrayLike, delta: npt.ArrayLike) -> FloatArray:
    """Return the epsilon of one draw on an integer that moves by `shift`, infinite for too few coins: lemma A.2 (ii).

    Args:
        shift, delta: numbers, or arrays of one shape.

    >>> float(draw_epsilon(10_000, 1, 1e-6).round(4))
    0.0745
    """
    moved = np.asarray(shift, float)
    room = half - moved + 1 - np.sqrt(half * np.log(1 / np.asarray(delta, float)))
    enough = room > 0
    return np.where(enough, moved * np.log((2 * half + 1) / np.where(enough, room, 1.0) - 1), inf)


def advanced(squares: float, slack: float) -> tuple[float, float]:
    """Return what theorem 3.5 adds to the drift for a sum of squared epsilons, and its derivative there.

    x sqrt(2 l(x)) with x = sqrt(squares) and l = log(e + x / slack) is concave in x**2: twice the derivative is
    sqrt(2) (sqrt(l) / x + l' / (2 sqrt(l))), where l' and 1 / sqrt(l) fall, and sqrt(l) / x does since x l' < 1 <= l.
    """
    root = sqrt(squares)
    logarithm = log(e + root / slack)
    derivative = 1 / (e * slack + root)
    slope = (sqrt(logarithm) / root + derivative / (2 * sqrt(logarithm))) / sqrt(2)
    return root * sqrt(2 * logarithm), slope


def composed(plain: float, drift: float, squares: float, slack: float) -> float:
    """Return the epsilon of all draws together, by [kairouz2015], theorem 3.5; rises with each of the sums.

    Args:
        plain, drift, squares: sums over the draws of e, e (exp(e) - 1) / (exp(e) + 1) and e squared, e that of a draw.
        slack: the delta that composition itself may cost, beside those of the draws.
    """
    if plain == 0:
        return 0.0
    return min(plain, drift + advanced(squares, slack)[0], drift + sqrt(2 * squares * log(1 / slack)))

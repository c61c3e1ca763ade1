"""A transition matrix learnt from released counts: expectation maximisation over a window of them.

Counts alone, nobody's path: a smoother gives the expected products of neighbouring steps' counts, and the matrix
that explains them best in least squares, its rows on the simplex, is the next guess.
Post-processing of released values: costs no privacy. Source: [shumway1982] for the recursion; constraint and
    prior are ours.
Units: counts. Cost: O(sweeps * window * states^3).
"""

from __future__ import annotations

import numpy as np

from engines.markov.filters.gaussian import Belief, DenseFilter
from engines.markov.simplex import project
from schemas.arrays import FloatArray

PRIOR_STEPS = 1.0
"""Weight of the first guess, in steps."""
_DESCENTS = 30


def learn(
    guess: FloatArray, prior: FloatArray, noisy: FloatArray, scale: float, total: float, *, sweeps: int
) -> FloatArray:
    """A better transition matrix `(states, states)`.

    Args:
        guess: to start from. prior: what holds without data. noisy: `(steps, states)` released counts of consecutive
            steps, which everyone is in. scale: of the continuous Laplace law with the noise's variance.
    """
    states = len(guess)
    even = total / states * (np.eye(states) - 1 / states) + (total / states) ** 2
    for _ in range(sweeps):
        products, moves = PRIOR_STEPS * even, PRIOR_STEPS * even @ prior
        engine = DenseFilter(guess, total, np.ones(states, np.bool_), exact=False)
        beliefs = filtered(engine, noisy, scale)
        later = beliefs[-1]
        for belief in beliefs[-2::-1]:
            now = engine.smooth(belief, later)
            products = products + now.spread + np.outer(now.mean, now.mean)
            moves = moves + engine.cross(belief, later).T + np.outer(now.mean, later.mean)
            later = now
        guess = _least_squares(guess, products, moves)
    return guess


def filtered(engine: DenseFilter, noisy: FloatArray, scale: float) -> list[Belief]:
    """Beliefs after each of the steps `(steps, states)`."""
    belief, _ = engine.update(engine.start(float(len(engine.matrix))), noisy[0], scale)
    beliefs = [belief]
    for row in noisy[1:]:
        belief, _ = engine.update(engine.predict(belief), row, scale)
        beliefs.append(belief)
    return beliefs


def _least_squares(guess: FloatArray, products: FloatArray, moves: FloatArray) -> FloatArray:
    """Minimise tr(P' products P) / 2 - tr(P' moves) over row-stochastic P, by accelerated projected gradient."""
    steepest = float(np.linalg.eigvalsh(products)[-1])
    matrix, ahead, momentum = guess, guess, 1.0
    for _ in range(_DESCENTS):
        after = project(ahead - (products @ ahead - moves) / steepest, 1.0)
        faster = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        ahead = after + (momentum - 1) / faster * (after - matrix)
        matrix, momentum = after, faster
    return matrix

"""What a few hidden factors explain of all pairs at once: a low-rank model of their noisy residuals. Post-processing.

Every value of every attribute has a loading on each of K factors; the residual of a pair of values, which is its count
less what independence would give, is taken to be the inner product of their loadings. Each pair of attributes alone may
drown in noise; a loading is learnt from all pairs of its attribute together. How far a factor reaches is learnt too, so
that one that only explains noise vanishes.
Sources: the off-diagonal blocks of the Burt matrix, as in joint correspondence analysis ([greenacre1988]); a prior
variance for each factor, as in variational principal components ([bishop1999]).
Sums run in a fixed order; sums, products, quotients and roots only, no matrix library.
Units: rows.
"""

from __future__ import annotations

import numpy as np

from engines.tabular.marginals import Marginals
from schemas.arrays import FloatArray, IntArray

FACTORS = 6
_STARTS, _ROUNDS = 8, 12
_LEAST, _SMALLEST = 1e-12, 1e-300
_HALVES = 4.0
"""How many of a cell's noise variances hold each of two explanations to half of itself."""
_GOLDEN = 2654435761
"""Multiplier of a multiplicative hash modulo 2^32: starting vectors only have to differ."""


def low_rank(
    residual: FloatArray, variances: FloatArray, margins: FloatArray, *, pairs: Marginals, ones: Marginals
) -> FloatArray:
    """Return what factors explain of the residual, `(cells of pairs,)`.

    Args:
        residual: `(cells of pairs,)` noisy counts less those of independence.
        variances: `(pairs,)` of the noise of one cell.
        margins: `(cells of ones,)` counts of all values; fewer than a row count as one.
        ones: the one-way layout; marginal `a` is attribute `a`.
    """
    attribute = np.repeat(np.arange(len(ones)), ones.lengths)
    evidence = _Evidence(residual / pairs.spread(variances), pairs, ones)
    trust = np.zeros((len(ones), len(ones)))
    for (left, right), variance in zip(pairs.cliques, variances.tolist(), strict=True):
        trust[left, right] = trust[right, left] = 1 / variance
    # Loadings of likely values deviate more, as in `Sides.posterior`.
    likely = np.maximum(margins, 1.0)
    likely = likely * np.sqrt(np.sqrt(likely))
    likely = (likely / likely.mean())[:, None]
    loadings = _start(evidence, trust, likely, attribute)
    spread = np.zeros((ones.cells, FACTORS, FACTORS))
    reach = np.maximum((loadings * loadings / likely).mean(axis=0), _LEAST)
    diagonal = np.arange(FACTORS)
    for _ in range(_ROUNDS):
        squares = loadings[:, :, None] * loadings[:, None, :] + spread
        known = np.einsum("ab,bkl->akl", trust, np.add.reduceat(squares, ones.offsets[:-1], axis=0))[attribute]
        known[:, diagonal, diagonal] += 1 / (likely * reach)
        spread = inverses(known)
        best = np.einsum("ikl,il->ik", spread, evidence.times(loadings))
        # All attributes at once: half of the way, as in Newton's root, or they would swing.
        loadings = (loadings + best) / 2
        reach = np.maximum(((loadings * loadings + spread[:, diagonal, diagonal]) / likely).mean(axis=0), _LEAST)
    explained = np.zeros(pairs.cells)
    for index, (left, right) in enumerate(pairs.cliques):
        parts = (loadings[ones.offsets[a] : ones.offsets[a + 1]] for a in (left, right))
        pairs.table(explained, index)[:] = np.einsum("ik,jk->ij", *parts)
    return explained


def blended(
    residual: FloatArray, variances: FloatArray, one: FloatArray, other: FloatArray, *, pairs: Marginals
) -> FloatArray:
    """Return the mixture of two explanations of a residual that each pair shows: least squares, held to half of both.

    Args:
        residual, one, other: `(cells of pairs,)`. variances: `(pairs,)` of the noise of one cell.
    """
    held = _HALVES * variances
    missed = residual - (one + other) / 2
    a, b, c = (pairs.sums(product) for product in (one * one, other * other, one * other))
    a, b = a + held, b + held
    x, y = pairs.sums(one * missed), pairs.sums(other * missed)
    determinant = np.maximum(a * b - c * c, _SMALLEST)
    first = 0.5 + (b * x - c * y) / determinant
    second = 0.5 + (a * y - c * x) / determinant
    mixture: FloatArray = one * pairs.spread(first) + other * pairs.spread(second)
    return mixture


class _Evidence:
    """All pairs as one symmetric matrix of values, without the zeros of attributes that share no pair."""

    def __init__(self, tables: FloatArray, pairs: Marginals, ones: Marginals) -> None:
        self.values = [np.arange(ones.offsets[a], ones.offsets[a + 1]) for a in range(len(ones))]
        found: list[list[tuple[int, FloatArray]]] = [[] for _ in self.values]
        for index, (left, right) in enumerate(pairs.cliques):
            table = pairs.table(tables, index)
            found[left].append((right, table))
            found[right].append((left, table.T))
        none = np.zeros(0, np.int64)
        self.others = [np.concatenate([none, *(self.values[b] for b, _ in line)]) for line in found]
        self.lines = [
            np.concatenate([np.zeros((len(values), 0)), *(table for _, table in line)], axis=1)
            for values, line in zip(self.values, found, strict=True)
        ]

    def times(self, vectors: FloatArray) -> FloatArray:
        """Return the product with vectors `(values, k)`."""
        products = [
            np.einsum("ij,jk->ik", line, vectors[others]) for line, others in zip(self.lines, self.others, strict=True)
        ]
        return np.concatenate(products)


def _start(evidence: _Evidence, trust: FloatArray, likely: FloatArray, attribute: IntArray) -> FloatArray:
    """Return the leading directions of the evidence, by subspace iteration, each as long as fits the evidence best."""
    scale = np.sqrt(likely)
    numbers = np.arange(1, len(scale) + 1)[:, None] * np.arange(1, FACTORS + 1) * _GOLDEN % 2**32
    basis = _orthonormal(numbers / 2.0**31 - 1)
    # Directions of negative eigenvalues are no factors: a shift turns the order from size to value.
    shift = 0.0
    for _ in range(_STARTS):
        moved = scale * evidence.times(scale * basis)
        shift = max(shift, float(np.sqrt((moved * moved).sum(axis=0).max())) / 2)
        basis = _orthonormal(moved + shift * basis)
    found = scale * basis
    squares = np.add.reduceat(found * found, np.flatnonzero(np.diff(attribute, prepend=-1)), axis=0)
    fits = (found * evidence.times(found)).sum(axis=0)
    weight = (np.einsum("ab,bk->ak", trust, squares) * squares).sum(axis=0)
    longer: FloatArray = found * np.sqrt(np.maximum(fits, 0.0) / np.maximum(weight, _LEAST))
    return longer


def _orthonormal(basis: FloatArray) -> FloatArray:
    """Make columns orthonormal by Gram-Schmidt; what is left of a column that depends on others is zero."""
    columns: list[FloatArray] = []
    for column in basis.T:
        for other in columns:
            column = column - (column * other).sum() * other
        columns.append(column / max(float(np.sqrt((column * column).sum())), _SMALLEST))
    return np.stack(columns, axis=1)


def inverses(matrices: FloatArray) -> FloatArray:
    """Return the inverses of symmetric positive definite ones, by Gauss and Jordan; these need no pivots."""
    size = matrices.shape[-1]
    found = matrices.copy()
    for k in range(size):
        pivot = found[:, k, k].copy()
        row = found[:, k, :] / pivot[:, None]
        column = found[:, :, k].copy()
        found -= column[:, :, None] * row[:, None, :]
        found[:, k, :] = row
        found[:, :, k] = -column / pivot[:, None]
        found[:, k, k] = 1 / pivot
    return found

"""How users move between states from one step to the next: a public transition matrix, dense or sparse.

Guarantee: none needed; the matrix is declared, or learnt from released counts. Structural zeros (moves that cannot
    happen) are kept everywhere: a state that nobody can have reached is released as 0.
Source: [cao2023], section 5.2 (eq. 7); the covariance of collective counts is that of independent multinomial moves.
Units: row = state now, column = state next, entries are probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from schemas.arrays import BoolArray, FloatArray
from schemas.errors import EngineInputError

# The stubs of scipy's sparse arrays infer their element type from the first argument, wrongly.
Sparse = Any
_csr: Any = sparse.csr_array

ROW_TOLERANCE = 1e-6
"""By how much a row's sum may miss 1, for numbers written with few digits; rows are then divided by their sum."""
SPARSE_ABOVE = 64
"""States beyond which only diagonal filters are used, on a sparse matrix."""


@dataclass(frozen=True, slots=True, eq=False)
class Transition:
    """A checked transition matrix. Make one with `of`."""

    matrix: Sparse
    _forward: Sparse = field(repr=False)
    _squared: Sparse = field(repr=False)

    @staticmethod
    def of(matrix: FloatArray | Sparse) -> Transition:
        """Check a `(states, states)` matrix, and divide its rows by their sums.

        Raises: EngineInputError, naming the first row (from 1) that is negative, not finite or does not sum to 1.

        >>> Transition.of(np.array([[0.5, 0.5], [0.2, 0.7]]))
        Traceback (most recent call last):
        ...
        schemas.errors.EngineInputError: row 2 of the transition matrix sums to 0.9: rows are probabilities and sum to 1
        """
        rows: Sparse = _csr(matrix, copy=True).astype(np.float64)
        rows.sum_duplicates()
        rows.eliminate_zeros()
        if rows.ndim != 2 or rows.shape[0] != rows.shape[1] or rows.shape[0] < 1:
            raise EngineInputError("the transition matrix must be square, with a row and a column for each state")
        bad = ~np.isfinite(rows.data) | (rows.data < 0)
        if bad.any():
            row = int(np.searchsorted(rows.indptr, int(np.argmax(bad)), side="right"))
            raise EngineInputError(f"row {row} of the transition matrix has an entry that is no probability")
        sums = np.asarray(rows.sum(axis=1)).ravel()
        off = np.abs(sums - 1) > ROW_TOLERANCE
        if off.any():
            row = int(np.argmax(off))
            raise EngineInputError(
                f"row {row + 1} of the transition matrix sums to {sums[row]:.6g}: rows are probabilities and sum to 1"
            )
        rows = _csr(sparse.diags_array(1 / sums) @ rows)
        forward = _csr(rows.T)
        return Transition(rows, forward, _csr(forward.multiply(forward)))

    @staticmethod
    def sticky(states: int, stay: float) -> Transition:
        """The chain that stays with probability `stay` and else goes anywhere, evenly."""
        return Transition.of(stay * np.eye(states) + (1 - stay) / states)

    @property
    def states(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def dense(self) -> FloatArray:
        """`(states, states)`, a copy."""
        return np.asarray(self.matrix.toarray())

    def forward(self, counts: FloatArray) -> FloatArray:
        """Expected counts of the next step, `(states,)`."""
        return np.asarray(self._forward @ counts)

    def forward_variance(self, counts: FloatArray, variances: FloatArray) -> FloatArray:
        """Variances of the next step's counts, `(states,)`: what was unsure before, and the moves themselves.

        The counts before are taken as independent of each other.
        """
        return np.asarray(self._squared @ (variances - counts) + self._forward @ counts)

    def backward(self, values: FloatArray) -> FloatArray:
        """`matrix @ values`, `(states,)`."""
        return np.asarray(self.matrix @ values)

    def backward_squared(self, values: FloatArray) -> FloatArray:
        """The same with squared entries."""
        return np.asarray(self._squared.T @ values)

    def reachable(self, possible: BoolArray) -> BoolArray:
        """Which states can hold anybody a step after these could, `(states,)`."""
        return np.asarray((self._forward @ possible.astype(np.float64)) > 0)


def covariance_step(matrix: FloatArray, mean: FloatArray, covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean `P'm` and covariance `P'SP + sum_l m_l (diag P_l - P_l P_l')` of the next step's counts, P dense.

    Args:
        matrix: `(states, states)`. mean: `(states,)`. covariance: `(states, states)`.
    """
    leaving = np.maximum(mean, 0.0)
    moves = np.diag(leaving @ matrix) - (matrix.T * leaving) @ matrix
    return matrix.T @ mean, matrix.T @ covariance @ matrix + moves

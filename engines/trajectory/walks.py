"""Random walks over a grid's cells that start, end and have as many moves as they are told.

Post-processing: sees released values only.
Method: for each end cell, B_k(u) is the weight of all walks of k moves from u to it; a walk at u with k moves left
takes the one in direction d with probability proportional to w(u, d) * turn(d | last) * B_{k-1}(target). No power of
the transition matrix is ever formed: a step is one sparse product, for many end cells at once.
Source: [kumar2024], algorithm 20 and section 5.3.7, for walks conditioned on their end; turns are ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from scipy.sparse import csr_matrix

from engines.core.noise import NoiseSource
from engines.trajectory.chance import uniforms
from schemas.arrays import FloatArray, IntArray

WORKSPACE = 6_000_000
"""Numbers B_k(u) held at once: 48 MB."""
_SMALLEST = np.finfo(np.float64).smallest_subnormal
"""A divisor in place of 0: it leaves 0 what it is, and every positive number is at least as large."""


class Graph(Protocol):
    """A graph that walks go along. Public, or released."""

    @property
    def matrix(self) -> csr_matrix:
        """`(cells, cells)` weights of moves, without what a walk remembers."""
        ...

    def moved(self, at: IntArray, last: IntArray, onward: Onward, chance: FloatArray) -> tuple[IntArray, IntArray]:
        """Choose where walks at the cells `at` go next, and by which move.

        Args:
            last: the moves that brought them there, -1 for none.
            onward: weights of cells as the next ones, by rank of the walk and cell.
            chance: `(walks,)` uniform numbers.
        Returns: cells, the same as `at` where nothing leads on, and moves, in the graph's own numbers.
        """
        ...


Onward = Callable[[IntArray, IntArray], FloatArray]


@dataclass(frozen=True, slots=True, eq=False)
class EvenGraph:
    """A graph of few moves from each cell.

    Attributes:
        targets: `(cells, degree)` cell that each move leads to, -1 for none.
        weights: `(cells, degree)` of moves, non-negative; 0 where there is none.
        turns: `(degree, degree)` factor of a move after another one; None if moves do not remember.
    """

    targets: IntArray
    weights: FloatArray
    turns: FloatArray | None = None
    _options: IntArray = field(init=False, repr=False)
    _factors: FloatArray | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_options", np.maximum(self.targets, 0))
        # The last line is that of a walk which has not moved.
        factors = None if self.turns is None else np.concatenate([self.turns, np.ones((1, len(self.turns)))])
        object.__setattr__(self, "_factors", factors)

    @property
    def matrix(self) -> csr_matrix:
        cells, degree = self.weights.shape
        begins = degree * np.arange(cells + 1)
        matrix = csr_matrix((self.weights.flatten(), self._options.ravel(), begins), (cells, cells))
        matrix.eliminate_zeros()
        # In order of the targets, as sums over them are to be taken.
        matrix.sort_indices()
        return matrix

    def moved(self, at: IntArray, last: IntArray, onward: Onward, chance: FloatArray) -> tuple[IntArray, IntArray]:
        weights = onward(np.arange(len(at))[:, None], self._options.take(at, axis=0))
        weights *= self.weights.take(at, axis=0)
        if self._factors is not None:
            weights *= self._factors.take(last, axis=0, mode="wrap")
        sums = weights.cumsum(axis=1)
        whole = sums[:, -1]
        # The last move is what is left.
        picked = np.add.reduce(sums[:, :-1] <= (chance * whole)[:, None], axis=1, dtype=np.int64)
        return np.where(whole > 0, self._options.take(at * sums.shape[1] + picked), at), picked


@dataclass(frozen=True, slots=True, eq=False)
class Errands:
    """The tasks of walks, `(walks,)` each: start cell, end cell, number of moves."""

    starts: IntArray
    ends: IntArray
    moves: IntArray

    @property
    def offsets(self) -> IntArray:
        """`(walks + 1,)` of the cells of all walks, one more than its moves each."""
        return np.append(0, np.cumsum(self.moves + 1))


def walk(errands: Errands, graph: Graph, noise: NoiseSource) -> IntArray:
    """Return the cells of all walks, one after the other (`Errands.offsets`).

    A walk that can not reach its end in its moves stays where that shows, and ends by a jump.
    """
    offsets = errands.offsets
    cells = np.repeat(errands.ends, errands.moves + 1)
    cells[offsets[:-1]] = errands.starts
    ends, where = np.unique(errands.ends, return_inverse=True)
    longest = np.zeros(len(ends), np.int64)
    np.maximum.at(longest, where, errands.moves)
    matrix = graph.matrix
    by_end = np.argsort(where, kind="stable")
    bounds = np.append(0, np.cumsum(np.bincount(where, minlength=len(ends))))
    order = np.argsort(-longest, kind="stable")
    first = 0
    while first < len(order) and longest[order[first]] > 0:
        width = max(1, WORKSPACE // (matrix.shape[0] * int(longest[order[first]] + 1)))
        chunk = order[first : first + width]
        backward = _backward(matrix, ends[chunk], longest[chunk])
        walks = np.concatenate([by_end[bounds[end] : bounds[end + 1]] for end in chunk.tolist()])
        columns = np.repeat(np.arange(len(chunk)), bounds[chunk + 1] - bounds[chunk])
        _forward(errands, graph, walks, columns, backward, cells, offsets, noise.child(first))
        first += width
    return cells


def _backward(matrix: csr_matrix, ends: IntArray, longest: IntArray) -> FloatArray:
    """Weigh all walks to each end, `(moves + 1, cells, ends)`, each (move, end) scaled to a maximum of one."""
    moves = int(longest.max())
    weights = np.zeros((moves + 1, matrix.shape[0], len(ends)))
    weights[0, ends, np.arange(len(ends))] = 1.0
    # Ends are in descending order of their longest walk: those still needed come first.
    needed = np.searchsorted(-longest, -np.arange(1, moves + 1), side="right").tolist()
    product = weights[0]
    for k, width in enumerate(needed, 1):
        product = matrix @ np.ascontiguousarray(product[:, :width])
        product /= np.maximum(np.maximum.reduce(product), _SMALLEST)
        weights[k, :, :width] = product
    return weights


def _forward(
    errands: Errands,
    graph: Graph,
    walks: IntArray,
    columns: IntArray,
    backward: FloatArray,
    cells: IntArray,
    offsets: IntArray,
    noise: NoiseSource,
) -> None:
    """Write the cells of these walks; `columns` is the place of each one's end in `backward`."""
    order = np.argsort(-errands.moves[walks], kind="stable")
    walks, columns = walks[order], columns[order]
    moves, here = errands.moves[walks], errands.starts[walks]
    last = np.full(len(walks), -1)
    size, width = backward.shape[1:]
    flat = backward.reshape(-1)
    # Walks are in descending order of moves: those that still walk come first.
    most = int(moves[0])
    still = np.searchsorted(-moves, -np.arange(most), side="left").tolist()
    begins = moves * (size * width) + columns
    written = offsets[walks]

    def onward(walk: IntArray, cell: IntArray) -> FloatArray:
        weights: FloatArray = flat.take(begins[walk] + cell * width)
        return weights

    for step, going in enumerate(still):
        begins, written = begins[:going] - size * width, written[:going] + 1
        here, last = graph.moved(here[:going], last[:going], onward, uniforms(going, noise.child(step)))
        cells[written] = here
    cells[offsets[walks] + moves] = errands.ends[walks]

"""Marginal tables side by side in one vector, and fast counts of rows in all of them at once.

Privacy: one event, inserted or deleted, changes exactly one cell of each marginal by exactly 1, so `counts` of one
marginal has L1 sensitivity 1, and of m marginals m.
Units: events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from engines.tabular.workload import Clique
from schemas.arrays import IntArray
from schemas.errors import EngineInputError

CHUNK = 1 << 20
"""Cell numbers made at once: bounds the memory of counting."""


@dataclass(frozen=True, slots=True)
class Marginals:
    """The layout: the cells of marginal `i` are `offsets[i]` to `offsets[i + 1]`, its last attribute fastest.

    Args:
        sizes: number of codes of each attribute.
        cliques: strictly ascending attribute indices of each marginal.

    >>> layout = Marginals((2, 3), ((0,), (0, 1)))
    >>> layout.counts(np.array([[1, 2], [1, 0]]), np.array([5, -1]))
    array([ 0,  4,  0,  0,  0, -1,  0,  5])
    """

    sizes: tuple[int, ...]
    cliques: tuple[Clique, ...]
    offsets: IntArray = field(init=False, repr=False, compare=False)
    _columns: IntArray = field(init=False, repr=False, compare=False)
    _widths: IntArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ways = max((len(clique) for clique in self.cliques), default=1)
        # Shorter cliques are filled up with an attribute that has one value.
        none = len(self.sizes)
        padded = [clique + (none,) * (ways - len(clique)) for clique in self.cliques]
        columns = np.array(padded, np.int64).reshape(-1, ways)
        widths = np.array((*self.sizes, 1), np.int64)[columns]
        cells = [int(np.prod([self.sizes[a] for a in clique], dtype=object)) for clique in self.cliques]
        if sum(cells) > 1 << 40:
            raise EngineInputError(f"the marginals have {sum(cells)} cells")
        object.__setattr__(
            self, "offsets", np.concatenate([[0], np.cumsum(np.array(cells, np.int64))]).astype(np.int64)
        )
        object.__setattr__(self, "_columns", columns)
        object.__setattr__(self, "_widths", widths)

    def __len__(self) -> int:
        return len(self.cliques)

    @property
    def cells(self) -> int:
        """Of all marginals."""
        return int(self.offsets[-1])

    @property
    def lengths(self) -> IntArray:
        """`(marginals,)` cells of each."""
        return np.diff(self.offsets)

    def shape(self, index: int) -> tuple[int, ...]:
        """Of one marginal as a table."""
        return tuple(self.sizes[attribute] for attribute in self.cliques[index])

    def table(self, vector: npt.NDArray[Any], index: int) -> npt.NDArray[Any]:
        """A view of one marginal as a table."""
        return vector[self.offsets[index] : self.offsets[index + 1]].reshape(self.shape(index))

    def cell_numbers(self, codes: IntArray) -> IntArray:
        """`(rows, marginals)`: the cell of each row `(rows, attributes)` in each marginal."""
        wide = np.concatenate([codes, np.zeros((len(codes), 1), np.int64)], axis=1)
        numbers = wide[:, self._columns[:, 0]]
        for place in range(1, self._columns.shape[1]):
            numbers = numbers * self._widths[:, place] + wide[:, self._columns[:, place]]
        return numbers + self.offsets[:-1]

    def counts(self, codes: IntArray, weights: IntArray) -> IntArray:
        """`(cells,)` int64: for each cell the sum of the weights of the rows in it, exactly.

        Args:
            codes: `(rows, attributes)` int64. weights: `(rows,)` int64, of absolute sum below 2**53.
        """
        total = np.zeros(self.cells, np.int64)
        step = max(1, CHUNK // max(1, len(self)))
        for start in range(0, len(codes), step):
            numbers = self.cell_numbers(codes[start : start + step])
            each = np.repeat(weights[start : start + step], len(self))
            # FloatArray hold these sums exactly.
            total += np.bincount(numbers.ravel(), each, self.cells).astype(np.int64)
        return total

    def sums(self, vector: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """`(marginals,)`: sum of each marginal's cells."""
        if not len(self):
            return np.zeros(0, vector.dtype)
        return np.add.reduceat(vector, self.offsets[:-1])

    def spread(self, values: npt.NDArray[Any] | Sequence[float]) -> npt.NDArray[Any]:
        """`(cells,)`: each marginal's value in all of its cells."""
        return np.repeat(np.asarray(values), self.lengths)


def check_memory(
    sizes: Sequence[int], cliques: Sequence[Clique], names: Sequence[str], *, max_cells: int, bytes_per_cell: int
) -> None:
    """Refuse marginals that need too much memory, with the numbers and the fix. Makes no large array.

    Raises: EngineInputError.
    """
    cells = [(int(np.prod([int(sizes[a]) for a in clique], dtype=object)), clique) for clique in cliques]
    total = sum(count for count, _ in cells)
    if total <= max_cells:
        return
    largest, clique = max(cells)
    raise EngineInputError(
        f"the {len(cells)} marginals have {total:,} cells, about {total * bytes_per_cell / 2**20:,.0f} MiB, "
        f"more than max_cells = {max_cells:,}; the largest is {' x '.join(repr(names[a]) for a in clique)} with "
        f"{largest:,}: use coarser bins or fewer values, name a shorter workload, or raise max_cells"
    )

"""Marginal tables side by side in one vector, fast counts of rows in all of them at once, and which of them matter.

A marginal is a clique: a strictly ascending tuple of attribute indices. One event, inserted or deleted, is in one cell
of each marginal.
Privacy: it changes exactly that cell by exactly 1, up or down, so `counts` of one marginal has L1 sensitivity 1, and of
m marginals m. What a step's rows are is private, and read as counts of public cells alone.
Units: events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from engines.core.contract import Batch
from engines.core.noise import aggregate
from engines.core.state import check_step, signs_of
from engines.tabular.domain import TableDomain
from schemas.arrays import BoolArray, IntArray
from schemas.blocks import Folded
from schemas.errors import EngineInputError

Clique = tuple[int, ...]
Workload = Mapping[Clique, Fraction]
"""Marginals that a stream is to get right, in ascending order of size and then of attributes, and how much each of them
matters. Public."""
Kept = Callable[[IntArray], BoolArray]
"""From rows `(rows, attributes)` to `(rows, marginals)`: which marginals count each row. Public."""

CHUNK = 1 << 20
"""Cell numbers made at once: bounds the memory of counting."""


def every_marginal(attributes: int, ways: Iterable[int] = (1, 2)) -> Workload:
    """Return all marginals of so many attributes each; of a table with one attribute, the one there is.

    >>> list(every_marginal(3))
    [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]
    """
    possible = (way for way in sorted(set(ways)) if way <= attributes)
    cliques = [clique for way in possible for clique in combinations(range(attributes), way)]
    return dict.fromkeys(cliques or [(0,)], Fraction(1))


def weighted_marginals(weights: Mapping[Sequence[int], Fraction]) -> Workload:
    """Return these marginals, whose attributes may come in any order, with their weights."""
    cliques = {tuple(sorted(clique)): weight for clique, weight in weights.items()}
    return dict(sorted(cliques.items(), key=lambda item: (len(item[0]), item[0])))


@dataclass(frozen=True, slots=True)
class Marginals:
    """The layout: the cells of marginal `i` are `offsets[i]` to `offsets[i + 1]`, its last attribute fastest.

    Args:
        sizes: number of codes of each attribute.
        cliques: strictly ascending attribute indices of each marginal.
        signs: for each marginal other attributes, by which it counts a row with a sign: less with an odd number of
            codes that are odd. None where no marginal has any.

    >>> layout = Marginals((2, 3), ((0,), (0, 1)))
    >>> layout.counts(np.array([[1, 2], [1, 0]]), np.array([5, -1]))
    array([ 0,  4,  0,  0,  0, -1,  0,  5])
    """

    sizes: tuple[int, ...]
    cliques: tuple[Clique, ...]
    signs: tuple[Clique, ...] | None = None
    offsets: IntArray = field(init=False, repr=False, compare=False)
    _columns: IntArray = field(init=False, repr=False, compare=False)
    _widths: IntArray = field(init=False, repr=False, compare=False)
    _odd: IntArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ways = max([1, *map(len, self.cliques)])
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
        odd = np.zeros((len(self.sizes), len(self.cliques)), np.int64)
        for index, attributes in enumerate(self.signs or ()):
            odd[list(attributes), index] = 1
        object.__setattr__(self, "_odd", odd)

    def __len__(self) -> int:
        return len(self.cliques)

    @property
    def cells(self) -> int:
        """Number of cells of all marginals."""
        return int(self.offsets[-1])

    @property
    def lengths(self) -> IntArray:
        """Number of cells of each, `(marginals,)`."""
        return np.diff(self.offsets)

    def shape(self, index: int) -> tuple[int, ...]:
        """Return the shape of one marginal as a table."""
        return tuple(self.sizes[attribute] for attribute in self.cliques[index])

    def table(self, vector: npt.NDArray[Any], index: int) -> npt.NDArray[Any]:
        """Return a view of one marginal as a table."""
        return vector[self.offsets[index] : self.offsets[index + 1]].reshape(self.shape(index))

    def cell_numbers(self, codes: IntArray) -> IntArray:
        """Return the cell of each row `(rows, attributes)` in each marginal, `(rows, marginals)`."""
        wide = np.concatenate([codes, np.zeros((len(codes), 1), np.int64)], axis=1)
        numbers = wide.take(self._columns[:, 0], axis=1)
        for place in range(1, self._columns.shape[1]):
            numbers *= self._widths[:, place]
            numbers += wide.take(self._columns[:, place], axis=1)
        numbers += self.offsets[:-1]
        return numbers

    def counts(self, codes: IntArray, weights: IntArray, kept: Kept | None = None) -> IntArray:
        """Add up for each cell the weights of the rows in it, with their signs, exactly: `(cells,)` int64.

        Args:
            codes: `(rows, attributes)` int64. weights: `(rows,)` int64, of absolute sum below 2**53.
            kept: which marginals count each row; None for all of them.
        """
        total = np.zeros(self.cells, np.int64)
        step = max(1, CHUNK // max(1, len(self)))
        for start in range(0, len(codes), step):
            part = codes[start : start + step]
            numbers = self.cell_numbers(part)
            each = np.repeat(weights[start : start + step], len(self))
            if self.signs is not None:
                each *= 1 - 2 * (part @ self._odd & 1).ravel()
            if kept is not None:
                each *= kept(part).ravel()
            # Floats hold these sums exactly.
            total += np.bincount(numbers.ravel(), each, self.cells).astype(np.int64)
        return total

    @aggregate
    def widened(self, vector: npt.NDArray[Any], wider: Marginals) -> npt.NDArray[Any]:
        """Return a vector over these cells, private or not, over a layout of more values: 0 in new cells.

        Nothing of a vector without cells. What one event moves of a marginal stays one number.
        Raises: ValueError if it is not the layout of the same marginals with the same signs: a difference has no cells
            that could be more.
        """
        if wider.cliques != self.cliques or wider.signs != self.signs:
            raise ValueError("marginals with more values must be counted as before")
        if not len(vector):
            return vector
        wide = np.zeros(wider.cells, vector.dtype)
        for index in range(len(self)):
            wider.table(wide, index)[tuple(map(slice, self.shape(index)))] = self.table(vector, index)
        return wide

    def sums(self, vector: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the sum of each marginal's cells, `(marginals,)`."""
        if not len(self):
            return np.zeros(0, vector.dtype)
        return np.add.reduceat(vector, self.offsets[:-1])

    def spread(self, values: npt.NDArray[Any] | Sequence[float]) -> npt.NDArray[Any]:
        """Return each marginal's value in all of its cells, `(cells,)`."""
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


@aggregate
def check_batch(batch: Batch, *, step: int, domain: TableDomain) -> None:
    """Refuse events that are not of this domain, or not of the next step. Raises: EngineInputError."""
    check_step(batch, step)
    words, counts = batch.events.keys, batch.events.counts
    domain.check(words)
    if counts.shape != (len(words),) or counts.dtype != np.int64 or (counts < 1).any():
        raise EngineInputError("events must have one positive int64 count for each key")
    before, after = words[:-1], words[1:]
    differ = before != after
    first = differ.argmax(axis=1)[:, None]
    rises = np.take_along_axis(after, first, 1) > np.take_along_axis(before, first, 1)
    if not (differ.any(axis=1) & rises[:, 0]).all():
        raise EngineInputError("keys must be distinct and ascending")


@dataclass(frozen=True, slots=True, eq=False)
class EventRows:
    """Rows that a step inserts and deletes. PRIVATE, and so is how many there are; the methods give private counts.

    Attributes:
        codes: `(rows, attributes)` int64.
        signs: `(rows,)` int64, how many times each row is inserted (positive) or deleted (negative).
    """

    codes: IntArray
    signs: IntArray

    @staticmethod
    @aggregate
    def of(events: Folded, domain: TableDomain, attributes: IntArray | None = None) -> EventRows:
        """Return the rows of a step's events, with these public attributes only, where they are given."""
        codes, signs = domain.codes(events.keys), signs_of(events.keys)
        return EventRows(codes if attributes is None else codes[:, attributes], events.counts * signs)

    @aggregate
    def totals(self) -> IntArray:
        """Return rows inserted and rows deleted, `(2,)` int64. One event moves one of both by one."""
        return np.array([self.signs[self.signs > 0].sum(), -self.signs[self.signs < 0].sum()], np.int64)

    @aggregate
    def counts(self, layout: Marginals, kept: Kept | None = None) -> IntArray:
        """Return inserts minus deletes in each cell of a layout over the attributes, with its signs: `(cells,)` int64.

        One event moves one cell of each marginal that counts it by one, up or down.
        """
        return layout.counts(self.codes, self.signs, kept)

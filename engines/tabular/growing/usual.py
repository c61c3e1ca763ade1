"""Usual values: pairs leave rows out that have one, and rows are paid for by the few pairs that count them.

Of an attribute that most rows have the same value of, as of a reason that is rarely given, nearly every row of a pair
says only that it is as usual, and pays for it. One-way marginals and totals say that already. So where a value of an
attribute is usual, pairs count the rows that have another one. A row with few unusual values is in few pairs, and the
budget of a row goes to these: with seventeen such attributes of twenty pairs have a twentieth of the noise.
A row that would be in more pairs than the budget is for is in the first ones only, and lost to the others. How many
rows that are is measured, too: where they are more than a few, as where flags follow from each other, no later block
leaves rows out.
Privacy: values, parts and limit are public, and fixed before the first row of a block is counted. A row adds 1 or takes
    1 in one cell of each marginal that counts it, the count of lost rows among them, and the parts of these add up to
    `limit` at most. With noise that costs part/limit of a share, it costs that share at most
    (docs/notes/0040-growing-blocks.md, step 3).
Source: ours.
Units: events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from engines.core.contract import State
from engines.core.state import reading
from engines.tabular.contrasts import Contrasts
from engines.tabular.marginals import Marginals
from schemas.arrays import BoolArray, FloatArray, IntArray
from schemas.errors import EngineInputError

ROOM = 2
"""Values of a row that may be unusual before pairs lose it, about: their parts differ."""
LOST, SURE = 1 / 500, 3.0
"""Lost rows, as a share of all and in standard deviations of their count, above which no rows are left out any more."""
OFTEN = 0.5
"""Most unusual values that a row has on average, as a share of what there is room for."""
WORTH = 0.55
"""Noise of pairs, beside that of pairs that count all rows, below which values are taken as usual: a pair that leaves
rows out says nothing of one-way marginals."""


@dataclass(frozen=True, slots=True)
class UsualValues:
    """The usual values of one block of larger marginals, all of which are pairs. Public.

    Args:
        values: of each active attribute the code that is usual, or -1.
        parts: of each pair, by which they share the budget; and of the count of lost rows.
        limit: that the parts of what counts a row add up to at most. No part is larger.
        pairs: all of them, over the active attributes.
        binary: see `Contrasts`.

    Attributes:
        partial: of each pair, whether it leaves rows out.
        contrasts: what is measured: of a partial pair all cells, and nothing is counted in one with a usual value.
        measured: the same, and last a single cell, how many rows were lost to some pair.

    >>> pairs = Marginals((2, 2, 3), ((0, 1), (0, 2), (1, 2)))
    >>> usual = UsualValues((0, 0, -1), (1, 1, 1, 1), 3, pairs, (True, True, False))
    >>> usual.kept(np.array([[0, 0, 1], [0, 1, 2], [1, 1, 0]]))
    array([[False, False, False, False],
           [False, False,  True, False],
           [ True,  True, False,  True]])
    """

    values: tuple[int, ...]
    parts: tuple[int, ...]
    limit: int
    pairs: Marginals
    binary: tuple[bool, ...]
    partial: tuple[bool, ...] = field(init=False, compare=False)
    contrasts: Contrasts = field(init=False, compare=False)
    measured: Marginals = field(init=False, compare=False)
    _sides: IntArray = field(init=False, repr=False, compare=False)
    _costs: IntArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        partial = tuple(any(self.values[a] >= 0 for a in clique) for clique in self.pairs.cliques)
        every = tuple(two and value < 0 for two, value in zip(self.binary, self.values, strict=True))
        object.__setattr__(self, "partial", partial)
        contrasts = Contrasts(self.pairs, every)
        layout = contrasts.measured
        signs = None if layout.signs is None else (*layout.signs, ())
        object.__setattr__(self, "contrasts", contrasts)
        object.__setattr__(self, "measured", Marginals(layout.sizes, (*layout.cliques, ()), signs))
        object.__setattr__(self, "_sides", np.array(self.pairs.cliques, np.int64).T)
        object.__setattr__(self, "_costs", np.where(partial, np.array(self.parts[:-1], np.int64), 0))

    @property
    def noise(self) -> float:
        """The part of the budget that the pairs of one row share. Pure noise has this part of its scale."""
        return self.limit / sum(self.parts)

    def kept(self, codes: IntArray) -> BoolArray:
        """Return `(rows, pairs + 1)`: which pairs count each row `(rows, attributes)`, and whether one lost it.

        The parts of what counts a row are `limit` at most.
        """
        unusual = codes != np.array(self.values, np.int64)
        among: BoolArray = unusual[:, self._sides[0]] & unusual[:, self._sides[1]]
        room = self.limit - self.parts[-1] - (sum(self.parts[:-1]) - int(self._costs.sum()))
        fits = among & ((np.cumsum(among * self._costs, axis=1) <= room) | ~np.array(self.partial, np.bool_))
        return np.concatenate([fits, (fits != among).any(axis=1, keepdims=True)], axis=1)

    def of(self, index: int) -> list[int | None]:
        """Return of each attribute of a pair the code that is usual, or None."""
        return [value if value >= 0 else None for value in (self.values[a] for a in self.pairs.cliques[index])]

    @property
    def empty(self) -> BoolArray:
        """Whether a measured cell has a usual value, `(cells,)`, so that no row is counted there."""
        layout = self.contrasts.measured
        cells = np.zeros(layout.cells, np.bool_)
        for index, partial in enumerate(self.partial):
            if partial:
                table, (left, right) = layout.table(cells, index), self.pairs.cliques[index]
                table[self.values[left] : self.values[left] + 1] = True
                table[:, self.values[right] : self.values[right] + 1] = True
        return cells

    def completed(
        self,
        tables: FloatArray,
        variances: FloatArray,
        counts: Sequence[FloatArray],
        net: float,
    ) -> tuple[FloatArray, FloatArray]:
        """Return tables with all their cells, and the variance that a cell of each says as much as.

        What a partial pair's cells have more or less than independent attributes would give is taken from those with
        the usual value, as one-way counts have it.

        Args:
            tables: `(cells,)` of `pairs`, as measured. variances: `(pairs,)` of a cell.
            counts: one-way counts of each attribute. net: rows of the block.
        """
        tables, variances = tables.copy(), variances.copy()
        for index, (left, right) in enumerate(self.pairs.cliques):
            if not self.partial[index]:
                continue
            table = self.pairs.table(tables, index)
            independent = np.multiply.outer(counts[left], counts[right]) / net
            more = table - independent
            for axis, value in enumerate((self.values[left], self.values[right])):
                if value >= 0:
                    along = np.moveaxis(more, axis, 0)
                    along[value] = 0
                    along[value] = -along.sum(axis=0)
                    # All cells together have twice the variance of those that were measured, on average.
                    variances[index] *= 2
            table[:] = independent + more
        return tables, variances

    def widened(self, pairs: Marginals) -> UsualValues:
        """Return the same over pairs whose attributes have more values."""
        return UsualValues(self.values, self.parts, self.limit, pairs, self.binary)

    def arrays(self) -> State:
        return {
            "usual/values": np.array(self.values, np.int64),
            "usual/parts": np.array(self.parts, np.int64),
            "usual/limit": np.array([self.limit], np.int64),
        }


def lacking(lost: int, variance: float) -> float:
    """Return the mean square of the rows that a cell of a pair lacks, by the noisy number of lost rows. Public.

    Any number up to those is as likely; none, where noise would explain them.
    """
    return lost**2 / 3 if lost > SURE * variance**0.5 else 0.0


def crowded(lost: int, variance: float, net: float) -> bool:
    """Return whether too many of these `net` rows were lost for others to be left out. Public."""
    return lost > LOST * net and lacking(lost, variance) > 0


def restored(state: Mapping[str, np.ndarray], pairs: Marginals, binary: tuple[bool, ...]) -> UsualValues | None:
    """Return what a block has, or None where it has nothing. Raises: EngineInputError if arrays do not fit."""
    if "usual/values" not in state:
        return None
    with reading():
        values, parts, (limit,) = (state[f"usual/{name}"].tolist() for name in ("values", "parts", "limit"))
    fits = len(values) == len(pairs.sizes) and len(parts) == len(pairs) + 1 and 0 < max(parts, default=0) <= limit
    if not fits or not all(-1 <= value < size for value, size in zip(values, pairs.sizes, strict=True)):
        raise EngineInputError("state has usual values of another table")
    return UsualValues(tuple(values), tuple(parts), limit, pairs, binary)


def usual_values(
    shares: Sequence[FloatArray],
    parts: Sequence[int],
    pairs: Marginals,
    binary: tuple[bool, ...],
    *,
    pure: bool,
) -> UsualValues | None:
    """Return the usual values that lower the noise of pairs most, or None where that is not worth it. Public.

    Args:
        shares: of the rows, that have each value of each attribute, as released. parts: of the pairs.
        pure: whether noise is in proportion to what a row pays for, and not to the root of it.
    """
    rest = np.array([1 - float(of.max()) for of in shares])
    weights, sides = np.array(parts, np.int64), np.array(pairs.cliques, np.int64).T
    of_lost = int(weights.sum()) // (2 * len(weights))
    best, found = WORTH, None
    values = np.full(len(shares), -1)
    often = 0.0
    for attribute in np.argsort(rest, kind="stable").tolist():
        often += float(rest[attribute])
        if often > OFTEN * ROOM:
            break
        values[attribute] = int(shares[attribute].argmax())
        known = int((values >= 0).sum())
        unusual = min(ROOM, known)
        # How many sides of each pair may leave a row out, and how often a row with so many unusual values is counted.
        leaving = (values >= 0)[sides].sum(axis=0)
        both = unusual * (unusual - 1) / max(1, known * (known - 1))
        counted = np.choose(leaving, [1.0, unusual / known, both])
        limit = max(ceil(float((weights * counted).sum())), int(weights.max())) + of_lost
        share = limit / int(weights.sum())
        noise = (share if pure else share**0.5) * float((weights * np.sqrt(2.0**leaving)).sum()) / int(weights.sum())
        if noise < best:
            best, found = noise, (tuple(values.tolist()), limit)
    return None if found is None else UsualValues(found[0], (*parts, of_lost), found[1], pairs, binary)

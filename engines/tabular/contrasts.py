"""What is measured of marginals: a single number where all attributes have two values, else every cell.

That number is a difference: the rows that have an even number of second values, less the others. What else cells of
such a marginal add up to is known from smaller ones and from the totals. So of a pair one number with noise s says as
much of what ties the two attributes together as four cells with noise s/2 each.
An attribute with two values keeps both beside one with more: what these cells add up to tells of the other attribute,
and with Gaussian noise that is worth more than a difference would gain. An attribute whose values are found has two
codes at first, and is not binary: counts that wait for their measurement could not be told apart by its values later.
Privacy: a row is in one cell of what is measured of each marginal, and adds 1 or -1 there: `Marginals` with `signs`.
    Which marginals are a difference is public, and the same for the whole stream, whatever values are found.
Source: Fourier coefficients of contingency tables ([barak2007]), of those marginals only.
Units: events.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from engines.tabular.marginals import Marginals
from schemas.arrays import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Contrasts:
    """Args:

    marginals: that are spoken of.
    binary: of each attribute, whether it has two values for the whole stream. Such a one has two codes.

    Attributes:
        single: of each marginal, whether it is measured as one difference.
        measured: the layout of what is measured.
        finer: `(marginals,)` variance of one cell of a marginal measured whole, with which that would say as much of
            what all its attributes have together, to the variance of a number that is measured.

    >>> pairs = Contrasts(Marginals((2, 2, 3), ((0, 1), (1, 2))), (True, True, False))
    >>> counts = pairs.measured.counts(np.array([[0, 0, 2], [1, 1, 2], [0, 1, 1]]), np.array([5, 4, 1]))
    >>> counts
    array([8, 0, 0, 5, 0, 1, 4])
    >>> pairs.tables(counts)
    array([ 2., -2., -2.,  2.,  0.,  0.,  5.,  0.,  1.,  4.])
    """

    marginals: Marginals
    binary: tuple[bool, ...]
    single: tuple[bool, ...] = field(init=False, compare=False)
    measured: Marginals = field(init=False, compare=False)
    finer: FloatArray = field(init=False, repr=False, compare=False)
    _sources: IntArray = field(init=False, repr=False, compare=False)
    _parts: FloatArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sizes, cliques = self.marginals.sizes, self.marginals.cliques
        if any(two and size != 2 for two, size in zip(self.binary, sizes, strict=True)):
            raise ValueError("a binary attribute must have two codes")
        single = tuple(all(self.binary[a] for a in clique) for clique in cliques)
        signs = tuple(clique if one else () for clique, one in zip(cliques, single, strict=True))
        apart = tuple(() if one else clique for clique, one in zip(cliques, single, strict=True))
        measured = Marginals(sizes, apart, signs)
        sources, parts = [np.zeros(0, np.int64)], [np.zeros(0)]
        for index, one in enumerate(single):
            shape = self.marginals.shape(index)
            cells = np.arange(measured.offsets[index], measured.offsets[index + 1])
            sources.append(np.broadcast_to(cells if one else cells.reshape(shape), shape).ravel())
            odd = np.indices(shape).sum(axis=0).ravel() & 1
            parts.append((1 - 2 * odd) / len(odd) if one else np.ones(len(odd)))
        object.__setattr__(self, "single", single)
        object.__setattr__(self, "measured", measured)
        object.__setattr__(self, "finer", np.where(single, 1 / self.marginals.lengths, 1.0))
        object.__setattr__(self, "_sources", np.concatenate(sources))
        object.__setattr__(self, "_parts", np.concatenate(parts))

    def tables(self, measured: npt.NDArray[Any]) -> FloatArray:
        """Return what was measured of each marginal, `(cells,)`. What is not of a difference is left out of a cell."""
        return measured[self._sources] * self._parts

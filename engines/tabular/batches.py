"""What a batch of table rows must be, and the rows in it: private, and read as counts of public cells alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engines.core.contract import Batch
from engines.core.noise import aggregate
from engines.tabular.keys import RowKeys
from engines.tabular.marginals import Marginals
from schemas.arrays import IntArray
from schemas.blocks import Folded
from schemas.errors import EngineInputError


@aggregate
def check_batch(batch: Batch, *, step: int, keys: RowKeys) -> None:
    """Refuse events that are not of this domain, or not of the next step. Raises: EngineInputError."""
    if batch.step != step:
        raise EngineInputError(f"step {batch.step} is not the next one, {step}")
    words, counts = batch.events.keys, batch.events.counts
    keys.check(words)
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
    def of(events: Folded, keys: RowKeys, attributes: IntArray | None = None) -> EventRows:
        """The rows of a step's events, with these public attributes only, where they are given."""
        codes = keys.codes(events.keys)
        return EventRows(codes if attributes is None else codes[:, attributes], events.counts * keys.signs(events.keys))

    @aggregate
    def totals(self) -> IntArray:
        """`(2,)` int64, rows inserted and rows deleted. One event moves one of both by one."""
        return np.array([self.signs[self.signs > 0].sum(), -self.signs[self.signs < 0].sum()], np.int64)

    @aggregate
    def counts(self, layout: Marginals) -> IntArray:
        """`(cells,)` int64, inserts minus deletes in each cell of a layout over the attributes.

        One event moves one cell of each marginal by one.
        """
        return layout.counts(self.codes, self.signs)

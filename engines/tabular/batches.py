"""What a batch of table rows must be, and the rows in it."""

from __future__ import annotations

import numpy as np

from engines.contract import Batch
from engines.noise import IntArray
from engines.tabular.keys import RowKeys
from schemas.blocks import Folded
from schemas.errors import EngineInputError


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


def signed_rows(events: Folded, keys: RowKeys) -> tuple[IntArray, IntArray]:
    """Codes `(rows, attributes)`, and how many times each row is inserted (positive) or deleted; private."""
    return keys.codes(events.keys), events.counts * keys.signs(events.keys)

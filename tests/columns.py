"""Rows that are written side by side, each by itself again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from schemas.byte_columns import Piece, lengths_of, side_by_side


def rows_of(pieces: Sequence[Piece], count: int) -> list[bytes]:
    """So many rows, cut where their lengths say."""
    data, ends = side_by_side(pieces, count), np.cumsum(lengths_of(pieces, count)).tolist()
    assert len(data) == (ends[-1] if ends else 0)
    return [data[begin:end] for begin, end in pairwise([0, *ends])]

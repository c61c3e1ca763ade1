"""A public transition matrix from a CSV file: all of it in rows, or `from,to,probability` for the moves that happen."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from schemas.arrays import FloatArray, IntArray

UNSEEN = "(unseen)"
"""What users in no state are called in a file of moves."""
HEADER = ["from", "to", "probability"]
TOLERANCE = 1e-6
_MEND = "write a row of probabilities for each state, in the order of values, without a header; or from,to,probability"


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """The entries that are not zero, `(entries,)` each; states are numbered in the order of `values`.

    Attributes:
        problem: why the file is no transition matrix, and what to do; None where it is one.
    """

    states: int
    rows: IntArray
    columns: IntArray
    probabilities: FloatArray
    problem: tuple[str, str] | None = None


class _NoMatrixError(ValueError):
    pass


def entries(content: bytes, values: Sequence[str], *, unseen: bool) -> Entries:
    """Read a file. Rows must sum to 1 within a millionth; a move that comes twice in a file of moves is refused.

    >>> entries(b"0.5,0.5\\n0,1\\n", ("a", "b"), unseen=False).probabilities.tolist()
    [0.5, 0.5, 1.0]
    >>> entries(b"0.5,0.4\\n0,1\\n", ("a", "b"), unseen=False).problem[0]
    'line 1 sums to 0.9, and a row of probabilities sums to 1'
    """
    states = len(values) + unseen
    try:
        lines = [line for line in csv.reader(io.StringIO(content.decode("utf-8-sig"))) if line]
        moves = bool(lines) and [cell.strip() for cell in lines[0]] == HEADER
        found = list(_moves(lines[1:], values, unseen=unseen) if moves else _rows(lines, states))
        table = np.array(found, np.float64).reshape(-1, 3)
        made = Entries(states, table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2])
        sums = np.bincount(made.rows, made.probabilities, minlength=states)
        if (off := np.flatnonzero(np.abs(sums - 1) > TOLERANCE)).size:
            row = int(off[0])
            name = f'state "{[*values, UNSEEN][row]}"' if moves else f"line {row + 1}"
            raise _NoMatrixError(f"{name} sums to {sums[row]:.6g}, and a row of probabilities sums to 1")
    except (UnicodeDecodeError, csv.Error):
        return _refused(states, "is no CSV file in UTF-8")
    except _NoMatrixError as error:
        return _refused(states, str(error))
    return made


def _refused(states: int, reason: str) -> Entries:
    nothing = np.zeros(0, np.int64)
    return Entries(states, nothing, nothing, np.zeros(0), (reason, _MEND))


def _probability(text: str, line: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= 1.0 + TOLERANCE:
        raise _NoMatrixError(f"line {line} holds something that is no probability")
    return value


def _rows(lines: Sequence[Sequence[str]], states: int) -> Iterator[tuple[int, int, float]]:
    if len(lines) != states:
        raise _NoMatrixError(f"has {len(lines)} rows, and there are {states} states")
    for row, line in enumerate(lines):
        if len(line) != states:
            raise _NoMatrixError(f"line {row + 1} has {len(line)} entries, and there are {states} states")
        for column, text in enumerate(line):
            if (probability := _probability(text, row + 1)) > 0:
                yield row, column, probability


def _moves(lines: Sequence[Sequence[str]], values: Sequence[str], *, unseen: bool) -> Iterator[tuple[int, int, float]]:
    numbers = {value: number for number, value in enumerate([*values, UNSEEN] if unseen else values)}
    seen = set()
    for number, line in enumerate(lines, start=2):
        if len(line) != len(HEADER) or line[0] not in numbers or line[1] not in numbers:
            raise _NoMatrixError(f"line {number} does not name two states and a probability")
        move = numbers[line[0]], numbers[line[1]]
        if move in seen:
            raise _NoMatrixError(f"line {number} gives a move for the second time")
        seen.add(move)
        if (probability := _probability(line[2], number)) > 0:
            yield *move, probability

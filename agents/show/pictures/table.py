"""Rows that appear and are withdrawn, as one marginal for each attribute.

Memory is bounded: beyond `capacity` rows every second one goes, by a hash of its key, and shares are those of the rest.
Units: rows.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from agents.show.pictures.contract import HISTORY
from agents.show.pictures.sampling import limit, place

CAPACITY = 500_000
MOST_CELLS = 4_000_000
"""Of all steps that are kept."""
OTHER, MISSING = "(other)", "(missing)"


def _text(value: object) -> str:
    return orjson.dumps(value).decode()


@dataclass(frozen=True, slots=True)
class AttributeCells:
    """An attribute: listed values, or bins between `edges`. Two more cells are for other values and for null."""

    field: str
    values: Sequence[Any] = ()
    edges: Sequence[float] = ()

    @property
    def labels(self) -> list[str]:
        if self.edges:
            found = [f"{low:g} to {high:g}" for low, high in zip(self.edges[:-1], self.edges[1:], strict=True)]
        else:
            found = [value if isinstance(value, str) else _text(value) for value in self.values]
        return [*found, OTHER, MISSING]

    def cell(self, value: Any, known: Mapping[str, int]) -> int:
        size = len(self.edges) - 1 if self.edges else len(self.values)
        if value is None:
            return size + 1
        if not self.edges:
            return known.get(_text(value), size)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return size
        at = bisect.bisect_right(self.edges, value) - 1
        return at if 0 <= at < size else size - 1 if value == self.edges[-1] else size


class TablePicture:
    """Implements `agents.show.pictures.contract.Picture`."""

    kind = "table"
    binary = False

    def __init__(self, marginals: Sequence[AttributeCells], *, capacity: int = CAPACITY) -> None:
        self._marginals = marginals
        self._known = [{_text(value): at for at, value in enumerate(each.values)} for each in marginals]
        sizes = [len(each.labels) for each in marginals]
        self._starts = np.concatenate([[0], np.cumsum(sizes)])
        self._counts = np.zeros(int(self._starts[-1]), np.int64)
        self._rows: dict[int, np.ndarray] = {}
        self._history: dict[int, np.ndarray] = {}
        self._keep = max(2, min(HISTORY, MOST_CELLS // max(len(self._counts), 1)))
        self._capacity, self._level, self._total = capacity, 0, 0
        self._newest, self._next = -1, 0

    def add(self, step: int, key: str, fields: Mapping[str, Any]) -> None:
        cells = np.array(
            [
                start + each.cell(fields.get(each.field), known)
                for each, known, start in zip(self._marginals, self._known, self._starts, strict=False)
            ],
            np.int32,
        )
        self._roll(step)
        where = place(key)
        if where in self._rows:
            return
        self._total += 1
        if where >= limit(self._level):
            return
        self._rows[where] = cells
        self._counts[cells] += 1
        if len(self._rows) > self._capacity:
            self._level += 1
            self._rows = {each: row for each, row in self._rows.items() if each < limit(self._level)}
            self._counts[:] = 0
            for row in self._rows.values():
                self._counts[row] += 1

    def remove(self, step: int, key: str) -> None:
        self._roll(step)
        where = place(key)
        cells = self._rows.pop(where, None)
        if cells is not None:
            self._counts[cells] -= 1
        self._total -= cells is not None or where >= limit(self._level)

    def end(self, step: int) -> None:
        self._newest = max(self._newest, step)
        self._roll(step + 1)

    def _roll(self, step: int) -> None:
        """Keep the counts of the steps before, which are over: records of later steps can come before a step's end."""
        for over in range(max(self._next, step - self._keep), step):
            self._history[over] = self._counts.astype(np.int32)
        self._next = max(self._next, step)
        while len(self._history) > self._keep:
            del self._history[next(iter(self._history))]

    def about(self) -> Mapping[str, Any]:
        return {"attributes": [{"field": each.field, "labels": each.labels} for each in self._marginals]}

    def shown(self) -> Mapping[str, Any]:
        first = next(iter(self._history), 0)
        return {
            "shown": len(self._rows),
            "total": max(self._total, len(self._rows)),
            "what": "rows",
            "first": first,
        }

    def body(self, query: Mapping[str, int]) -> bytes:
        """Counts of one step, the newest by default, and of the step before."""
        step = query.get("step", self._newest)
        now = self._history.get(step)
        if now is None:
            return orjson.dumps({"step": step, "counts": None, "before": None})
        before = self._history.get(step - 1)
        return orjson.dumps(
            {"step": step, "counts": self._split(now), "before": None if before is None else self._split(before)}
        )

    def _split(self, counts: np.ndarray) -> list[list[int]]:
        return [part.tolist() for part in np.split(counts, self._starts[1:-1])]

"""How many are in each public state, step by step: shares that are stacked. A later step may revise an earlier one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from agents.show.pictures.contract import HISTORY, told_step

MOST_CELLS = 4_000_000
"""Of all steps that are kept."""
MOST_STATES = 9
"""That are drawn; the others are one share together."""


class StatePicture:
    """Implements `agents.show.pictures.contract.Picture`.

    Args:
        field: holds the state; null where the record tells of those in no state.
        step, count: fields that hold the step of a count, and the count.
    """

    kind = "states"
    binary = False

    def __init__(
        self, field: str, values: Sequence[str], *, unseen: str = "unseen", step: str = "step", count: str = "count"
    ) -> None:
        self._field, self._step, self._count = field, step, count
        self._values = [*values, unseen]
        self._codes = {value: at for at, value in enumerate(values)}
        self._rows: dict[int, np.ndarray] = {}
        self._keep = max(2, min(HISTORY, MOST_CELLS // len(self._values)))
        self._total = 0

    def add(self, step: int, key: str, fields: Mapping[str, Any]) -> None:
        at = told_step(fields.get(self._step, step))
        state = fields.get(self._field)
        code = len(self._codes) if state is None else self._codes[state]
        count = float(fields[self._count])
        if at not in self._rows:
            self._total += 1
            self._rows[at] = np.full(len(self._values), np.nan, np.float32)
            if len(self._rows) > self._keep:
                del self._rows[min(self._rows)]
        if at in self._rows:
            self._rows[at][code] = count

    def remove(self, step: int, key: str) -> None:
        """A count is withdrawn when a revised one takes its place."""

    def end(self, step: int) -> None:
        """Nothing is left to do."""

    def about(self) -> Mapping[str, Any]:
        return {"field": self._field, "states": len(self._codes)}

    def shown(self) -> Mapping[str, Any]:
        return {"shown": len(self._rows), "total": self._total, "what": "steps"}

    def body(self, query: Mapping[str, int]) -> bytes:
        """Counts of the largest states, column by column, and of all others together; below 0 by noise is 0."""
        steps = sorted(self._rows)
        if not steps:
            return orjson.dumps({"steps": [], "names": [], "counts": []})
        counts = np.maximum(np.nan_to_num(np.stack([self._rows[step] for step in steps])), 0.0)
        means = counts.mean(axis=0)
        largest = [int(at) for at in np.argsort(-means, kind="stable") if means[at] > 0]
        shown, rest = largest[:MOST_STATES], largest[MOST_STATES:]
        names = [self._values[at] for at in shown]
        columns = [np.round(counts[:, at], 2).tolist() for at in shown]
        if rest:
            names.append(f"{len(rest)} others")
            columns.append(np.round(counts[:, rest].sum(axis=1), 2).tolist())
        return orjson.dumps({"steps": steps, "names": names, "counts": columns})

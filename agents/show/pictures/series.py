"""Numbers by step, each with its interval where the records have one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from agents.show.pictures.contract import told_step

MOST_STEPS = 5_000
LOW, HIGH = "_low", "_high"
"""Suffixes of the fields that hold an interval."""


class SeriesPicture:
    """Implements `agents.show.pictures.contract.Picture`.

    Args:
        names: fields of the records that hold a number.
        step: field that holds the step of the number, which may be earlier than the step that released it.
        interval: what the interval is, in words.
    """

    kind = "series"
    binary = False

    def __init__(self, names: Sequence[str], *, step: str = "step", interval: str = "90 % interval") -> None:
        self._names, self._step, self._interval = names, step, interval
        self._rows: dict[int, list[tuple[float | None, float | None, float | None]]] = {}
        self._total = 0

    def add(self, step: int, key: str, fields: Mapping[str, Any]) -> None:
        at = told_step(fields.get(self._step, step))
        row = [
            (_number(fields.get(name)), _number(fields.get(name + LOW)), _number(fields.get(name + HIGH)))
            for name in self._names
        ]
        self._total += at not in self._rows
        self._rows[at] = row
        if len(self._rows) > MOST_STEPS:
            del self._rows[min(self._rows)]

    def remove(self, step: int, key: str) -> None:
        """Numbers are replaced, never taken back."""

    def end(self, step: int) -> None:
        """Nothing is left to do."""

    def about(self) -> Mapping[str, Any]:
        return {"fields": list(self._names), "interval": self._interval}

    def shown(self) -> Mapping[str, Any]:
        return {"shown": len(self._rows), "total": self._total, "what": "steps with a number"}

    def body(self, query: Mapping[str, int]) -> bytes:
        """All of it, column by column."""
        steps = sorted(self._rows)
        fields = [
            {
                part: [self._rows[step][at][index] for step in steps]
                for index, part in enumerate(("value", "low", "high"))
            }
            for at in range(len(self._names))
        ]
        return orjson.dumps({"steps": steps, "fields": fields})


def _number(value: Any) -> float | None:
    return None if value is None else float(value)

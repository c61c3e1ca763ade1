"""A ledger entry as the page shows it: taken only if each of its words is of the kind that the page draws.

Whoever may write to a public topic chooses these words: one that is of another kind is no entry, and stops nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agents.consume.steps import Verdict
from schemas.releases import STEP_LIMIT

_MOST = 1 << 53
"""Counts beyond it are no whole numbers of a browser."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(slots=True)
class LedgerRow:
    """A step as the ledger has it, and what became of the comparison."""

    step: int
    end: str
    added: int
    removed: int
    records: int
    spent: float
    gathered: bool
    digest: str
    chained: bool
    verdict: Verdict = "waiting"

    def row(self) -> list[Any]:
        """As the page reads it, see `assets/ledger.js`."""
        return [
            self.step,
            self.end,
            self.added,
            self.removed,
            self.records,
            self.spent,
            self.gathered,
            self.digest,
            self.chained,
            self.verdict,
        ]


def entry_of(told: Any) -> LedgerRow:
    """Raises: KeyError, TypeError or ValueError if it is no entry."""
    if not isinstance(told, Mapping):
        raise TypeError("an entry is an object")
    if datetime.fromisoformat(_text(told["end"])).tzinfo is None:
        raise ValueError("a time has an offset")
    for name in ("epsilon", "epsilon_spent"):
        _number(told.get(name, 0.0))
    if told.get("epsilon_per_us") is not None:
        _number(told["epsilon_per_us"])
    _of_kind(told.get("notes", {}), Mapping)
    _guarantee(told.get("guarantee", {}))
    for name in ("digest", "previous_chain", "chain"):
        if not _DIGEST.fullmatch(_text(told[name])):
            raise ValueError(name)
    return LedgerRow(
        step=_count(told["step"], STEP_LIMIT),
        end=told["end"],
        added=_count(told["added"]),
        removed=_count(told["removed"]),
        records=_count(told["synthetic_records"]),
        spent=_number(told["epsilon_spent"]),
        gathered=_of_kind(told["gathered"], bool),
        digest=told["digest"],
        chained=False,
    )


def _guarantee(told: Any) -> None:
    _of_kind(told, Mapping)
    _number(told.get("delta", 0.0))
    _of_kind(told.get("private", True), bool)
    _text(told.get("note", ""))
    for each in _of_kind(told.get("mechanisms", []), list):
        _of_kind(each, Mapping)
        for name in ("name", "events", "distribution"):
            _text(each.get(name) or "")
        for name in ("scale", "epsilon", "uses"):
            if isinstance(each.get(name), list | Mapping):
                raise TypeError(name)


def _of_kind(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError("a value of another kind")
    return value


def _text(value: Any) -> str:
    return str(_of_kind(value, str))


def _count(value: Any, most: int = _MOST) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < most:
        raise ValueError("no count")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError("no amount")
    return float(value)

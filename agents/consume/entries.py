"""An entry of the public ledger: taken only if each of its words is of the kind that its readers work with.

Whoever may write to a public topic chooses these words: one that is of another kind is no entry, and stops nothing but
what would rest on it. Pure.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from schemas.errors import PrivstreamError, WireError
from schemas.releases import STEP_LIMIT, link

_MOST = 1 << 53
"""Counts beyond it are no whole numbers of a browser."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


class PublicRecordsError(PrivstreamError):
    """Public topics do not hold what their ledger says, or no longer hold it whole. Names steps and topics only."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One step, as the ledger tells it.

    Attributes:
        digest: of the framed synthetic and measurement records. total: synthetic records alive after the step.
        chain, previous: names of this entry and of the one before it. linked: whether `chain` is that of its words.
        added, removed: records of the step. start, end: of the step, aware. spent: epsilon so far.
        told: the whole entry.
    """

    step: int
    digest: str
    chain: str
    previous: str
    linked: bool
    total: int
    added: int
    removed: int
    start: datetime.datetime
    end: datetime.datetime
    spent: float
    gathered: bool
    told: Mapping[str, Any]

    @property
    def records(self) -> int:
        """Synthetic records and tombstones that the step wrote."""
        return self.added + self.removed

    @staticmethod
    def of(value: bytes, stream: str) -> LedgerEntry:
        """Raises: PublicRecordsError if it is no entry of this stream."""
        try:
            return _entry(value, stream)
        except (KeyError, TypeError, ValueError, OverflowError, WireError):
            raise PublicRecordsError(
                f"topic {stream}.ledger holds a record that is no entry of stream {stream}. Fix: only the job may "
                "write to its public topics; look at who else can (privstream topics CONFIG --acls)."
            ) from None


def _entry(value: bytes, stream: str) -> LedgerEntry:
    told = _of_kind(orjson.loads(value), Mapping)
    for name in ("epsilon", "epsilon_spent"):
        _number(told.get(name, 0.0))
    if told.get("epsilon_per_us") is not None:
        _number(told["epsilon_per_us"])
    _of_kind(told.get("notes", {}), Mapping)
    _guarantee(told.get("guarantee", {}))
    step = _count(told["step"], STEP_LIMIT)
    digest, previous, chain = (_digest(told[name]) for name in ("digest", "previous_chain", "chain"))
    return LedgerEntry(
        step=step,
        digest=digest,
        chain=chain,
        previous=previous,
        linked=chain == link(previous, stream=stream, step=step, digest=digest, ledger=value),
        total=_count(told["synthetic_records"]),
        added=_count(told["added"]),
        removed=_count(told["removed"]),
        start=_time(told["start"]),
        end=_time(told["end"]),
        spent=_number(told["epsilon_spent"]),
        gathered=_of_kind(told["gathered"], bool),
        told=told,
    )


def _time(told: Any) -> datetime.datetime:
    found = datetime.datetime.fromisoformat(_text(told))
    if found.tzinfo is None:
        raise ValueError("a time has an offset")
    return found


def _digest(told: Any) -> str:
    if not _DIGEST.fullmatch(_text(told)):
        raise ValueError("no digest")
    return str(told)


def _guarantee(told: Any) -> None:
    _of_kind(told, Mapping)
    _number(told.get("delta", 0.0))
    _of_kind(told.get("private", True), bool)
    _text(told.get("note", ""))
    for each in _of_kind(told.get("mechanisms", []), list):
        _of_kind(each, Mapping)
        for name in ("name", "distribution"):
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

"""Facts of a file that is declared PUBLIC: ranges, categories, edges of bins. It is read once, and may have any size.

Guarantee: no other file than the one that is named with --public is read for them.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.local.offline.files import open_rows
from agents.local.start.sample import quoted
from schemas.config.domain import FromPublic
from schemas.errors import PrivstreamError

MOST_VALUES = 1000
"""Largest number of distinct values that count as categories."""
FEW_VALUES = 24
MOST_NUMBERS = 100_000
"""Largest number of values of a field that are kept for quantiles."""
BINS = 10


@dataclass(slots=True)
class PublicField:
    """Facts of one field of a public file.

    Attributes:
        values: its distinct values, in order of appearance; None if there are too many.
        numbers: every `every`-th of its `count` numbers, for quantiles in bounded memory.
    """

    low: float = math.inf
    high: float = -math.inf
    whole: bool = True
    nulls: bool = False
    values: dict[Any, None] | None = field(default_factory=dict)
    numbers: array[float] = field(default_factory=lambda: array("d"))
    every: int = 1
    count: int = 0

    def take(self, value: Any) -> None:
        self.nulls = self.nulls or value is None
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            self.low, self.high = min(self.low, value), max(self.high, value)
            self.whole = self.whole and value == int(value)
            if self.count % self.every == 0:
                self.numbers.append(value)
                if len(self.numbers) > MOST_NUMBERS:
                    self.numbers, self.every = self.numbers[::2], 2 * self.every
            self.count += 1
        if self.values is not None and isinstance(value, (str, int, bool, float)):
            self.values[value] = None
            if len(self.values) > MOST_VALUES:
                self.values = None


@dataclass(frozen=True, slots=True)
class PublicFacts:
    """Facts of the fields of a public file."""

    path: Path
    fields: Mapping[str, PublicField]

    def too_many(self, what: FromPublic, names: Sequence[str]) -> str:
        """Return why the values of a field are not categories; empty if they are, or if the file lacks the field."""
        if what != "values" or not names or names[0] not in self.fields or self.fields[names[0]].values is not None:
            return ""
        return (
            f"{self.path} has more than {MOST_VALUES:,} different values of {names[0]}, too many to be categories: "
            "leave the field out, or list the few that matter; engine keys counts who has which, though nobody lists "
            "them"
        )

    def few(self, name: str) -> bool:
        """Say whether a field of the file has few different values, but more than one."""
        values = self.fields[name].values
        return values is not None and 1 < len(values) <= FEW_VALUES

    def answer(self, what: FromPublic, names: Sequence[str]) -> list[Any] | bool | None:
        """Return the value of a key; None if the file does not determine it."""
        found = [self.fields[name] for name in names if name in self.fields]
        if not what or len(found) < len(names) or not found:
            return None
        if what in ("nulls", "whole"):
            return found[0].nulls if what == "nulls" else found[0].whole
        if what == "values":
            return None if not found[0].values else _sorted(list(found[0].values))
        if not all(each.low < each.high for each in found):
            return None
        if what == "range":
            return [_plain(found[0].low), _plain(found[0].high)]
        if what == "edges":
            return _edges(found[0])
        (left, right), (bottom, top) = (_wider(each) for each in found)
        return [left, bottom, right, top]


def public_facts(path: Path, read: Callable[[int, int], None] = lambda done, total: None) -> PublicFacts:
    """Return the facts of a public file; `read` is told rows read, of how many.

    Raises: FileError; PrivstreamError if the file has no rows.
    """
    found: dict[str, PublicField] = {}
    file = open_rows(path)
    total, done = file.count(), 0
    for rows in file.objects():
        done += len(rows)
        read(done, max(done, total))
        for row in rows:
            for name, value in _leaves(row):
                found.setdefault(name, PublicField()).take(value)
    if not found:
        raise PrivstreamError(f"{path}: the public file has no rows. Fix: name another with --public.")
    return PublicFacts(path, found)


def _leaves(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of each field of an object, at all levels."""
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{quoted(name)}.")
        else:
            yield f"{prefix}{quoted(name)}" if prefix else name, value


def _sorted(values: list[Any]) -> list[Any]:
    same = len({type(value) for value in values}) == 1
    return sorted(values) if same else values


def _wider(seen: PublicField) -> tuple[float, float]:
    """Return the range, widened by a hundredth on either side, because a box excludes its upper edges."""
    margin = (seen.high - seen.low) / 100
    digits = 1 - math.floor(math.log10(margin))
    unit = 10.0**-digits
    return round(math.floor((seen.low - margin) / unit) * unit, digits), round(
        math.ceil((seen.high + margin) / unit) * unit, digits
    )


def _edges(seen: PublicField) -> list[Any]:
    """Return edges of bins with equally many values, as far as possible; few integers get a bin each."""
    low, high = seen.low, seen.high
    if seen.whole:
        count = int(high) - int(low) + 1
        if count <= FEW_VALUES:
            return [*range(int(low), int(high) + 1), int(high) + 1]
        return sorted({int(low), *map(int, _quantiles(seen)), int(high) + 1})
    return sorted({_plain(low), *map(_plain, _quantiles(seen)), _plain(high)})


def _quantiles(seen: PublicField) -> list[float]:
    there = sorted(seen.numbers)
    return [there[len(there) * index // BINS] for index in range(1, BINS)]


def _plain(value: float) -> float | int:
    return int(value) if value == int(value) else float(f"{value:.12g}")

"""What a file says that somebody declares to be PUBLIC: ranges, categories, edges of bins. One pass, any size.

Guarantee: asked of no other file than the one that was named with --public.
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
"""Different ones that are kept of a field: more are no categories."""
FEW_NUMBERS = 24
MOST_NUMBERS = 100_000
"""That are kept for quantiles."""
BINS = 10


@dataclass(slots=True)
class PublicField:
    """Attributes:

    values: all different ones, in order of appearance; None where there are too many.
    numbers: each `every`-th of the `count` that there are, for quantiles: memory does not grow with the file.
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
    """What a public file has."""

    path: Path
    fields: Mapping[str, PublicField]

    def too_many(self, what: FromPublic, names: Sequence[str]) -> str:
        """Return why values of a field that the file has are no categories; empty: they are, or it has none."""
        if what != "values" or not names or names[0] not in self.fields or self.fields[names[0]].values is not None:
            return ""
        return (
            f"{self.path} has more than {MOST_VALUES:,} different ones, too many to be categories: leave the field "
            "out, or list the few that matter"
        )

    def answer(self, what: FromPublic, names: Sequence[str]) -> list[Any] | bool | None:
        """Return the value of a key; None where the file does not say."""
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
    """Return what a public file has.

    Args: read: told how many rows are read, of how many.
    Raises: FileError; PrivstreamError if it has no rows.
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
    """Yield each field of an object, those of objects in it by their path."""
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{quoted(name)}.")
        else:
            yield f"{prefix}{quoted(name)}" if prefix else name, value


def _sorted(values: list[Any]) -> list[Any]:
    same = len({type(value) for value in values}) == 1
    return sorted(values) if same else values


def _wider(seen: PublicField) -> tuple[float, float]:
    """Return a range that is wider by a hundredth on either side: the upper edge of a box does not belong to it."""
    margin = (seen.high - seen.low) / 100
    digits = 1 - math.floor(math.log10(margin))
    unit = 10.0**-digits
    return round(math.floor((seen.low - margin) / unit) * unit, digits), round(
        math.ceil((seen.high + margin) / unit) * unit, digits
    )


def _edges(seen: PublicField) -> list[Any]:
    """Return edges of bins that have as many of the values, as far as values differ; of few whole numbers, a bin for
    each.
    """
    low, high = seen.low, seen.high
    if seen.whole:
        count = int(high) - int(low) + 1
        if count <= FEW_NUMBERS:
            return [*range(int(low), int(high) + 1), int(high) + 1]
        return sorted({int(low), *map(int, _quantiles(seen)), int(high) + 1})
    return sorted({_plain(low), *map(_plain, _quantiles(seen)), _plain(high)})


def _quantiles(seen: PublicField) -> list[float]:
    there = sorted(seen.numbers)
    return [there[len(there) * index // BINS] for index in range(1, BINS)]


def _plain(value: float) -> float | int:
    return int(value) if value == int(value) else float(f"{value:.12g}")

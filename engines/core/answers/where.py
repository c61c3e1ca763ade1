"""Conditions on fields, and the share of a code (a bin or a listed value) that meets one.

A condition is a tree of atoms, each on one field. A code is cut into pieces on which every atom is constant: an
interval is cut at the numbers in the atoms. So whether all, some or none of a code meets a condition is exact, also if
several atoms are on one field; the share that meets it is by width.
Logic is three-valued, as in SQL: an atom on a missing value is unknown (None), and only records for which the condition
is true are counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, Literal

import numpy as np

from schemas.arrays import BoolArray, FloatArray

Truth = bool | None
Signature = tuple[Truth, ...]
Pieces = Sequence[tuple[float, Signature]]
"""Pieces of a code: shares that add up to 1, with the truth of each atom there. A single number has share 0."""


@dataclass(frozen=True, slots=True)
class Atom:
    """A comparison `field op value`; `in` has several values, `null` has none."""

    field: str
    op: Literal["=", "<", "<=", ">", ">=", "in", "null"]
    values: tuple[Any, ...] = ()

    def holds(self, value: Any) -> Truth:
        """Return whether a value meets the atom; None if it is missing or of another type."""
        if self.op == "null":
            return value is None
        if value is None:
            return None
        if self.op in ("=", "in"):
            return any(same(value, each) for each in self.values)
        (limit,) = self.values
        if kind(value) != kind(limit):
            return None
        met: bool = {"<": value < limit, "<=": value <= limit, ">": value > limit, ">=": value >= limit}[self.op]
        return met


@dataclass(frozen=True, slots=True)
class Not:
    part: Where


@dataclass(frozen=True, slots=True)
class Both:
    """`and`."""

    parts: tuple[Where, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """`or`."""

    parts: tuple[Where, ...]


Where = Atom | Not | Both | Either


def kind(value: Any) -> str:
    return "boolean" if isinstance(value, bool) else "number" if isinstance(value, int | float) else "text"


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal in JSON: 1.0 equals 1, `true` does not."""
    return kind(one) == kind(other) and bool(one == other)


def atoms(where: Where) -> Iterator[Atom]:
    """Yield the atoms in order, repeated ones too."""
    if isinstance(where, Atom):
        yield where
    elif isinstance(where, Not):
        yield from atoms(where.part)
    else:
        for part in where.parts:
            yield from atoms(part)


def fields_of(where: Where | None) -> tuple[str, ...]:
    """Return the distinct names of the fields of a condition."""
    return () if where is None else tuple(dict.fromkeys(atom.field for atom in atoms(where)))


def truth(where: Where, known: Mapping[Atom, Truth]) -> Truth:
    """Return the truth of a condition, given that of each atom."""
    if isinstance(where, Atom):
        return known[where]
    if isinstance(where, Not):
        found = truth(where.part, known)
        return None if found is None else not found
    parts = [truth(part, known) for part in where.parts]
    decides = isinstance(where, Either)
    if decides in parts:
        return decides
    return None if None in parts else not decides


def holds(where: Where, record: Mapping[str, Any]) -> bool:
    """Return whether a record meets a condition, and so is counted."""
    return truth(where, {atom: atom.holds(record.get(atom.field)) for atom in atoms(where)}) is True


def value_pieces(looking: Sequence[Atom], value: Any) -> Pieces:
    """Return the pieces of a code that is a single value."""
    return [(1.0, tuple(atom.holds(value) for atom in looking))]


def other_pieces(looking: Sequence[Atom], shown: Any) -> Pieces:
    """Return the pieces of the code for all unlisted values, released as `shown`; their order is unknown."""
    known = [atom.holds(shown) if atom.op in ("=", "in", "null") else None for atom in looking]
    if None not in known:
        return [(1.0, tuple(known))]
    return [(0.5, tuple(side if each is None else each for each in known)) for side in (True, False)]


def interval_pieces(
    looking: Sequence[Atom], low: float, high: float, *, integer: bool = False, closed: bool = False
) -> Pieces:
    """Return the pieces of a bin [low, high), or [low, high] if `closed`.

    Args: integer: the bin holds whole numbers only.
    """
    limits = sorted({float(v) for atom in looking for v in atom.values if kind(v) == "number" and low <= v <= high})
    if integer:
        last = math.floor(high) if closed else math.ceil(high) - 1
        return _integer_pieces(looking, math.ceil(low), last, limits)
    inside = [limit for limit in limits if low < limit < high]
    pieces = [
        ((end - begin) / (high - low), tuple(atom.holds((begin + end) / 2) for atom in looking))
        for begin, end in pairwise([low, *inside, high])
    ]
    single = [limit for limit in limits if limit < high or closed]
    return [*pieces, *((0.0, tuple(atom.holds(limit) for atom in looking)) for limit in single)]


def _integer_pieces(looking: Sequence[Atom], first: int, last: int, limits: Iterable[float]) -> Pieces:
    begins = {first}
    for limit in limits:
        begins |= {math.ceil(limit), math.floor(limit) + 1}
    order = [*sorted(each for each in begins if first <= each <= last), last + 1]
    return [
        ((end - begin) / (last + 1 - first), tuple(atom.holds(begin) for atom in looking))
        for begin, end in pairwise(order)
    ]


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """How much of each cell of a table meets a condition; one axis for each field, `(codes, codes, ...)`.

    Attributes:
        share: by width. whole: True if all of the cell does. some: True if part of it may.
    """

    share: FloatArray
    whole: BoolArray
    some: BoolArray


def parts_of(where: Where, codes: Mapping[str, Sequence[Pieces]]) -> Parts:
    """Return how much of each cell of a table meets a condition.

    Args: codes: the pieces of each code of each field of the condition, in the order of the table's axes, made with
        `atoms_on` that field.
    """
    looking = {name: atoms_on(where, name) for name in codes}
    signatures = {
        name: list(dict.fromkeys(sign for each in found for _, sign in each)) for name, found in codes.items()
    }
    met = np.zeros([len(each) for each in signatures.values()], np.bool_)
    for place in product(*(range(length) for length in met.shape)):
        known: dict[Atom, Truth] = {}
        for (name, signs), at in zip(signatures.items(), place, strict=True):
            known |= dict(zip(looking[name], signs[at], strict=True))
        met[place] = truth(where, known) is True
    share, can, cannot = met.astype(np.float64), met.astype(np.float64), (~met).astype(np.float64)
    for name, found in codes.items():
        widths = np.zeros((len(found), len(signatures[name])))
        there = np.zeros_like(widths)
        for code, pieces in enumerate(found):
            for width, sign in pieces:
                at = signatures[name].index(sign)
                widths[code, at] += width
                there[code, at] = 1.0
        # The first axis becomes the last, so after all fields the axes are in order again.
        share = np.tensordot(share, widths, axes=(0, 1))
        can, cannot = (np.tensordot(each, there, axes=(0, 1)) for each in (can, cannot))
    return Parts(share, cannot == 0, can > 0)


def atoms_on(where: Where, field: str) -> list[Atom]:
    """Return the distinct atoms on a field."""
    return list(dict.fromkeys(atom for atom in atoms(where) if atom.field == field))

"""Conditions on fields, and what part of a code, a bin or a listed value, meets one.

A condition is a tree of atoms, each of which looks at one field. A code is cut into pieces on which every atom is
constant: an interval at the numbers that atoms name. So whether all, none or some of a code meets a condition is exact,
also where several atoms look at one field; how much of it does is by width.
Logic is SQL's: what is missing is neither true nor false, and only what is true is counted.
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
"""Of a code: shares that add up to one, and what the atoms are there; a share of 0 is a single number."""


@dataclass(frozen=True, slots=True)
class Atom:
    """`field op value`; `in` has several values, `null` none."""

    field: str
    op: Literal["=", "<", "<=", ">", ">=", "in", "null"]
    values: tuple[Any, ...] = ()

    def holds(self, value: Any) -> Truth:
        """Of one value; None where it is missing, or of another kind."""
        if self.op == "null":
            return value is None
        if value is None:
            return None
        if self.op in ("=", "in"):
            return any(same(value, each) for each in self.values)
        (limit,) = self.values
        if kind(value) != kind(limit):
            return None
        found: bool = {"<": value < limit, "<=": value <= limit, ">": value > limit, ">=": value >= limit}[self.op]
        return found


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
    """Equal in JSON: `true` is not 1, 1.0 is."""
    return kind(one) == kind(other) and bool(one == other)


def atoms(where: Where) -> Iterator[Atom]:
    """In order; one that stands in it twice comes twice."""
    if isinstance(where, Atom):
        yield where
    elif isinstance(where, Not):
        yield from atoms(where.part)
    else:
        for part in where.parts:
            yield from atoms(part)


def fields_of(where: Where | None) -> tuple[str, ...]:
    """Names, each once."""
    return () if where is None else tuple(dict.fromkeys(atom.field for atom in atoms(where)))


def truth(where: Where, known: Mapping[Atom, Truth]) -> Truth:
    """Of the whole condition, where that of each atom is known."""
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
    """Of one record: what a count counts."""
    return truth(where, {atom: atom.holds(record.get(atom.field)) for atom in atoms(where)}) is True


def value_pieces(looking: Sequence[Atom], value: Any) -> Pieces:
    """A code that is one value."""
    return [(1.0, tuple(atom.holds(value) for atom in looking))]


def other_pieces(looking: Sequence[Atom], shown: Any) -> Pieces:
    """A code of whatever is not listed, which a record shows as `shown`: an order of it is not known."""
    known = [atom.holds(shown) if atom.op in ("=", "in", "null") else None for atom in looking]
    if None not in known:
        return [(1.0, tuple(known))]
    return [(0.5, tuple(side if each is None else each for each in known)) for side in (True, False)]


def interval_pieces(
    looking: Sequence[Atom], low: float, high: float, *, integer: bool = False, closed: bool = False
) -> Pieces:
    """A bin from `low` up to `high`, which belongs to it where it is `closed`; `integer`: it holds whole numbers "
    "only."""
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
    """What of each cell of a table meets a condition. `(codes of the first field, codes of the second, ...)` each.

    Attributes:
        share: by width. whole: all of it does. some: a part of it may.
    """

    share: FloatArray
    whole: BoolArray
    some: BoolArray


def parts_of(where: Where, codes: Mapping[str, Sequence[Pieces]]) -> Parts:
    """Args:

    codes: for each field of the condition, in the order of the table's axes, the pieces of each of its codes, made with
        the atoms of that field in their order, each once.
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
        # The first axis becomes the last: after all fields they stand in their order again.
        share = np.tensordot(share, widths, axes=(0, 1))
        can, cannot = (np.tensordot(each, there, axes=(0, 1)) for each in (can, cannot))
    return Parts(share, cannot == 0, can > 0)


def atoms_on(where: Where, field: str) -> list[Atom]:
    """The atoms of a field, each once."""
    return list(dict.fromkeys(atom for atom in atoms(where) if atom.field == field))

"""Synthetic records column by column: a step may release a million, and none needs to be an object before it is bytes.

An engine with many records gives a `ManyRecords`; one with few gives a list of records. Both can be read as either.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import eq
from typing import Any, NamedTuple, TypeVar, overload

import numpy as np
import numpy.typing as npt

from engines.core.contract import SyntheticRecord

PART = 1 << 14
"""Most records in one part."""
Item = TypeVar("Item")


class FixedIds(Sequence[str]):
    """Ids that become texts when they are read. Args: names: `(ids,)` in ASCII, without NUL."""

    def __init__(self, names: npt.NDArray[np.bytes_]) -> None:
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        texts: list[str] = self.names.astype(np.str_).tolist()
        return iter(texts)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> FixedIds: ...

    def __getitem__(self, index: int | slice) -> str | FixedIds:
        return FixedIds(self.names[index]) if isinstance(index, slice) else self.names[index].decode()


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Synthetic records with the same fields, as columns.

    Attributes:
        ids: `(records,)`.
        fields: in their order, each with `(records,)` JSON-able values.
        steps: `(records,)`; None: no record has a step.
        weights: `(records,)`; None: each record stands for one event.
    """

    ids: Sequence[str]
    fields: Mapping[str, Sequence[Any]]
    steps: Sequence[int | None] | None = None
    weights: Sequence[int] | None = None

    def records(self) -> Iterator[SyntheticRecord]:
        """Yield the records in order."""
        names = tuple(self.fields)
        rows = zip(*self.fields.values(), strict=True) if names else ((),) * len(self.ids)
        nothing = (None,) * len(self.ids)
        steps = nothing if self.steps is None else self.steps
        weights = nothing if self.weights is None else self.weights
        for name, values, step, weight in zip(self.ids, rows, steps, weights, strict=True):
            yield SyntheticRecord(name, dict(zip(names, values, strict=True)), step, weight)


class MadeWhenRead(Sequence[Item]):
    """A lazy sequence: items are made when read, `PART` at a time. Subclasses define `__len__` and `made`."""

    @abstractmethod
    def made(self, rows: range) -> Iterable[Item]:
        """Return the items at these indices, which are in range."""

    def __iter__(self) -> Iterator[Item]:
        for rows in _parts(len(self)):
            yield from self.made(rows)

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...

    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        rows = range(len(self))
        if isinstance(index, slice):
            return list(self.made(rows[index]))
        at = rows[index]
        return next(iter(self.made(range(at, at + 1))))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]


def _parts(size: int) -> Iterator[range]:
    rows = range(size)
    return (rows[start : start + PART] for start in range(0, size, PART))


class ManyRecords(MadeWhenRead[SyntheticRecord]):
    """A lazy sequence of records. Subclasses define `__len__` and `part`."""

    @abstractmethod
    def part(self, rows: range) -> RecordColumns:
        """Return the records at these indices, which are in range."""

    def parts(self) -> Iterator[RecordColumns]:
        """Yield all records, at most `PART` at a time."""
        return map(self.part, _parts(len(self)))

    def made(self, rows: range) -> Iterator[SyntheticRecord]:
        return self.part(rows).records()


class Change(NamedTuple):
    """How the synthetic records of one release come to be those of the next: see `engines.core.contract.Release`."""

    added: Sequence[SyntheticRecord]
    removed: Sequence[str]
    total: int
    weight: int | None


def parts_of(records: Sequence[SyntheticRecord]) -> Iterator[RecordColumns]:
    """Yield records as columns, in order and at most `PART` at a time.

    >>> one = SyntheticRecord("a", {"x": 1}), SyntheticRecord("b", {"x": 2})
    >>> list(parts_of(one))
    [RecordColumns(ids=['a', 'b'], fields={'x': [1, 2]}, steps=[None, None], weights=None)]
    """
    if isinstance(records, ManyRecords):
        yield from records.parts()
        return
    for (names, _), alike in groupby(records, key=lambda record: (tuple(record.fields), record.weight is None)):
        while part := list(islice(alike, PART)):
            yield RecordColumns(
                [record.id for record in part],
                {name: [record.fields[name] for record in part] for name in names},
                [record.step for record in part],
                [record.weight for record in part if record.weight is not None] or None,
            )

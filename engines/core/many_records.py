"""Synthetic records column by column: a step may release a million, and none needs to be an object before it is bytes.

An engine with many records gives a `ManyRecords`; one with few gives a list of records. Both can be read as either.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import eq
from typing import Any, overload

from engines.core.contract import SyntheticRecord

PART = 1 << 14
"""Records at a time."""


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Some synthetic records with the same fields.

    Attributes:
        ids: `(records,)`.
        fields: in their order, each with `(records,)` JSON-able values.
        steps: `(records,)`; None: none of them says its step.
    """

    ids: Sequence[str]
    fields: Mapping[str, Sequence[Any]]
    steps: Sequence[int | None] | None = None

    def records(self) -> Iterator[SyntheticRecord]:
        """One after the other."""
        names = tuple(self.fields)
        rows = zip(*self.fields.values(), strict=True) if names else ((),) * len(self.ids)
        steps = (None,) * len(self.ids) if self.steps is None else self.steps
        for name, values, step in zip(self.ids, rows, steps, strict=True):
            yield SyntheticRecord(name, dict(zip(names, values, strict=True)), step)


class ManyRecords(Sequence[SyntheticRecord]):
    """Records that are made when they are read, some thousands at a time. Say `__len__` and `part`."""

    @abstractmethod
    def part(self, rows: range) -> RecordColumns:
        """Those at some places, which lie in the sequence."""

    def parts(self) -> Iterator[RecordColumns]:
        """All of them."""
        rows = range(len(self))
        for start in range(0, len(rows), PART):
            yield self.part(rows[start : start + PART])

    def __iter__(self) -> Iterator[SyntheticRecord]:
        for part in self.parts():
            yield from part.records()

    @overload
    def __getitem__(self, index: int) -> SyntheticRecord: ...

    @overload
    def __getitem__(self, index: slice) -> list[SyntheticRecord]: ...

    def __getitem__(self, index: int | slice) -> SyntheticRecord | list[SyntheticRecord]:
        rows = range(len(self))
        if isinstance(index, slice):
            return list(self.part(rows[index]).records())
        at = rows[index]
        return next(self.part(range(at, at + 1)).records())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]


def parts_of(records: Sequence[SyntheticRecord]) -> Iterator[RecordColumns]:
    """Any records as columns, in their order and at most `PART` at a time.

    >>> one = SyntheticRecord("a", {"x": 1}), SyntheticRecord("b", {"x": 2})
    >>> list(parts_of(one))
    [RecordColumns(ids=['a', 'b'], fields={'x': [1, 2]}, steps=[None, None])]
    """
    if isinstance(records, ManyRecords):
        yield from records.parts()
        return
    for names, alike in groupby(records, key=lambda record: tuple(record.fields)):
        while part := list(islice(alike, PART)):
            yield RecordColumns(
                [record.id for record in part],
                {name: [record.fields[name] for record in part] for name in names},
                [record.step for record in part],
            )

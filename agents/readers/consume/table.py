"""A stream's synthetic records, or what was measured, as an Arrow table: names and values as they were published.

Pure. A column's type is that of its values: numbers, texts, booleans, lists. Where JSON mixes them, as a number and the
word for "other", the column is text. Nothing is parsed further: a time is the raw events' time field as it is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa

from agents.readers.consume.fold import FoldedTable
from schemas.ledger import LedgerEntry

ID = "synthetic_id"
"""Column of the record's key."""
ADDED = "added_step"
"""Column of the step that added the record."""


def synthetic_table(table: FoldedTable, fields: Sequence[str]) -> pa.Table:
    """One row for each synthetic record alive, in the order in which they were added.

    Args:
        fields: that come first, in this order, and are there without rows too. Others follow as records have them.
    """
    ids: list[str] = []
    steps: list[int] = []
    columns = _Columns(fields)
    for key, step, record in table.records():
        ids.append(key)
        steps.append(step)
        columns.add(record)
    own = {
        _free(ID, columns.names): pa.array(ids, pa.string()),
        _free(ADDED, columns.names): pa.array(steps, pa.int64()),
    }
    return pa.table(own | columns.arrays())


def measurement_table(measured: Iterable[tuple[int, Mapping[str, Any]]]) -> pa.Table:
    """One row for each measurement, with its step; lists are lists, objects are texts of JSON."""
    columns = _Columns(("step",))
    for step, told in measured:
        columns.add({"step": step, **told})
    return pa.table(columns.arrays())


def ledger_table(entries: Iterable[LedgerEntry]) -> pa.Table:
    """One row for each step; objects, as the guarantee, are texts of JSON."""
    columns = _Columns(("step", "start", "end"))
    for entry in entries:
        columns.add(entry.as_json())
    return pa.table(columns.arrays())


class _Columns:
    """Values by field; a record that lacks a field is null there."""

    def __init__(self, fields: Sequence[str]) -> None:
        self._values: dict[str, list[Any]] = {field: [] for field in fields}
        self._rows = 0

    @property
    def names(self) -> list[str]:
        return list(self._values)

    def add(self, record: Mapping[str, Any]) -> None:
        for name, value in record.items():
            if name not in self._values:
                self._values[name] = [None] * self._rows
            self._values[name].append(value)
        self._rows += 1
        for values in self._values.values():
            if len(values) < self._rows:
                values.append(None)

    def arrays(self) -> dict[str, pa.Array]:
        return {name: column(values) for name, values in self._values.items()}


def column(values: Sequence[Any]) -> pa.Array:
    """JSON values as one Arrow array.

    >>> column([1, None, 2.5]).type, column([1, "other"]).to_pylist(), column([{"a": 1}]).to_pylist()
    (DataType(double), ['1', 'other'], ['{"a":1}'])
    """
    kinds = {type(value) for value in values if value is not None}
    if not kinds:
        return pa.nulls(len(values), pa.string())
    if kinds <= {int, float} or (len(kinds) == 1 and not kinds & {dict}):
        try:
            return pa.array(values, pa.float64() if float in kinds and kinds <= {int, float} else None)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            pass  # whole numbers beyond 64 bits, lists of several types
    return pa.array([None if value is None else _text(value) for value in values], pa.string())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode() if not _huge(value) else str(value)


def _huge(value: Any) -> bool:
    return isinstance(value, int) and not -(2**63) <= value < 2**64


def _free(name: str, taken: Iterable[str]) -> str:
    """A column name that no field of the records has."""
    while name in taken:
        name = f"_{name}"
    return name


def flat(table: pa.Table) -> Iterator[tuple[str, pa.Array]]:
    """The columns for a format that has no lists: those are texts of JSON."""
    for name in table.column_names:
        values = table.column(name)
        if pa.types.is_list(values.type):
            values = pa.array([None if each is None else orjson.dumps(each).decode() for each in values.to_pylist()])
        yield name, values

"""Records of JSON as columns of Arrow, for files and notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa


def table_of(records: Iterable[Mapping[str, Any]], first: Sequence[str] = ()) -> pa.Table:
    """Return records as columns; a field that a record lacks is null there.

    Args: first: fields that come first, and are there without records too. Others follow as records have them.
    """
    columns: dict[str, list[Any]] = {field: [] for field in first}
    rows = 0
    for rows, record in enumerate(records, 1):
        for name, value in record.items():
            values = columns.setdefault(name, [])
            values += [None] * (rows - 1 - len(values))
            values.append(value)
    return pa.table({name: column(values + [None] * (rows - len(values))) for name, values in columns.items()})


def column(values: Sequence[Any]) -> pa.Array:
    """Return JSON values as one Arrow array.

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
    if isinstance(value, str) or (isinstance(value, int) and not -(2**63) <= value < 2**64):
        return str(value)
    return orjson.dumps(value).decode()

"""Cells of columns as JSON values: texts of CSV as what their column can be, Arrow's values of Parquet."""

from __future__ import annotations

import datetime
import decimal
import math
import re
import zoneinfo
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from engines.core.contract import ScalarKind

# JSON's own grammar of numbers, so that ids such as 007 keep their zeros. 18 digits always fit 64 bits.
_WHOLE = r"^-?(0|[1-9][0-9]{0,17})$"
_NUMBER = r"^-?(0|[1-9][0-9]{0,17})(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
# And how people write them where nothing but a number can stand.
_ANY_NUMBER = re.compile(r"\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*", re.ASCII)
_BOOLEANS = {"true": True, "false": False}
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_OFFSET = re.compile(r"([+-])([0-9]{2}):([0-9]{2})", re.ASCII)


def csv_column(name: str, column: Any, *, kinds: Mapping[str, frozenset[ScalarKind]]) -> list[Any]:
    """As what its values can be."""
    wanted = kinds.get(name)
    if wanted is None:
        return _cells(column)
    if wanted == {"text"}:
        return list(column.to_pylist())
    cells = _cells(column) if "number" in wanted else list(column.to_pylist())
    if "boolean" in wanted:
        cells = [_BOOLEANS.get(cell.strip().lower(), cell) if isinstance(cell, str) else cell for cell in cells]
    if "number" in wanted and "text" not in wanted:
        cells = [_any_number(cell) if isinstance(cell, str) else cell for cell in cells]
    return cells


def _any_number(text: str) -> Any:
    """
    >>> [_any_number(text) for text in (" 7", "007", "+.5", "4.", "7,5", "", "1e400")]
    [7, 7, 0.5, 4.0, '7,5', '', '1e400']
    """
    found = _ANY_NUMBER.fullmatch(text)
    if found is None:
        return text
    digits = found[1]
    value = int(digits) if digits.lstrip("+-").isdigit() and len(digits) <= 18 else float(digits)
    return value if math.isfinite(value) else text


def _cells(column: Any) -> list[Any]:
    """Texts of a CSV column as JSON values, each by its own form."""
    present = column.is_valid()
    whole = pc.match_substring_regex(column, _WHOLE)
    if _all(whole, present):
        return list(column.cast(pa.int64()).to_pylist())
    number = pc.match_substring_regex(column, _NUMBER)
    if not pc.any(number).as_py():
        return list(column.to_pylist())
    if _all(number, present) and not pc.any(whole).as_py():
        floats = column.cast(pa.float64())
        if pc.all(pc.is_finite(floats)).as_py() is not False:
            return list(floats.to_pylist())
    pairs = zip(column.to_pylist(), whole.to_pylist(), number.to_pylist(), strict=True)
    return [_cell(text, is_whole, is_number) for text, is_whole, is_number in pairs]


def _all(mask: Any, present: Any) -> bool:
    return bool(pc.all(pc.or_(mask.fill_null(True), pc.invert(present))).as_py())


def _cell(text: str | None, is_whole: bool | None, is_number: bool | None) -> Any:
    if text is None or not is_number:
        return text
    if is_whole:
        return int(text)
    value = float(text)
    return value if math.isfinite(value) else text


def values(name: str, column: Any) -> list[Any]:
    """A Parquet column as JSON values."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_timestamp(kind):
        return [None if each is None else _iso(*each) for each in moments(column)]
    plain = _python(column)
    if pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_boolean(kind):
        return list(plain)
    return [_json(value) for value in plain]


def moments(column: Any) -> list[tuple[datetime.datetime, int] | None]:
    """Timestamps as times to the microsecond, and the nanoseconds behind it; None also where a year has no calendar.

    Arrow's own way depends on whether pandas is installed, and where it is not, its errors repeat the value.
    """
    kind = column.type
    whole = column.cast(pa.int64())
    unit = _NANOSECONDS[kind.unit]
    zone = _zone(kind.tz)
    return [None if value is None else _moment(value * unit, zone) for value in whole.to_pylist()]


def _moment(ns: int, zone: datetime.tzinfo | None) -> tuple[datetime.datetime, int] | None:
    us, rest = divmod(ns, 1000)
    try:
        moment = EPOCH + datetime.timedelta(microseconds=us)
        return (moment.replace(tzinfo=None) if zone is None else moment.astimezone(zone)), rest
    except OverflowError:
        return None


def _zone(name: str | None) -> datetime.tzinfo | None:
    """A zone that this machine does not know changes how a moment is written, and not which one it is."""
    if name is None:
        return None
    if (offset := _OFFSET.fullmatch(name)) is not None:
        minutes = int(offset[2]) * 60 + int(offset[3])
        return datetime.timezone(datetime.timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    try:
        return zoneinfo.ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        return datetime.UTC


def _iso(moment: datetime.datetime, rest: int) -> str:
    """
    >>> _iso(datetime.datetime(2020, 1, 1), 0), _iso(datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), 7)
    ('2020-01-01T00:00:00', '2020-01-01T00:00:00.000000007+00:00')
    """
    if not rest:
        return moment.isoformat()
    text = moment.replace(tzinfo=None).isoformat(timespec="microseconds") + f"{rest:03d}"
    return text + moment.isoformat()[len(moment.replace(tzinfo=None).isoformat()) :]


def _python(column: Any) -> list[Any]:
    """Values as Python has them, None for what it has no word for. No error of Arrow leaves this: some repeat them."""
    column = column.cast(_to_us(column.type), safe=False)
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError, LookupError):
        return [_one(scalar) for scalar in column]


def _one(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError, LookupError):
        return None


def _to_us(kind: Any) -> Any:
    """The same type, in microseconds where it is in nanoseconds."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz) if kind.unit == "ns" else kind
    if pa.types.is_duration(kind):
        return pa.duration("us") if kind.unit == "ns" else kind
    if pa.types.is_time64(kind):
        return pa.time64("us")
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_to_us(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_to_us(kind.value_type))
    return kind


def _json(value: Any) -> Any:
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no such number
    if isinstance(value, list):
        return [_json(item) for item in value]
    if isinstance(value, dict):
        return {key: _json(item) for key, item in value.items()}
    return value


def has_json(kind: Any) -> bool:
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return False
    return not (pa.types.is_map(kind) or pa.types.is_union(kind))

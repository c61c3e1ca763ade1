"""CSV: a record is one line, whose columns are configured, or a header and one line.

CSV has texts alone. An empty cell is null. A cell of a field of which it is known what it can be is read as that, or
stays the text that it is, which is then refused by its field: `4,5` where points are configured, `n/a`, `NaN`.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agents.protocol.formats.contract import Encoding, UnreadableError
from schemas.events import Reason

Kinds = Mapping[str, frozenset[str]]
"""Field -> out of `number`, `text`, `boolean`: what it can be."""

_NUMBER = re.compile(r"\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*", re.ASCII)
# Where a text can stand as well: so that ids such as 007 keep their zeros.
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", re.ASCII)
_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class CsvEncoding(Encoding):
    """CSV of one line. Args: columns: None where each record names them in a line of its own."""

    kinds: Kinds
    columns: tuple[str, ...] | None = None
    delimiter: str = ","
    decimal: str = "."

    def read(self, data: bytes, header: bytes | None) -> Any:
        try:
            text = data.decode("utf-8-sig")
            # Strict, or a quote that never ends would be a cell that ends there.
            lines = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter, strict=True)]  # noqa: C416
        except (UnicodeDecodeError, csv.Error):
            raise UnreadableError(Reason.UNREADABLE) from None
        lines = [line for line in lines if line]
        columns = self.columns
        if columns is None:
            if len(lines) == 1:
                raise UnreadableError(Reason.NO_EVENT)
            columns, lines = tuple(lines[0]) if lines else (), lines[1:]
            if len(set(columns)) < len(columns):
                raise UnreadableError(Reason.WRONG_COLUMNS)
        elif len(lines) == 1 and tuple(lines[0]) == columns:
            raise UnreadableError(Reason.NO_EVENT)
        if len(lines) != 1:
            raise UnreadableError(Reason.UNREADABLE)
        if len(lines[0]) != len(columns):
            raise UnreadableError(Reason.WRONG_COLUMNS)
        return {
            name: cell(text, self.kinds.get(name), self.decimal) for name, text in zip(columns, lines[0], strict=True)
        }


def cell(text: str, kinds: frozenset[str] | None, decimal: str = ".") -> Any:
    """Return the value of a cell.

    >>> cell("4,5", frozenset({"number"}), ","), cell("4,5", frozenset({"number"})), cell("007", frozenset({"text"}))
    (4.5, '4,5', '007')
    """
    if not text:
        return None
    if kinds is None or kinds == {"text"}:
        return text
    if "boolean" in kinds and text.strip().lower() in _BOOLEANS:
        return _BOOLEANS[text.strip().lower()]
    if "number" not in kinds:
        return text
    plain = text
    if decimal != ".":
        if "." in text:  # a point would be one of thousands
            return text
        plain = text.replace(decimal, ".")
    if "text" in kinds:
        return _number(plain) if _JSON_NUMBER.fullmatch(plain) else text
    found = _NUMBER.fullmatch(plain)
    return text if found is None else _number(found[1], text)


def _number(digits: str, otherwise: Any = None) -> Any:
    if len(digits) <= 18 and digits.lstrip("+-").isdigit():
        return int(digits)
    value = float(digits)
    return value if math.isfinite(value) else (digits if otherwise is None else otherwise)

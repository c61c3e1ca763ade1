"""CSV: a record is one line, whose columns are configured, or a header and one line.

CSV has texts alone. An empty cell is null, in quotes or without. A cell of a field of which it is known what it can be
is read as that (`agents.protocol.formats.values`), or stays the text that it is, which is then refused by its field:
`4,5` where points are configured, `n/a`.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import Any, ClassVar

from agents.protocol.formats.contract import Encoding, UnreadableError
from agents.protocol.formats.values import Kinds, cell
from schemas.events import Reason


@dataclass(frozen=True, slots=True)
class CsvEncoding(Encoding):
    """CSV of one line. Args: columns: None where each record names them in a line of its own."""

    json_types: ClassVar[bool] = True
    kinds: Kinds
    columns: tuple[str, ...] | None = None
    delimiter: str = ","
    decimal: str = "."
    encoding: str = "utf-8"

    def read(self, data: bytes, header: bytes | None) -> Any:
        try:
            text = data.decode(self.encoding).removeprefix("\ufeff")
            # Strict, or a quote that never ends would be a cell that ends there.
            lines = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter, strict=True)]  # noqa: C416
        except (UnicodeError, csv.Error):
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

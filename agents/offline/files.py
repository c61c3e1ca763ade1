"""Rows of a file as the JSON objects that a raw topic holds: CSV, Parquet and JSON Lines, plain or gzipped.

Streaming: memory is one batch, whatever the size of the file. A value depends on its own text alone, never on the
other rows of its batch or column, so a row is the same JSON at every batch size and when a replay is resumed mid-file.

CSV cells: empty is null (`""` is an empty text); what JSON would call a number is that number; everything else is text,
so `007`, `NaN`, `1e400` and whole numbers of 19 digits and more stay as they are. Parquet times become ISO 8601 texts.
"""

from __future__ import annotations

import datetime
import decimal
import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from schemas.errors import PrivstreamError

Row = dict[str, Any]
BATCH_ROWS = 4096
_READ_BYTES = 1 << 20
_KINDS = {
    ".csv": ("csv", False),
    ".csv.gz": ("csv", True),
    ".parquet": ("parquet", False),
    ".jsonl": ("jsonl", False),
    ".jsonl.gz": ("jsonl", True),
    ".ndjson": ("jsonl", False),
    ".ndjson.gz": ("jsonl", True),
}
# JSON's own grammar of numbers, so that ids such as 007 keep their zeros. 18 digits always fit 64 bits.
_WHOLE = r"^-?(0|[1-9][0-9]{0,17})$"
_NUMBER = r"^-?(0|[1-9][0-9]{0,17})(\.[0-9]+)?([eE][+-]?[0-9]+)?$"


class FileError(PrivstreamError):
    """The file cannot be used as asked. Names lines and columns, never what is in them."""


@dataclass(frozen=True, slots=True)
class FileSummary:
    """What one pass over the file tells. `rows` is too high where CSV cells hold line breaks, or lines are empty."""

    digest: str
    rows: int


@dataclass(frozen=True, slots=True)
class RowFile:
    """A readable file of rows. Made by `open_rows`."""

    path: Path
    kind: str
    gzipped: bool

    def summary(self) -> FileSummary:
        """SHA-256 of the file's bytes, and its rows. One pass, constant memory. Raises: FileError."""
        digest = hashlib.sha256()
        try:
            with self.path.open("rb") as file:
                while block := file.read(_READ_BYTES):
                    digest.update(block)
            return FileSummary(digest.hexdigest(), self._count())
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(self.path, error) from None

    def columns(self) -> tuple[str, ...] | None:
        """Columns that every row has; None for JSON Lines, where each row names its own. Raises: FileError."""
        try:
            if self.kind == "parquet":
                return tuple(pa_parquet.read_schema(self.path).names)
            if self.kind == "csv":
                with self._open() as stream:
                    return tuple(_csv_header(stream, pa_csv.ParseOptions(newlines_in_values=True)))
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(self.path, error) from None
        return None

    def batches(self, *, skip: int = 0, batch_rows: int = BATCH_ROWS) -> Iterator[list[Row]]:
        """Rows in file order, without the first `skip`, at most `batch_rows` at a time. Raises: FileError."""
        readers: dict[str, Callable[[int], Iterator[_Rows | _Lines]]]
        readers = {"csv": self._csv, "parquet": self._parquet, "jsonl": self._jsonl}
        try:
            for rows in readers[self.kind](batch_rows):
                if skip >= len(rows):
                    skip -= len(rows)
                    continue
                decoded = rows.decode(skip)
                skip = 0
                for at in range(0, len(decoded), batch_rows):
                    yield decoded[at : at + batch_rows]
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(self.path, error) from None

    def _count(self) -> int:
        if self.kind == "parquet":
            return int(pa_parquet.read_metadata(self.path).num_rows)
        lines, last = 0, b"\n"
        with self._open() as stream:
            while block := stream.read(_READ_BYTES):
                lines += block.count(b"\n")
                last = block[-1:]
        lines += last != b"\n"
        return max(lines - 1, 0) if self.kind == "csv" else lines

    def _open(self) -> Any:
        raw = pa.OSFile(str(self.path), "rb")
        return pa.CompressedInputStream(raw, "gzip") if self.gzipped else raw

    def _csv(self, batch_rows: int) -> Iterator[_Rows]:
        refused: list[int] = []

        def refuse(row: Any) -> str:
            # Arrow's own message would repeat the row.
            refused.append(row.number)
            return "error"

        # One thread: only then does Arrow know the number of a broken row.
        reading = {"use_threads": False, "block_size": _READ_BYTES}
        parse = pa_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=refuse)
        try:
            with self._open() as stream:
                names = _csv_header(stream, parse)
            if len(set(names)) < len(names):
                raise FileError(
                    f"{self.path}: two columns have the same name. Fix: give each column a name of its own."
                )
            convert = pa_csv.ConvertOptions(
                column_types={name: pa.string() for name in names},
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=[""],
            )
            if not names:
                return
            with self._open() as stream:
                reader = pa_csv.open_csv(stream, pa_csv.ReadOptions(**reading), parse, convert)
                for batch in reader:
                    for at in range(0, batch.num_rows, batch_rows):
                        yield _Rows(batch.slice(at, batch_rows), _cells)
        except pa.ArrowInvalid as error:
            if refused and refused[0] is not None:
                raise FileError(
                    f"{self.path}, line {refused[0]}: another number of cells than the header has. "
                    "Fix: quote cells that hold a comma, or remove the line."
                ) from None
            raise _unreadable(self.path, error) from None

    def _parquet(self, batch_rows: int) -> Iterator[_Rows]:
        with pa_parquet.ParquetFile(self.path) as file:
            for field in file.schema_arrow:
                if not _has_json(field.type):
                    raise FileError(
                        f"{self.path}: column {field.name} is of type {field.type}, which JSON cannot hold. "
                        "Fix: leave it out, or store it as text."
                    )
            for batch in file.iter_batches(batch_size=batch_rows):
                yield _Rows(batch, _values)

    def _jsonl(self, batch_rows: int) -> Iterator[_Lines]:
        # Line by line instead of Arrow's reader, which adds a null for each missing field and turns texts into times.
        at, rest = 0, b""
        with self._open() as stream:
            while True:
                block = stream.read(_READ_BYTES)
                lines = (rest + block).split(b"\n")
                rest = lines.pop() if block else b""
                for first in range(0, len(lines), batch_rows):
                    part = lines[first : first + batch_rows]
                    numbered = [(at + first + i + 1, line) for i, line in enumerate(part) if line.strip()]
                    yield _Lines(self.path, numbered)
                at += len(lines)
                if not block:
                    return


def open_rows(path: Path | str) -> RowFile:
    """The file, its format told by its name. Raises: FileError if it is not there or of another format."""
    path = Path(path)
    name = path.name.lower()
    for ending, (kind, gzipped) in _KINDS.items():
        if name.endswith(ending):
            if not path.is_file():
                raise FileError(f"{path}: there is no such file. Fix: check the path.")
            return RowFile(path, kind, gzipped)
    endings = ", ".join(_KINDS)
    raise FileError(f"{path}: this format is not known. Fix: name a file that ends in one of {endings}.")


@dataclass(frozen=True, slots=True)
class _Rows:
    """A record batch whose rows are made only if they are wanted: a resumed replay skips many."""

    batch: Any
    column: Callable[[Any], list[Any]]

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def decode(self, skip: int) -> list[Row]:
        batch = self.batch.slice(skip)
        names = batch.schema.names
        columns = [self.column(column) for column in batch.columns]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


@dataclass(frozen=True, slots=True)
class _Lines:
    path: Path
    lines: list[tuple[int, bytes]]

    def __len__(self) -> int:
        return len(self.lines)

    def decode(self, skip: int) -> list[Row]:
        rows = []
        for number, line in self.lines[skip:]:
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError:
                row = None
            if not isinstance(row, dict):
                raise FileError(f"{self.path}, line {number}: not a JSON object. Fix: correct or remove the line.")
            rows.append(row)
        return rows


def _csv_header(stream: Any, parse: Any) -> list[str]:
    """Column names, read by Arrow with its own rules for quotes and byte order marks; none in an empty file."""
    reading = pa_csv.ReadOptions(use_threads=False, block_size=_READ_BYTES)
    try:
        return list(pa_csv.open_csv(stream, reading, parse).schema.names)
    except pa.ArrowInvalid as error:
        if "Empty CSV" in str(error):
            return []
        raise


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


def _values(column: Any) -> list[Any]:
    """A Parquet column as JSON values."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    plain = column.to_pylist()
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_boolean(kind):
        return list(plain)
    return [_json(value) for value in plain]


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


def _has_json(kind: Any) -> bool:
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return False
    return not (pa.types.is_map(kind) or pa.types.is_union(kind))


def _unreadable(path: Path, error: Exception) -> FileError:
    """Without the library's words where they could repeat a row."""
    system = error.strerror if isinstance(error, OSError) else None
    what = system or "damaged, cut off, not UTF-8, or not of the format that its name says"
    return FileError(f"{path}: cannot be read ({what}). Fix: check the file, or write it again.")

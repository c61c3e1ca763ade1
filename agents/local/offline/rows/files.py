"""Rows of a file as the JSON objects that a raw topic holds: CSV, Parquet and JSON Lines, plain or gzipped.

A line of JSON Lines that is no object is a row as well, and refused as a record of a topic is. CSV and Parquet have no
such rows: where cells of a CSV do not fit its header, nobody can tell where the next row begins.

Streaming: memory is one batch, whatever the size of the file. A value depends on its own text alone, never on the
other rows of its batch or column, so a row is the same JSON at every batch size and when a replay is resumed mid-file.

CSV has texts alone. An empty cell is null (`""` is an empty text). Where it is known what a column's values can be
(`RowFile.kinds`), each cell is read as that, or stays the text that it is: `4.0` is a text where texts are declared,
`007` and ` 7` are numbers where numbers are. Elsewhere what JSON would call a number is that number, and everything
else is text: `007`, `NaN`, `1e400`, whole numbers of 19 digits and more. Parquet times become ISO 8601 texts.
"""

from __future__ import annotations

import codecs
import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from agents.local.offline.rows.cells import csv_column, has_json, values
from agents.local.offline.rows.lines import BrokenLine, Lines, Row, json_lines
from engines.core.contract import ScalarKind
from schemas.errors import PrivstreamError, said_alone

BATCH_ROWS = 4096
LOOKED_AT = 100
"""Lines at most, of which one must be a JSON object: else the file is of another format."""
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
# A name in a header is decoded by Arrow's Python part, with Python's own error.
_UNREADABLE = (OSError, pa.ArrowException, UnicodeDecodeError)
_GZIP = b"\x1f\x8b"
"""What such files begin with."""
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)")
_BROKEN_ROW = re.compile(r"CSV parse error: Row #(\d+): Expected \d+ columns")
_SEPARATORS = {";": "a semicolon", "\t": "a tab", "|": "a bar"}


class FileError(PrivstreamError):
    """The file cannot be used as asked. Names lines and columns, never what is in them."""

    @classmethod
    def empty(cls, path: Path) -> FileError:
        return cls(f"{path}: the file has no rows. Fix: name a file with rows behind its header.")


@dataclass(frozen=True, slots=True)
class FileSummary:
    """What one pass over the file tells. `rows` is too high where CSV cells hold line breaks, or lines are empty."""

    digest: str
    rows: int


@dataclass(frozen=True, slots=True)
class RowFile:
    """A readable file of rows. Made by `open_rows`.

    Attributes:
        kinds: what values of a column can be, where that is known; for files that hold texts alone.
    """

    path: Path
    kind: str
    gzipped: bool
    kinds: Mapping[str, frozenset[ScalarKind]] = field(default_factory=dict)

    def summary(self) -> FileSummary:
        """SHA-256 of the file's bytes, and its rows. One pass, constant memory. Raises: FileError."""
        digest = hashlib.sha256()
        with self._said(), self.path.open("rb") as file:
            while block := file.read(_READ_BYTES):
                digest.update(block)
        return FileSummary(digest.hexdigest(), self.count())

    def count(self) -> int:
        """Its rows, as `FileSummary` has them. Raises: FileError."""
        with self._said():
            return self._count()

    def columns(self) -> tuple[str, ...] | None:
        """Columns that every row has; None for JSON Lines, where each row names its own. Raises: FileError."""
        with self._said():
            if self.kind == "parquet":
                return tuple(pa_parquet.read_schema(self.path).names)
            return self._csv_names() if self.kind == "csv" else None

    def batches(self, *, skip: int = 0, batch_rows: int = BATCH_ROWS) -> Iterator[list[Row]]:
        """Rows in file order, without the first `skip`, at most `batch_rows` at a time.

        A line that is no JSON object is a row, too: whoever takes rows in refuses it by itself. Raises: FileError.
        """
        readers: dict[str, Callable[[int], Iterator[_Rows | Lines]]]
        readers = {"csv": self._csv, "parquet": self._parquet, "jsonl": self._jsonl}
        with self._said():
            for rows in readers[self.kind](batch_rows):
                if skip >= len(rows):
                    skip -= len(rows)
                    continue
                decoded = rows.decode(skip)
                skip = 0
                for at in range(0, len(decoded), batch_rows):
                    yield decoded[at : at + batch_rows]

    def objects(self) -> Iterator[list[dict[str, Any]]]:
        """All rows, for whom one that is none is an error. Raises: FileError."""
        for rows in self.batches():
            for row in rows:
                if isinstance(row, BrokenLine):
                    raise FileError(
                        f"{self.path}, line {row.number}: not a JSON object. Fix: correct or remove the line."
                    )
            yield [row for row in rows if not isinstance(row, BrokenLine)]

    def _csv_names(self) -> tuple[str, ...]:
        """Raises: FileError where two are the same, or the header is one name with what others put between cells."""
        with self._open() as stream:
            try:
                names = tuple(_csv_header(stream.read(_READ_BYTES)))
            except UnicodeDecodeError as error:
                raise self._unreadable(error) from None
        if len(set(names)) < len(names):
            raise FileError(f"{self.path}: two columns have the same name. Fix: give each column a name of its own.")
        other = next((each for each in _SEPARATORS if len(names) == 1 and each in names[0]), None)
        if other is not None:
            raise FileError(
                f"{self.path}, line 1: one column, in whose name there is {_SEPARATORS[other]}. "
                "Fix: put commas between cells, and a point into numbers."
            )
        return names

    @contextlib.contextmanager
    def _said(self) -> Iterator[None]:
        """Whatever a library says of the file as a `FileError`, and nothing else of it."""
        with said_alone():
            try:
                yield
            except _UNREADABLE as error:
                raise self._unreadable(error) from None

    def _unreadable(self, error: Exception) -> FileError:
        """Without the library's words where they could repeat a row."""
        if isinstance(error, OSError) and error.strerror:
            return FileError(f"{self.path}: cannot be read ({error.strerror}). Fix: check the file.")
        if self.kind != "parquet":
            try:
                if (place := self._not_utf8()) is not None:
                    return FileError(
                        f"{self.path}, line {place[0]}, byte {place[1]}: not UTF-8. Fix: write the file as UTF-8, for "
                        f"example with iconv -f {self._likely()} -t UTF-8."
                    )
            except (OSError, pa.ArrowException):
                with self.path.open("rb") as file:
                    compressed = file.read(len(_GZIP)) == _GZIP
                if compressed:
                    return FileError(f"{self.path}: gzip that is damaged or cut off. Fix: write or copy it again.")
                return FileError(
                    f"{self.path}: not gzip, as its name says. Fix: rename it without .gz, or compress it with gzip."
                )
        what = "damaged, cut off, or not of the format that its name says"
        return FileError(f"{self.path}: cannot be read ({what}). Fix: check the file, or write it again.")

    def _not_utf8(self) -> tuple[int, int] | None:
        """Line and byte in it, from 1 on, where the file is no longer UTF-8."""
        decoder, line, rest = codecs.getincrementaldecoder("utf-8")(), 1, 0
        with self._open() as stream:
            while True:
                block = stream.read(_READ_BYTES)
                pending = len(decoder.getstate()[0])
                try:
                    decoder.decode(block, final=not block)
                except UnicodeDecodeError as error:
                    good = block[: max(0, error.start - pending)]
                    line += good.count(b"\n")
                    begin = good.rfind(b"\n") + 1
                    return line, len(good) - begin + 1 + (0 if begin else rest)
                if not block:
                    return None
                line += block.count(b"\n")
                end = block.rfind(b"\n")
                rest = len(block) - end - 1 if end >= 0 else rest + len(block)

    def _likely(self) -> str:
        """What text that is no UTF-8 most often is: as its byte order mark says, or what old spreadsheets write."""
        with self._open() as stream:
            return "UTF-16" if stream.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "LATIN1"

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
        # One thread: only then does Arrow know the number of a broken row. No function of ours to call for it: Arrow's
        # threads would hold that, and one that drops it while the interpreter ends aborts the process.
        reading = {"use_threads": False, "block_size": _READ_BYTES}
        parse = pa_csv.ParseOptions(newlines_in_values=True)
        try:
            names = self._csv_names()
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
                        yield _Rows(batch.slice(at, batch_rows), partial(csv_column, kinds=self.kinds))
        except pa.ArrowInvalid as error:
            if (broken := _BROKEN_ROW.match(str(error))) is not None:
                raise FileError(  # without Arrow's own message, which repeats the row
                    f"{self.path}, line {broken[1]}: another number of cells than the header has. "
                    "Fix: quote cells that hold a comma, or remove the line."
                ) from None
            raise self._unreadable(error) from None

    def _parquet(self, batch_rows: int) -> Iterator[_Rows]:
        with pa_parquet.ParquetFile(self.path) as file:
            for field in file.schema_arrow:
                if not has_json(field.type):
                    raise FileError(
                        f"{self.path}: column {field.name} is of type {field.type}, which JSON cannot hold. "
                        "Fix: leave it out, or store it as text."
                    )
            for batch in file.iter_batches(batch_size=batch_rows):
                yield _Rows(batch, values)

    def _jsonl(self, batch_rows: int) -> Iterator[Lines]:
        with self._open() as stream:
            first = next((lines for lines in json_lines(stream, LOOKED_AT) if len(lines)), Lines([]))
        if first.lines and not any(isinstance(row, dict) for row in first.decode(0)):
            for _, line in first.lines:
                line.decode("utf-8")  # text that is none is named as that
            raise FileError(
                f"{self.path}, line {first.lines[0][0]}: not a JSON object, and none of the first lines is one. "
                "Fix: write one JSON object on each line; name a file of another format by its ending."
            )
        with self._open() as stream:
            yield from json_lines(stream, batch_rows)


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
    column: Callable[[str, Any], list[Any]]

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def decode(self, skip: int) -> list[Row]:
        batch = self.batch.slice(skip)
        names = batch.schema.names
        columns = [self.column(name, column) for name, column in zip(names, batch.columns, strict=True)]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _csv_header(block: bytes) -> list[str]:
    """Column names, read by Arrow with its own rules for quotes and byte order marks; none in an empty file.

    Args: block: the file's first bytes. Rows behind the header are not looked at: what is wrong there is said when
        they are read.
    Raises: pa.ArrowInvalid; UnicodeDecodeError.
    """
    at, quotes, empty = len(block), 0, True
    for line in _LINE.finditer(block):
        empty = empty and not line[0].strip()
        quotes += line[0].count(b'"')
        if not empty and quotes % 2 == 0:
            at = line.end()
            break
    reading = pa_csv.ReadOptions(use_threads=False, block_size=_READ_BYTES)
    try:
        header = pa.BufferReader(block[:at])
        return list(pa_csv.open_csv(header, reading, pa_csv.ParseOptions(newlines_in_values=True)).schema.names)
    except pa.ArrowInvalid as error:
        if "Empty CSV" in str(error):
            return []
        raise

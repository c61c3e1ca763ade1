"""Rows of a file as the JSON objects that a raw topic holds: CSV, Parquet and JSON Lines, plain or gzipped.

A line of JSON Lines that is no object is a row as well, and refused as a record of a topic is. CSV and Parquet have no
such rows: where cells of a CSV do not fit its header, nobody can tell where the next row begins.

Streaming: memory is one batch, whatever the size of the file. A value depends on its own text alone, never on the
other rows of its batch or column, so a row is the same JSON at every batch size and when a replay is resumed mid-file.

CSV has texts alone. An empty cell is null. Where it is known what a column's values can be (`RowFile.kinds`), a cell
is read as in a topic (`agents.protocol.formats.values`). Elsewhere what JSON would call a number is that number, and
everything else is text: `007`, `NaN`, `1e400`, numbers of 19 digits and more. Timestamps of Parquet become ISO 8601
texts, in UTC where they have a zone, and in the time column of a stream what its `time.format` says.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import datetime
import gzip
import hashlib
import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from agents.local.offline.names import NO_HEADER, lacking_column, reads_as_value
from agents.protocol.formats.build import ROWS
from agents.protocol.formats.contract import UnreadableError
from agents.protocol.formats.json_text import read_json
from agents.protocol.formats.reader import paths_of
from agents.protocol.formats.values import (
    JSON_FRACTION,
    NOT_FINITE,
    NUMBER,
    TEXT,
    Kinds,
    cell,
    json_whole,
    number,
    plain,
    with_point,
)
from agents.protocol.ingest.decode import EventFields
from engines.core.registry import build_domain
from schemas.config import Stream
from schemas.config.formats import CsvSection
from schemas.config.timing import NUMERIC_FORMATS, Timing
from schemas.errors import PrivstreamError, without_context
from schemas.steps import epoch_us

_READ_BYTES = 1 << 20


class BrokenLine(bytes):
    """A line that is no JSON object, as it stands in the file, with its number, from 1 on."""

    number: int


Row = dict[str, Any] | BrokenLine


Part = tuple[int, Callable[[int], list[Row]]]
"""How many rows come next, and what makes those from a number on: a resumed replay skips many."""


def _json_lines(stream: Iterable[bytes], batch_rows: int) -> Iterator[list[tuple[int, bytes]]]:
    """Yield the lines of a file that are not empty, each with its number, at most so many at a time.

    Line by line, since Arrow's reader adds a null for each missing field and turns texts into times.
    """
    numbered = enumerate(stream, 1)
    while lines := list(islice(numbered, batch_rows)):
        if lines[0][0] == 1:
            lines[0] = 1, lines[0][1].removeprefix(codecs.BOM_UTF8)
        yield [(number, line.removesuffix(b"\n")) for number, line in lines if line.strip()]


def _json_rows(lines: list[tuple[int, bytes]], skip: int = 0) -> list[Row]:
    return [_json_row(line, number) for number, line in lines[skip:]]


def _json_row(line: bytes, number: int) -> Row:
    with contextlib.suppress(UnreadableError):
        if isinstance(row := read_json(line), dict):
            return row
    broken = BrokenLine(line)
    broken.number = number
    return broken


_WHOLE = json_whole("{0,17}")  # 18 digits always fit 64 bits
_NUMBER = re.compile(_WHOLE + JSON_FRACTION, re.ASCII)


def _csv_column(name: str, column: Any, *, kinds: Kinds, decimal: str) -> list[Any]:
    """Return the cells of a CSV column as what its values can be."""
    wanted = kinds.get(name)
    if wanted == TEXT:
        return list(column.to_pylist())
    if wanted is None or "number" in wanted:
        present = column.is_valid()
        whole = pc.match_substring_regex(column, f"^{_WHOLE}$")
        if _all(whole, present):
            return list(column.cast(pa.int64()).to_pylist())
        is_number = pc.match_substring_regex(column, f"^{_NUMBER.pattern}$")
        # Where texts can stand too, some digits count that floats have no room for.
        if wanted in (None, NUMBER) and decimal == "." and _all(is_number, present) and not pc.any(whole).as_py():
            floats = column.cast(pa.float64())
            if pc.all(pc.is_finite(floats)).as_py() is not False:
                return list(floats.to_pylist())
    read = partial(_guessed, decimal=decimal) if wanted is None else partial(cell, kinds=wanted, decimal=decimal)
    return [None if text is None else read(text) for text in column.to_pylist()]


def _guessed(text: str, *, decimal: str) -> Any:
    """Return a cell of which nobody knows what it can be."""
    pointed = with_point(text, decimal)
    value = number(pointed) if pointed is not None and _NUMBER.fullmatch(pointed) else text
    return text if value is NOT_FINITE else value


def _all(mask: Any, present: Any) -> bool:
    return bool(pc.all(pc.or_(mask.fill_null(True), pc.invert(present))).as_py())


def values(name: str, column: Any) -> list[Any]:
    """Return a Parquet column as JSON values."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_timestamp(kind):
        return [None if each is None else each.isoformat() for each in moments(column)]
    found = _python(column)
    if pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_boolean(kind):
        return list(found)
    if pa.types.is_floating(kind) and pc.all(pc.is_finite(column)).as_py() is not False:
        return list(found)
    return [_json(value) for value in found]


def write_time(moment: datetime.datetime, time: Timing) -> str | int | float | None:
    """Return a timestamp as the configuration writes times; None where that cannot be, as of NaT or of no year there.

    Args: moment: one without a zone is of the configured one.
    """
    try:
        return _time_text(moment, time)
    except Exception:  # of whatever the code of a zone raises: refused as a row without a time
        return None


def _time_text(moment: datetime.datetime, time: Timing) -> str | int | float:
    if moment != moment:
        raise ValueError("NaT, which pandas counts among times")
    if time.format == "iso":
        return moment.isoformat()
    aware = moment.replace(tzinfo=time.zone) if moment.tzinfo is None else moment
    if time.format not in NUMERIC_FORMATS:
        return aware.astimezone(time.zone).strftime(time.format)
    ns, unit = epoch_us(aware.astimezone(datetime.UTC)) * 1000, NUMERIC_FORMATS[time.format]
    return ns // unit if ns % unit == 0 else ns / unit


def moments(column: Any) -> list[datetime.datetime | None]:
    """Return timestamps as times, cut to the microsecond, in UTC where they have a zone; None where no year has it."""
    kind = column.type
    if kind.tz is not None:
        column = column.cast(pa.timestamp(kind.unit, "UTC"))
    if kind.unit == "ns":  # Arrow's casts round what is before 1970 up, maybe into the next step
        column = pc.floor_temporal(column, unit="microsecond")
    return _python(column)


def _python(column: Any) -> list[Any]:
    """Return values as Python has them, None for what it cannot hold. Errors of Arrow repeat values: none leaves."""
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
    """Return the same type, in microseconds where it is in nanoseconds."""
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
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, list):
        return [_json(item) for item in value]
    if isinstance(value, dict):
        return {key: _json(item) for key, item in value.items()}
    return plain(value)


def has_json(kind: Any) -> bool:
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return False
    return not (pa.types.is_map(kind) or pa.types.is_union(kind))


BATCH_ROWS = 4096
LOOKED_AT = 100
"""Lines at most, of which one must be a JSON object: else the file is of another format."""
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
_UNREADABLE = (OSError, EOFError, zlib.error, pa.ArrowException, UnicodeError)
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


@contextlib.contextmanager
def private_folder(folder: Path) -> Iterator[None]:
    """Make a folder for what holds true values, which no other user of the machine may read, and let files be written.

    Raises: FileError.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise FileError(f"{folder}: {reason}. Fix: name a folder that this user may write to.") from None


@dataclass(frozen=True, slots=True)
class FileSummary:
    """What one pass over the file tells. `rows` is too high where CSV cells hold line breaks, or lines are empty."""

    digest: str
    rows: int


class _Utf8(io.RawIOBase):
    """A text file of another encoding in UTF-8. To Arrow it is a file: its own way calls decoders from its threads."""

    def __init__(self, stream: io.BufferedIOBase, encoding: str) -> None:
        self._stream, self._left = stream, b""
        self._decoder = codecs.getincrementaldecoder(encoding)()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            block = self._stream.read(_READ_BYTES)
            self._left = self._decoder.decode(block, final=not block).encode()
            if not block:
                break
        found, self._left = self._left[: len(buffer)], self._left[len(buffer) :]
        buffer[: len(found)] = found
        return len(found)

    def close(self) -> None:
        self._stream.close()
        super().close()


@dataclass(frozen=True, slots=True)
class RowFile:
    """A readable file of rows. Made by `open_rows`.

    Attributes:
        kinds: what values of a column can be, where that is known; for files that hold texts alone.
        csv: layout of such files.
        time: of the stream that the rows are for, in whose format the timestamps of its column are written.
        only: columns that rows have; None: all. Others are read as well, for what may be wrong with them, and dropped.
    """

    path: Path
    kind: str
    gzipped: bool
    kinds: Kinds = field(default_factory=dict)
    csv: CsvSection = field(default_factory=CsvSection)
    time: Timing | None = None
    only: frozenset[str] | None = None

    def summary(self) -> FileSummary:
        """Return the SHA-256 of the file's bytes, and its rows. One pass, constant memory. Raises: FileError."""
        digest = hashlib.sha256()
        with self._said(), self.path.open("rb") as file:
            while block := file.read(_READ_BYTES):
                digest.update(block)
        return FileSummary(digest.hexdigest(), self.count())

    def count(self) -> int:
        """Return how many rows there are, as in `FileSummary`. Raises: FileError."""
        with self._said():
            if self.kind == "parquet":
                return int(pa_parquet.read_metadata(self.path).num_rows)
            lines, returns, last = 0, 0, b"\n"
            with self._open() as stream:
                while block := stream.read(_READ_BYTES):
                    lines += block.count(b"\n")
                    returns += block.count(b"\r")
                    last = block[-1:]
        if lines == 0 and self.kind == "csv":  # lines of an old Mac, which Arrow reads as well
            lines, last = returns, b"\n" if last == b"\r" else last
        lines += last != b"\n"
        return max(lines - 1, 0) if self.kind == "csv" else lines

    def columns(self) -> tuple[str, ...] | None:
        """Return columns that every row has; None for JSON Lines, where each row names its own. Raises: FileError."""
        with self._said():
            if self.kind == "parquet":
                return tuple(pa_parquet.read_schema(self.path).names)
            return self._csv_names() if self.kind == "csv" else None

    def batches(self, *, skip: int = 0, batch_rows: int = BATCH_ROWS) -> Iterator[list[Row]]:
        """Yield rows in file order, without the first `skip`, at most `batch_rows` at a time.

        A line that is no JSON object is a row, too: whoever takes rows in refuses it by itself. Raises: FileError.
        """
        readers: dict[str, Callable[[int], Iterator[Part]]]
        readers = {"csv": self._csv, "parquet": self._parquet, "jsonl": self._jsonl}
        with self._said():
            for rows, decode in readers[self.kind](batch_rows):
                if skip < rows:
                    yield decode(skip)
                skip = max(0, skip - rows)

    def objects(self) -> Iterator[list[dict[str, Any]]]:
        """Yield all rows, each of which must be an object. Raises: FileError."""
        for rows in self.batches():
            broken = next((row for row in rows if isinstance(row, BrokenLine)), None)
            if broken is not None:
                raise FileError(
                    f"{self.path}, line {broken.number}: not a JSON object. Fix: correct or remove the line."
                )
            yield [row for row in rows if isinstance(row, dict)]

    def _csv_names(self) -> tuple[str, ...]:
        """Raises: FileError where two are the same, or the header is one name with what others put between cells."""
        with self._open() as stream:
            try:
                names = tuple(_csv_header(stream.read(_READ_BYTES), self.csv.delimiter))
            except UnicodeError as error:
                raise self._unreadable(error) from None
        if names and (names[0].lower().startswith("sep=") or (len(names) == 1 and names[0].startswith("#"))):
            raise FileError(
                f"{self.path}, line 1: a comment, or the separator for a spreadsheet, and not the names of the "
                "columns. Fix: remove the line."
            )
        if len(set(names)) < len(names):
            raise FileError(f"{self.path}: two columns have the same name. Fix: give each column a name of its own.")
        other = next((each for each in _SEPARATORS if len(names) == 1 and each in names[0]), None)
        if other is not None:
            raise FileError(
                f"{self.path}, line 1: one column, in whose name there is {_SEPARATORS[other]}. "
                "Fix: say so in [streams.csv], delimiter and decimal (init: --set csv.delimiter=...); or put commas "
                "between cells, and a point into numbers."
            )
        return names

    @contextlib.contextmanager
    def _said(self) -> Iterator[None]:
        """Turn whatever a library says of the file into a `FileError`, without a word of it."""
        with without_context():
            try:
                yield
            except _UNREADABLE as error:
                raise self._unreadable(error) from None

    def _unreadable(self, error: Exception) -> FileError:
        """Return what is wrong with the file, without the library's words: they could repeat a row."""
        if isinstance(error, OSError) and error.strerror:
            return FileError(f"{self.path}: cannot be read ({error.strerror}). Fix: check the file.")
        if isinstance(error, UnicodeError) and self.csv.encoding != "utf-8":
            return FileError(
                f"{self.path}: not {self.csv.encoding}, as encoding in [streams.csv] says. Fix: correct the key."
            )
        if self.kind != "parquet":
            try:
                said = "; or set encoding in [streams.csv] (init: --set csv.encoding=...)" if self.kind == "csv" else ""
                if (place := self._not_utf8()) is not None:
                    return FileError(
                        f"{self.path}, line {place[0]}, byte {place[1]}: not UTF-8. Fix: write the file as UTF-8, for "
                        f"example with iconv -f {self._likely()} -t UTF-8{said}."
                    )
            except (OSError, EOFError, zlib.error):
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
        """Return line and byte in it, from 1 on, where the file is no longer UTF-8."""
        with self._open() as stream:
            for number, line in enumerate(stream, 1):
                try:
                    line.decode("utf-8")
                except UnicodeDecodeError as error:
                    return number, error.start + 1
        return None

    def _likely(self) -> str:
        """Return what text that is no UTF-8 most often is: as its byte order mark says, or what spreadsheets wrote."""
        with self._open_bytes() as stream:
            return "UTF-16" if stream.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "LATIN1"

    def _open(self) -> io.BufferedIOBase:
        """Open the text, in UTF-8."""
        stream = self._open_bytes()
        if self.kind != "csv" or self.csv.encoding == "utf-8":
            return stream
        return io.BufferedReader(_Utf8(stream, self.csv.encoding), _READ_BYTES)

    def _open_bytes(self) -> io.BufferedIOBase:
        return gzip.open(self.path) if self.gzipped else self.path.open("rb")

    def _csv(self, batch_rows: int) -> Iterator[Part]:
        # One thread: only then does Arrow know the number of a broken row. No function of ours to call for it: Arrow's
        # threads would hold that, and one that drops it while the interpreter ends aborts the process.
        reading = {"use_threads": False, "block_size": _READ_BYTES}
        parse = pa_csv.ParseOptions(newlines_in_values=True, delimiter=self.csv.delimiter)
        try:
            names = self._csv_names()
            convert = pa_csv.ConvertOptions(
                column_types={name: pa.string() for name in names},
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
                null_values=[""],
            )
            if not names:
                return
            with self._open() as stream:
                reader = pa_csv.open_csv(stream, pa_csv.ReadOptions(**reading), parse, convert)
                values_of = partial(_csv_column, kinds=self.kinds, decimal=self.csv.decimal)
                for batch in map(self._wanted, reader):
                    for at in range(0, batch.num_rows, batch_rows):
                        yield _part(batch.slice(at, batch_rows), values_of)
        except pa.ArrowInvalid as error:
            if (broken := _BROKEN_ROW.match(str(error))) is not None:
                held = "comma" if self.csv.delimiter == "," else "delimiter"
                raise FileError(  # without Arrow's own message, which repeats the row
                    f"{self.path}, line {self._line_of(int(broken[1]))}: another number of cells than the header has. "
                    f"Fix: quote cells that hold a {held}, close each quote, or remove the line."
                ) from None
            raise self._unreadable(error) from None

    def _wanted(self, batch: Any) -> Any:
        return batch if self.only is None else batch.select([name for name in batch.schema.names if name in self.only])

    def _line_of(self, row: int) -> int:
        """Return the line in which a row of a CSV begins: Arrow counts rows, header and all, without empty lines."""
        line, stream = row, cast(io.BufferedReader, self._open())
        with contextlib.suppress(csv.Error), io.TextIOWrapper(stream, "utf-8", errors="replace", newline="") as text:
            reader, begins = csv.reader(text, delimiter=self.csv.delimiter), 1
            for cells in reader:
                row -= bool(cells)
                if row == 0:
                    return begins
                begins = reader.line_num + 1
        return line

    def _parquet(self, batch_rows: int) -> Iterator[Part]:
        with pa_parquet.ParquetFile(self.path) as file:
            for field in file.schema_arrow:
                if not has_json(field.type):
                    raise FileError(
                        f"{self.path}: column {field.name} is of type {field.type}, which JSON cannot hold. "
                        "Fix: leave it out, or store it as text."
                    )
            for batch in file.iter_batches(batch_size=batch_rows):
                yield _part(self._wanted(batch), self._values)

    def _values(self, name: str, column: Any) -> list[Any]:
        """Return a Parquet column as the JSON values of an event."""
        time = self.time
        if time is None or name != time.field or not pa.types.is_timestamp(column.type) or time.format == "iso":
            return values(name, column)
        return [None if each is None else write_time(each, time) for each in moments(column)]

    def _jsonl(self, batch_rows: int) -> Iterator[Part]:
        with self._open() as stream:
            first = next(filter(None, _json_lines(stream, LOOKED_AT)), [])
        if first and not any(isinstance(row, dict) for row in _json_rows(first)):
            for _, line in first:
                line.decode("utf-8")  # text that is none is named as that
            raise FileError(
                f"{self.path}, line {first[0][0]}: not a JSON object, and none of the first lines is one. "
                "Fix: write one JSON object on each line; name a file of another format by its ending."
            )
        with self._open() as stream:
            for lines in _json_lines(stream, batch_rows):
                yield len(lines), partial(_json_rows, lines)


def open_rows(path: Path | str, csv: CsvSection | None = None) -> RowFile:
    """Open a file, whose name tells its format.

    Args: csv: layout of CSV, where it has another than commas, points and UTF-8.
    Raises: FileError if it is not there or of another format.
    """
    path = Path(path)
    name = path.name.lower()
    for ending, (kind, gzipped) in _KINDS.items():
        if name.endswith(ending):
            if not path.is_file():
                raise FileError(f"{path}: there is no such file. Fix: check the path.")
            return RowFile(path, kind, gzipped, csv=csv or CsvSection())
    endings = ", ".join(_KINDS)
    raise FileError(f"{path}: this format is not known. Fix: name a file that ends in one of {endings}.")


def _part(batch: Any, values_of: Callable[[str, Any], list[Any]]) -> Part:
    """Return a record batch as rows. Args: values_of: a column's, from its name and itself."""

    def decode(skip: int) -> list[Row]:
        rest = batch.slice(skip)
        names = rest.schema.names
        columns = [values_of(name, column) for name, column in zip(names, rest.columns, strict=True)]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    return batch.num_rows, decode


def _csv_header(block: bytes, delimiter: str) -> list[str]:
    """Return column names, read by Arrow with its own rules for quotes and byte order marks; none of an empty file.

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
        parse = pa_csv.ParseOptions(newlines_in_values=True, delimiter=delimiter)
        return list(pa_csv.open_csv(header, reading, parse).schema.names)
    except pa.ArrowInvalid as error:
        if "Empty CSV" in str(error):
            return []
        raise


def rows_for(path: Path | str, stream: Stream) -> RowFile:
    """Open a file, and hold its columns against the fields that a stream's configuration names, before anything is
    written.

    Raises: FileError where it cannot be opened, or with all columns that are not there. Column names are the file's,
        never what is in them.
    """
    file = open_rows(path, stream.csv)
    columns = file.columns()
    if not columns:  # rows that name their own fields; a file without a single line, which replays as no rows
        return file
    user = stream.privacy.user
    kinds = EventFields.from_stream(stream, build_domain(stream), user=user).kinds
    # Some fields have a role in synthetic records only.
    wanted = {field: f"[streams.domain] {key}" for key, field in stream.domain.roles() if field in kinds}
    wanted[stream.time.field] = "[streams.time] field"
    if user is not None:
        wanted[user] = "[streams.privacy] user"
    mapped = set() if stream.map is None else stream.map.fields.keys()
    others = [name for name in columns if name not in wanted]
    lacking = [
        lacking_column(field, key, others)
        for field, key in wanted.items()
        if field not in mapped and field not in columns and paths_of(ROWS, [field])[0].parts[0] not in columns
    ]
    if lacking and file.kind == "csv" and any(map(reads_as_value, others)):
        raise FileError(f"{file.path}: stream {stream.name} lacks {'; '.join(lacking)}, and {NO_HEADER}")
    if lacking:
        raise FileError(
            f"{file.path}: stream {stream.name} reads columns that the file does not have: {'; '.join(lacking)}. "
            "Fix: name the file's own columns in the configuration, or add them to the file (an empty cell is null)."
        )
    # What expressions read is text, as in a record of CSV.
    texts = {} if stream.map is None else dict.fromkeys(columns, TEXT)
    return replace(file, kinds={**texts, **kinds}, time=None if stream.time.field in mapped else stream.time)

"""Batches of a notebook as the JSON records that a raw topic would hold, so that one decoder judges both.

| batch                                                        | read by                                         |
|--------------------------------------------------------------|-------------------------------------------------|
| dict of numpy arrays or lists, one for each column           | pyarrow; a column of Python objects cell by cell |
| pyarrow Table, RecordBatch or RecordBatchReader              | as it is                                        |
| anything with `__arrow_c_stream__`: polars, duckdb            | pyarrow, by the Arrow PyCapsules                |
| pandas DataFrame                                             | as a dict of its columns                        |
| list of dicts                                                | row by row                                      |

What a row says never depends on other rows of its batch: its columns have types of their own, or each of its cells has.
Else an id of 7.5 would make floats of everybody's, and a time without a zone would take the others' zones away.
None of these libraries is imported here. Columns that the configuration does not name are not looked at.

What was taken in before is known by hashes, whole batches and single rows. A cell that is run again hands in the very
same batch, which its digest says. `run` is meant to get a longer batch each time, and leaves alone what is released;
rows that `add` or `step` took in for a step to come it must be told of one by one, or they would count twice. They are
known by a keyed hash, as the journal must hold no row. PRIVATE.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from agents.local.offline.files import has_json, moments, values, write_time
from agents.local.offline.names import lacking_column
from agents.protocol.formats.build import ROWS
from agents.protocol.formats.contract import UnreadableError
from agents.protocol.formats.json_text import read_json
from agents.protocol.formats.reader import ABSENT, paths_of
from agents.protocol.formats.values import MOST_BITS, NOT_FINITE
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.replay import row_field
from schemas.config import Stream
from schemas.errors import BatchError

CHUNK_ROWS = 4096
"""At once."""
_PLAIN = (str, int, float, bool, type(None))


class BatchRows(NamedTuple):
    """JSON records, and what each has in the column of the time."""

    records: list[bytes]
    times: list[Any]


class BatchReader:
    """Reads batches as one stream does.

    Args: spec: of the stream.
    """

    def __init__(self, stream: Stream, spec: SourceSpec) -> None:
        keys = {spec.fields.time: "[streams.time] field"}
        if spec.fields.user is not None:
            keys[spec.fields.user] = "[streams.privacy] user"
        keys |= {field: f"[streams.domain] {key}" for key, field in stream.domain.roles() if field in spec.fields.names}
        mapping = self._map = spec.mapping
        # The key of the configuration that names a column.
        self._fields = {
            name: keys.get(name, "[streams.domain]")
            for name in spec.fields.names
            if mapping is None or name not in mapping
        }
        self._time_of = row_field(stream.time.field, mapping)
        self._paths = paths_of(ROWS, self._fields)
        self._stream, self._time_field = stream.name, stream.time.field
        self._timing = stream.time

    def read(self, batch: object) -> BatchRows:
        """Return rows as JSON records, in their order.

        Raises: BatchError where it is no batch or lacks columns, before any row is looked at. Names columns and types
            only.
        """
        rows = BatchRows([], [])
        if batch is None:
            return rows
        for row in self._dicts(batch):
            rows.records.append(record := _dumps(row))
            rows.times.append(self._time_of(row) if self._map is None else self._computed_time(record))
        return rows

    def _computed_time(self, record: bytes) -> Any:
        """Return the time that ingest computes of a record; None of one that it cannot read."""
        try:
            return self._time_of(read_json(record))
        except UnreadableError:
            return None

    def _reads(self, name: str) -> bool:
        """Return whether a column is read: one that the configuration names, or an expression of it may."""
        if name in self._fields or self._map is None:
            return name in self._fields
        return self._map.names is None or name in self._map.names

    def _dicts(self, batch: object) -> Iterator[Mapping[str, Any]]:
        if isinstance(batch, Sequence) and not isinstance(batch, str | bytes):
            for row in batch:
                yield self._row(row)
            return
        columns = self._columns(batch)
        names = list(columns)
        for at in range(0, max(map(len, columns.values())), CHUNK_ROWS):
            parts = [self._part(name, columns[name][at : at + CHUNK_ROWS]) for name in names]
            for cells in zip(*parts, strict=True):
                yield dict(zip(names, cells, strict=True))

    def _row(self, row: object) -> Mapping[str, Any]:
        if not isinstance(row, Mapping):
            raise BatchError(f"a list of {type(row).__name__} is no batch. Fix: pass a list of dicts, or columns.")
        found = ((path.name, path.find(row)) for path in self._paths)
        read = {name: _cell(value) for name, value in found if value is not ABSENT}
        if self._map is not None:
            others = (name for name in row if isinstance(name, str) and name not in read and self._reads(name))
            read |= {name: _cell(row[name]) for name in sorted(others)}
        if self._time_field in read:
            read[self._time_field] = self._time(read[self._time_field])
        return read

    def _columns(self, batch: object) -> Mapping[str, Any]:
        """Return the columns that are read: lists of Python objects, and columns of Arrow."""
        found = _as_columns(batch, self._reads)
        names = [name for name, _ in found]
        columns = dict(found)
        if len(columns) < len(found):
            raise BatchError(f"stream {self._stream}: two columns of the batch have one name. Fix: rename one of them.")
        free = [name for name in names if name not in self._fields]
        lacking = [lacking_column(name, key, free) for name, key in self._fields.items() if name not in columns]
        if lacking:
            raise BatchError(
                f"stream {self._stream} reads columns that the batch does not have: {'; '.join(lacking)}. Nothing was "
                "taken in. Fix: name the batch's own columns in the configuration, or rename them."
            )
        others = sorted(name for name in columns if name not in self._fields and self._reads(name))
        read = {name: columns[name] for name in (*self._fields, *others)}
        for name, column in read.items():
            kind = getattr(column, "type", None)
            if kind is not None and not has_json(kind):
                raise BatchError(f"column {name} is of type {kind}, which is no value of an event. Fix: convert it.")
        return read

    def _part(self, name: str, cells: Any) -> list[Any]:
        """Return some cells of a column, as `_columns` gives it, as JSON values."""
        if not isinstance(cells, list):
            return self._cells(name, cells.combine_chunks())
        return list(map(self._time if name == self._time_field else _cell, cells))

    def _time(self, value: object) -> Any:
        """Return a time as JSON, whatever Python, numpy or pandas call it; None where it is no time."""
        if isinstance(value, datetime):
            return write_time(value, self._timing)
        if type(value) in _PLAIN:
            return value
        try:
            return self._cells(self._time_field, pa.array([value], from_pandas=True))[0]
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return None

    def _cells(self, name: str, column: Any) -> list[Any]:
        if name != self._time_field or not pa.types.is_timestamp(column.type):
            return values(name, column)
        return [None if each is None else write_time(each, self._timing) for each in moments(column)]


def _cell(value: Any) -> Any:
    """Return a cell of Python as one that JSON can hold. NaN is null, as numpy and pandas mean it."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else NOT_FINITE
    if type(value) is int and value.bit_length() >= 64:
        return str(value) if value.bit_length() <= MOST_BITS else NOT_FINITE  # the same id, and the same number
    return value


_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_PASSTHROUGH_DATETIME


def _dumps(row: Any) -> bytes:
    try:
        return orjson.dumps(row, default=_plain, option=_OPTIONS)
    except (TypeError, orjson.JSONEncodeError):
        return b"{"  # refused as NOT_JSON, and counted


def _plain(value: Any) -> Any:
    """Return a library's own scalar, which JSON cannot hold, as the plain value that it stands for, or null."""
    if value is NOT_FINITE:
        return orjson.Fragment(bytes(value))
    if type(value) is datetime and value.utcoffset() is None:
        # Asked first: where the code of a zone raises, orjson ends the process, and takes None for an offset.
        value = value.replace(tzinfo=None)
    if type(value) in (date, time, datetime):
        return orjson.Fragment(orjson.dumps(value))
    unpack: Callable[[], Any] | None = getattr(value, "item", None)
    return values("", pa.array([value], from_pandas=True))[0] if unpack is None else unpack()


def _as_columns(batch: object, wanted: Callable[[str], bool]) -> list[tuple[str, Any]]:
    """Return the names and columns of a batch.

    The wanted columns have one length, and are lists if they hold Python objects, else Arrow columns. The others are
    unchanged. Raises: BatchError.
    """
    columns, failed = None, ""
    try:
        columns = _named(batch)
        if columns is not None:
            columns = [(name, _column(column) if wanted(name) else column) for name, column in columns]
            if len({len(column) for name, column in columns if wanted(name)}) > 1:
                failed = "columns of several lengths"
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        failed = type(error).__name__
    if failed:  # said here, where no error of Arrow is at hand: some repeat a value
        raise BatchError(
            f"a batch of type {type(batch).__name__} could not be read as columns: {failed}. Fix: give each column one "
            "type, and all columns one length."
        )
    if columns is None:
        raise BatchError(
            f"a batch cannot be of type {type(batch).__name__}. Fix: pass a dict of numpy arrays, a pandas DataFrame, "
            "an Arrow table or batch, or a list of dicts."
        )
    return columns


def _named(batch: Any) -> list[tuple[str, Any]] | None:
    """Return the columns of a batch, unchanged; None if the object is not a batch. Raises: any error of pyarrow."""
    if isinstance(batch, Mapping):
        return [(str(name), column) for name, column in batch.items()]
    if not (hasattr(batch, "__arrow_c_stream__") or hasattr(batch, "__arrow_c_array__")):
        return None
    if hasattr(
        batch, "iloc"
    ):  # pandas: asked for all of it, it would give columns of objects a type of all their cells
        index = [(name, batch.index.get_level_values(at)) for at, name in enumerate(batch.index.names)]
        return [(str(name), column) for name, column in (*index, *batch.items()) if name is not None]
    table = pa.table(batch)
    return list(zip(table.column_names, table.columns, strict=True))


def _column(column: Any) -> Any:
    """Return a typed column as an Arrow column, any other as a list."""
    own = any(hasattr(column, name) for name in ("dtype", "__arrow_array__", "__arrow_c_array__", "__arrow_c_stream__"))
    if not own or str(getattr(column, "dtype", None)) == "object":
        return list(column)
    array = pa.array(column, from_pandas=True)
    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])


MARK_BYTES = 8
"""Size of the hash of a row: two sets of a million rows collide with probability 1e-7, and are then refused."""


def digest_of(rows: BatchRows) -> str:
    """Return the SHA-256 of a batch, in hexadecimal."""
    digest = hashlib.sha256()
    for record in rows.records:
        digest.update(b"%d," % len(record))
        digest.update(record)
    return digest.hexdigest()


def waiting_with(
    before: Mapping[int, bytes], rows: BatchRows, steps: Sequence[int | None], *, key: bytes, open_steps: range
) -> dict[int, bytes]:
    """Return the hashes of all waiting rows, by step.

    Args:
        before: the hashes so far.
        steps: step of the time of each row.
        key: key of the hash.
        open_steps: steps for which rows can wait; earlier ones are released.
    """
    found: dict[int, list[bytes]] = {}
    for step, record in zip(steps, rows.records, strict=True):
        if step is not None and step in open_steps:
            found.setdefault(step, []).append(_mark(record, key))
    kept = {step: marks for step, marks in before.items() if step >= open_steps.start}
    return kept | {step: kept.get(step, b"") + b"".join(marks) for step, marks in found.items()}


def any_waits(waiting: Mapping[int, bytes], parts: Iterable[tuple[int, BatchRows]], *, key: bytes) -> bool:
    """Return whether a row of `parts`, by step, is among the waiting rows."""
    for step, rows in parts:
        marks = waiting.get(step, b"")
        known = {marks[at : at + MARK_BYTES] for at in range(0, len(marks), MARK_BYTES)}
        if known and any(_mark(record, key) in known for record in rows.records):
            return True
    return False


def _mark(record: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(record, digest_size=MARK_BYTES, key=key, person=b"waiting row").digest()

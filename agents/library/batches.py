"""Batches of a notebook as the JSON records that a raw topic would hold, so that one decoder judges both.

| batch                                                        | read by                              |
|--------------------------------------------------------------|--------------------------------------|
| dict of numpy arrays or lists, one for each column           | pyarrow                              |
| pyarrow Table, RecordBatch or RecordBatchReader              | as it is                             |
| anything with `__arrow_c_stream__`: pandas, polars, duckdb    | pyarrow, by the Arrow PyCapsules     |
| list of dicts                                                | row by row                           |

None of these libraries is imported here. Columns that the configuration does not name are not looked at.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from agents.offline.rows.cells import has_json, moments, values
from agents.protocol.ingest.times import EPOCH, ONE_US, UNIT_US
from schemas.errors import BatchError

if TYPE_CHECKING:
    from agents.protocol.ingest.spec import SourceSpec
    from schemas.config import Stream

ROWS = 4096
"""At once."""


class BatchRows(NamedTuple):
    """JSON records, and what each has in the column of the time."""

    records: list[bytes]
    times: list[Any]


@dataclass(frozen=True, slots=True)
class BatchReader:
    """Reads batches as one stream does.

    Attributes:
        fields: column -> the key of the configuration that names it.
        time: the column with the time. format, zone: as of `[streams.time]`.
    """

    stream: str
    fields: Mapping[str, str]
    time: str
    format: str
    zone: ZoneInfo

    @classmethod
    def of(cls, stream: Stream, spec: SourceSpec) -> BatchReader:
        """That of a configured stream, of which `spec` is made."""
        keys = {spec.fields.time: "[streams.time] field"}
        if spec.fields.user is not None:
            keys[spec.fields.user] = "[streams.privacy] user"
        keys |= {field: f"[streams.domain] {key}" for key, field in stream.domain.roles() if field in spec.fields.names}
        return cls(
            stream=stream.name,
            fields={name: keys.get(name, "[streams.domain]") for name in spec.fields.names},
            time=stream.time.field,
            format=stream.time.format,
            zone=stream.time.zone,
        )

    def read(self, batch: object) -> BatchRows:
        """Rows as JSON records, in their order.

        Raises: BatchError where it is no batch or lacks columns, before any row is looked at. Names columns and types
            only.
        """
        rows = BatchRows([], [])
        if batch is None:
            return rows
        for row in self._dicts(batch):
            rows.records.append(_dumps(row))
            rows.times.append(row.get(self.time))
        return rows

    def _dicts(self, batch: object) -> Iterator[Mapping[str, Any]]:
        if isinstance(batch, Sequence) and not isinstance(batch, str | bytes):
            for row in batch:
                yield self._row(row)
            return
        names = list(self.fields)
        for part in self._table(batch).select(names).to_batches(max_chunksize=ROWS):
            columns = [self._cells(name, part.column(name)) for name in names]
            for cells in zip(*columns, strict=True):
                yield dict(zip(names, cells, strict=True))

    def _row(self, row: object) -> Mapping[str, Any]:
        if not isinstance(row, Mapping):
            raise BatchError(f"a list of {type(row).__name__} is no batch. Fix: pass a list of dicts, or columns.")
        read = {name: row[name] for name in self.fields if name in row}
        if isinstance(moment := read.get(self.time), datetime):
            read[self.time] = self._moment(moment)
        return read

    def _table(self, batch: object) -> Any:
        table = _as_table(batch)
        present = set(table.column_names)
        if len(present) < len(table.column_names):
            raise BatchError(f"stream {self.stream}: two columns of the batch have one name. Fix: rename one of them.")
        lacking = [self._sentence(name, table.column_names) for name in self.fields if name not in present]
        if lacking:
            raise BatchError(
                f"stream {self.stream} reads columns that the batch does not have: {'; '.join(lacking)}. Nothing was "
                "taken in. Fix: name the batch's own columns in the configuration, or rename them."
            )
        for name in self.fields:
            kind = table.schema.field(name).type
            if not has_json(kind):
                raise BatchError(f"column {name} is of type {kind}, which is no value of an event. Fix: convert it.")
        return table

    def _sentence(self, name: str, columns: Sequence[str]) -> str:
        close = difflib.get_close_matches(name, columns, n=1)
        return f"{name} ({self.fields[name]})" + (f"; is it {close[0]}?" if close else "")

    def _cells(self, name: str, column: Any) -> list[Any]:
        if pa.types.is_floating(column.type) and pc.all(pc.is_finite(column)).as_py():
            return list(column.to_pylist())
        if not pa.types.is_timestamp(column.type):
            return values(name, column)
        write = self._moment if name == self.time else datetime.isoformat
        return [None if each is None else write(each[0]) for each in moments(column)]

    def _moment(self, moment: datetime) -> Any:
        """A time as the configuration says that it is written; one without a zone is of the configured one."""
        if self.format == "iso":
            return moment.isoformat()
        try:
            return self._written(moment)
        except OverflowError:
            return None  # no year of a calendar in that zone: refused as a row without a time

    def _written(self, moment: datetime) -> Any:
        """Raises: OverflowError."""
        aware = moment.replace(tzinfo=self.zone) if moment.tzinfo is None else moment
        if self.format not in UNIT_US:
            return aware.astimezone(self.zone).strftime(self.format)
        us = (aware.astimezone(UTC) - EPOCH) // ONE_US
        return us // UNIT_US[self.format] if us % UNIT_US[self.format] == 0 else us / UNIT_US[self.format]


def _dumps(row: Any) -> bytes:
    try:
        return orjson.dumps(row, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY)
    except (TypeError, orjson.JSONEncodeError):
        return b"{"  # refused as NOT_JSON, and counted


def _plain(value: Any) -> Any:
    """What JSON has no word for: a library's own scalar as the plain value that it stands for."""
    unpack: Callable[[], Any] | None = getattr(value, "item", None)
    if unpack is None:
        raise TypeError
    return unpack()


def _as_table(batch: object) -> Any:
    """Raises: BatchError."""
    try:
        if isinstance(batch, pa.Table):
            return batch
        if isinstance(batch, pa.RecordBatch):
            return pa.Table.from_batches([batch])
        if isinstance(batch, pa.RecordBatchReader):
            return batch.read_all()
        if isinstance(batch, Mapping):
            return pa.table({str(name): pa.array(column, from_pandas=True) for name, column in batch.items()})
        if hasattr(batch, "__arrow_c_stream__") or hasattr(batch, "__arrow_c_array__"):
            return pa.table(batch)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise BatchError(
            f"a batch of type {type(batch).__name__} could not be read as columns: {type(error).__name__}. Fix: give "
            "each column one type, and all columns one length."
        ) from None
    raise BatchError(
        f"a batch cannot be a {type(batch).__name__}. Fix: pass a dict of numpy arrays, a pandas DataFrame, an Arrow "
        "table or batch, or a list of dicts."
    )

"""The formats of synthetic records: their schemas, how values are written, and how they are read again.

| format        | value                                                                  | time                     |
|---------------|------------------------------------------------------------------------|--------------------------|
| `json`        | a JSON object                                                          | as the raw events' time  |
| `json-schema` | a zero byte, the schema's id (4 bytes, big-endian), a JSON object      | date-time of RFC 3339, UTC |
| `avro`        | a zero byte, the schema's id (4 bytes, big-endian), the record in Avro | long, timestamp-micros   |

Values are written once, before the candidate is committed, and are a function of the release, the configuration and the
schema's id. The id is in the stream's fingerprint: no registry is asked where values are written or read.
Source: the "wire format" of Confluent's documentation of its serializers; the Avro specification 1.11.
"""

from __future__ import annotations

import io
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, cast

import orjson

from agents.protocol.formats.contract import SchemaText
from agents.protocol.release.json_rows import json_rows
from agents.protocol.release.public_records import raw_time
from schemas.byte_columns import ByteColumn, Piece
from schemas.config import Stream
from schemas.config.engines.spec import RecordKind
from schemas.config.output import OutputFormat
from schemas.config.timing import NUMERIC_FORMATS
from schemas.errors import WireError
from schemas.releases import STEP_HEADER
from schemas.steps import epoch_us, instant

_MAGIC = b"\0"
_HEAD = 5  # bytes before what was written: magic and id
_JSON_TYPES: Mapping[RecordKind, str] = {
    "text": "string",
    "number": "number",
    "integer": "integer",
    "boolean": "boolean",
    "null": "null",
}
_AVRO_TYPES: Mapping[RecordKind, str] = {  # in this order in unions: null first, since it is the default
    "null": "null",
    "boolean": "boolean",
    "integer": "long",
    "number": "double",
    "text": "string",
}


class RecordFormat(ABC):
    """The format of one stream's synthetic records.

    Args:
        schema_id: by which readers know the schema; None for a format without one, and for who only reads.
    """

    def __init__(self, stream: Stream, schema_id: int | None = None) -> None:
        self._stream, self._time = stream, stream.time
        self._schema_id = schema_id

    @property
    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """What describes a value, as a JSON object: a JSON Schema or an Avro schema."""

    @abstractmethod
    def time(self, at_us: int) -> str | int | float:
        """Return the value of the time field for microseconds since the epoch."""

    @abstractmethod
    def rows(self, columns: Mapping[str, Sequence[Any]]) -> Sequence[Piece]:
        """Yield values of records, row by row. Args: columns: fields in order, with times as `time` has them."""

    def read(self, value: bytes) -> dict[str, Any]:
        """Return a record with the fields and values that format `json` has. Raises: WireError where it is none."""
        try:
            return self._read(value)
        except Exception:  # libraries raise whatever the bytes lead them to; what is in them is not repeated
            raise WireError(
                f'stream {self._stream.name}: a synthetic record is not of format "{self._stream.output.format}" with '
                "the fields of [streams.domain]; is this the configuration that the job runs with?"
            ) from None

    @abstractmethod
    def _read(self, value: bytes) -> dict[str, Any]:
        """Raises: whatever the bytes lead to."""

    @cached_property
    def _head(self) -> bytes:
        assert self._schema_id is not None, "the fingerprint of a stream with typed output has the id"
        return _MAGIC + self._schema_id.to_bytes(4, "big")

    def _body(self, value: bytes) -> bytes:
        if len(value) < _HEAD or value[:1] != _MAGIC:
            raise ValueError("no schema id")
        return value[_HEAD:]

    @property
    def _what_time(self) -> str:
        """What the time of a record is, for whoever reads the schema."""
        if self._stream.record_times == "released":
            return "Start of the step that added the record"
        return f"Start of the step that the record stands for; header {STEP_HEADER} is the step that added it"

    def _raw_time(self, at_us: int) -> str | int | float:
        return raw_time(at_us, time_format=self._time.format, timezone=self._time.timezone)

    def _json_schema(self, time: dict[str, Any]) -> dict[str, Any]:
        properties: dict[str, Any] = {self._time.field: time}
        fields = self._stream.record_fields
        for name, kinds in fields.items():
            types = sorted(_JSON_TYPES[kind] for kind in kinds)
            properties[name] = {"type": types if len(types) > 1 else types[0]}
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": f"Synthetic record of {self._stream.name}",
            "type": "object",
            "properties": properties,
            "required": [
                self._time.field,
                *(name for name, kinds in fields.items() if "null" not in kinds),
            ],
            "additionalProperties": False,
        }


class JsonRecords(RecordFormat):
    """Plain JSON objects."""

    @property
    def schema(self) -> dict[str, Any]:
        said = f"{self._what_time}. In the raw events' format: {self._time.format}."
        kind = "integer" if self._time.format in NUMERIC_FORMATS else "string"
        return self._json_schema({"type": kind, "description": said})

    def time(self, at_us: int) -> str | int | float:
        return self._raw_time(at_us)

    def rows(self, columns: Mapping[str, Sequence[Any]]) -> Sequence[Piece]:
        return json_rows(columns)

    def _read(self, value: bytes) -> dict[str, Any]:
        return dict(orjson.loads(value))


class JsonSchemaRecords(RecordFormat):
    """JSON objects behind the id of a JSON Schema."""

    @property
    def schema(self) -> dict[str, Any]:
        said = f"{self._what_time}. In UTC."
        return self._json_schema({"type": "string", "format": "date-time", "description": said})

    def time(self, at_us: int) -> str:
        return instant(at_us).isoformat()

    def rows(self, columns: Mapping[str, Sequence[Any]]) -> Sequence[Piece]:
        return [self._head, *json_rows(columns)]

    def _read(self, value: bytes) -> dict[str, Any]:
        record = dict(orjson.loads(self._body(value)))
        record[self._time.field] = self._raw_time(epoch_us(datetime.fromisoformat(record[self._time.field])))
        return record


class AvroRecords(RecordFormat):
    """Avro records behind the id of their schema. Numbers are doubles, which hold what JSON shows, digit for digit."""

    @property
    def schema(self) -> dict[str, Any]:
        fields: list[dict[str, Any]] = [
            {
                "name": self._time.field,
                "type": {"type": "long", "logicalType": "timestamp-micros"},
                "doc": f"{self._what_time}.",
            }
        ]
        for name, kinds in self._stream.record_fields.items():
            types = [avro for kind, avro in _AVRO_TYPES.items() if kind in kinds]
            absent = {"default": None} if "null" in kinds else {}
            fields.append({"name": name, "type": types if len(types) > 1 else types[0], **absent})
        name = re.sub(r"\W", "_", self._stream.name, flags=re.ASCII)
        return {
            "type": "record",
            "name": f"_{name}" if name[0].isdigit() else name,
            "namespace": "privstream.synthetic",
            "doc": f"Synthetic record of {self._stream.name}",
            "fields": fields,
        }

    @cached_property
    def _parsed(self) -> Any:
        import fastavro

        return fastavro.parse_schema(self.schema)

    def time(self, at_us: int) -> int:
        return at_us

    def rows(self, columns: Mapping[str, Sequence[Any]]) -> Sequence[Piece]:
        return [ByteColumn.of([*self._rows(columns)])]

    def _rows(self, columns: Mapping[str, Sequence[Any]]) -> Iterator[bytes]:
        import fastavro

        names, write = tuple(columns), fastavro.schemaless_writer
        for values in zip(*columns.values(), strict=True):
            row = io.BytesIO()
            row.write(self._head)
            # Strict: a field that the schema does not have is an error, and not left out.
            write(row, self._parsed, dict(zip(names, values, strict=True)), strict_allow_default=True)
            yield row.getvalue()

    def _read(self, value: bytes) -> dict[str, Any]:
        import fastavro

        stream = io.BytesIO(self._body(value))
        record = cast("dict[str, Any]", fastavro.schemaless_reader(stream, self._parsed, None))
        if stream.read(1):
            raise ValueError("bytes that the schema does not explain")
        record[self._time.field] = self._raw_time(epoch_us(record[self._time.field]))
        return record


_FORMATS: Mapping[OutputFormat, Callable[[Stream, int | None], RecordFormat]] = {
    "json": JsonRecords,
    "json-schema": JsonSchemaRecords,
    "avro": AvroRecords,
}


def record_format(stream: Stream, schema_id: int | None = None) -> RecordFormat:
    """Return the format of a stream's synthetic records. Args: schema_id: see `RecordFormat`."""
    return _FORMATS[stream.output.format](stream, schema_id)


def schema_text(stream: Stream) -> SchemaText:
    """Return the schema of a stream's records as a registry holds it; the same stream has the same text."""
    schema = record_format(stream).schema
    kind = "AVRO" if stream.output.format == "avro" else "JSON"
    return SchemaText(kind, orjson.dumps(schema, option=orjson.OPT_SORT_KEYS).decode())

"""Records of coupled runs in every format that a source may have, as its producers write them."""

from __future__ import annotations

import base64
import csv
import functools
import io
import json
from collections.abc import Mapping
from typing import Any

import msgspec
import orjson

from agents.protocol.formats.contract import Headers, SchemaBook, SchemaRef, SchemaText
from agents.protocol.formats.protobuf import ProtobufEncoding
from schemas.config import Stream
from schemas.config.formats import OPERATION, CsvSection

Fields = Mapping[str, Any]
BOOK = SchemaBook()
"""In place of a registry: the schemas of all that was written."""
USER_IN_KEY = "$key.user"
_CODES = {"insert": "c", "delete": "d"}


def in_rows(stream: Stream) -> bool:
    """Return whether records are rows: a field is what has its very name, one that begins with `$` as well."""
    return (stream.format, stream.envelope, stream.key_format) == ("json", "none", "text")


def written(stream: Stream, fields: Fields, turn: int) -> tuple[bytes, bytes, Headers]:
    """Return key, value and headers of a record. Args: turn: which of several ways to write it is taken."""
    user = str(fields.get(stream.privacy.user or "", ""))
    key = user.encode()
    if in_rows(stream):
        return key, orjson.dumps(fields), ()
    inside = {name: value for name, value in fields.items() if not name.startswith("$")}
    if stream.key_format != "text":
        key = _encoded(stream, stream.key_format, {USER_IN_KEY.rpartition(".")[2]: user})
    match stream.envelope:
        case "debezium":
            change = _change(inside, fields.get(OPERATION, "insert"), turn)
            wrapped = {"schema": None, "payload": change} if stream.format == "json" and turn % 2 else change
            return key, _encoded(stream, stream.format, wrapped), ()
        case "cloudevents":
            return key, *_event(stream, inside, turn)
    return key, _encoded(stream, stream.format, inside), ()


def _change(row: Fields, operation: str, turn: int) -> dict[str, Any]:
    """Return a change of a table. Now and then a row that is deleted comes again, in one record: two events."""
    code = "u" if operation == "delete" and turn % 3 == 0 else _CODES[operation]
    return {"op": code, "before": None if code == "c" else row, "after": None if code == "d" else row}


def _event(stream: Stream, fields: Fields, turn: int) -> tuple[bytes, Headers]:
    about = {"specversion": "1.0", "type": "t", "source": "s", "id": str(turn)}
    match turn % 3:
        case 0:
            headers = tuple((f"ce_{name}", text.encode()) for name, text in about.items())
            return _encoded(stream, stream.format, fields), headers
        case 1:
            data = base64.b64encode(_encoded(stream, stream.format, fields)).decode()
            return orjson.dumps({**about, "data_base64": data}), ()
    return orjson.dumps({**about, "data": fields}), ()


def _encoded(stream: Stream, form: str, fields: Fields) -> bytes:
    match form:
        case "csv":
            return _csv(stream.csv or CsvSection(), fields)
        case "msgpack":
            return msgspec.msgpack.encode(fields)
        case "json-schema":
            return _framed(SchemaText("JSON", "{}"), orjson.dumps(fields))
        case "avro":
            return _avro(fields)
        case "protobuf":
            return _protobuf(fields)
    return orjson.dumps(fields)


def _csv(layout: CsvSection, fields: Fields) -> bytes:
    lines = io.StringIO()
    columns = fields.keys() if layout.columns is None else layout.columns
    rows = [] if layout.columns is not None else [list(columns)]
    rows.append([_cell(fields.get(name), layout.decimal) for name in columns])
    csv.writer(lines, delimiter=layout.delimiter).writerows(rows)
    return lines.getvalue().encode(layout.encoding)


def _cell(value: Any, decimal: str) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case float():
            return repr(value).replace(".", decimal)
    return str(value)


@functools.cache
def _ref(text: SchemaText) -> SchemaRef:
    ref = SchemaRef(_ref.cache_info().currsize + 1)
    BOOK.put(ref, text)
    return ref


def _framed(text: SchemaText, data: bytes) -> bytes:
    name = _ref(text).name
    assert isinstance(name, int)
    return b"\0" + name.to_bytes(4, "big") + data


_KINDS: dict[type, tuple[str, Any]] = {bool: ("boolean", 8), int: ("long", 3), float: ("double", 1), str: ("string", 9)}
"""Types of Python -> of Avro, and by its number of Protobuf."""
Shape = tuple[tuple[str, Any], ...]
"""Names of fields, each with its type, or the shape of a record in this one."""


def _shape(fields: Fields) -> Shape:
    return tuple((name, _shape(each) if isinstance(each, Mapping) else type(each)) for name, each in fields.items())


def _avro(fields: Fields) -> bytes:
    from fastavro import schemaless_writer

    text, parsed = _avro_schema(_shape(fields))
    data = io.BytesIO()
    schemaless_writer(data, parsed, fields)
    return _framed(text, data.getvalue())


@functools.cache
def _avro_schema(shape: Shape) -> tuple[SchemaText, Any]:
    from fastavro import parse_schema

    schema = _avro_record(shape, "Event")
    return SchemaText("AVRO", json.dumps(schema)), parse_schema(schema)


def _avro_record(shape: Shape, name: str) -> dict[str, Any]:
    fields = [
        {
            "name": each,
            "type": ["null", _avro_record(kind, f"{name}_{each}") if isinstance(kind, tuple) else _avro_kind(kind)],
        }
        for each, kind in shape
    ]
    return {"type": "record", "name": name, "fields": fields}


def _avro_kind(kind: type) -> str:
    return _KINDS[str if kind is type(None) else kind][0]


def _protobuf(fields: Fields) -> bytes:
    text, made = _protobuf_schema(_shape(fields))
    message = made()
    _fill(message, fields)
    return _framed(text, b"\0" + message.SerializeToString(deterministic=True))


@functools.cache
def _protobuf_schema(shape: Shape) -> tuple[SchemaText, Any]:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    # As a registry gives a schema where it is asked for a serialized one: nothing must be compiled.
    file = FileDescriptorProto(name="event.proto", syntax="proto3")
    _describe(file.message_type.add(), shape, "Event")
    text = SchemaText("PROTOBUF", base64.b64encode(file.SerializeToString(deterministic=True)).decode())
    return text, ProtobufEncoding.reader_of(text)[0]((0,))


def _describe(message: Any, shape: Shape, path: str) -> None:
    message.name = path.rpartition(".")[2]
    for number, (name, kind) in enumerate(shape, 1):
        field = message.field.add(name=name, number=number, label=1)
        if isinstance(kind, tuple):
            _describe(message.nested_type.add(), kind, f"{path}.Of_{name}")
            field.type, field.type_name = 11, f".{path}.Of_{name}"
        else:
            field.type = _KINDS[str if kind is type(None) else kind][1]
            # What is there is told from what is not.
            field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")


def _fill(message: Any, fields: Fields) -> None:
    for name, value in fields.items():
        if isinstance(value, Mapping):
            getattr(message, name).SetInParent()
            _fill(getattr(message, name), value)
        elif value is not None:
            setattr(message, name, value)

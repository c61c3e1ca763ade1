"""One event in every format, as producers write it, and how the job reads it back."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from zoneinfo import ZoneInfo

import fastavro
import msgspec

from agents.protocol.clock import StepClock
from agents.protocol.formats.build import InputFormat
from agents.protocol.formats.contract import SchemaBook, SchemaRef, SchemaText
from agents.protocol.formats.protobuf import ProtobufEncoding
from agents.protocol.ingest.bounds import BoundSpec
from agents.protocol.ingest.decode import EventFields
from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.spec import SourceSpec
from engines.spatial.domain.box import BoxDomain
from schemas.config.formats import CsvSection
from schemas.steps import FixedSteps

AVRO, PROTO = SchemaRef(7), SchemaRef(8)
AVRO_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Ride",
    "fields": [
        {"name": "user", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "x", "type": "double"},
        {"name": "y", "type": ["null", "double"]},
        {"name": "note", "type": "string"},
    ],
}
PROTO_SCHEMA = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Ignored { string nothing = 1; }
message Ride {
  string user = 1; google.protobuf.Timestamp at = 2; double x = 3; optional double y = 4; string note = 5;
}
"""
COLUMNS = ("user", "at", "x", "y", "note")


def book() -> SchemaBook:
    found = SchemaBook()
    found.put(AVRO, SchemaText("AVRO", json.dumps(AVRO_SCHEMA)))
    found.put(PROTO, SchemaText("PROTOBUF", PROTO_SCHEMA))
    return found


BOOK = book()


def framed(ref: SchemaRef, data: bytes) -> bytes:
    assert isinstance(ref.name, int)
    return b"\0" + ref.name.to_bytes(4, "big") + data


def in_avro(event: Mapping[str, Any], schema: Mapping[str, Any] = AVRO_SCHEMA, ref: SchemaRef = AVRO) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, dict(schema), dict(event))
    return framed(ref, stream.getvalue())


def in_protobuf(event: Mapping[str, Any]) -> bytes:
    message_of, _ = BOOK.reader(PROTO, ProtobufEncoding(BOOK).kind)
    message = message_of((1,))(**{name: value for name, value in event.items() if name != "at"})
    message.at.FromMicroseconds(event["at"])
    return framed(PROTO, b"\2\2" + message.SerializeToString())


def in_csv(event: Mapping[str, Any]) -> bytes:
    stream = io.StringIO()
    cells = [str(event[name]).replace(".", ",") if name in ("x", "y") else event[name] for name in COLUMNS]
    csv.writer(stream, delimiter=";", quoting=csv.QUOTE_ALL).writerow(cells)
    return stream.getvalue().encode()


WRITERS: Mapping[str, tuple[Callable[[Mapping[str, Any]], bytes], InputFormat]] = {
    "avro": (in_avro, InputFormat("avro")),
    "protobuf": (in_protobuf, InputFormat("protobuf")),
    "json": (lambda event: json.dumps(event).encode(), InputFormat()),
    "json-schema": (lambda event: framed(SchemaRef(1), json.dumps(event).encode()), InputFormat("json-schema")),
    "msgpack": (msgspec.msgpack.encode, InputFormat("msgpack")),
    "csv": (in_csv, InputFormat("csv", csv=CsvSection(columns=COLUMNS, delimiter=";", decimal=","))),
    "cloudevents": (
        lambda event: json.dumps({"specversion": "1.0", "type": "t", "source": "s", "id": "1", "data": event}).encode(),
        InputFormat(envelope="cloudevents"),
    ),
    "debezium": (
        lambda event: json.dumps({"payload": {"op": "c", "before": None, "after": event}, "schema": {}}).encode(),
        InputFormat(envelope="debezium"),
    ),
}


def spec(form: InputFormat, **fields: Any) -> SourceSpec:
    """Of events in the unit square, a minute a step, three of a user; all users on one partition."""
    named: dict[str, Any] = {"time": "at", "time_is_number": True, "user": "user", "numbers": ("x", "y")}
    named.update(fields)
    named["scalars"] = dict.fromkeys(named.get("scalars", ()), frozenset(("text", "number", "boolean")))
    x, y = named["numbers"]
    return SourceSpec(
        stream="s",
        topic="raw.s",
        role="blocks",
        partitions=1,
        domain=BoxDomain(x, y, (0.0, 0.0, 1.0, 1.0), depth=8),
        clock=StepClock(FixedSteps(start_us=0, step_us=60_000_000), max_ahead=10),
        format="us",
        zone=ZoneInfo("UTC"),
        fields=EventFields(**named),
        replay=True,
        key=bytes(16),
        partitioner="none",
        bounds=BoundSpec(max_contributions=3),
        input=form,
        schemas=BOOK,
    )


def records(values: Sequence[bytes | None], **more: Any) -> list[RawRecord]:
    return [RawRecord(offset, 1_000, None, value, **more) for offset, value in enumerate(values)]

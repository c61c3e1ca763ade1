"""Sources of every kind that is registered, and hostile records of each, for what must hold of all of them.

Every engine's fields in plain JSON; every format, envelope and format of keys with the fields of engines in turn. A
format that is registered, and that nobody can write here, fails by its name.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import random
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import fastavro
import msgspec

from agents.protocol.formats.build import InputFormat
from agents.protocol.formats.contract import SchemaBook, SchemaRef, SchemaText
from agents.protocol.formats.protobuf import ProtobufEncoding
from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.spec import SourceSpec
from schemas.config.formats import CsvSection, Envelope, InputParts, KeyFormat, SourceFormat
from tests.protocol.hostile import ATOMS, SPECS, START_MS, good_event, written

Event = Mapping[str, Any]
Write = Callable[[Event], bytes]
"""Raises: whatever its library does for what its format cannot hold."""

IDS: tuple[Any, ...] = (
    "ann", " ann", "ann ", "ann\t", "Ann", "ANN", "\uff41nn", "ann\u200b", "ann\u0301", "e\u0301ve", "\xe9ve", "\xdf",
    "ss", "\u0130", "I", "\u0131", "i", 7, "7", "07", " 7", "+7", "7.0", -7, 70, 2**53, 2**53 + 1, 2**64 + 7, "x" * 256,
    "x" * 255 + "y", "true", "null", "None",
)  # fmt: skip
"""Of users; those that differ in a space, in case or in how a letter is composed are others."""
NOBODY: tuple[Any, ...] = (None, True, "", "x" * 257, "a\0b", [], {}, 7.5)
AFTER_S = (0, 0, 1, 60, 59.999999, 3_599, 3_600, 7_200, 86_400, 40 * 86_400, -1, -86_400)
ARRIVALS_MS = (-1, 0, START_MS, START_MS - 1, START_MS + 7_200_000, START_MS + 40 * 86_400_000, 2**53, -(2**63))
NOTHING = RawRecord(0, -1, None, None)
"""A record without a value."""
BOOK = SchemaBook()


def _values() -> Iterator[Any]:
    for atom in ATOMS:
        try:
            value = json.loads(atom)
        except (ValueError, RecursionError):
            continue
        if len(atom) < 200:
            yield value


VALUES = list(_values())
TIMES = (1577836860, 1577836860000, 1577836860000000, "1577836860", "2020-01-01", "2020-01-01T00:00:00+02:00", None)
"""In other units, with zones of their own, missing."""


# --- Writing ------------------------------------------------------------------------------------------------------


def _in_avro(number: int, spec: SourceSpec, names: Sequence[str]) -> Write:
    fields = [{"name": name, "type": ["null", "boolean", "long", "double", "string"]} for name in names]
    row: dict[str, Any] = {"type": "record", "name": "Row", "fields": fields}
    halves = [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Row"]}]
    table: dict[str, Any] = {"type": "record", "name": "Table", "fields": [{"name": "op", "type": "string"}, *halves]}
    # Two versions of each: what is read of a record must not depend on the schema of the one before.
    turned = [{**row, "fields": fields[::-1]}, {**table, "fields": table["fields"][::-1]}]
    turned[1]["fields"] = [halves[0], *table["fields"][2:], table["fields"][0]]
    schemas: list[Any] = [row, table, *turned]
    for index, schema in enumerate(schemas):
        BOOK.put(SchemaRef(number + index), SchemaText("AVRO", json.dumps(schema)))
    parsed = [fastavro.parse_schema(schema) for schema in schemas]

    def write(event: Event) -> bytes:
        index = int("before" in event) + 2 * (zlib.crc32(_json(event)) & 1)
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed[index], event)
        return _framed(number + index, stream.getvalue())

    return write


def _in_protobuf(number: int, spec: SourceSpec, names: Sequence[str]) -> Write:
    kinds = dict.fromkeys(spec.fields.numbers, "double")
    for name, can_be in spec.domain.value_fields.items():
        kinds[name] = "bool" if "boolean" in can_be else "double" if "number" in can_be else "string"
    kinds[spec.fields.time] = "int64" if spec.fields.time_is_number else "string"
    fields = " ".join(f"optional {kinds.get(name, 'string')} {name} = {at + 1};" for at, name in enumerate(names))
    table = "message Table { string op = 1; optional Row before = 2; optional Row after = 3; }"
    BOOK.put(SchemaRef(number), SchemaText("PROTOBUF", f'syntax = "proto3"; message Row {{ {fields} }} {table}'))

    def write(event: Event) -> bytes:
        message_of, _ = BOOK.reader(SchemaRef(number), ProtobufEncoding(BOOK).kind)
        table = int("before" in event)
        message = message_of((table,))(**{name: value for name, value in event.items() if value is not None})
        return _framed(number, (b"\2\2" if table else b"\0") + message.SerializeToString())

    return write


def _in_csv(number: int, spec: SourceSpec, names: Sequence[str]) -> Write:
    def write(event: Event) -> bytes:
        if type(event[str(spec.fields.user)]) not in (str, int, type(None)):
            raise TypeError("as text it would be the id of somebody")
        stream = io.StringIO()
        event = dict(sorted(event.items(), reverse=bool(zlib.crc32(_json(event)) & 1)))
        lines = csv.writer(stream, quoting=csv.QUOTE_ALL)
        lines.writerow(event)
        lines.writerow([json.dumps(each) if type(each) is bool else each for each in event.values()])
        return stream.getvalue().encode()

    return write


def _framed(number: int, data: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + data


def _json(event: Event) -> bytes:
    return written(event)


def _text(event: Event) -> bytes:
    [user] = event.values()
    if type(user) not in (str, int):
        raise TypeError("as text it would be the id of somebody")
    return str(user).encode()


WRITERS: Mapping[str, Callable[[int, SourceSpec, Sequence[str]], Write]] = {
    "json": lambda number, spec, names: _json,
    "json-schema": lambda number, spec, names: lambda event: _framed(1, _json(event)),
    "text": lambda number, spec, names: _text,
    "msgpack": lambda number, spec, names: msgspec.msgpack.encode,
    "csv": _in_csv,
    "avro": _in_avro,
    "protobuf": _in_protobuf,
}
"""Format of values or keys -> (number of a schema, the spec, names of its fields) -> what writes them."""


# --- Sources ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """Attributes:

    spec: of the stream; its steps are closed by ticks in records.
    plain: the same in plain JSON, where its events are made.
    """

    name: str
    spec: SourceSpec
    plain: SourceSpec
    write: Write
    write_key: Write | None = None

    def record(self, chance: random.Random) -> tuple[frozenset[str], RawRecord] | None:
        """The users whom a record names, and the record, at offset 0; None where its format cannot hold it."""
        event, form = self._event(chance), self.spec.input
        key, users = None, _users(self.plain, event)
        headers: tuple[tuple[str, bytes], ...] = ()
        try:
            if self.write_key is not None:
                key = self.write_key({"id": event.pop(str(self.plain.fields.user))})
            if form.envelope == "debezium":
                after = event if chance.random() < 0.6 else self._event(chance)
                if self.write_key is None:
                    users |= _users(self.plain, after)
                op = chance.choice(["c", "u", "u", "d"])
                before = None if op == "c" else event
                if op != "u":
                    after, users = event, _users(self.plain, event)
                value = self.write({"op": op, "before": before, "after": None if op == "d" else after})
            else:
                value = self.write(event)
                headers = (("ce_specversion", b"1.0"),) if form.envelope == "cloudevents" else ()
        except Exception:
            return None
        return users, RawRecord(0, chance.choice(ARRIVALS_MS), key, value, headers)

    def _event(self, chance: random.Random) -> dict[str, Any]:
        spec, fields = self.plain, self.plain.fields
        event = good_event(spec, after_s=chance.choice(AFTER_S))
        if fields.operation is not None:
            event[fields.operation] = chance.choice(["insert", "delete", "upsert"])
        for name in (fields.user, fields.trip):
            if name is not None:
                event[name] = chance.choice(NOBODY if chance.random() < 0.05 else IDS)
        for name in fields.numbers:
            event[name] += chance.choice([0, chance.uniform(-0.3, 0.3)]) if type(event[name]) is not str else ""
        for name in fields.scalars:
            event[name] = None if chance.random() < 0.1 else event[name]
        if chance.random() < 0.1:
            event[fields.time] = chance.choice(TIMES)
        if chance.random() < 0.3:
            name = chance.choice([name for name in fields.names if name not in (fields.user, fields.trip)])
            event[name] = chance.choice(VALUES)
            if chance.random() < 0.1:
                del event[name]
        if fields.operation is not None and self.spec.fields.operation != fields.operation:
            event.pop(fields.operation, None)  # the change of a table says itself what it does
        return event


def _users(spec: SourceSpec, event: Event) -> frozenset[str]:
    """By what they are called: 7 and "7" are one, as they are keys of records. Who cannot be one is nobody."""
    found = event.get(spec.fields.user) if spec.fields.user is not None else None
    called = str(found) if type(found) in (str, int) else ""
    return frozenset([called]) if 0 < len(called.encode()) <= 256 and "\0" not in called else frozenset()


def _sources() -> Iterator[Source]:
    # Settings that read the same fields into the same kind of domain are one source.
    kinds = {(type(spec.domain), repr(spec.fields)): (name, spec) for name, spec in SPECS.items()}
    for name, spec in kinds.values():
        made = replace(spec, replay=True)
        yield Source(f"json-{name}", made, made, _json)
    numbers = itertools.count(100, 10)
    bounded = itertools.cycle([spec for spec in SPECS.values() if spec.fields.user is not None])
    changed = itertools.cycle([spec for spec in SPECS.values() if spec.fields.operation is not None])
    for form, envelope in itertools.product(get_args(SourceFormat), get_args(Envelope)):
        parts = InputParts(format=form, envelope=envelope, key_format="text", partitioner="none")
        if not list(parts.input_problems()):
            plain = replace(next(changed if envelope == "debezium" else bounded), replay=True)
            yield _source(f"{form}-{envelope}", plain, InputFormat(form, envelope), next(numbers))
    for form in get_args(KeyFormat):
        yield _source(f"key-{form}", replace(next(bounded), replay=True), InputFormat(key_format=form), next(numbers))


def _source(name: str, plain: SourceSpec, form: InputFormat, number: int) -> Source:
    fields = plain.fields
    if form.envelope == "debezium":
        fields = replace(fields, operation="$operation")
    elif form.key_format != "text" or name == "key-text":
        fields = replace(fields, user="$key" if form.key_format == "text" else "$key.id")
    form = replace(form, csv=CsvSection() if form.format == "csv" else None)
    spec = replace(plain, input=form, schemas=BOOK, fields=fields)
    columns = [each for each in plain.fields.names if each != plain.fields.operation or fields.operation == each]
    write = WRITERS[form.format](number, plain, columns)
    if fields.user == plain.fields.user:
        return Source(name, spec, plain, write)
    key = replace(plain, fields=replace(plain.fields, user="id"))
    return Source(name, spec, plain, write, WRITERS[form.key_format](number + 5, key, ["id"]))


SOURCES: Mapping[str, Source] = {source.name: source for source in _sources()}


def hostile(source: Source, most: int) -> list[tuple[frozenset[str], RawRecord]]:
    """Distinct records of a source, each with the users whom it names; the same ones at every call."""
    chance = random.Random(source.name)
    found = [each for _ in range(2 * most) if (each := source.record(chance)) is not None][:most]
    value = found[0][1].value or b""
    wrong = [b"", b"{}", b"17", b"[" + value + b"]", value[:-1], value[: len(value) // 2], b"\xff" + value]
    wrong += [value + value, value + b"\n" + value]
    users = found[0][0]  # CSV without its last line's end is still a record
    return [
        *found,
        *((users, RawRecord(0, chance.choice(ARRIVALS_MS), None, each)) for each in wrong),
        (frozenset(), NOTHING),
    ]

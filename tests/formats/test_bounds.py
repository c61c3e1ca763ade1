"""What anybody who may write to a source, or to the registry, can make reading cost: no more than its bytes."""

from __future__ import annotations

import base64
import io
import json
import math
import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.formats import avro
from agents.protocol.formats.avro import DEEPEST, MOST_FREE, AvroEncoding
from agents.protocol.formats.build import InputFormat
from agents.protocol.formats.contract import (
    KEY_HEADER,
    VALUE_HEADER,
    SchemaBook,
    SchemaRef,
    SchemaText,
    UnreadableError,
)
from agents.protocol.formats.protobuf import ProtobufEncoding
from agents.protocol.formats.reader import MOST_MISSING, RecordReader
from agents.protocol.formats.values import MOST_DECIMAL_BYTES
from agents.protocol.ingest.decode import EventFields, FormatDecoder
from agents.protocol.ingest.events import RawRecord
from agents.protocol.userhash import id_bytes
from schemas.events import Reason
from tests.formats.forms import AVRO, BOOK, framed, in_avro, records, spec

EVENT = {"user": "ann", "at": 0, "x": 0.5, "y": 0.5, "note": ""}
REF = SchemaRef(1)


def record(name: str, *types: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": f"f{n}", "type": each} for n, each in enumerate(types)]}


def made(schema: Any, *references: tuple[str, Any]) -> AvroEncoding:
    book = SchemaBook()
    texts = tuple((name, json.dumps(each)) for name, each in references)
    book.put(REF, SchemaText("AVRO", json.dumps(schema), texts))
    return AvroEncoding(book)


def refused(encoding: Any, data: bytes = b"\0") -> Reason:
    with pytest.raises(UnreadableError) as error:
        encoding.read(framed(REF, data), None)
    return error.value.reason


def chain(length: int) -> dict[str, Any]:
    """Each record holds the one before."""
    return record("All", record("R0", "int"), *(record(f"R{n}", f"R{n - 1}") for n in range(1, length)))


def doubled(levels: int) -> dict[str, Any]:
    """2^levels values of no bytes."""
    return record("All", record("R0", "null"), *(record(f"R{n}", f"R{n - 1}", f"R{n - 1}") for n in range(1, levels)))


# --- Avro: schemas ----------------------------------------------------------------------------------------------------


NODE = record("Node", "int", ["null", "Node"])
TREE = record("Tree", "int", {"type": "array", "items": "Tree"})


def deep(levels: int) -> bytes:
    """A list of so many nodes."""
    return b"\2\2" * (levels - 1) + b"\2\0"


def below(calls: int, work: Callable[[], Any]) -> Any:
    """What it gives so many calls further down."""
    return below(calls - 1, work) if calls else work()


@pytest.mark.parametrize(
    "schema",
    [record("A", "A"), record("A", record("B", "A")), record("A", ["null", record("B", "int", record("C", "B"))])],
    ids=["itself", "by another", "within a union"],
)
def test_a_schema_whose_values_have_no_end_is_refused(schema: Any) -> None:
    assert refused(made(schema), b"\2" * 100) is Reason.UNUSABLE_SCHEMA


def test_a_schema_that_is_too_deep_by_itself_is_refused() -> None:
    assert refused(made(chain(DEEPEST + 5)), b"\2") is Reason.UNUSABLE_SCHEMA


@pytest.mark.parametrize(
    "schema",
    [
        record("Node", ["null", "Node"]),
        record("Tree", {"type": "array", "items": "Tree"}),
        record("Tree", {"type": "map", "values": "Tree"}),
        record("A", record("B", ["null", "A"])),
        [record("Node", ["null", "Node"]), "null"],
    ],
    ids=["union", "array", "map", "by another", "in a union"],
)
def test_a_value_that_is_too_deep_is_refused_and_the_process_lives(schema: Any) -> None:
    assert refused(made(schema), b"\2" * 900_000) is Reason.UNREADABLE
    assert refused(made(schema), b"\2" * 2 * DEEPEST) is Reason.UNREADABLE


@pytest.mark.parametrize("calls", [0, 300])
def test_how_deep_a_value_may_be_does_not_depend_on_who_reads_it(calls: int) -> None:
    encoding = made(NODE)
    found = below(calls, lambda: encoding.read(framed(REF, deep(DEEPEST)), None))
    for _ in range(DEEPEST - 1):
        found = found["f1"]
    assert found == {"f0": 1, "f1": None}
    for data in map(deep, (DEEPEST + 1, 150, 250)):
        assert below(calls, partial(refused, encoding, data)) is Reason.UNREADABLE


trees = st.recursive(
    st.builds(lambda n: {"f0": n, "f1": []}, st.integers(-5, 5)),
    lambda inner: st.builds(lambda n, each: {"f0": n, "f1": each}, st.integers(-5, 5), st.lists(inner, max_size=3)),
)


@given(tree=trees)
def test_trees_are_read_as_they_were_written(tree: Any) -> None:
    import fastavro

    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(TREE), tree)
    assert made(TREE).read(framed(REF, written.getvalue()), None) == tree


def test_fields_beside_and_within_a_recursion_are_read_and_what_is_none_is_named() -> None:
    """An event that refers to the one before it."""
    names = ("user", "at", "x", "y", "before")
    schema = record("Ride", "string", "long", "double", "double", ["null", "Ride"])
    for field, name in zip(schema["fields"], names, strict=True):
        field["name"] = name
    book = SchemaBook()
    book.put(REF, SchemaText("AVRO", json.dumps(schema)))
    ride = struct.pack("<dd", 0.25, 0.75)
    first, second = (b"\2a" + b"\0" + ride + end for end in (b"\0", b"\2"))
    for x, of_first, of_second in (
        ("x", 0, 0),
        ("before.x", int(Reason.MISSING_FIELD), 0),
        ("before", int(Reason.WRONG_TYPE), int(Reason.WRONG_TYPE)),
    ):
        reader = RecordReader(
            InputFormat("avro"), ("user", "at", x, "y"), time="at", unit="s", user="user", id_of=id_bytes,
            deletes=False, kinds={}, book=book, max_value_bytes=1 << 20,
        )  # fmt: skip
        fields = EventFields(time="at", time_is_number=True, user="user", numbers=(x, "y"))
        decoder = FormatDecoder(fields, reader)
        feed = records([framed(REF, first), framed(REF, second + first)])
        decoded, reasons, at_fault = decoder.decode_unfolded(decoder.unfold(feed))
        assert reasons.tolist() == [of_first, of_second], x
        assert set(at_fault.values()) <= {x}
        assert len(decoded) == [of_first, of_second].count(0)


def test_a_type_of_another_subject_is_looked_into() -> None:
    """One that holds itself, and one that takes no bytes. What two fields share is no recursion."""
    encoding = made(record("A", "Node"), ("Node", NODE))
    assert encoding.read(framed(REF, deep(2)), None) == {"f0": {"f0": 1, "f1": {"f0": 1, "f1": None}}}
    assert refused(encoding, deep(1_000)) is Reason.UNREADABLE
    empty = record("A", {"type": "array", "items": "Node"})
    assert refused(made(empty, ("Node", record("Node")))) is Reason.UNUSABLE_SCHEMA
    shared = made(record("A", "Place", ["null", "Place"]), ("Place", record("Place", "int")))
    assert shared.read(framed(REF, b"\2\2\4"), None) == {"f0": {"f0": 1}, "f1": {"f0": 2}}


@pytest.mark.parametrize(
    "items",
    ["null", record("E"), record("E", "null", record("F")), {"type": "fixed", "name": "Z", "size": 0}],
    ids=["null", "empty", "of empty", "fixed"],
)
def test_an_array_of_items_that_take_no_bytes_is_refused(items: Any) -> None:
    """Ten bytes can announce 2^62 of them; here it is few, so that a library that believes it ends."""
    assert refused(made(record("A", {"type": "array", "items": items})), b"\4\0") is Reason.UNUSABLE_SCHEMA
    assert refused(made({"type": "map", "values": {"type": "array", "items": items}})) is Reason.UNUSABLE_SCHEMA


def test_values_that_take_no_bytes_cannot_be_doubled_without_end() -> None:
    assert refused(made(doubled(15)), b"") is Reason.UNUSABLE_SCHEMA
    assert made(doubled(5)).read(framed(REF, b""), None)["f0"] == {"f0": None}
    assert 2**5 < MOST_FREE < 2**14


def test_what_takes_a_byte_for_each_item_is_read() -> None:
    schema = record("A", {"type": "array", "items": ["null", "int"]}, {"type": "map", "values": "null"}, "null")
    assert made(schema).read(framed(REF, b"\4\0\2\2\0\2\2a\0"), None) == {
        "f0": [None, 1],
        "f1": {"a": None},
        "f2": None,
    }
    assert made(chain(DEEPEST - 5)).read(framed(REF, b"\2" * (DEEPEST - 5)), None)["f0"] == {"f0": 1}


# --- Avro: decimals ---------------------------------------------------------------------------------------------------

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 200, "scale": 0}


def varint(number: int) -> bytes:
    number, found = number << 1, b""
    while number > 127:
        number, found = number >> 7, found + bytes([number & 127 | 128])
    return found + bytes([number])


def fixed(size: int) -> Any:
    digits = int((8 * size - 1) * math.log10(2))  # more do not fit, and would be refused
    return {**DECIMAL, "type": "fixed", "name": "D", "size": size, "precision": digits}


@pytest.mark.parametrize("referenced", [False, True], ids=["inside", "referenced"])
@pytest.mark.parametrize("kind", ["bytes", "fixed"])
def test_a_decimal_that_is_too_long_is_no_number(kind: str, referenced: bool) -> None:
    for length in (1, MOST_DECIMAL_BYTES, MOST_DECIMAL_BYTES + 1, 20_000):
        inner = record("D0", DECIMAL if kind == "bytes" else fixed(length))
        encoding = made(record("A", "D0"), ("D0", inner)) if referenced else made(record("A", inner))
        data = (varint(length) if kind == "bytes" else b"") + b"\x01" * length
        found = encoding.read(framed(REF, data), None)["f0"]["f0"]
        assert found == (b"\x01" * length if length > MOST_DECIMAL_BYTES else int.from_bytes(b"\x01" * length, "big"))


def test_only_the_record_of_a_long_decimal_is_refused_and_its_field_is_named() -> None:
    schema = record("A", "string", "long", DECIMAL, "int")
    for field, name in zip(schema["fields"], ("user", "at", "x", "y"), strict=True):
        field["name"] = name
    book = SchemaBook()
    book.put(REF, SchemaText("AVRO", json.dumps(schema)))
    decoder = replace(spec(InputFormat("avro")), schemas=book).decoder()
    feed = records([framed(REF, b"\2a\0" + varint(length) + b"\1" * length + b"\0") for length in (1, 100, 1)])
    _, reasons, at_fault = decoder.decode_unfolded(decoder.unfold(feed))
    assert reasons.tolist() == [Reason.ACCEPTED, Reason.WRONG_TYPE, Reason.ACCEPTED]
    assert list(at_fault.values()) == ["x"]


def test_the_library_s_own_decimals_stay_what_they_are() -> None:
    from fastavro.read import LOGICAL_READERS

    made(record("A", DECIMAL)).read(framed(REF, b"\2\1"), None)
    assert LOGICAL_READERS["bytes-decimal"] is not avro._decimal


# --- Protobuf ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["google/protobuf/nope.proto", "google/protobuf/no/pe.proto", "google/protobuf/.proto"]
)
def test_an_import_that_does_not_come_with_protobuf(name: str) -> None:
    file = FileDescriptorProto(name="a.proto", dependency=[name])
    file.message_type.add(name="M")
    book = SchemaBook()
    book.put(REF, SchemaText("PROTOBUF", base64.b64encode(file.SerializeToString()).decode()))
    assert refused(ProtobufEncoding(book), b"\0") is Reason.UNUSABLE_SCHEMA


# --- Schemas that are not known yet -----------------------------------------------------------------------------------


def event_of(data: bytes) -> bytes:
    attributes = {"specversion": "1.0", "type": "t", "source": "s", "id": "1"}
    return json.dumps({**attributes, "data_base64": base64.b64encode(data).decode()}).encode()


@pytest.mark.parametrize("form", ["avro", "protobuf"])
@pytest.mark.parametrize("name", ["data_base64", "data\\u005fbase64"])
def test_a_structured_event_says_which_schema_its_data_needs(form: str, name: str) -> None:
    decoder = spec(InputFormat(form, "cloudevents")).decoder()
    value = event_of(framed(SchemaRef(99), b"\0")).replace(b"data_base64", name.encode())
    good = event_of(in_avro(EVENT)) if form == "avro" else b"{}"
    feed = records([good, b"{", b"[]", event_of(b""), value])
    assert decoder.missing(feed) == (4, frozenset({SchemaRef(99)}))
    by_header = records([event_of(b"")], headers=((VALUE_HEADER, b"\0\0\0\0\x62"),))
    assert decoder.missing(by_header) == (0, frozenset({SchemaRef(98)}))


def test_an_empty_key_with_a_header_needs_its_schema() -> None:
    decoder = spec(InputFormat("json", key_format="avro"), user="$key.user").decoder()
    feed = [RawRecord(0, 0, b"", b"{}", ((KEY_HEADER, b"\0\0\0\0\x63"),))]
    assert decoder.missing(feed) == (0, frozenset({SchemaRef(99)}))


def test_reading_without_asking_first_raises_nothing() -> None:
    decoder = spec(InputFormat("avro")).decoder()
    _, reasons, _ = decoder.decode_unfolded(decoder.unfold(records([framed(SchemaRef(99), b"")])))
    assert reasons.tolist() == [Reason.UNKNOWN_SCHEMA]


def test_no_more_is_asked_for_at_once_than_the_book_can_hold() -> None:
    assert AVRO in BOOK
    decoder = spec(InputFormat("avro")).decoder()
    feed = records([in_avro(EVENT), *(framed(SchemaRef(number), b"") for number in range(100, 1_000))])
    count, refs = decoder.missing(feed)
    assert (count, refs) == (1, frozenset(SchemaRef(number) for number in range(100, 100 + MOST_MISSING)))


def test_values_of_protobuf_that_take_no_bytes_have_a_bound() -> None:
    """Two bytes are a message of fields that were not set: a megabyte of them took ten seconds, and a gigabyte."""
    fields = " ".join(f"optional string f{n} = {n};" for n in range(1, 51))
    schema = f'syntax = "proto3"; message E {{ string user = 1; repeated S lines = 2; }} message S {{ {fields} }}'
    book = SchemaBook()
    book.put(REF, SchemaText("PROTOBUF", schema))
    encoding = ProtobufEncoding(book)

    def lines(number: int) -> bytes:
        return framed(REF, b"\0" + b"\x0a\x03ann" + b"\x12\x00" * number)

    read = encoding.read(lines(1_000), None)
    assert (read["user"], len(read["lines"]), set(read["lines"][0].values())) == ("ann", 1_000, {None})
    with pytest.raises(UnreadableError) as error:
        encoding.read(lines(500_000), None)
    assert error.value.reason == Reason.UNREADABLE

"""Every format: what its own library writes is what is read; what is cut off or garbled is named, and harms nothing."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.formats import protobuf
from agents.protocol.formats.avro import AvroEncoding
from agents.protocol.formats.build import InputFormat
from agents.protocol.formats.contract import MOST, VALUE_HEADER, SchemaBook, SchemaRef, SchemaText, UnreadableError
from agents.protocol.formats.csv_text import CsvEncoding
from agents.protocol.formats.protobuf import ProtobufEncoding
from agents.protocol.formats.values import MOST_DECIMAL_BYTES, NOT_FINITE, NUMBER, TEXT, cell
from agents.protocol.formats.values import NUMBER_OR_TEXT as EITHER
from agents.protocol.ingest.decode import EventDecoder
from agents.protocol.ingest.partition import PartitionIngest
from schemas.config.formats import CsvSection
from schemas.events import Reason
from tests.formats.forms import AVRO_SCHEMA, WRITERS, framed, in_avro, records, spec
from tests.protocol.ingest_runs import taken

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)
EVENTS = st.fixed_dictionaries(
    {
        "user": st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20),
        "at": st.integers(0, 2**50),
        "x": st.floats(-1e6, 1e6).map(lambda value: round(value, 6)),
        "y": st.floats(-1e6, 1e6).map(lambda value: round(value, 6)),
        "note": TEXTS,
    }
)
EVENT: Mapping[str, Any] = {"user": "ann", "at": 60_000_000, "x": 0.5, "y": 0.25, "note": "of no matter"}


def decoded(name: str, value: bytes, **more: Any) -> tuple[list[Any], list[Reason], dict[int, str]]:
    decoder = spec(WRITERS[name][1]).decoder()
    events, reasons, at_fault = decoder.decode_unfolded(decoder.unfold(records([value], **more)))
    return events, [Reason(each) for each in reasons], at_fault


@pytest.mark.parametrize("name", WRITERS)
@given(event=EVENTS)
def test_what_is_written_is_read(name: str, event: dict[str, Any]) -> None:
    [read], reasons, _ = decoded(name, WRITERS[name][0](event))
    assert reasons == [Reason.ACCEPTED]
    assert (read.user, int(read.time), read.number0, read.number1) == tuple(
        event[key] for key in ("user", "at", "x", "y")
    )


@pytest.mark.parametrize("name", WRITERS)
def test_no_record_that_is_cut_off_is_read_or_raises(name: str) -> None:
    whole = WRITERS[name][0](EVENT)
    for length in range(1, len(whole)):
        if name == "protobuf" and length >= 7:
            continue  # a message may end behind any of its fields: another test
        if name == "csv" and length > whole.rindex(b";"):
            continue  # within the last cell, of which nobody asks: it may as well be as short as that
        events, [reason], _ = decoded(name, whole[:length])
        assert events == [], length
        assert reason not in (Reason.ACCEPTED, Reason.NO_EVENT)


@pytest.mark.parametrize("name", WRITERS)
@given(data=st.data())
def test_garbled_bytes_never_raise(name: str, data: st.DataObject) -> None:
    garbled = bytearray(WRITERS[name][0](EVENT))
    for _ in range(data.draw(st.integers(1, 4))):
        garbled[data.draw(st.integers(0, len(garbled) - 1))] = data.draw(st.integers(0, 255))
    decoder = spec(WRITERS[name][1]).decoder()
    feed = records([bytes(garbled), bytes(garbled[: data.draw(st.integers(0, len(garbled)))])])
    readable, _ = decoder.missing(feed)
    decoder.decode_unfolded(decoder.unfold(feed[:readable]))


@pytest.mark.parametrize("name", WRITERS)
@given(value=st.binary(max_size=60), key=st.binary(max_size=9), header=st.none() | st.binary(max_size=18))
def test_no_bytes_raise(name: str, value: bytes, key: bytes, header: bytes | None) -> None:
    form = WRITERS[name][1]
    machine = PartitionIngest(spec(InputFormat(form.format, form.envelope, "avro", form.csv), user="$key.user"), 0)
    headers = ((VALUE_HEADER, header), ("ce_specversion", b"1.0"))
    known = [each._replace(key=key) for each in records([value, value], headers=headers)]
    readable, _ = machine.decoder.missing(known)
    machine.take(known[:readable])
    block, letters = machine.seal()
    if readable:
        assert block is not None
        assert sum(block.counts.values()) == readable
        assert len(letters) == readable - block.counts.get("NO_EVENT", 0)


def test_a_record_says_which_schema_it_needs_and_nothing_else_is_asked_for() -> None:
    decoder = spec(InputFormat("avro")).decoder()
    good, other = in_avro(EVENT), framed(SchemaRef(99), b"what it holds")
    guid = uuid.UUID(int=5)
    header = ((VALUE_HEADER, b"\1" + guid.bytes),)
    feed = [*records([good, b"{}", None, other, good]), *records([b"no frame"], headers=header)]
    assert decoder.missing(feed) == (3, frozenset({SchemaRef(99), SchemaRef(guid.hex)}))
    assert decoder.missing(feed[:3]) == (3, frozenset())
    assert isinstance(spec(InputFormat()).decoder(), EventDecoder)


def test_ids_in_headers() -> None:
    bare = in_avro(EVENT)[5:]
    [read], reasons, _ = decoded("avro", bare, headers=((VALUE_HEADER, b"\0\0\0\0\7"),))
    assert (read.user, reasons) == ("ann", [Reason.ACCEPTED])
    for header in (b"", b"\0\0\0\7", b"\2\0\0\0\7", b"\1\0\0\0\7"):
        assert decoded("avro", bare, headers=((VALUE_HEADER, header),))[1] == [Reason.NO_SCHEMA_ID]


def test_what_a_registry_does_not_have_or_nobody_can_use() -> None:
    book = SchemaBook()
    for number, text in enumerate(
        [
            None,
            SchemaText("PROTOBUF", 'syntax = "proto3"; message A { string user = 1; }'),
            SchemaText("AVRO", "{"),
            SchemaText("AVRO", '{"type": "record", "name": "A", "fields": [{"name": "b", "type": "Gone"}]}'),
            SchemaText("AVRO", '"string"'),
        ]
    ):
        book.put(SchemaRef(number), text)
    feed = records([framed(SchemaRef(number), b"\2a") for number in range(5)])
    _, letters = taken(replace(spec(InputFormat("avro")), schemas=book), feed)
    assert [letter.reason.name for letter in letters] == [
        "UNKNOWN_SCHEMA", "UNUSABLE_SCHEMA", "UNUSABLE_SCHEMA", "UNUSABLE_SCHEMA", "WRONG_TYPE",
    ]  # fmt: skip


def test_a_book_forgets_what_anybody_could_make_up() -> None:
    book = SchemaBook()
    for number in range(MOST + 5):
        book.put(SchemaRef(number), None)
    assert SchemaRef(4) not in book
    assert SchemaRef(5) in book


# --- Avro's own types -------------------------------------------------------------------------------------------------

LOGICAL: list[tuple[Any, Any, Any]] = [
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, decimal.Decimal("3.25"), 3.25),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 0}, decimal.Decimal(12), 12),
    ({"type": "int", "logicalType": "date"}, datetime.date(2020, 2, 3), "2020-02-03"),
    ({"type": "int", "logicalType": "time-millis"}, datetime.time(1, 2, 3), "01:02:03"),
    ({"type": "string", "logicalType": "uuid"}, uuid.UUID(int=7), str(uuid.UUID(int=7))),
    ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, bytes(15) + b"\7", str(uuid.UUID(int=7))),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
    (["null", "string"], None, None),
    (["null", "string", "long"], 7, 7),
    ("boolean", True, True),
    ({"type": "long", "logicalType": "timestamp-micros"}, datetime.datetime(2020, 1, 1, 0, 0, 0, 5, datetime.UTC),
     "2020-01-01T00:00:00.000005+00:00"),
    ({"type": "long", "logicalType": "timestamp-nanos"}, 5_999, "1970-01-01T00:00:00.000005+00:00"),
    ({"type": "long", "logicalType": "local-timestamp-nanos"}, -1, "1969-12-31T23:59:59.999999"),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, datetime.datetime(2020, 1, 1), "2020-01-01T00:00:00"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "written", "read"), LOGICAL, ids=range(len(LOGICAL)))
def test_types_of_avro(kind: Any, written: Any, read: Any) -> None:
    schema = {**AVRO_SCHEMA, "fields": [*AVRO_SCHEMA["fields"], {"name": "more", "type": kind}]}
    ref = SchemaRef(1000)
    book = SchemaBook()
    book.put(ref, SchemaText("AVRO", json.dumps(schema)))
    decoder = replace(spec(InputFormat("avro"), scalars=("more",)), schemas=book).decoder()
    data = in_avro({**EVENT, "more": written}, schema, ref)
    [event], *_ = decoder.decode_unfolded(decoder.unfold(records([data])))
    assert event.scalar0 == read
    assert type(event.scalar0) is type(read)


def of_type(kind: Mapping[str, Any], written: Any, **event: Any) -> tuple[Any, Reason, str]:
    """What becomes of a field `more` of a logical type, that is written as what it is made of: as producers of other
    libraries do, which hold no value against it.
    """
    fields, book = AVRO_SCHEMA["fields"], SchemaBook()
    named = {each["name"]: {"name": each["name"], "type": kind} for each in fields if each["name"] in event}
    read = [*(named.get(each["name"], each) for each in fields), {"name": "more", "type": kind}]
    book.put(SchemaRef(1000), SchemaText("AVRO", json.dumps({**AVRO_SCHEMA, "fields": read})))
    plain = json.loads(json.dumps(read).replace("logicalType", "ignored"))
    data = in_avro({**EVENT, **event, "more": written}, {**AVRO_SCHEMA, "fields": plain}, SchemaRef(1000))
    decoder = replace(spec(InputFormat("avro"), scalars=("more",)), schemas=book).decoder()
    events, [reason], at_fault = decoder.decode_unfolded(decoder.unfold(records([data])))
    return events[0].scalar0 if events else None, Reason(reason), at_fault.get(0, "")


def test_a_uuid_is_the_text_that_producers_key_by() -> None:
    """Swift and .NET write capitals. In small letters it would be another key, and so on another partition."""
    kind = {"type": "string", "logicalType": "uuid"}
    for text in ("C0FFEE00-0000-4000-8000-00000000000A", "{c0ffee00-0000-4000-8000-00000000000a}", "nobody"):
        assert of_type(kind, text) == (text, Reason.ACCEPTED, "")
    short = {"type": "fixed", "name": "U", "size": 4, "logicalType": "uuid"}
    assert of_type(short, b"abcd")[1:] == (Reason.WRONG_TYPE, "more")


def test_a_decimal_has_all_its_digits_whatever_precision_is_claimed() -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    assert of_type(kind, (12_345_678).to_bytes(4, "big"))[0] == 123456.78
    whole = {"type": "bytes", "logicalType": "decimal", "precision": 4}
    assert of_type(whole, (10**30 + 1).to_bytes(13, "big"))[0] == 10**30 + 1


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        ({"type": "int", "logicalType": "date"}, 2**31 - 1),
        ({"type": "int", "logicalType": "date"}, -(2**31)),
        ({"type": "int", "logicalType": "time-millis"}, 86_400_000),
        ({"type": "long", "logicalType": "time-micros"}, -(2**63)),
        *(
            ({"type": "long", "logicalType": f"{local}timestamp-{unit}"}, number)
            for local in ("", "local-")
            for unit, number in (("millis", 2**63 - 1), ("micros", -(2**63)))
        ),
    ],
    ids=str,
)
def test_a_time_of_no_calendar_is_wrong_where_it_stands(kind: dict[str, Any], number: int) -> None:
    """The infinity of a database, say: nothing else in the record is wrong for it."""
    assert of_type(kind, number) == ("NaN", Reason.ACCEPTED, "")  # no domain lists that
    assert of_type(kind, number, x=number)[1:] == (Reason.NOT_FINITE, "x")


@pytest.mark.parametrize(
    ("kind", "default", "written"),
    [
        ("string", None, "a"),
        ("long", "0", 7),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "Z"}, "B", "B"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 4}, "x", b"\1"),
    ],
    ids=str,
)
def test_what_is_wrong_in_a_schema_and_not_in_its_records_costs_none_of_them(
    kind: Any, default: Any, written: Any
) -> None:
    """As earlier versions of Avro in Java let them pass, and so registries that have them still."""
    good = {**AVRO_SCHEMA, "fields": [*AVRO_SCHEMA["fields"], {"name": "more", "type": kind}]}
    bad = {**good, "fields": [*AVRO_SCHEMA["fields"], {"name": "more", "type": kind, "default": default}]}
    plain = json.loads(json.dumps(good).replace("logicalType", "ignored").replace('"default": "Z"', '"doc": ""'))
    book, ref = SchemaBook(), SchemaRef(1000)
    book.put(ref, SchemaText("AVRO", json.dumps(bad)))
    data = in_avro({**EVENT, "more": written}, plain, ref)
    expected = decimal.Decimal("0.0001") if isinstance(written, bytes) else written
    assert AvroEncoding(book).read(data, None)["more"] == expected


@pytest.mark.parametrize(("unit", "read"), [("s", "60.000001"), ("ms", "60000.001"), ("us", 60_000_001)])
def test_an_instant_is_one_whatever_unit_it_is_written_in(unit: str, read: Any) -> None:
    made = spec(InputFormat("avro"))
    decoder = replace(made, format=unit).decoder()
    [event], *_ = decoder.decode_unfolded(decoder.unfold(records([in_avro({**EVENT, "at": 60_000_001})])))
    assert event.time == read
    assert made.time_parser().parse([60_000_001])[0].tolist() == [60_000_001]


def test_a_named_type_of_another_subject() -> None:
    place = json.dumps({"type": "record", "name": "Place", "fields": [{"name": "x", "type": "double"}]})
    ride = {"type": "record", "name": "Ride", "fields": [{"name": "place", "type": "Place"}]}
    book, ref = SchemaBook(), SchemaRef(3)
    book.put(ref, SchemaText("AVRO", json.dumps(ride), (("Place", place),)))
    named: dict[str, Any] = {}
    fastavro.parse_schema(json.loads(place), named_schemas=named)
    data = in_avro({"place": {"x": 1.5}}, fastavro.parse_schema(ride, named_schemas=named), ref)  # type: ignore[arg-type]
    assert AvroEncoding(book).read(data, None) == {"place": {"x": 1.5}}


def test_a_field_that_a_writer_did_not_know_is_not_there_and_one_more_changes_nothing() -> None:
    """Evolution: each record is read with its writer's schema, and no default of another version has a part in it."""
    book = SchemaBook()
    older = {**AVRO_SCHEMA, "fields": [each for each in AVRO_SCHEMA["fields"] if each["name"] != "note"]}
    newer = {**AVRO_SCHEMA, "fields": [{"name": "tip", "type": ["null", "long"], "default": None}, *older["fields"]]}
    for number, schema in enumerate((older, AVRO_SCHEMA, newer)):
        book.put(SchemaRef(number), SchemaText("AVRO", json.dumps(schema)))
    values = [in_avro(EVENT, older, SchemaRef(0)), in_avro(EVENT, AVRO_SCHEMA, SchemaRef(1))]
    feed = records([*values, in_avro({**EVENT, "tip": 3}, newer, SchemaRef(2))])
    block, letters = taken(replace(spec(InputFormat("avro"), scalars=("tip",)), schemas=book), feed)
    assert (block.counts, letters) == ({"ACCEPTED": 3}, [])


# --- Protobuf ---------------------------------------------------------------------------------------------------------


def read_proto(schema: str, data: bytes) -> Any:
    book = SchemaBook()
    book.put(SchemaRef(1), SchemaText("PROTOBUF", schema))
    return ProtobufEncoding(book).read(framed(SchemaRef(1), data), None)


def test_fields_that_a_schema_does_not_have_are_no_defaults() -> None:
    """Written with another schema than it says: its fields would be passed over, and zeros be read."""
    schema = 'syntax = "proto3"; message A { double x = 1; }'
    assert read_proto(schema, b"\0" + b"\x09" + bytes(6) + b"\xe0\x3f") == {"x": 0.5}
    with pytest.raises(UnreadableError) as refused:
        read_proto(schema, b"\0" + b"\x12\x01a")
    assert refused.value.reason is Reason.UNREADABLE


def test_the_message_that_is_meant() -> None:
    schema = 'syntax = "proto3"; message A {} message B { message C { string s = 1; } message D { int32 i = 1; } }'
    assert read_proto(schema, bytes([4, 2, 2, 8, 5])) == {"i": 5}
    for indexes in (bytes([4, 2, 4]), bytes([2, 1]), bytes([2, 9]), bytes([1]), bytes([255] * 9), b""):
        with pytest.raises(UnreadableError):
            read_proto(schema, indexes + bytes([8, 5]))


def test_what_protobuf_has_beside_plain_fields() -> None:
    schema = """syntax = "proto3"; import "google/protobuf/wrappers.proto";
    message A { enum K { NONE = 0; SOME = 1; } K k = 1; repeated K ks = 2; map<string, int64> m = 3;
                google.protobuf.DoubleValue d = 4; optional string s = 5; oneof o { int32 a = 6; A b = 7; }
                bytes z = 8; }"""
    assert read_proto(schema, b"\0" + bytes([8, 1, 18, 2, 0, 9, 26, 5, 10, 1, 97, 16, 4, 58, 2, 48, 3])) == {
        "k": "SOME", "ks": ["NONE", 9], "m": {"a": 4}, "d": None, "s": None, "a": None,
        "b": {"k": "NONE", "ks": [], "m": {}, "d": None, "s": None, "a": 3, "b": None, "z": b""}, "z": b"",
    }  # fmt: skip


KNOWN_SCHEMA = """
syntax = "proto3";
import "google/type/date.proto"; import "google/type/decimal.proto"; import "google/type/timeofday.proto";
import "google/type/latlng.proto"; import "confluent/meta.proto"; import "confluent/%s/decimal.proto";
message A {
  google.type.Date day = 1 [(confluent.field_meta) = {doc: "of the ride", tags: ["PII"]}];
  google.type.TimeOfDay time = 2; google.type.Decimal price = 3; google.type.LatLng place = 4;
  confluent.type.Decimal fare = 5;
}
"""


@pytest.mark.parametrize("form", ["text", "descriptors"])
@pytest.mark.parametrize("folder", ["type", "types"])
def test_what_confluent_s_serializers_register_no_reference_for_is_known(folder: str, form: str) -> None:
    """As Kafka Connect writes dates and decimals."""
    text = SchemaText("PROTOBUF", KNOWN_SCHEMA % folder)
    [*_, main] = protobuf.descriptors(text)
    if form == "descriptors":
        text = SchemaText("PROTOBUF", base64.b64encode(main.SerializeToString()).decode())
    message_of, _ = ProtobufEncoding.reader_of(text)

    def read(**fields: Any) -> Any:
        data = message_of((0,))(**fields).SerializeToString()
        book = SchemaBook()
        book.put(SchemaRef(1), text)
        return ProtobufEncoding(book).read(framed(SchemaRef(1), b"\0" + data), None)

    place = {"latitude": 52.5, "longitude": 13.4}
    day, time = {"year": 2026, "month": 3, "day": 4}, {"hours": 5, "minutes": 6, "seconds": 7, "nanos": 8_000}
    fare = {"value": (-1250).to_bytes(2, "big", signed=True), "precision": 3, "scale": 2}
    assert read(day=day, time=time, price={"value": "12.50"}, place=place, fare=fare) == {
        "day": datetime.date(2026, 3, 4), "time": datetime.time(5, 6, 7, 8), "price": "12.50", "place": place,
        "fare": decimal.Decimal("-12.50"),
    }  # fmt: skip
    odd = read(day={"year": 2026}, time={"hours": 24}, fare={"value": bytes(MOST_DECIMAL_BYTES + 1)})
    assert (odd["day"], odd["time"], odd["fare"]) == (NOT_FINITE, NOT_FINITE, bytes(MOST_DECIMAL_BYTES + 1))


def test_a_time_of_no_calendar_in_protobuf_is_wrong_where_it_stands() -> None:
    schema = """syntax = "proto3"; import "google/protobuf/timestamp.proto";
    message A { google.protobuf.Timestamp at = 1; double x = 2; }"""
    found = read_proto(schema, b"\0" + bytes([10, 8, 8, *(255,) * 6, 127]) + b"\x11" + bytes(6) + b"\xe0\x3f")
    assert found == {"at": NOT_FINITE, "x": 0.5}


# --- CSV --------------------------------------------------------------------------------------------------------------

TRUTH = frozenset(("boolean", "number"))


@pytest.mark.parametrize(
    ("text", "kinds", "decimal_", "read"),
    [
        ("4.50", NUMBER, ".", 4.5), (" 007 ", NUMBER, ".", 7), ("4,5", NUMBER, ".", "4,5"), ("4,5", NUMBER, ",", 4.5),
        ("1.234,5", NUMBER, ",", []), ("1,234.5", NUMBER, ".", "1,234.5"), ("NaN", NUMBER, ".", NOT_FINITE),
        ("1e400", NUMBER, ".", NOT_FINITE), ("", NUMBER, ".", None), ("", TEXT, ".", None), ("007", TEXT, ".", "007"),
        ("007", EITHER, ".", "007"), ("7", EITHER, ".", 7), ("7,5", EITHER, ",", 7.5), ("1e400", EITHER, ".", "1e400"),
        ("1577836800000000123", EITHER, ".", "1577836800000000123"), ("0,1234567890123456789", EITHER, ",",
         "0.1234567890123456789"), ("0e99999999999999999999", EITHER, ".", "0e99999999999999999999"),
        ("True", TRUTH, ".", True), ("1", TRUTH, ".", 1), ("yes", TRUTH, ".", "yes"), ("x", None, ".", "x"),
    ],
)  # fmt: skip
def test_cells(text: str, kinds: frozenset[str] | None, decimal_: str, read: Any) -> None:
    assert cell(text, kinds, decimal_) == read
    assert type(cell(text, kinds, decimal_)) is type(read)


@pytest.mark.parametrize(
    ("value", "reason", "field"),
    [
        (b"user;at;x;y;note", Reason.NO_EVENT, ""),  # the header of a file, as a record
        (b"id;when;lon;lat;note", Reason.WRONG_TYPE, "x"),  # another header
        (b"ann;60000000;0,5", Reason.WRONG_COLUMNS, ""),
        (b"ann,60000000,0.5,0.5,n", Reason.WRONG_COLUMNS, ""),
        (b"ann;60000000;0.5;0,5;n", Reason.WRONG_TYPE, "x"),  # a point where commas are configured
        (b"ann;60000000;;0,5;n", Reason.WRONG_TYPE, "x"),
        ("Ánn;60000000;0,5;0,5;n".encode("latin-1"), Reason.UNREADABLE, ""),
        (b'"ann;60000000;0,5;0,5;n', Reason.UNREADABLE, ""),  # a quote that never ends
        (b"ann;60000000;0,5;0,5;n\r\nbob;60000000;0,5;0,5;n", Reason.UNREADABLE, ""),
        (b"ann;soon;0,5;0,5;n", Reason.BAD_TIME, "at"),
        (b"\xef\xbb\xbfann;60000000;0,5;0,5;n\r\n", Reason.ACCEPTED, ""),
    ],
)
def test_csv_that_is_other_than_it_should_be(value: bytes, reason: Reason, field: str) -> None:
    block, letters = taken(spec(WRITERS["csv"][1]), records([value]))
    assert block.counts == {reason.name: 1}
    assert [(letter.reason, letter.field) for letter in letters] == (
        [] if reason in (Reason.ACCEPTED, Reason.NO_EVENT) else [(reason, field)]
    )


@pytest.mark.parametrize(
    ("encoding", "reason"),
    [("latin-1", "ACCEPTED"), ("utf-16", "ACCEPTED"), ("utf-8", "UNREADABLE"), ("ascii", "UNREADABLE")],
)
def test_csv_of_another_encoding(encoding: str, reason: str) -> None:
    form = InputFormat("csv", csv=CsvSection(columns=("user", "at", "x", "y"), encoding=encoding))
    written = "Ánn,60000000,0.5,0.5".encode("utf-16" if encoding == "utf-16" else "latin-1")
    assert taken(spec(form), records([written]))[0].counts == {reason: 1}


def test_a_header_in_each_record_names_the_cells_in_any_order() -> None:
    good = b"y,at,user,more,x\n0.5,60000000,ann,,0.25\n"
    feed = records([good, b"y,at,user,x\n", b"y,at,user\n1,2,3\n", b"y,y\n1,2\n", b"\n"])
    block, letters = taken(spec(InputFormat("csv", csv=CsvSection())), feed)
    assert block.counts == {"ACCEPTED": 1, "NO_EVENT": 1, "MISSING_FIELD": 1, "WRONG_COLUMNS": 1, "UNREADABLE": 1}
    assert [letter.field for letter in letters] == ["x", "", ""]


@given(st.lists(st.text(max_size=8), min_size=1, max_size=5), st.sampled_from(",;\t|"))
def test_any_cells_come_back(cells: list[str], delimiter: str) -> None:
    import csv
    import io

    columns = tuple(f"c{index}" for index in range(len(cells)))
    stream = io.StringIO()
    csv.writer(stream, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerow(cells)
    try:
        data = stream.getvalue().encode()
    except UnicodeEncodeError:
        return
    if data.startswith("\ufeff".encode()) or tuple(cells) == columns:
        return
    found = CsvEncoding({}, columns, delimiter).read(data, None)
    assert found == {name: text or None for name, text in zip(columns, cells, strict=True)}

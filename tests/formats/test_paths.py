"""Which field of a record a name means."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.formats.build import ROWS, InputFormat
from agents.protocol.formats.contract import SchemaRef
from agents.protocol.formats.reader import ABSENT, FieldPath, paths_of
from agents.protocol.ingest.decode import EventDecoder
from agents.protocol.ingest.events import RawRecord
from tests.formats.forms import AVRO_SCHEMA, framed, in_avro, records, spec
from tests.protocol.ingest_runs import taken

DOCUMENT = {
    "lat": 1, "position": {"lat": 2, "a.b": 3, "$key": 4}, "position.lon": 5, "a.b": {"c": 6}, "$key": 7,
    "coordinates": [8, {"z": 9}], "none": None, "0": 10,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("lat", 1), ("position.lat", 2), ('position."a.b"', 3), ('position."$key"', 4), ("position.lon", 5),
        ('"a.b".c', 6), ("a.b.c", ABSENT), ('"$key"', 7), ("coordinates.0", 8), ("coordinates.1.z", 9), ("0", 10),
        ("coordinates.2", ABSENT), ("coordinates.-1", ABSENT), ("none", None), ("none.x", ABSENT), ("lat.x", ABSENT),
        ("position.", ABSENT), (".lat", ABSENT), ('"lat', ABSENT), ("position..lat", ABSENT), ("coordinates.²", ABSENT),
    ],
)  # fmt: skip
def test_names(name: str, found: Any) -> None:
    assert FieldPath.parse(name).find(DOCUMENT) == found


@given(st.text(min_size=1).filter(lambda name: not name.startswith("$")))
def test_a_field_of_that_very_name_comes_first(name: str) -> None:
    assert FieldPath.parse(name).find({name: "here", "a": {"b": "there"}}) == "here"


@given(st.lists(st.text(st.characters(exclude_characters='"')), min_size=1, max_size=4))
def test_any_path_can_be_written_with_quotes(parts: list[str]) -> None:
    document: Any = "here"
    for part in reversed(parts):
        document = {part: document}
    assert FieldPath.parse(".".join(f'"{part}"' for part in parts)).find(document) == "here"


def test_in_a_file_a_column_of_that_name_is_meant() -> None:
    [key, nested] = paths_of(ROWS, ["$key", "position.lat"])
    assert key.find({"$key": 1}) == 1
    assert nested.find({"position.lat": 1, "position": {"lat": 2}}) == 1
    assert nested.find({"position": {"lat": 2}}) == 2
    assert type(spec(ROWS, user="$key").decoder()) is EventDecoder
    assert type(spec(InputFormat(), user="$key").decoder()) is not EventDecoder


@given(st.lists(st.sampled_from(["x", "y", "at", "user"]), unique=True), st.data())
def test_top_level_fields_are_read_alike_by_both_decoders(broken: list[str], data: st.DataObject) -> None:
    """JSON has a way of its own, for speed: it must refuse what the other refuses, by the same reason and field."""
    event: dict[str, Any] = {"user": "ann", "at": 0, "x": 0.5, "y": 0.5}
    junk = st.one_of(
        st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=3), st.just([]), st.just({}),
    )  # fmt: skip
    for name in broken:
        if data.draw(st.booleans()):
            event[name] = data.draw(junk)
        else:
            del event[name]
    plain = spec(InputFormat()).decoder()
    other = spec(InputFormat("msgpack"), scalars=("a.b",)).decoder()
    feed = records([json.dumps(event).encode()])
    events, reasons, at_fault = plain.decode_unfolded(plain.unfold(feed))
    reader = spec(InputFormat("json"), scalars=("a.b",)).decoder()
    assert type(reader) is type(other)
    others, other_reasons, other_fault = reader.decode_unfolded(reader.unfold(feed))
    assert (reasons.tolist(), at_fault) == (other_reasons.tolist(), other_fault)
    assert [(e.time, e.user, e.number0) for e in events] == [(e.time, e.user, e.number0) for e in others]


def counted(made: Any, feed: list[RawRecord]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    block, letters = taken(made, feed)
    return dict(block.counts), [(letter.reason.name, letter.field) for letter in letters]


def test_keys_headers_and_timestamps() -> None:
    made = spec(InputFormat(), user="$key", time="$timestamp", numbers=("$header.x", "position.y"))
    value = json.dumps({"position": {"y": 0.5}}).encode()
    good = RawRecord(0, 5, b"ann", value, (("x", b"0.5"),))
    counts, letters = counted(made, [good])
    assert (counts, letters) == ({"ACCEPTED": 1}, []), "a header is a text, which can be a number"
    made = spec(
        InputFormat(), user="$key", time="$timestamp", numbers=("position.x", "position.y"), scalars=("$header.k",)
    )
    value = json.dumps({"position": {"x": 0.5, "y": 0.5}}).encode()
    good = RawRecord(0, 5, b"ann", value, (("k", b"first"), ("k", b"last")))
    bad = [
        good,
        good._replace(offset=1, key=None),
        good._replace(offset=2, key=b"\xff"),
        good._replace(offset=3, timestamp=-1),
        good._replace(offset=4, headers=(("k", b"\xff"),)),
        good._replace(offset=5, headers=()),
        good._replace(offset=6, value=None),
    ]
    counts, letters = counted(made, bad)
    assert counts == {"ACCEPTED": 2, "MISSING_FIELD": 2, "UNREADABLE": 2, "EMPTY": 1}
    assert letters == [
        ("MISSING_FIELD", "$key"), ("UNREADABLE", "$key"), ("MISSING_FIELD", "$timestamp"), ("UNREADABLE", "$header.k"),
        ("EMPTY", ""),
    ]  # fmt: skip


def test_a_key_of_another_format_is_no_text_whatever_its_bytes_happen_to_be() -> None:
    """Else a user would be one more with each version of the key's schema."""
    made = spec(InputFormat(), user="$key")
    value = json.dumps({"at": 0, "x": 0.5, "y": 0.5}).encode()
    keys = [framed(SchemaRef(number), b"\6ann") for number in (1, 2)]
    feed = [RawRecord(offset, 0, key, value) for offset, key in enumerate([*keys, (57).to_bytes(8, "big"), b"ann"])]
    counts, letters = counted(made, feed)
    assert counts == {"ACCEPTED": 1, "UNREADABLE": 3}
    assert letters == [("UNREADABLE", "$key")] * 3


def test_a_key_in_avro() -> None:
    made = spec(InputFormat("json", key_format="avro"), user="$key.user")
    value = json.dumps({"at": 0, "x": 0.5, "y": 0.5}).encode()
    key = in_avro({"user": "ann", "at": 0, "x": 0.0, "y": None, "note": ""}, AVRO_SCHEMA)
    feed = [RawRecord(0, 0, key, value), RawRecord(1, 0, key[:-1], value), RawRecord(2, 0, b"ann", value)]
    assert made.decoder().missing(feed)[0] == 3
    counts, letters = counted(made, feed)
    assert counts == {"ACCEPTED": 1, "UNREADABLE": 1, "NO_SCHEMA_ID": 1}
    assert [field for _, field in letters] == ["$key.user", "$key.user"]


@pytest.mark.parametrize("value", [b"1e999", b"[NaN]", b"[]", b"7", b'"text"', b"null"])
def test_what_is_no_object_is_named_on_every_way(value: bytes) -> None:
    found = counted(spec(InputFormat(), numbers=("a.x", "a.y")), records([value]))[1]
    assert found == [("WRONG_TYPE", "")]


@pytest.mark.parametrize("number", [b"1e999", b"NaN", b"-Infinity", b'"inf"', b"[1e999]"])
def test_a_number_that_is_not_finite_is_named_where_it_is(number: bytes) -> None:
    value = b'{"user": "ann", "at": 0, "a": {"x": 0.5, "y": @}, "b": {"c": NaN}}'
    found = counted(spec(InputFormat(), numbers=("a.x", "a.y")), records([value.replace(b"@", number)]))[1]
    assert found == [("NOT_FINITE", "a.y")]
    deep = b'{"a":' * 50 + b"1e999" + b"}" * 50
    value = value.replace(b"@", b"0.5").replace(b"NaN", deep)
    assert counted(spec(InputFormat(), numbers=("a.x", "a.y")), records([value])) == ({"ACCEPTED": 1}, [])

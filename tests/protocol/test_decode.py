"""Each record is decoded by itself, keeps its place, and is refused for the right reason."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.ingest.decode import EventDecoder, EventFields
from schemas.events import Reason

FIELDS = EventFields(
    time="when it was", time_is_number=False, user="user-id", operation="class", numbers=("x", "y"), texts=("naïve",)
)
GOOD: dict[str, Any] = {
    "when it was": "2016",
    "user-id": "ann",
    "class": "insert",
    "x": 1,
    "y": 2.5,
    "naïve": "z",
    "more": [1],
}
encode = msgspec.json.encode


def without(name: str) -> bytes:
    return encode({key: value for key, value in GOOD.items() if key != name})


def changed(name: str, value: Any) -> bytes:
    return encode({**GOOD, name: value})


def literal(name: str, text: bytes) -> bytes:
    return encode({**GOOD, name: "@"}).replace(b'"@"', text)


NOBODY: tuple[Any, ...] = (None, True, 1.5, [], {})
BAD: list[tuple[bytes | None, Reason]] = [
    (None, Reason.EMPTY),
    (b"", Reason.EMPTY),
    (encode(GOOD).ljust(2_001), Reason.TOO_LARGE),
    (b"{", Reason.NOT_JSON),
    (b"\xff\xfe", Reason.NOT_JSON),
    (b" ", Reason.NOT_JSON),
    (encode(GOOD) + b"x", Reason.NOT_JSON),
    (encode(GOOD) + encode(GOOD), Reason.NOT_JSON),
    (b'{"a":' + b"[" * 1_900, Reason.NOT_JSON),
    (literal("x", b"NaN"), Reason.NOT_FINITE),
    (literal("x", b"-Infinity"), Reason.NOT_FINITE),
    (literal("x", b"NaNo"), Reason.NOT_JSON),
    (literal("more", b'NaN, "\\ud800": "'), Reason.NOT_JSON),
    (literal("when it was", b"NaN"), Reason.NOT_FINITE),
    (literal("user-id", b"NaN"), Reason.NOT_FINITE),
    (literal("user-id", b'"\\ud800"'), Reason.NOT_JSON),
    (literal("user-id", b'"\xff"'), Reason.NOT_JSON),
    (b"[]", Reason.WRONG_TYPE),
    (b"null", Reason.WRONG_TYPE),
    (b'"text"', Reason.WRONG_TYPE),
    (b"{}", Reason.MISSING_FIELD),
    *((without(name), Reason.MISSING_FIELD) for name in FIELDS.names),
    (changed("x", "one"), Reason.WRONG_TYPE),
    (changed("x", ""), Reason.WRONG_TYPE),
    (changed("x", "1e400"), Reason.NOT_FINITE),
    (changed("x", " nan"), Reason.NOT_FINITE),
    (changed("y", None), Reason.WRONG_TYPE),
    (changed("x", True), Reason.WRONG_TYPE),
    (changed("when it was", 2016.0), Reason.WRONG_TYPE),
    (changed("class", True), Reason.WRONG_TYPE),
    (changed("naïve", []), Reason.WRONG_TYPE),
    (literal("x", b"1e999"), Reason.NOT_FINITE),
    (literal("y", b"9" * 400), Reason.NOT_FINITE),
    *((changed("user-id", value), Reason.BAD_USER) for value in NOBODY),
]


@pytest.mark.parametrize(("value", "reason"), BAD)
def test_the_reason(value: bytes | None, reason: Reason) -> None:
    events, reasons, _ = EventDecoder(FIELDS, max_value_bytes=2_000).decode([encode(GOOD), value, encode(GOOD)])
    assert [Reason(each) for each in reasons] == [Reason.ACCEPTED, reason, Reason.ACCEPTED]
    assert len(events) == 2


@given(st.lists(st.one_of(st.integers(0, 99), st.sampled_from([value for value, _ in BAD]), st.binary(max_size=8))))
def test_events_keep_their_places(mixed: list[Any]) -> None:
    decoder = EventDecoder(FIELDS, max_value_bytes=2_000)
    values = [changed("x", each) if isinstance(each, int) else each for each in mixed]
    events, reasons, _ = decoder.decode(values)
    assert [event.number0 for event in events] == [float(each) for each in mixed if isinstance(each, int)]
    assert [reason == 0 for reason in reasons] == [isinstance(each, int) for each in mixed]


def test_what_is_read() -> None:
    [event], *_ = EventDecoder(FIELDS).decode([encode(GOOD)])
    assert (event.time, event.user, event.operation) == ("2016", "ann", "insert")
    assert (event.number0, event.number1, event.text0) == (1.0, 2.5, "z")


def test_the_last_of_two_equal_keys_counts() -> None:
    [event], *_ = EventDecoder(FIELDS).decode([encode(GOOD)[:-1] + b',"x":7}'])
    assert event.number0 == 7.0


def test_a_number_format_takes_numbers_and_texts() -> None:
    decoder = EventDecoder(EventFields(time="t", time_is_number=True))
    events, reasons, _ = decoder.decode([b'{"t":1}', b'{"t":1.5}', b'{"t":"1"}', b'{"t":null}', b'{"t":true}'])
    assert [event.time for event in events] == [1, 1.5, "1"]
    assert reasons.tolist() == [0, 0, 0, Reason.WRONG_TYPE, Reason.WRONG_TYPE]


def test_a_field_has_one_role() -> None:
    with pytest.raises(ValueError, match="two roles"):
        EventFields(time="x", time_is_number=False, numbers=("x",))

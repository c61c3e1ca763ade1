"""CloudEvents and Debezium: what stands around an event, and a table's changes as inserts and deletes of users."""

from __future__ import annotations

import base64
import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.formats.build import InputFormat
from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.partition import PartitionIngest
from schemas.blocks import Block
from schemas.events import TICK_HEADER, encode_tick
from tests.formats.forms import AVRO_SCHEMA, in_avro, records, spec

EVENT = {"user": "ann", "at": 0, "x": 0.5, "y": 0.5}
ATTRIBUTES = {"specversion": "1.0", "type": "ride", "source": "/app", "id": "1", "time": "1970-01-01T00:00:00Z"}
BINARY = tuple((f"ce_{name}", value.encode()) for name, value in ATTRIBUTES.items())
STRUCTURED = (("content-type", b"application/cloudevents+json; charset=UTF-8"),)


def outcome(
    made: Any, feed: list[RawRecord], cuts: tuple[int, ...] = ()
) -> tuple[Counter[str], list[Any], list[Block]]:
    """Counts, letters, and blocks of a feed that is taken in pieces, a block each."""
    machine = PartitionIngest(made, 0)
    counts: Counter[str] = Counter()
    letters: list[Any] = []
    blocks: list[Block] = []
    places = [0, *sorted(cuts), len(feed)]
    for begin, end in pairwise(places):
        machine.take(feed[begin:end])
        block, new = machine.seal()
        if block is not None:
            machine.committed(at=len(blocks))
            blocks.append(block)
            counts.update(block.counts)
        letters += [(letter.reason.name, letter.field, letter.offset) for letter in new]
    return counts, letters, blocks


# --- CloudEvents ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["json", "avro"])
def test_binary_and_structured_are_the_same_event(form: str) -> None:
    made = spec(InputFormat(form, "cloudevents"), scalars=("$envelope.type",))
    avro = in_avro({**EVENT, "note": ""}, AVRO_SCHEMA)
    data = avro if form == "avro" else json.dumps(EVENT).encode()
    inside: dict[str, Any] = {"data_base64": base64.b64encode(avro).decode()} if form == "avro" else {"data": EVENT}
    whole = json.dumps({**ATTRIBUTES, **inside}).encode()
    feed = [RawRecord(0, 0, None, data, BINARY), RawRecord(1, 0, None, whole, STRUCTURED), RawRecord(2, 0, None, whole)]
    assert made.decoder().missing(feed) == (3, frozenset())
    decoder = made.decoder()
    events, reasons, _ = decoder.decode_unfolded(decoder.unfold(feed))
    assert reasons.tolist() == [0, 0, 0]
    assert [event.scalar0 for event in events] == ["ride"] * 3


def test_what_is_no_cloudevent() -> None:
    made = spec(InputFormat(envelope="cloudevents"))
    whole = json.dumps({**ATTRIBUTES, "data": EVENT}).encode()
    bad: list[tuple[bytes | None, tuple[tuple[str, bytes | None], ...], str]] = [
        (json.dumps(EVENT).encode(), (), "NO_ENVELOPE"),
        (whole, (("content-type", b"application/cloudevents-batch+json"),), "NO_ENVELOPE"),
        (whole, (("content-type", b"application/cloudevents+avro"),), "NO_ENVELOPE"),
        (b"[]", STRUCTURED, "NO_ENVELOPE"),
        (b"{", STRUCTURED, "NOT_JSON"),
        (json.dumps({**ATTRIBUTES, "data_base64": "%"}).encode(), (), "UNREADABLE"),
        (json.dumps({**ATTRIBUTES, "data_base64": 7}).encode(), (), "UNREADABLE"),
        (json.dumps(ATTRIBUTES).encode(), (), "WRONG_TYPE"),
        (json.dumps(EVENT).encode(), (("ce_specversion", b"1.0"), ("ce_id", b"\xff")), "UNREADABLE"),
        (None, BINARY, "EMPTY"),
    ]
    feed = [RawRecord(at, 0, None, value, headers) for at, (value, headers, _) in enumerate(bad)]
    _, letters, _ = outcome(made, feed)
    assert [reason for reason, _, _ in letters] == [reason for _, _, reason in bad]


# --- Debezium ---------------------------------------------------------------------------------------------------------

TABLE = spec(InputFormat(envelope="debezium"), operation="$operation")


def change(op: Any, before: Any = None, after: Any = None, *, wrapped: bool = False, **more: Any) -> bytes:
    payload = {"op": op, "before": before, "after": after, "source": {"ts_ms": 5}, "ts_ms": 6, **more}
    return json.dumps({"schema": {"type": "struct"}, "payload": payload} if wrapped else payload).encode()


def row(user: str = "ann", x: float = 0.5, **more: Any) -> dict[str, Any]:
    return {"user": user, "at": 0, "x": x, "y": 0.5, **more}


def events_of(blocks: list[Block]) -> Counter[tuple[int, int]]:
    """(cell and operation) -> events, deletes below 0."""
    found: Counter[tuple[int, int]] = Counter()
    for block in blocks:
        for folded in block.steps.values():
            for key, count in zip(folded.keys[:, 0].tolist(), folded.counts.tolist(), strict=True):
                found[key >> 1, 1 if key & 1 else 0] += count
    return found


@pytest.mark.parametrize("wrapped", [False, True])
def test_changes_are_inserts_and_deletes(wrapped: bool) -> None:
    feed = records(
        [
            change("r", None, row("ann", 0.1), wrapped=wrapped),
            change("c", None, row("bob", 0.3), wrapped=wrapped),
            change("u", row("bob", 0.3), row("bob", 0.7), wrapped=wrapped),
            change("d", row("ann", 0.1), None, wrapped=wrapped),
            None,  # the tombstone behind a delete
        ]
    )
    counts, letters, blocks = outcome(TABLE, feed)
    assert counts == {"ACCEPTED": 5, "NO_EVENT": 1}
    assert letters == []
    found = events_of(blocks)
    inserted = {cell for cell, deleted in found if not deleted}
    removed = {cell for cell, deleted in found if deleted}
    assert len(inserted) == 3
    assert removed < inserted, "what is taken away was there"
    assert sum(block.increments.sum() for block in blocks) == 5, "an update is charged twice"


def test_who_hands_rows_to_others_moves_no_more_events_than_the_bound() -> None:
    """The neighbours of the guarantee: all records of one user there, or not. A row that changes hands is of two."""
    handed = [change("u", row("ann", 0.3), row(f"customer {at}", 0.7)) for at in range(50)]
    ours = [change("c", None, row("ann", 0.3)) for _ in range(50)]
    theirs = [change("c", None, row(f"customer {at}", 0.1)) for at in range(50)]
    counts, letters, blocks = outcome(TABLE, records([*ours, *handed, *theirs]))
    assert counts == {"ACCEPTED": 53, "OVER_BOUND": 47, "TWO_USERS": 50}
    assert {(reason, field) for reason, field, _ in letters} == {("TWO_USERS", "user")}
    with_ann, without = events_of(blocks), events_of(outcome(TABLE, records(theirs))[2])
    assert (with_ann - without).total() == 3
    assert without - with_ann == Counter()


@pytest.mark.parametrize(
    ("before", "after", "accepted"),
    [("ann", "ann", 2), (7, "7", 2), ("ann", "ann ", 0), ("ann", "Ann", 0), (None, "ann", 1), ("ann", None, 1),
     ("ann", "x" * 257, 1), ("", 7, 1), (True, "true", 1), (7, 8, 0)],
)  # fmt: skip
def test_whose_row_it_is(before: Any, after: Any, accepted: int) -> None:
    """An id that the bounds take no user for is nobody's; two that they take for one are one user's."""
    counts, letters, _ = outcome(TABLE, records([change("u", {**row(), "user": before}, {**row(), "user": after})]))
    assert counts["ACCEPTED"] == accepted
    assert (letters == [("TWO_USERS", "user", 0)]) is (accepted == 0)


def test_half_an_update_that_cannot_be_read_hides_no_other_user() -> None:
    for before in ({"user": "ann"}, {**row("ann"), "x": "0.5"}, {**row("ann"), "x": 7.0}):
        assert outcome(TABLE, records([change("u", before, row("bob"))]))[0] == {"TWO_USERS": 1}
    unsaid = {name: value for name, value in row().items() if name != "user"}
    _, letters, _ = outcome(TABLE, records([change("u", unsaid, row("bob")), change("u", row("bob"), unsaid)]))
    assert letters == [("MISSING_FIELD", "user", 0), ("MISSING_FIELD", "user", 1)]


def test_where_nobody_is_bounded_rows_may_change_hands() -> None:
    truth = replace(TABLE, role="held_out", fields=replace(TABLE.fields, user=None), key=None, bounds=None)
    assert outcome(truth, records([change("u", row("ann"), row("bob"))]))[0] == {"ACCEPTED": 2}


def test_halves_of_an_update_are_refused_each_by_itself() -> None:
    feed = records([change("u", row(x=0.5), row(x=7.0)), change("u", row(x=7.0), row(x=0.5))])
    counts, letters, blocks = outcome(TABLE, feed)
    assert counts == {"ACCEPTED": 2, "OUTSIDE_DOMAIN": 2}
    assert [letter[1:] for letter in letters] == [("x", 0), ("x", 1)]
    assert sorted(deleted for _, deleted in events_of(blocks)) == [0, 1]


@pytest.mark.parametrize(
    ("value", "reason", "field"),
    [
        (change("u", None, row()), "NO_BEFORE", ""),
        (change("d", None, None), "NO_BEFORE", ""),
        (change("u", row(), None), "NO_ENVELOPE", ""),
        (change("c", row(), None), "NO_ENVELOPE", ""),
        (change("t"), "BAD_OPERATION", "$operation"),
        (change("m", message={}), "BAD_OPERATION", "$operation"),
        (change(None, None, row()), "NO_ENVELOPE", ""),
        (change("d", {"id": 4}), "MISSING_FIELD", "at"),
        (json.dumps(row()).encode(), "NO_ENVELOPE", ""),  # a source that somebody has unwrapped
        (b"[]", "NO_ENVELOPE", ""),
        (b"", "EMPTY", ""),
        (b'{"schema": null, "payload": null}', "NO_EVENT", ""),
    ],
)
def test_changes_that_cannot_be_counted(value: bytes, reason: str, field: str) -> None:
    counts, letters, _ = outcome(TABLE, records([value]))
    assert counts == {reason: 1}
    assert letters == ([] if reason == "NO_EVENT" else [(reason, field, 0)])


def test_without_deletes_only_new_rows_count_and_the_others_are_named() -> None:
    made = spec(InputFormat(envelope="debezium"))
    feed = records([change("c", None, row()), change("r", None, row()), change("u", row(), row()), change("d", row())])
    counts, letters, _ = outcome(made, feed)
    assert counts == {"ACCEPTED": 2, "BAD_OPERATION": 2}
    assert [letter[0] for letter in letters] == ["BAD_OPERATION"] * 2


def test_times_and_fields_of_the_envelope() -> None:
    made = spec(InputFormat(envelope="debezium"), operation="$operation", time="$envelope.source.ts_ms")
    counts, _, _ = outcome(made, records([change("u", row(), row())]))
    assert counts == {"ACCEPTED": 2}


def test_debezium_in_avro_and_its_key() -> None:
    table = {"type": "record", "name": "Value", "fields": AVRO_SCHEMA["fields"]}
    envelope = {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", table], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "op", "type": "string"},
        ],
    }
    from agents.protocol.formats.contract import SchemaRef, SchemaText
    from tests.formats.forms import BOOK

    ref = SchemaRef(2000)
    BOOK.put(ref, SchemaText("AVRO", json.dumps(envelope)))
    made = spec(InputFormat("avro", "debezium", "json"), operation="$operation", user="$key.id")
    both = {"before": {**row(), "note": ""}, "after": {**row(x=0.7), "note": ""}, "op": "u"}
    value = in_avro(both, envelope, ref)
    keys = [json.dumps({"schema": {}, "payload": {"id": 7}}).encode(), b'{"id": 7}']
    counts, letters, _ = outcome(made, [RawRecord(at, 0, key, value) for at, key in enumerate(keys)])
    assert counts == {"ACCEPTED": 3, "OVER_BOUND": 1}, letters


CHANGES = st.lists(
    st.one_of(
        st.builds(
            lambda op, a, b, x, y: change(op, row(a, x), row(b, y)),
            st.sampled_from(["c", "r", "u", "u", "d", "t"]), st.sampled_from("ab"), st.sampled_from("ab"),
            st.sampled_from([0.1, 0.6, 2.0]), st.sampled_from([0.1, 0.6]),
        ),
        st.none(),
        st.integers(0, 2),
    ),
    max_size=12,
)  # fmt: skip


@given(CHANGES, st.data())
def test_no_cut_between_records_changes_anything(feed: list[bytes | int | None], data: st.DataObject) -> None:
    """A crash or a rebalance may come between any two records, and no update is ever cut into halves."""
    given_: list[RawRecord] = []
    for at, each in enumerate(feed):
        if isinstance(each, int):
            header = ((TICK_HEADER, encode_tick(each, row=0, source="t")),)
            given_.append(RawRecord(at, 0, None, None, header))
        else:
            given_.append(RawRecord(at, 0, None, each))
    cuts = data.draw(st.lists(st.integers(0, len(given_)), max_size=4))
    whole, pieces = outcome(TABLE, given_), outcome(TABLE, given_, tuple(cuts))
    assert whole[:2] == pieces[:2]
    assert _by_step(whole[2]) == _by_step(pieces[2])
    assert not pieces[2] or pieces[2][-1].hi == len(given_)


def _by_step(blocks: list[Block]) -> Counter[tuple[int, int]]:
    found: Counter[tuple[int, int]] = Counter()
    for block in blocks:
        for step, folded in block.steps.items():
            for key, count in zip(folded.keys[:, 0].tolist(), folded.counts.tolist(), strict=True):
                found[step, key] += count
    return found


def test_a_block_of_updates_is_no_larger_than_any_other() -> None:
    assert TABLE.max_block_records * 2 == spec(InputFormat()).max_block_records

"""Parts of a split stream: every record is of one part, whatever it is, and is decoded once for all that read it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.protocol.formats.build import InputFormat
from agents.protocol.formats.mapping import FieldMap
from agents.protocol.ingest.decode import EventDecoder
from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.route import PartitionRoute
from agents.protocol.ingest.spec import Readings, SourceSpec
from schemas.config.mapping import MapSection
from schemas.config.split import Parts, SplitPart
from schemas.events import Reason
from tests.examples import examples
from tests.protocol.ingest_runs import SPEC, Outcome, body, run, sealed, tick_header

TEXTS: Parts = {"m": ("Manhattan",), "rest": ("Bronx", "Queens"), "far": ("7",)}
NUMBERS: Parts = {"one": (1,), "more": (2, 3)}


def parts_of(parts: Parts, base: SourceSpec = SPEC, *, field: str = "b") -> list[SourceSpec]:
    """The streams of a split, as one source reads them."""
    split = [SplitPart(field=field, parts=parts, whole="s", part=name) for name in parts]
    fields = replace(base.fields, split=field, split_kind=frozenset((split[0].kind,)))
    return [replace(base, stream=f"s-{each.part}", part=each, fields=fields) for each in split]


VALUES: tuple[Any, ...] = (
    "Manhattan", "Bronx", "Queens", "7", 7, 7.0, 1, 2, 3.0, "1", True, False, None, "manhattan", "", [], {}, 10**400,
    2**63, 1.5, "Bronx ",
)  # fmt: skip
NOWHERE = object()


@st.composite
def sources(draw: st.DrawFn) -> list[RawRecord]:
    """Records of one source partition, of any value and of none, with ticks among them."""
    events = st.builds(
        lambda value, **more: body(**({} if value is NOWHERE else {"b": value}), **more),
        st.sampled_from((*VALUES, NOWHERE)),
        u=st.sampled_from(("ann", "bob", 7, None)),
        x=st.sampled_from((0.1, 0.9, 7.0, None)),
        op=st.sampled_from(("insert", "delete", "update")),
    )
    broken = st.sampled_from([None, b"", b"no JSON", b"[1]", b'{"b": "Manhattan"}', b"{" + b" " * 300])
    values = draw(st.lists(events | broken, max_size=25))
    headed = draw(
        st.lists(st.sampled_from([(), (), (), (("trace", b"1"),), tick_header(0), tick_header(2)]), min_size=25)
    )
    return [RawRecord(at, -1, None, value, headed[at]) for at, value in enumerate(values)]


def events_in(records: list[RawRecord]) -> int:
    return sum(not any(name.startswith("privstream") for name, _ in record.headers) for record in records)


def beside(counts: Counter[str]) -> Counter[str]:
    """Counts of records, without what is counted beside them."""
    return Counter({name: n for name, n in counts.items() if name not in ("OTHER_PART", "CLIPPED")})


@settings(max_examples=examples(1.0))
@given(records=sources(), cuts=st.lists(st.integers(0, 30), max_size=3), parts=st.sampled_from([TEXTS, NUMBERS]))
def test_every_record_is_of_one_part_and_none_is_lost(records: list[RawRecord], cuts: list[int], parts: Parts) -> None:
    check_parts(records, cuts, parts)


def check_parts(records: list[RawRecord], cuts: list[int], parts: Parts) -> None:
    unbounded = replace(SPEC, bounds=None)
    whole = run(records, cuts, [], spec=unbounded)
    found = [run(records, cuts, [], spec=spec) for spec in parts_of(parts, unbounded)]
    # Each record is counted by one part; the others say that it is another's.
    counted = sum((beside(each.counts) for each in found), Counter[str]())
    ticks = len(records) - events_in(records)
    assert counted.total() == whole.counts.total() <= len(records)
    assert sum(each.counts["OTHER_PART"] for each in found) == (len(parts) - 1) * (len(records) - ticks)
    # What the whole stream accepts and no part does is what the first part refuses for the value of the field.
    refused = {letter.offset for letter in found[0].letters if letter.field == "b"}
    lost = refused - {letter.offset for letter in whole.letters}
    assert sum(each.accepted for each in found) + len(lost) == whole.accepted
    for step, events in whole.steps.items():
        together = sum((each.steps.get(step, Counter()) for each in found), Counter[tuple[int, ...]]())
        assert not together - events, "an event is in two parts"


@pytest.mark.parametrize("form", ["plain", "format", "mapped"])
def test_each_part_has_its_own_events(form: str) -> None:
    base = replace(SPEC, bounds=None)
    if form == "format":
        base = replace(base, input=InputFormat("msgpack"))
    if form == "mapped":
        expression = MapSection.model_validate({"b": "c.d"})
        base = replace(base, mapping=FieldMap(expression))
    values = ["Manhattan", "Bronx", "Queens", "7", "Harlem", "Manhattan"]
    written = [
        RawRecord(at, -1, None, body(x=(at + 0.5) / 8, **({"c": {"d": value}} if form == "mapped" else {"b": value})))
        for at, value in enumerate(values)
    ]
    if form == "format":
        written = [record._replace(value=msgspec.msgpack.encode(json.loads(record.value or b""))) for record in written]
    m, rest, far = (run(written, [], [], spec=spec) for spec in parts_of(TEXTS, base))
    assert (m.counts, m.accepted) == ({"ACCEPTED": 2, "NO_PART": 1, "OTHER_PART": 3}, 2)
    assert (rest.counts, far.counts) == ({"ACCEPTED": 2, "OTHER_PART": 4}, {"ACCEPTED": 1, "OTHER_PART": 5})
    assert [(letter.stream, letter.offset, letter.reason, letter.field) for letter in m.letters] == [
        ("s-m", 4, Reason.NO_PART, "b")
    ]
    assert not rest.letters + far.letters


def test_a_field_that_the_domain_reads_tells_parts_apart_too() -> None:
    specs = parts_of({"low": (0,), "high": (1,)}, replace(SPEC, bounds=None), field="x")
    records = [RawRecord(at, -1, None, body(x=x)) for at, x in enumerate((0, 1, 0.5, 1.0))]
    low, high = (run(records, [], [], spec=spec) for spec in specs)
    assert (low.counts["ACCEPTED"], low.counts["NO_PART"]) == (1, 1)
    assert high.counts["OTHER_PART"] == 2


def test_each_part_has_a_bound_of_its_own() -> None:
    """So a user costs the sum over all parts: with a bound of 3, 3 events in each."""
    records = [RawRecord(at, -1, None, body(b=value)) for at, value in enumerate(("Manhattan", "Bronx", "7") * 5)]
    assert [run(records, [], [], spec=spec).counts["ACCEPTED"] for spec in parts_of(TEXTS)] == [3, 3, 3]


@settings(max_examples=examples(0.3))
@given(records=sources(), ahead=st.integers(0, 30), parts=st.sampled_from([TEXTS, NUMBERS]))
def test_what_parts_share_changes_nothing(records: list[RawRecord], ahead: int, parts: Parts) -> None:
    """Also where one was ahead of the others, and is given fewer records."""
    readings: Readings = {}
    specs = parts_of(parts)
    together = [PartitionIngest(spec, 0, readings) for spec in specs]
    together[-1].take(records[:ahead])
    for piece in (records[: len(records) // 2], records[len(records) // 2 :]):
        for machine in together:
            machine.take([record for record in piece if record.offset >= machine.next_offset])
    assert len(readings) == 1
    for spec, machine in zip(specs, together, strict=True):
        alone = run(records, [ahead], [], spec=spec)
        shared = Outcome()
        if machine.changed:
            shared.add(*sealed(machine))
        assert (shared.steps, shared.counts, shared.letters) == (alone.steps, alone.counts, alone.letters)


def test_records_are_decoded_once_for_all_parts() -> None:
    records = [RawRecord(at, -1, None, body(b=value)) for at, value in enumerate(("Manhattan", "Bronx", "Harlem"))]
    readings: Readings = {}
    machines = [PartitionIngest(spec, 0, readings) for spec in parts_of(TEXTS)]
    with mock.patch.object(EventDecoder, "decode", autospec=True, side_effect=EventDecoder.decode) as decode:
        for machine in machines:
            machine.take(records)
    assert decode.call_count == 1
    [reading] = readings.values()
    reading.forget()
    assert not reading._records
    assert not reading._events


def test_a_router_of_a_part_copies_its_own_records_and_all_ticks() -> None:
    base = replace(SPEC, partitions=2, replay=True)
    records = [
        *(RawRecord(at, -1, None, body(b=value)) for at, value in enumerate(("Manhattan", "Bronx", "Harlem"))),
        RawRecord(3, -1, None, b"", tick_header(0)),
    ]
    copied = []
    for spec in parts_of(TEXTS, base):
        router = PartitionRoute(spec.routing(f"routed.{spec.stream}", 1)[0], 0)
        router.take(records)
        hop = router.seal()
        assert hop is not None
        copied.append([[copy.headers[-1][1] or b"" for copy in hop.copies.get(home, ())] for home in range(2)])
    ticks = {b"0/3"}
    assert all(ticks <= set(home) for part in copied for home in part)
    places = [sorted({place for home in part for place in home} - ticks) for part in copied]
    assert places == [[b"0/0", b"0/2"], [b"0/1"], []]


def test_parts_that_overlap_are_found() -> None:
    """The planted fault of `test_every_record_is_of_one_part_and_none_is_lost`."""
    planted = mock.patch.object(SplitPart, "number", mock.PropertyMock(return_value=0))
    with planted, pytest.raises(AssertionError):
        check_parts([RawRecord(0, -1, None, body(b="Manhattan"))], [], TEXTS)

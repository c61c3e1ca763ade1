"""`[streams.map]`: a field computed from one record alone; the same for topics of every format, files and frames."""

from __future__ import annotations

import copy
import datetime
import decimal
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.local.job import LocalIngest, planned
from agents.local.offline.files import rows_for
from agents.protocol.formats.build import InputFormat
from agents.protocol.formats.contract import UnreadableError
from agents.protocol.formats.mapping import FieldMap, as_json
from agents.protocol.formats.values import NOT_FINITE
from agents.protocol.ingest.decode import EventDecoder, FormatDecoder
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.replay import Progress, plan_of
from engines import configure
from engines.core.registry import build_domain
from schemas.blocks import Block
from schemas.config.engines.series import SeriesDomainSection
from schemas.config.formats import InputParts
from schemas.config.load import parse_config
from schemas.config.mapping import MapSection, ReadPath
from schemas.config.values import FOLDER
from schemas.errors import ConfigError
from schemas.events import Reason
from tests.formats.forms import WRITERS, records, spec
from tests.protocol.ingest_runs import taken

EVENT: Mapping[str, Any] = {"user": "ann", "at": 60_000_000, "x": 0.5, "y": 0.25, "note": "0.75"}


def mapped(form: InputFormat = InputFormat(), /, **expressions: str) -> SourceSpec:  # noqa: B008
    return replace(spec(form), mapping=FieldMap(MapSection.model_validate(expressions)))


def became(made: SourceSpec, *values: bytes) -> list[tuple[Reason, str]]:
    """What each record became, with the field at fault."""
    decoder = made.decoder()
    _, reasons, at_fault = decoder.decode_unfolded(decoder.unfold(records(values)))
    return [(Reason(reason), at_fault.get(row, "")) for row, reason in enumerate(reasons)]


@pytest.mark.parametrize("name", WRITERS)
def test_expressions_read_every_format(name: str) -> None:
    write, form = WRITERS[name]
    made = mapped(form, user="join('-', [user, note])", x="to_number(note)", y="x", drop="note == 'test'")
    decoder = made.decoder()
    feed = records([write(EVENT), write({**EVENT, "note": "test"}), write({**EVENT, "note": "n/a"})])
    [event], reasons, at_fault = decoder.decode_unfolded(decoder.unfold(feed))
    assert (event.user, int(event.time), event.number0, event.number1) == ("ann-0.75", 60_000_000, 0.75, 0.5)
    assert reasons.tolist() == [Reason.ACCEPTED, Reason.DROPPED, Reason.MISSING_FIELD]
    assert at_fault == {2: "x"}


def test_types_that_json_has_not_are_numbers_and_texts() -> None:
    """A decimal is a number and a time a text, so that functions know them; what is bytes is no field."""
    at = datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC)
    document = {"total": decimal.Decimal("12.50"), "id": decimal.Decimal(7), "at": at, "raw": b"1", "l": (at.date(),)}
    found = as_json(document)
    assert found == {"total": 12.5, "id": 7, "at": "2020-01-02T00:00:00+00:00", "raw": b"1", "l": ["2020-01-02"]}
    assert type(found["id"]) is int
    assert as_json([decimal.Decimal("NaN")]) == [NOT_FINITE]


REFUSED: list[tuple[dict[str, str], dict[str, Any], Reason, str]] = [
    ({"user": "to_string(@)"}, {}, Reason.ACCEPTED, ""),
    ({"user": "lower"}, {}, Reason.MISSING_FIELD, "user"),
    ({"user": "[user]"}, {}, Reason.WRONG_TYPE, "user"),
    ({"user": "&user"}, {}, Reason.WRONG_TYPE, "user"),
    ({"x": "abs(note)"}, {}, Reason.UNMAPPED, "x"),
    ({"x": "max([x, note])"}, {}, Reason.UNMAPPED, "x"),
    ({"x": "note"}, {}, Reason.ACCEPTED, ""),
    ({"x": "note"}, {"note": "n/a"}, Reason.WRONG_TYPE, "x"),
    ({"x": "note"}, {"note": math.nan}, Reason.NOT_FINITE, "x"),
    ({"user": "to_string(note)"}, {"note": math.inf}, Reason.UNMAPPED, "user"),
    ({"user": "to_string([note])"}, {"note": math.nan}, Reason.UNMAPPED, "user"),
    ({"x": "to_number(note)"}, {"note": "1e999"}, Reason.NOT_FINITE, "x"),
    ({"x": "to_number(note)"}, {"note": "9" * 1000}, Reason.NOT_FINITE, "x"),
    ({"x": "to_number(note)"}, {"note": "9" * 9999}, Reason.NOT_FINITE, "x"),
    ({"x": "ceil(to_number(note))"}, {"note": "inf"}, Reason.UNMAPPED, "x"),
    ({"x": "`2`"}, {}, Reason.ACCEPTED, ""),
    ({"drop": "note"}, {}, Reason.UNMAPPED, "drop"),
    ({"drop": "`1`"}, {}, Reason.UNMAPPED, "drop"),
    ({"drop": "contains(tags, 'test')"}, {}, Reason.UNMAPPED, "drop"),
    ({"drop": "contains(tags, 'test')"}, {"tags": ["test"]}, Reason.DROPPED, ""),
    ({"drop": "tags == `null`", "x": "abs(note)"}, {}, Reason.DROPPED, ""),
    ({"drop": "test"}, {}, Reason.ACCEPTED, ""),
    ({"drop": "x > `1`"}, {"x": "1"}, Reason.UNMAPPED, "drop"),
]


@pytest.mark.parametrize(("expressions", "changes", "reason", "field"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_computed_is_refused_by_itself(
    expressions: dict[str, str], changes: dict[str, Any], reason: Reason, field: str
) -> None:
    one, next_one = json.dumps({**EVENT, **changes}).encode(), json.dumps({**EVENT, "x": 0.1, "note": 0.1}).encode()
    made = mapped(**expressions)
    assert became(made, one)[0] == (reason, field)
    assert became(made, next_one, one, next_one)[1] == (reason, field)


def test_what_is_dropped_is_counted_without_a_letter_and_charges_nobody() -> None:
    made = mapped(drop="note == 'test'", x="abs(x)")
    feed = [orjson.dumps({**EVENT, "at": 0, **more}) for more in ({}, {"note": "test"}, {"note": "test"}, {"x": "one"})]
    block, letters = taken(made, records(feed))
    assert block.counts == {"ACCEPTED": 1, "DROPPED": 2, "UNMAPPED": 1}
    assert block.refused == {"UNMAPPED": {"x": 1}}
    assert [(letter.reason, letter.field, letter.offset) for letter in letters] == [(Reason.UNMAPPED, "x", 3)]
    assert block.increments.sum() == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc") | st.text(max_size=3), inner),
    max_leaves=12,
)
EXPRESSIONS = (
    "a.b",
    "a[].b | [0]",
    "to_number(a)",
    "to_string(@)",
    "join('-', [a, b])",
    "a < b && sum(c)",
    "sort_by(a, &b)[0].c",
    "max(values(@))",
    "map(&length(@), a)",
    "ceil(a) || floor(b)",
    "lookup('t', a).name",
    "merge(a, b)",
    "contains(a, b)",
    "a[?b == c]",
)
NUMBERED = {f"f{at}": text for at, text in enumerate(EXPRESSIONS)}
EVERY: dict[str, FieldMap] = {}


STORES = "key,name,tier\n1,north,\nx y,south,b\n"


def section(tmp_path: Path, file: str, content: str, **expressions: str) -> MapSection:
    (tmp_path / file).write_text(content)
    return MapSection.model_validate({**expressions, "tables": {"t": file}}, context={FOLDER: tmp_path})


@given(record=JSON)
def test_any_record_gives_a_value_or_a_refusal_always_the_same_and_stays_as_it_is(
    record: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    made = EVERY.setdefault("map", FieldMap(section(tmp_path_factory.mktemp("t"), "t.csv", STORES, **NUMBERED)))
    before = copy.deepcopy(record)
    for name in NUMBERED:
        outcomes = []
        for _ in range(2):
            try:
                outcomes.append(repr(made.value(name, record)))
            except UnreadableError as error:
                outcomes.append(f"{error.reason.name} of {error.name}")
        assert outcomes[0] == outcomes[1]
        assert " of f" not in outcomes[0] or outcomes[0].endswith(f" of {name}")
    assert repr(record) == repr(before)


@pytest.mark.parametrize(
    ("file", "content", "expression", "record", "found"),
    [
        ("t.csv", STORES, "lookup('t', store).name", {"store": 1}, "north"),
        ("t.csv", STORES, "lookup('t', store).name", {"store": "1"}, "north"),
        ("t.csv", STORES, "lookup('t', store).tier", {"store": 1}, None),
        ("t.csv", STORES, "lookup('t', store).name", {"store": "7"}, None),
        ("t.csv", STORES, "lookup('t', store).name || 'none'", {}, "none"),
        ("t.json", '{"a": 7, "b": {"c": [1, 2]}}', "lookup('t', store)", {"store": "a"}, 7),
        ("t.json", '{"a": 7, "b": {"c": [1, 2]}}', "lookup('t', store).c[1]", {"store": "b"}, 2),
    ],
)
def test_a_lookup_is_what_a_table_has(
    tmp_path: Path, file: str, content: str, expression: str, record: Any, found: Any
) -> None:
    assert FieldMap(section(tmp_path, file, content, x=expression)).value("x", record) == found


def test_a_lookup_of_what_is_no_key_is_refused(tmp_path: Path) -> None:
    made = FieldMap(section(tmp_path, "t.csv", STORES, x="lookup('t', store)"))
    for store in ([1], {"a": 1}, True):
        with pytest.raises(UnreadableError) as refused:
            made.value("x", {"store": store})
        assert (refused.value.reason, refused.value.name) == (Reason.UNMAPPED, "x")


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("t.json", "[]", "no JSON object"),
        ("t.json", "{", "no JSON object"),
        ("t.csv", "", "is no table"),
        ("t.csv", 'a,b\n"1,2\n', "is no table"),
        ("t.csv", "a,a\n1,2\n", "two columns of one name"),
        ("t.csv", "a,b\n1\n", "rows of another length"),
        ("t.csv", "a,b\n1,2\n1,3\n", "two rows of one key"),
    ],
)
def test_a_table_that_is_none_is_refused_before_start(tmp_path: Path, file: str, content: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        section(tmp_path, file, content, x="lookup('t', store)")
    [problem] = refused.value.problems
    assert problem.key == "tables.t"
    assert reason in problem.reason


def test_a_stream_without_expressions_keeps_the_fast_decoder() -> None:
    assert type(spec(InputFormat()).decoder()) is EventDecoder
    assert type(mapped(x="y").decoder()) is FormatDecoder


# --- Debezium: halves of an update ------------------------------------------------------------------------------------


def update(before: Mapping[str, Any], after: Mapping[str, Any]) -> bytes:
    return json.dumps({"op": "u", "before": {**EVENT, **before}, "after": {**EVENT, **after}}).encode()


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        ({}, {}, {"ACCEPTED": 2}),
        ({"note": "test"}, {}, {"ACCEPTED": 1, "DROPPED": 1}),
        ({}, {"user": "bob"}, {"TWO_USERS": 1}),
        ({"note": "test"}, {"user": "bob"}, {"TWO_USERS": 1}),
        ({"user": 1}, {}, {"UNMAPPED": 1}),
        ({"x": "no"}, {}, {"ACCEPTED": 1, "UNMAPPED": 1}),
    ],
)
def test_halves_of_an_update_are_of_one_computed_user_whatever_is_dropped(
    before: dict[str, Any], after: dict[str, Any], counts: dict[str, int]
) -> None:
    """What is dropped is of its user still: with that user's records the other half would go."""
    made = spec(InputFormat(envelope="debezium"), operation="$operation")
    expressions = {"user": "join('', ['u', user])", "x": "abs(x)", "drop": "note == 'test'"}
    made = replace(made, mapping=FieldMap(MapSection.model_validate(expressions)))
    block, _ = taken(made, records([update({"at": 0, **before}, {"at": 0, **after})]))
    assert block.counts == counts


# --- Files and frames -------------------------------------------------------------------------------------------------

STREAM = """
[[streams]]
name = "sales"
engine = "tabular"
source = "raw.sales"
partitioner = "none"
[streams.privacy]
epsilon = 1.0
user = "who"
max_contributions = 20
[streams.time]
field = "at"
format = "iso"
start = "2020-01-01T00:00:00"
step = "1d"
clock = "replay"
[streams.domain]
kind = "table"
attributes = [{ field = "shop", values = ["north", "south"] }, { field = "size", values = ["s", "l"] }]
"""
MAP = """
[streams.map]
who = "join('-', [region, customer.id])"
at = "join('T', [day, clock])"
shop = "lookup('t', to_string(store)).name"
size = "size"
drop = "kind == 'test'"
tables.t = "t.csv"
"""


def raw(at: int) -> dict[str, Any]:
    return {
        "region": "de",
        "customer": {"id": f"c{at % 6}"},
        "day": f"2020-01-{1 + at // 10:02d}",
        "clock": "07:00:00",
        "store": 1 if at % 2 else "x y",
        "size": "sl"[at % 2],
        "kind": "test" if at % 5 == 0 else "sale",
    }


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """The same by hand."""
    names = {"1": "north", "x y": "south"}
    who, at = f"{row['region']}-{row['customer']['id']}", f"{row['day']}T{row['clock']}"
    return {"who": who, "at": at, "shop": names[str(row["store"])], "size": row["size"]}


ROWS = [raw(at) for at in range(40)]


def blocks_of(text: str, path: Path) -> list[Block]:
    [stream] = parse_config(text, offline=True, folder=path.parent).streams
    found: list[Block] = []
    made = SourceSpec.from_stream(stream, build_domain(stream), key=bytes(16), partitions=1, rows=True)
    ingest = LocalIngest(made, lambda offset, block: found.append(block))
    for part, _ in planned(stream, rows_for(path, stream).batches(), source="s"):
        ingest.take_planned(part)
    return found


def events_of(blocks: list[Block]) -> dict[int, list[tuple[tuple[int, ...], int]]]:
    return {
        step: sorted(zip(map(tuple, folded.keys.tolist()), folded.counts.tolist(), strict=True))
        for block in blocks
        for step, folded in block.steps.items()
    }


def test_a_file_is_read_as_one_that_has_the_fields_itself(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(STORES)
    (tmp_path / "raw.jsonl").write_bytes(b"\n".join(map(orjson.dumps, ROWS)))
    kept = [plain(row) for row in ROWS if row["kind"] != "test"]
    (tmp_path / "plain.jsonl").write_bytes(b"\n".join(map(orjson.dumps, kept)))
    computed, same = blocks_of(STREAM + MAP, tmp_path / "raw.jsonl"), blocks_of(STREAM, tmp_path / "plain.jsonl")
    assert events_of(computed) == events_of(same)
    assert len(events_of(same)) == 4
    counts, expected = (sum((Counter(block.counts) for block in each), Counter()) for each in (computed, same))
    assert counts == {**expected, "DROPPED": 8}
    assert computed[-1].tick == same[-1].tick == 3, "a replay closes steps by the computed time"


def test_a_replay_places_a_row_by_its_computed_user(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(STORES)
    rows = [row for row in ROWS if row["kind"] != "test"]
    places = []
    for text, each in ((STREAM + MAP, rows), (STREAM, [plain(row) for row in rows])):
        [stream] = parse_config(text, offline=True, folder=tmp_path).streams
        place = plan_of(stream, {"raw.sales": 7}, Progress()).place
        places.append(place(each, 0, 7))
        assert place([ROWS[0]], 3, 7) == ([None], [3]), "a row that is dropped, or has no such field, is nobody's"
    assert places[0] == places[1]
    assert len({*places[0][1]}) > 2


def test_cells_of_csv_are_texts_to_expressions_in_a_file_as_in_a_topic(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(STORES)
    text = STREAM + MAP.replace("customer.id", "id").replace("kind == 'test'", "type(id) != 'string'")
    lines = ["region,id,day,clock,store,size,kind", "de,007,2020-01-01,07:00:00,1,s,", "de,7,2020-01-01,07:00:00,1,l,x"]
    (tmp_path / "raw.csv").write_text("\n".join(lines) + "\n")
    [stream] = parse_config(text.replace("engine =", 'format = "csv"\nengine ='), offline=True, folder=tmp_path).streams
    made = SourceSpec.from_stream(stream, build_domain(stream), key=bytes(16), partitions=1)
    block, _ = taken(made, records([f"{lines[0]}\n{line}".encode() for line in lines[1:]]))
    assert block.counts == {"ACCEPTED": 2}
    assert events_of(blocks_of(text, tmp_path / "raw.csv")) == events_of([block])


def test_a_frame_is_read_as_one_that_has_the_fields_itself(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(STORES)
    (tmp_path / "job.toml").write_text(STREAM + MAP)
    kept = [plain(row) for row in ROWS if row["kind"] != "test"]
    releases = []
    for batch, mapping in ((ROWS, MAP), ({name: [row[name] for row in ROWS] for name in ROWS[0]}, MAP), (kept, "")):
        (tmp_path / "job.toml").write_text(STREAM + mapping)
        stream = configure(tmp_path / "job.toml", insecure_seed=1)
        released = stream.step(batch, number=0)
        releases.append(released.measurements)
        assert released.taken.dropped == (8 if mapping else 0)
        assert released.taken.refused == {}
    assert releases[0] == releases[1] == releases[2] != []
    tests = [row for row in ROWS if row["kind"] == "test"]
    (tmp_path / "job.toml").write_text(STREAM + MAP)
    assert configure(tmp_path / "job.toml", insecure_seed=1).step(tests).taken.dropped == len(tests)
    broken = [*ROWS, {**ROWS[1], "store": "\ud800"}]
    assert configure(tmp_path / "job.toml", insecure_seed=1).step(broken).taken.refused == {("NOT_JSON", ""): 1}


NUMBERS = st.sampled_from([0, 1, 2.5, 3, 3.5, -1, 100])
PLACES = (("kw",), ("m", "kw"), ("of", "kw"))
TERMS = st.sampled_from(["kw", "m", "m[0].kw", "m[*].kw", "of.kw", "of", "status", "`3`", "@"])


def of_parts(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Expressions of two parts: what chooses, compares, filters and makes numbers of numbers."""
    forms = [
        "({0} && {1})", "({0} || {1})", "({0} < {1})", "({0} == {1})", "({0} != `null`)",
        "({0} == 'n/a')", "(!({0}) && {1})", "({0} | {1})", "({0})[?{1}]",
        "m[?{0}].kw | [0]", "[{0}, {1}][0]", "[{0}, {1}] | [1]", "{{x: {0}, y: {1}}}.y", "max({0})", "sum({0})",
        "to_number(to_string({0}))", "type({0})", "length({0})", "max_by(m, &{0}).kw", "sort_by({0}, &{1})[0]",
        "map(&{0}, m) | [0]", "not_null({0}, {1})", "contains({0}, {1})",
    ]  # fmt: skip
    return st.builds(lambda form, one, two: form.format(one, two), st.sampled_from(forms), parts, parts)


def is_number(fields: FieldMap, kw: float, of_m: float, of_of: float) -> bool:
    """Whether the expression finds a number where these stand in a record."""
    record = {"kw": kw, "m": [{"kw": of_m, "status": "ok"}, {"kw": 3}], "of": {"kw": of_of}, "status": "ok"}
    try:
        found = fields.value("load", record)
    except UnreadableError:
        return False
    return type(found) in (int, float)


def decides(section: MapSection) -> bool:
    """Whether a stream of such a reading is refused."""
    reading = {"name": "load", "of": "value", "limits": [0, 9], "sensitivity": 1}
    domain = SeriesDomainSection.model_validate({"kind": "series", "fields": [reading]})
    return any(each.key == "map.load" for each in InputParts(domain=domain, map=section).input_problems())


@settings(max_examples=300)
@given(expression=st.recursive(TERMS, of_parts, max_leaves=6), before=st.tuples(*[NUMBERS] * 3), data=st.data())
def test_where_a_reading_is_there_it_is_so_whatever_its_numbers(
    expression: str, before: tuple[float, float, float], data: st.DataObject
) -> None:
    """Of expressions that are not refused. Numbers of a place that the reading is not made of stay."""
    section = MapSection.model_validate({"load": expression})
    if decides(section):
        return
    read = section.reads("load")
    made_of = read.numbers or read.deciding
    moved = [any(ReadPath(names, leaf=True).meets(path) for path in made_of) for names in PLACES]
    after = [data.draw(NUMBERS) if moves else number for moves, number in zip(moved, before, strict=True)]
    fields = FieldMap(section)
    assert is_number(fields, *before) == is_number(fields, *after)


@pytest.mark.parametrize(
    "expression",
    [
        "kw < `2` && kw", "[kw][?@ < `2`] | [0]", "m[?kw < `2`].kw | [0]", "m[].kw | [?@ < `2`] | [0]",
        "map(&(kw < `2` && kw), m) | [0]", "contains([`1`], kw) && kw", "!(kw == `1`) && max([kw])",
        "max_by([{a: kw, b: kw}, {a: `2`}], &a).b",
    ],
)  # fmt: skip
def test_what_is_refused_would_tell(expression: str) -> None:
    section = MapSection.model_validate({"load": expression})
    fields = FieldMap(section)
    told = {is_number(fields, kw, kw, 3) for kw in (1, 3)}
    assert (len(told), decides(section)) == (2, True)

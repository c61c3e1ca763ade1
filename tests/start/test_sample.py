"""What init takes from records, from a public file and from what is typed."""

from __future__ import annotations

import asyncio
import doctest
import json
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import NewTopic
from hypothesis import given
from hypothesis import strategies as st

from agents.local.offline.names import reads_as_value
from agents.local.offline.seen import LOOKED_AT
from agents.local.start import public, sample, template
from agents.local.start.public import PublicFacts, PublicField, public_facts
from agents.local.start.sample import FieldSeen, fields_of, fields_of_file, rows_of_topic
from agents.local.start.template import read_setting
from agents.protocol.formats.reader import FieldPath
from schemas.config import ENGINES, Kafka
from schemas.config.domain import Question, questions_of
from schemas.config.timing import Timing
from schemas.errors import BrokerError, PrivstreamError
from tests.kafka.support import create, fresh_name, producing

AT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    ("values", "kind", "time"),
    [
        ([1, 2.5, None], "number", ""),
        (["a", None], "text", ""),
        ([True], "boolean", ""),
        ([1, "a"], "text", ""),
        ([None], None, ""),
        ([{"a": 1}, [2]], None, ""),
        ([AT.timestamp()], "number", "s"),
        ([int(AT.timestamp() * 1e3)], "number", "ms"),
        ([int(AT.timestamp() * 1e6)], "number", "us"),
        ([int(AT.timestamp()), 7], "number", ""),
        ([AT.isoformat(), "2026-03-04 05:06:07"], "text", "iso"),
        ([AT.strftime("%d.%m.%Y %H:%M"), "31.12.2025 23:59"], "text", "%d.%m.%Y %H:%M"),
        ([AT.strftime("%m/%d/%Y"), "12/31/2025"], "text", "%m/%d/%Y"),
        (["2026-03-04", "soon"], "text", ""),
    ],
)
def test_kinds_and_forms_of_times(values: list[object], kind: str | None, time: str) -> None:
    [seen] = fields_of([{"f": value} for value in values])
    assert seen == FieldSeen("f", kind, (time,) if time else (), days=time == "%m/%d/%Y")  # type: ignore[arg-type]


def test_a_day_and_a_month_that_the_sample_does_not_tell_apart_are_both_named() -> None:
    [seen] = fields_of([{"at": "01/02/2016"}, {"at": "03/04/2016"}])
    assert (seen.times, seen.days) == (("%d/%m/%Y", "%m/%d/%Y"), True)


def test_keys_of_objects_are_fields_by_their_path_where_all_records_have_them() -> None:
    rows: list[dict[str, Any]] = [
        {
            "id": n,
            "at": {"when": f"2026-03-0{n}", "a.b": n},
            "point": [13.5, n],
            "tags": {f"Ann {n}": 1},
            "few": [n] * n,
        }
        for n in (1, 2)
    ]
    seen = {each.name: each.kind for each in fields_of(rows)}
    number: dict[str, str | None] = dict.fromkeys(("id", 'at."a.b"', "point.0", "point.1"), "number")
    assert seen == {**number, "at.when": "text", "tags": None, "few": None}
    for name in number:
        assert FieldPath.parse(name).find(rows[0]) in (1, 13.5)
    assert [each.name for each in fields_of([{"at": {"x": 1}}, {"at": None}])] == ["at"], "an object that some lack"


def test_a_key_that_some_records_lack_is_refused_unseen() -> None:
    """Objects whose keys are people: names, ids and number plates, which nothing tells from names of fields."""
    files: tuple[list[dict[str, Any]], ...] = (
        [{"at": 1, "Ann Schmidt": 1}, {"at": 2, "Bob Meyer": 1}],
        [{"at": 1}, {"at": 2, "B-AS 1234": 1}],
        [{"at": 1, "u7f3a": None}, {"at": 2}],
        [*[{"at": 1, "zone": "a"}] * 50, {"at": 1}],
    )
    for rows in files:
        with pytest.raises(PrivstreamError, match="do not all have the same keys") as refused:
            fields_of(rows)
        assert not any(key in str(refused.value) for row in rows for key in row if key not in ("at", "zone"))
    assert [seen.name for seen in fields_of([{"at": 1, "zone": None}, {"zone": "a", "at": 2}])] == ["at", "zone"]


def test_few_rows_of_a_file_are_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join([*[json.dumps({"a": 1})] * LOOKED_AT, json.dumps({"b": 1}), "not even JSON"]))
    assert fields_of_file(path) == (FieldSeen("a", "number"),)


@pytest.mark.kafka
def test_fields_of_a_topic(bootstrap: str) -> None:
    topic, kafka = fresh_name("raw"), Kafka(bootstrap=bootstrap)

    async def fill(*values: bytes | None) -> None:
        async with producing(bootstrap) as producer:
            for value in values:
                await producer.send_and_wait(topic, value, key=b"k")

    with pytest.raises(BrokerError, match="does not exist"):
        rows_of_topic(kafka, topic)
    asyncio.run(create(bootstrap, NewTopic(topic, 2, 1)))
    with pytest.raises(PrivstreamError, match="no record yet"):
        rows_of_topic(kafka, topic)
    asyncio.run(fill(b"no json", None, b"[1]"))
    with pytest.raises(PrivstreamError, match=r"of its first 2 records none is a JSON object.*--set format="):
        rows_of_topic(kafka, topic)
    asyncio.run(fill(b'{"at": "2026-03-04", "n": 3}', b'{"n": 4, "at": null}'))
    assert set(fields_of(rows_of_topic(kafka, topic))) == {
        FieldSeen("at", "text", ("iso",), days=True),
        FieldSeen("n", "number"),
    }
    asyncio.run(fill(b'{"n": 4, "at": null, "somebody": 1}'))
    with pytest.raises(PrivstreamError, match="do not all have the same keys") as refused:
        fields_of(rows_of_topic(kafka, topic))
    assert "somebody" not in str(refused.value)


@pytest.mark.parametrize("whole", [False, True])
def test_bins_of_a_public_number_hold_as_many_each_however_many_rows_there_are(
    whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(public, "MOST_NUMBERS", 1000)
    field, values = PublicField(), [n * n + (0 if whole else 0.5) for n in range(20_000)]
    for value in values:
        field.take(value)
    assert len(field.numbers) <= 1000
    edges = PublicFacts(Path(), {"n": field}).answer("edges", ["n"])
    assert isinstance(edges, list)
    counts = [sum(low <= value < high for value in values) for low, high in pairwise(edges)]
    assert len(counts) == 10
    assert all(abs(count - 2000) < 60 for count in counts)


@given(st.lists(st.floats(-1e9, 1e9, allow_subnormal=False), min_size=2, max_size=30))
def test_public_bounds_hold_every_value_and_edges_ascend(values: list[float]) -> None:
    field = PublicField()
    for value in values:
        field.take(value)
    if not field.high - field.low > 1e-6 * max(1.0, abs(field.low), abs(field.high)):
        return
    facts = PublicFacts(Path("x"), {"f": field})
    box = facts.answer("box", ["f", "f"])
    assert isinstance(box, list)
    assert box[0] < min(values)
    assert box[2] > max(values)
    low, high = facts.answer("range", ["f"])  # type: ignore[misc]
    assert low == pytest.approx(min(values))
    assert high == pytest.approx(max(values))
    edges = facts.answer("edges", ["f"])
    assert isinstance(edges, list)
    assert edges == sorted(set(edges))
    assert edges[0] <= min(values) + 1e-3


def test_a_public_file_without_rows_and_questions_that_it_does_not_answer(tmp_path: Path) -> None:
    path = tmp_path / "public.csv"
    path.write_text("a,b\n")
    with pytest.raises(PrivstreamError, match="no rows"):
        public_facts(path)
    path.write_text("a,b\n1,x\n1,x\n")
    told: list[tuple[int, int]] = []
    facts = public_facts(path, lambda done, total: told.append((done, total)))
    assert told == [(2, 2)]
    assert facts.answer("range", ["a"]) is None, "one value is no range"
    assert facts.answer("values", ["b"]) == ["x"]
    assert facts.answer("values", ["c"]) is None
    assert facts.answer("whole", ["a"]) is True
    assert facts.answer("nulls", ["a"]) is False


def test_settings_are_toml_or_texts() -> None:
    assert read_setting('{ a = [1, "b"] }') == {"a": [1, "b"]}
    assert read_setting("15min") == "15min"
    assert read_setting("true") is True


def test_every_question_is_about_a_key_that_there_is_and_says_what_is_asked() -> None:
    for spec in ENGINES.values():
        assert spec.summary
        assert len(spec.summary) < 110
        assert not spec.summary.endswith(".")
        for model in spec.domains.values():
            keys = {field.alias or name: field.description for name, field in model.model_fields.items()}
            for question in model.questions():
                assert question.key in keys
                assert question.text
                if isinstance(question, Question):
                    assert keys.keys() >= set(question.field_keys)
        for asked in spec.asks:
            section = asked.key.partition(".")[0]
            assert section in ("privacy", "options")
            assert asked.default is not None or asked.same_as


def test_a_section_that_says_nothing_of_its_own_is_asked_what_it_must_have() -> None:
    asked = {each.key: each for each in questions_of(Timing)}
    assert set(asked) == {"field", "start", "step"}
    assert asked["field"].kind == "field"
    assert "pickup_datetime" in asked["field"].hints
    assert asked["field"].text == "Field of the raw events that holds their time."
    assert asked["step"].kind == "text"


def test_comments_are_the_documentation_of_the_keys() -> None:
    said = Timing.model_fields["grace"].description
    assert said is not None
    assert said.startswith("How long a step waits for events after its end")


@pytest.mark.parametrize(
    "value",
    [
        *("13.4181", "-3", "1e5", "4,5", "NaN", "1600000000", "2026-03-04", "2026-03-04T05:06:07+01:00", "05:06:07"),
        *("31.12.2025 23:59", "12/31/2025 01:02:03 PM", "20260304", "4 Mar 2026", "Wed, 04 Mar 2026 05:06:07 +0000"),
        *("somebody@mail.example", "+49 (30) 1234-567", "10.0.0.1"),
    ],
)
def test_a_value_where_a_name_should_be_is_refused_and_not_repeated(value: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f'north,"{value}"\nsouth,7\n')
    with pytest.raises(PrivstreamError, match="has no header line") as refused:
        fields_of_file(path)
    assert value not in str(refused.value).replace(str(path), "")
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in ({"zone": 1}, {"zone": 2, value: 3})))
    with pytest.raises(PrivstreamError, match=r"is not shown\. Fix: ") as refused:
        fields_of_file(path)
    assert value not in str(refused.value)


def test_json_is_no_header(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('{"user":"ann","zone":"north"}\n{"user":"bob","zone":"south"}\n')
    with pytest.raises(PrivstreamError, match=r"has no header line.*named \.jsonl") as refused:
        fields_of_file(path)
    assert "ann" not in str(refused.value).replace(str(path), "")


def test_names_with_figures_are_names(tmp_path: Path) -> None:
    names = ("lon", "x1", "2nd_stop", "PM2.5", "temp °C", "e", "pickup_datetime", "", "straße", "user@host")
    assert not [name for name in names if reads_as_value(name)]
    for module in (sample, template):
        assert doctest.testmod(module).attempted
        assert not doctest.testmod(module).failed

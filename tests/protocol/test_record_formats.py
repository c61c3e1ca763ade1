"""Synthetic records in every format: the same records of every engine, the same bytes whoever writes them again."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.kafka.fingerprint import fingerprint_now
from agents.kafka.topics import TopicIdentity
from agents.protocol.release.held_out import HeldOutAudit
from agents.protocol.release.record_formats import record_format, schema_text
from agents.protocol.release.stepper import Stepper
from agents.readers.watch.public import StreamSeen
from agents.show.view import view_of
from engines.checks.contract_case import contract_case
from schemas.blocks import Block, Folded
from schemas.config import Config, Stream
from schemas.config.load import config_from_mapping
from schemas.errors import ConfigError, WireError
from schemas.releases import Candidate, sha256, unframe_records
from tests.columns import rows_of
from tests.consume.runs import RUNS, case_run, seed_of
from tests.examples import examples
from tests.kafka.support import stream_table

TYPED: tuple[Literal["avro", "json-schema"], ...] = ("avro", "json-schema")
ID = 0x01020304


def typed(stream: Stream, output: str) -> Stream:
    return stream.revised(output={"format": output})


def again(stream: Stream, batches: list[Folded], schema_id: int | None) -> list[Candidate]:
    """The steps of a stream, each by a stepper that goes on after the candidate before, as behind a crash."""
    found: list[Candidate] = []
    for step, events in enumerate(batches):
        stepper = Stepper.from_stream(stream, 1, records=record_format(stream, schema_id))
        if found:
            stepper.restore(found[-1])
        stepper.fold(step, Block(stream.name, 0, step, step + 1, step, {step: events}))
        found.append(stepper.compute(seed_of("run", step)))
    return found


def batches_of(engine: str) -> list[Folded]:
    case = contract_case(engine.partition(" ")[0])
    keys = np.array([case.crowd] * 400, np.uint64).reshape(-1, case.words)
    return [Folded.from_keys(keys)] * 4


@pytest.mark.parametrize("engine", RUNS)
@pytest.mark.parametrize("output", TYPED)
def test_every_engine_has_the_same_records_in_every_format(engine: str, output: str) -> None:
    plain, _ = case_run(engine)
    stream, batches = typed(plain, output), batches_of(engine)
    read, nulls = record_format(stream).read, dict.fromkeys(stream.record_fields)
    seen = 0
    for bare, coded in zip(again(plain, batches, None), again(stream, batches, ID), strict=True):
        assert coded.digest == sha256(coded.payload)
        for as_json, record in zip(unframe_records(bare.payload), unframe_records(coded.payload), strict=True):
            assert record[:2] == as_json[:2]
            if record.channel != "synthetic" or record.value is None or as_json.value is None:
                assert record == as_json
                continue
            seen += 1
            assert record.value != as_json.value
            assert record.value[:5] == bytes([0, 1, 2, 3, 4])
            assert {**nulls, **read(record.value)} == {**nulls, **orjson.loads(as_json.value)}
    assert seen


@pytest.mark.parametrize("name", ["spatial", "spatial weighted"])
@pytest.mark.parametrize("output", TYPED)
def test_the_live_page_and_the_audit_read_every_format(output: str, name: str) -> None:
    plain, batches = case_run(name)[0], batches_of(name)
    stream = typed(plain, output)
    shown, alive = [], []
    for each, written in ((plain, None), (stream, ID)):
        seen = StreamSeen(each, view_of(each).picture(each), record_format(each).read)
        audit = HeldOutAudit(each, 1, records=record_format(each))
        for step, candidate in enumerate(again(each, batches, written)):
            for record in unframe_records(candidate.payload):
                seen.take(record.channel, step, record.key, record.value)
                if record.channel == "synthetic":
                    audit.on_synthetic(len(audit._waiting), step, record.key, record.value)
            seen.take("ledger", step, b"%d" % step, candidate.ledger)
            seen.settle(now=1.0)
            audit.fold(step, Block(each.name, 0, step, step + 1, step, {}))
            audit.advance()
        assert seen.summary()["verdicts"] == {"verified": len(batches)}
        assert seen.unreadable == 0
        shown.append(seen.picture.body({}))
        alive.append(dict(audit.alive))
        seen.close()
    assert shown[0] == shown[1]
    assert alive[0] == alive[1] != {}


@pytest.mark.parametrize("output", TYPED)
def test_a_step_that_is_computed_again_has_the_same_bytes_and_its_id_is_part_of_them(output: str) -> None:
    stream, batches = typed(case_run("tabular")[0], output), batches_of("tabular")
    first, second = again(stream, batches, ID), again(stream, batches, ID)
    assert [(each.payload, each.ledger) for each in first] == [(each.payload, each.ledger) for each in second]
    other = again(stream, batches, ID + 1)
    assert any(left.chain != right.chain for left, right in zip(first, other, strict=True))


def test_the_schema_id_is_that_of_the_first_start_whatever_the_registry_says() -> None:
    config = configured(output={"format": "avro"})
    (stream,) = config.streams
    found = {stream.source: TopicIdentity("id", 1)}
    first = fingerprint_now(stream, config, found, None, insecure=False, schema_id=7)
    assert first.fields["output"] == {
        "format": "avro",
        "schema": hashlib.sha256(schema_text(stream).text.encode()).hexdigest(),
        "schema_id": 7,
    }
    assert fingerprint_now(stream, config, found, None, insecure=False, stored=first, schema_id=8) == first
    plain = configured()
    stored = fingerprint_now(plain.streams[0], plain, found, None, insecure=False)
    assert "output" not in stored.fields
    now = fingerprint_now(stream, config, found, None, insecure=False, stored=stored)
    assert {"output.format", "output.schema"} == stored.differing(now).keys()


# --- one record ------------------------------------------------------------------------------------------------------


def configured(**table: Any) -> Config:
    kafka = {"bootstrap": "b:9092", "partitions": 1, "registry": {"url": "http://127.0.0.1:1"}}
    stream = stream_table("s-1", **{"options": {}, **table})
    stream["privacy"] = {"epsilon": 1.0, "unit": "event"}
    return config_from_mapping({"job": {"name": "j"}, "kafka": kafka, "streams": [stream]})


@pytest.mark.parametrize("output", ["json", *TYPED])
def test_a_schema_says_what_the_time_of_its_records_is(output: str) -> None:
    said = {
        "dated": "of the step that the record stands for; header privstream-step",
        "released": "of the step that added the record",
    }
    time = stream_table("s-1")["time"]
    for records, sentence in said.items():
        (stream,) = configured(output={"format": output}, time={**time, "records": records}).streams
        assert sentence in orjson.dumps(record_format(stream).schema).decode()


ATTRIBUTES: list[dict[str, Any]] = [
    {"field": "mixed", "values": [True, 1, "true", 2.5], "missing": True, "unknown": "other"},
    {"field": "whole", "values": [0, 1, 2**40], "missing": True},
    {"field": "flag", "values": [True, False]},
    {"field": "number", "edges": [0, 1.5, 9]},
    {"field": "age", "edges": [0, 18, 120], "integer": True, "unknown": "other", "other": "odd"},
]
TABLE: dict[str, Any] = {"engine": "tabular", "domain": {"kind": "table", "attributes": ATTRIBUTES}}
ROWS = st.fixed_dictionaries(
    {
        "mixed": st.sampled_from([True, 1, "true", 2.5, "other", None]),
        "whole": st.sampled_from([0, 1, 2**40, None]),
        "flag": st.booleans(),
        "number": st.floats(0, 9),
        "age": st.integers(0, 120) | st.just("odd"),
    }
)


def kinds(record: dict[str, Any]) -> dict[str, Any]:
    """Values as JSON tells them apart: it has one kind of number."""
    return {name: (isinstance(value, bool), isinstance(value, str), value) for name, value in record.items()}


@pytest.mark.parametrize("output", TYPED)
@pytest.mark.parametrize(
    "time", [{"format": "s"}, {"format": "iso", "timezone": "Europe/Berlin"}, {"format": "%d.%m.%Y %H:%M:%S"}]
)
@settings(max_examples=examples(0.4))
@given(rows=st.lists(ROWS, min_size=1, max_size=5), at_s=st.integers(0, 4_000_000_000))
def test_what_is_written_is_read_as_plain_json_has_it(
    output: str, time: dict[str, str], rows: list[dict[str, Any]], at_s: int
) -> None:
    timing = {"field": "at", "start": "2020-01-01T00:00:00", "step": "60s", "clock": "replay", **time}
    (stream,) = configured(**TABLE, time=timing, output={"format": output}).streams
    written, plain = record_format(stream, ID), record_format(stream.revised(output={"format": "json"}))
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    values = rows_of(written.rows({"at": [written.time(at_s * 10**6)] * len(rows), **columns}), len(rows))
    expected = rows_of(plain.rows({"at": [plain.time(at_s * 10**6)] * len(rows), **columns}), len(rows))
    assert len(values) == len(rows)
    for value, as_json in zip(values, expected, strict=True):
        assert kinds(written.read(value)) == kinds(plain.read(as_json))
        if output == "json-schema":
            import jsonschema  # it builds grammars of addresses first, which takes a second

            check = jsonschema.Draft202012Validator(written.schema, format_checker=jsonschema.FormatChecker())
            check.validate(orjson.loads(value[5:]))
    if output == "avro":
        with pytest.raises(ValueError, match="strange"):
            written.rows({"at": [0], **{name: column[:1] for name, column in columns.items()}, "strange": [1]})


@pytest.mark.parametrize("output", ["json", *TYPED])
@settings(max_examples=examples(0.8))
@given(value=st.binary(max_size=60))
def test_bytes_that_are_no_record_are_refused_and_not_repeated(output: str, value: bytes) -> None:
    (stream,) = configured(**TABLE, output={"format": output}).streams
    for each in (value, bytes([0, 0, 0, 0, 9]) + value):
        try:
            assert isinstance(record_format(stream).read(each), dict)
        except WireError as error:
            said = str(error)
            assert said.startswith(f'stream s-1: a synthetic record is not of format "{output}"')


def test_a_record_of_another_format_is_refused() -> None:
    streams = {name: configured(**TABLE, output={"format": name}).streams[0] for name in ("json", *TYPED)}
    columns: dict[str, list[Any]] = {"mixed": [None], "whole": [1], "flag": [True], "number": [0.5], "age": [3]}
    for name, stream in streams.items():
        form = record_format(stream, ID)
        (value,) = rows_of(form.rows({"at": [form.time(0)], **columns}), 1)
        assert form.read(value)["at"] == 0
        for other in streams.keys() - {name}:
            with pytest.raises(WireError, match="is this the configuration"):
                record_format(streams[other]).read(value)


# --- what is refused -------------------------------------------------------------------------------------------------

REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"domain": {"kind": "box", "x": "at.lon", "y": "y", "bounds": [0, 0, 1, 1]}},
        r'lon = "at.lon" in \[streams.map\]',
    ),
    ({"time": {"field": "$timestamp", "format": "ms", "start": "2020-01-01T00:00:00", "step": "60s"}}, r"\$timestamp"),
]


@pytest.mark.parametrize(("table", "match"), REFUSED)
def test_names_that_avro_does_not_have_are_refused_with_what_to_do(table: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match) as refused:
        configured(**table, output={"format": "avro"})
    assert {each.key for each in refused.value.problems} == {"streams[0].output.format"}
    assert configured(**table, output={"format": "json-schema"})


def test_a_field_that_would_have_two_values_is_refused() -> None:
    """In plain JSON, too: the engine's value would take the place of the time in silence."""
    with pytest.raises(ConfigError, match=r'time\.field: field "step" of synthetic records would be their time'):
        contract_case("series").stream("default", {"time": {"field": "step"}})


def test_typed_output_needs_a_registry() -> None:
    document = {
        "job": {"name": "j"},
        "kafka": {"bootstrap": "b:9092"},
        "streams": [stream_table("s", output={"format": "avro"})],
    }
    with pytest.raises(ConfigError, match=r"add \[kafka.registry\]"):
        config_from_mapping(document)

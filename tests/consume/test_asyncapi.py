"""What the AsyncAPI document says of public topics holds for what the job writes to them, of every engine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest

from agents.readers.consume.asyncapi import document, value_schemas
from schemas.config import ENGINES, Config
from schemas.config.load import config_from_mapping, load_config
from schemas.ledger import LedgerEntry, MeasurementRecord
from schemas.releases import CHANNELS, PublicRecord
from tests.commands import invoked
from tests.consume.runs import RUNS, case_run, records_of

TAXI = Path(__file__).parents[2] / "examples" / "taxi.toml"
KAFKA = {"bootstrap": "broker.example:9092", "partitions": 1}


def config_of(engine: str) -> Config:
    stream, _ = case_run(engine)
    document = stream.model_dump(exclude_unset=True, mode="json")
    return config_from_mapping({"job": {"name": "j"}, "kafka": KAFKA, "streams": [document]})


def described_values(config: Config) -> dict[str, Any]:
    return {topic: json.loads(schema.text) for topic, schema in value_schemas(config).items()}


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from [inner] if name == "$ref" else references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def at(whole: Any, reference: str) -> Any:
    for name in reference.removeprefix("#/").split("/"):
        whole = whole[name]
    return whole


def records(engine: str, channel: str) -> list[PublicRecord]:
    _, candidates = case_run(engine)
    if channel == "ledger":
        return [PublicRecord("ledger", b"%d" % each.step, each.ledger) for each in candidates]
    return [record for each in candidates for record in records_of(each, channel)]  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", RUNS)
def test_published_records_are_what_their_schemas_say(engine: str) -> None:
    import jsonschema  # it builds grammars of addresses first, which takes a second: not whenever tests are collected

    config = config_of(engine)
    described, schemas = document(config), described_values(config)
    for channel in CHANNELS:
        topic = f"{config.streams[0].name}.{channel}"
        jsonschema.Draft202012Validator.check_schema(schemas[topic])
        alone = jsonschema.Draft202012Validator(schemas[topic])
        message = described["components"]["messages"][topic]
        within = jsonschema.Draft202012Validator({"components": described["components"], **message["payload"]})
        key = jsonschema.Draft202012Validator(message["bindings"]["kafka"]["key"])
        found = records(engine, channel)[:40]
        assert found
        for record in found:
            key.validate(record.key.decode())
            if record.value is not None:
                told = orjson.loads(record.value)
                alone.validate(told)
                within.validate(told)
        assert not alone.is_valid({"step": "first"})
        assert not within.is_valid([])


@pytest.mark.parametrize("output", ["avro", "json-schema"])
def test_typed_output_is_described_as_it_is_registered(output: str) -> None:
    config = config_of("tabular")
    kafka = config.kafka.revised(registry={"url": "https://registry.example"})
    stream = config.streams[0].revised(output={"format": output})
    config = config.model_copy(update={"kafka": kafka, "streams": (stream,)})
    described, topic = document(config), f"{stream.name}.synthetic"
    schema, message = described["components"]["schemas"][topic], described["components"]["messages"][topic]
    assert message["bindings"]["kafka"]["schemaIdLocation"] == "payload"
    if output == "avro":
        assert message["contentType"] == "avro/binary"
        assert schema["schemaFormat"].startswith("application/vnd.apache.avro+json")
        schema = schema["schema"]
    assert schema == json.loads(value_schemas(config)[topic].text)
    assert value_schemas(config)[topic].kind == ("AVRO" if output == "avro" else "JSON")


@pytest.mark.parametrize("engine", ENGINES)
def test_the_ledger_has_the_fields_of_its_type_and_no_other(engine: str) -> None:
    fields = {field.name for field in msgspec.structs.fields(LedgerEntry)}
    for record in records(engine, "ledger"):
        msgspec.json.decode(record.value or b"", type=LedgerEntry)
        assert set(orjson.loads(record.value or b"")) == fields - {"witness", "epsilon_per", "renewal"}  # of other jobs
    for record in records(engine, "measurements"):
        msgspec.json.decode(record.value or b"", type=MeasurementRecord)


def test_the_document_hangs_together() -> None:
    """Every reference leads somewhere, every channel has messages that it names, and no private topic is in it."""
    config = load_config(TAXI)
    told = document(config)
    assert told["asyncapi"] == "3.0.0"
    assert set(told) == {
        *("asyncapi", "info", "defaultContentType", "servers", "channels", "operations", "components"),
    }
    assert {"title", "version"} <= set(told["info"])
    assert all(at(told, reference) for reference in references(told))
    assert sorted(told["channels"]) == ["taxi.ledger", "taxi.measurements", "taxi.synthetic"]
    for name, channel in told["channels"].items():
        assert channel["address"] == channel["bindings"]["kafka"]["topic"] == name
        assert channel["messages"]
    assert len(told["channels"]["taxi.synthetic"]["messages"]) == 2
    assert {each["action"] for each in told["operations"].values()} == {"send"}
    for places in ("channels", "operations"):
        assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) for name in told[places])
    for component in told["components"].values():
        assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) for name in component)
    text = json.dumps(told)
    assert not any(word in text for word in (".blocks", ".releases", ".utility", "raw.taxi", "audit."))


def test_the_command_prints_it_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRIVSTREAM_BOOTSTRAP", raising=False)
    done = invoked("topics", TAXI, "--asyncapi")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == json.loads(json.dumps(document(load_config(TAXI))))
    both = invoked("topics", TAXI, "--asyncapi", "--acls")
    assert both.exit_code == 2

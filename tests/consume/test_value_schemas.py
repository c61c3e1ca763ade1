"""What the job writes to its public topics is as the schemas say that it registers, of every engine."""

from __future__ import annotations

import json

import msgspec
import orjson
import pytest

from agents.readers.consume.value_schemas import value_schemas
from schemas.config import ENGINES, Config
from schemas.config.load import config_from_mapping
from schemas.ledger import LedgerEntry, MeasurementRecord
from schemas.releases import CHANNELS, PublicRecord
from tests.consume.runs import RUNS, case_run, records_of

KAFKA = {"bootstrap": "broker.example:9092", "partitions": 1}


def config_of(engine: str) -> Config:
    stream, _ = case_run(engine)
    document = stream.model_dump(exclude_unset=True, mode="json")
    return config_from_mapping({"job": {"name": "j"}, "kafka": KAFKA, "streams": [document]})


def records(engine: str, channel: str) -> list[PublicRecord]:
    _, candidates = case_run(engine)
    if channel == "ledger":
        return [PublicRecord("ledger", b"%d" % each.step, each.ledger) for each in candidates]
    return [record for each in candidates for record in records_of(each, channel)]  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", RUNS)
def test_published_records_are_what_their_schemas_say(engine: str) -> None:
    import jsonschema  # it builds grammars of addresses first, which takes a second: not whenever tests are collected

    config = config_of(engine)
    schemas = {topic: json.loads(schema.text) for topic, schema in value_schemas(config).items()}
    for channel in CHANNELS:
        topic = f"{config.streams[0].name}.{channel}"
        jsonschema.Draft202012Validator.check_schema(schemas[topic])
        value = jsonschema.Draft202012Validator(schemas[topic])
        found = records(engine, channel)[:40]
        assert found
        for record in found:
            if record.value is not None:
                value.validate(orjson.loads(record.value))
        assert not value.is_valid({"step": "first"})
        assert not value.is_valid([])


@pytest.mark.parametrize("engine", ENGINES)
def test_the_ledger_has_the_fields_of_its_type_and_no_other(engine: str) -> None:
    fields = {field.name for field in msgspec.structs.fields(LedgerEntry)}
    for record in records(engine, "ledger"):
        msgspec.json.decode(record.value or b"", type=LedgerEntry)
        assert set(orjson.loads(record.value or b"")) == fields - {"witness", "epsilon_per", "renewal"}  # of other jobs
    for record in records(engine, "measurements"):
        msgspec.json.decode(record.value or b"", type=MeasurementRecord)

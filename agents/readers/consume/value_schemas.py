"""The schemas of what the public topics hold, for the job's schema registry."""

from __future__ import annotations

import msgspec
import orjson

from agents.kafka.schema_registry import RegistryClient, RegistryError, subject_of
from agents.protocol.formats.contract import SchemaText
from agents.protocol.release.record_formats import schema_text
from schemas.config import Config
from schemas.errors import PrivstreamError
from schemas.ledger import LedgerEntry, MeasurementRecord
from schemas.topics import Topics


def value_schemas(config: Config) -> dict[str, SchemaText]:
    """Return the schema of each public topic's values: an Avro schema where they are in Avro, else a JSON Schema."""
    found = {}
    for stream in config.streams:
        for topic, of in (
            (Topics.ledger(stream.name), LedgerEntry),
            (Topics.measurements(stream.name), MeasurementRecord),
        ):
            schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(of)}
            found[topic] = SchemaText("JSON", orjson.dumps(schema, option=orjson.OPT_SORT_KEYS).decode())
        found[Topics.synthetic(stream.name)] = schema_text(stream)
    return dict(sorted(found.items()))


async def register(config: Config) -> dict[str, int]:
    """Register the schema of each public topic's values; once more changes nothing. Only the records of a stream with
    typed output say the id of theirs; all others stay plain JSON.

    Returns: subject -> id of its schema.
    Raises: PrivstreamError where there is no registry, or it does not take one.
    """
    if config.kafka.registry is None:
        raise PrivstreamError("--register: no registry is named. Fix: add [kafka.registry] with url.")
    ids = {}
    async with RegistryClient(config.kafka.registry) as client:
        try:
            for topic, schema in value_schemas(config).items():
                subject = subject_of(topic)
                ids[subject] = await client.register(subject, schema)
        except RegistryError as error:
            done = f"; registered before that: {', '.join(ids)}" if ids else ""
            raise PrivstreamError(
                f"{error}{done}. Fix: bring the registry back, let {config.kafka.registry.username or 'anybody'} write "
                "there, or set the subject's compatibility; registering again is safe."
            ) from None
    return ids

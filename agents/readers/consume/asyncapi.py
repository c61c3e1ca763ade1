"""The public topics as an AsyncAPI 3.0 document: names, keys, headers, schemas of payloads, tombstones.

The schemas can be registered at the job's schema registry. Source: AsyncAPI 3.0.0 and version 0.5.0 of its Kafka
bindings.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import msgspec
import orjson

from agents.kafka.schema_registry import RegistryClient, RegistryError, subject_of
from agents.protocol.formats.contract import SchemaText
from agents.protocol.release.record_formats import record_format, schema_text
from schemas.config import Config, Stream
from schemas.errors import PrivstreamError
from schemas.ledger import LedgerEntry, MeasurementRecord
from schemas.releases import STEP_HEADER
from schemas.topics import Topic, Topics

BINDING = "0.5.0"
REFERENCE = "#/components/schemas/{name}"
AVRO = "application/vnd.apache.avro+json;version=1.9.0"
"""Name of Avro's schemas in AsyncAPI, which has no later version; what is in ours is in 1.9 too."""


def document(config: Config) -> dict[str, Any]:
    """Return the document of all streams."""
    schemas = dict(msgspec.json.schema_components((LedgerEntry, MeasurementRecord), ref_template=REFERENCE)[1])
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    messages: dict[str, Any] = {}
    for stream in config.streams:
        for topic in config.topics.public(stream.name):
            if topic.audience != "public":
                continue
            kept = dict(_messages(stream, topic.name))
            messages |= kept
            channels[topic.name] = _channel(topic, list(kept))
            operations[f"publish.{topic.name}"] = {
                "action": "send",
                "channel": {"$ref": f"#/channels/{topic.name}"},
                "summary": "Each step once, in one transaction: read with isolation.level=read_committed.",
            }
        schema = record_format(stream).schema
        avro = {"schemaFormat": AVRO, "schema": schema}
        schemas[Topics.synthetic(stream.name)] = avro if stream.output.format == "avro" else schema
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": f"Public topics of {config.job.name}",
            "version": version("privstream"),
            "description": "Differentially private synthetic streams: synthetic records, what was measured, and the "
            "ledger of each step. Private topics of the job are not part of this document.",
        },
        "defaultContentType": "application/json",
        "servers": {
            "kafka": {
                "host": config.kafka.bootstrap,
                "protocol": "kafka" if config.kafka.security_protocol == "PLAINTEXT" else "kafka-secure",
            }
        },
        "channels": channels,
        "operations": operations,
        "components": {"schemas": schemas, "messages": messages},
    }


def value_schemas(config: Config) -> dict[str, SchemaText]:
    """Return the schema of each public topic's values, by topic: JSON Schemas, and of records in Avro theirs."""
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


def _messages(stream: Stream, topic: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and message of each kind of record of a topic."""
    headers = {
        "type": "object",
        "required": [STEP_HEADER],
        "properties": {
            STEP_HEADER: {"type": "string", "pattern": "^[0-9]+$", "description": "Step, as decimal digits (UTF-8)."}
        },
    }
    if topic == Topics.synthetic(stream.name):
        key = {"type": "string", "description": "Synthetic id: names the record for as long as it lives."}
        schema = {"$ref": REFERENCE.format(name=topic)}
        appears = _message(
            "Synthetic record", "A record that appears, or takes the place of one.", headers, key, schema
        )
        if stream.output.typed:
            appears["bindings"]["kafka"] |= {"schemaIdLocation": "payload", "schemaIdPayloadEncoding": "confluent"}
        if stream.output.format == "avro":
            appears["contentType"] = "avro/binary"
        yield topic, appears
        gone = "The record with this key is withdrawn."
        yield f"{topic}.withdrawn", _message("Tombstone", gone, headers, key, {"type": "null"})
        return
    key = {"type": "string", "pattern": "^[0-9]+$", "description": "Step, as decimal digits."}
    if topic == Topics.ledger(stream.name):
        schema = {"$ref": REFERENCE.format(name=LedgerEntry.__name__)}
        yield topic, _message("Ledger entry", "What a step published and cost.", headers, key, schema)
    else:
        schema = {"$ref": REFERENCE.format(name=MeasurementRecord.__name__)}
        said = f"What engine {stream.engine} measured; its fields: docs/engines."
        yield topic, _message("Measurement", said, headers, key, schema)


def _message(title: str, said: str, headers: Any, key: Any, payload: Any) -> dict[str, Any]:
    return {
        "title": title,
        "summary": said,
        "contentType": "application/json",
        "headers": headers,
        "payload": payload,
        "bindings": {"kafka": {"key": key, "bindingVersion": BINDING}},
    }


def _channel(topic: Topic, messages: list[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {"cleanup.policy": [topic.settings["cleanup.policy"]]}
    settings |= {
        name: int(topic.settings[name]) for name in ("retention.ms", "retention.bytes") if name in topic.settings
    }
    kafka = {"topic": topic.name, "partitions": topic.partitions, "topicConfiguration": settings}
    return {
        "address": topic.name,
        "description": topic.purpose,
        "messages": {name.replace(".", "_"): {"$ref": f"#/components/messages/{name}"} for name in messages},
        "bindings": {"kafka": {**kafka, "bindingVersion": BINDING}},
    }


async def register(config: Config) -> dict[str, int]:
    """Register the schema of each public topic's values; once more changes nothing. Only the records of a stream with
    typed output say the id of theirs; all others stay plain JSON.

    Returns: subject -> id of its schema.
    Raises: PrivstreamError where there is no registry, or it does not take one.
    """
    if config.kafka.registry is None:
        raise PrivstreamError(
            "--register: no registry is named. Fix: add [kafka.registry] with url, or print the schemas with "
            "--asyncapi."
        )
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

"""The public topics as an AsyncAPI 3.0 document: names, keys, headers, payloads as JSON Schemas, tombstones.

The schemas can be registered at the job's schema registry. Source: AsyncAPI 3.0.0 and version 0.5.0 of its Kafka
bindings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import msgspec

from agents.kafka.schema_registry import RegistryClient, RegistryError
from schemas.config import ENGINES
from schemas.config.engines import RecordKind
from schemas.config.timing import NUMERIC_FORMATS
from schemas.errors import PrivstreamError
from schemas.ledger import LedgerEntry, MeasurementRecord
from schemas.releases import STEP_HEADER
from schemas.topics import Topics

if TYPE_CHECKING:
    from schemas.config import Config, Stream
    from schemas.topics import Topic


BINDING = "0.5.0"
REFERENCE = "#/components/schemas/{name}"
_TYPES: Mapping[RecordKind, str] = {
    "text": "string",
    "number": "number",
    "integer": "integer",
    "boolean": "boolean",
    "null": "null",
}


def document(config: Config) -> dict[str, Any]:
    """Return the document of all streams."""
    schemas = dict(msgspec.json.schema_components((LedgerEntry, MeasurementRecord), ref_template=REFERENCE)[1])
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    messages: dict[str, Any] = {}
    for stream in config.streams:
        for topic in Topics(config.job.name, config.kafka.partitions).public(stream.name):
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
        schemas[f"{stream.name}.synthetic"] = synthetic_schema(stream)
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


def json_schemas(config: Config) -> dict[str, Any]:
    """Return the JSON Schema of each public topic's values, by topic. Tombstones have no value."""
    found = {}
    for stream in config.streams:
        for topic, of in (
            (Topics.ledger(stream.name), LedgerEntry),
            (Topics.measurements(stream.name), MeasurementRecord),
        ):
            found[topic] = msgspec.json.schema(of)
        found[Topics.synthetic(stream.name)] = synthetic_schema(stream)
    return {
        topic: {"$schema": "https://json-schema.org/draft/2020-12/schema", **found[topic]} for topic in sorted(found)
    }


def synthetic_schema(stream: Stream) -> dict[str, Any]:
    """Return the schema of a synthetic record's value: its time, and the fields of its engine's records."""
    time, fields = stream.time, ENGINES[stream.engine].records(stream.domain)
    properties: dict[str, Any] = {
        time.field: {
            "type": "integer" if time.format in NUMERIC_FORMATS else "string",
            "description": f"Start of the step that added the record, in the raw events' format: {time.format}.",
        }
    }
    for name, kinds in fields.items():
        types = sorted(_TYPES[kind] for kind in kinds)
        properties[name] = {"type": types if len(types) > 1 else types[0]}
    return {
        "title": f"Synthetic record of {stream.name}",
        "type": "object",
        "properties": properties,
        "required": [time.field, *(name for name, kinds in fields.items() if "null" not in kinds)],
        "additionalProperties": False,
    }


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
        yield (
            topic,
            _message("Synthetic record", "A record that appears, or takes the place of one.", headers, key, schema),
        )
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
    """Register the schema of each public topic's values; once more changes nothing. Records stay plain JSON.

    Returns: subject -> id of its schema. Subjects are `<topic>-value`, as serializers name them.
    Raises: PrivstreamError where there is no registry, or it does not take one.
    """
    if config.kafka.registry is None:
        raise PrivstreamError(
            "--register: no registry is named. Fix: add [kafka.registry] with url, or print the schemas with "
            "--json-schema."
        )
    ids = {}
    async with RegistryClient(config.kafka.registry) as client:
        try:
            for topic, schema in json_schemas(config).items():
                subject = f"{topic}-value"
                ids[subject] = await client.register(subject, schema)
        except RegistryError as error:
            done = f"; registered before that: {', '.join(ids)}" if ids else ""
            raise PrivstreamError(
                f"{error}{done}. Fix: bring the registry back, let {config.kafka.registry.username or 'anybody'} write "
                "there, or set the subject's compatibility; registering again is safe."
            ) from None
    return ids

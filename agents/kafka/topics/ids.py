"""The id that Kafka gives a topic at its creation: a topic that was deleted and created again has another one.

aiokafka 0.14 speaks Metadata up to version 5, which has no ids. Version 12 (Kafka 3.1 and later) in the few lines it
takes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError, for_code
from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Boolean, CompactArray, CompactString, Int16, Int32, Schema, TaggedFields

NO_ID = bytes(16)


class Id(AbstractType):
    """Sixteen bytes."""

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(16)


class MetadataResponse12(Response):
    API_KEY = 3
    API_VERSION = 12
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString("utf-8")),
                ("port", Int32),
                ("rack", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("name", CompactString("utf-8")),
                ("topic_id", Id),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class MetadataRequest12(RequestStruct):
    API_KEY = 3
    API_VERSION = 12
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = MetadataResponse12
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(("topic_id", Id), ("name", CompactString("utf-8")), ("tags", TaggedFields)),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class MetadataWithIds(Request[MetadataRequest12]):
    API_KEY = 3

    def __init__(self, topics: Collection[str]) -> None:
        self._topics = topics

    def build(self, request_struct_class: Any) -> Any:
        # Never let the question create the topic.
        return request_struct_class([(NO_ID, name, {}) for name in self._topics], False, False, {})


@dataclass(frozen=True, slots=True)
class TopicIdentity:
    """What tells a topic from another one of the same name."""

    id: str
    partitions: int


async def topic_answers(
    asking: AIOKafkaAdminClient | AIOKafkaConsumer, topics: Collection[str]
) -> tuple[dict[str, TopicIdentity], dict[str, KafkaError]]:
    """Topic -> identity, topic -> why it is not told; topics that do not exist are in neither. Raises: KafkaError."""
    client = asking._client
    response = await client.send(client.get_random_node(), MetadataWithIds(topics))
    found: dict[str, TopicIdentity] = {}
    untold: dict[str, KafkaError] = {}
    for error, name, topic_id, _, partitions, *_ in response.topics:
        if error == UnknownTopicOrPartitionError.errno:
            continue
        if error:
            untold[name] = for_code(error)(name)
        else:
            found[name] = TopicIdentity(topic_id.hex(), len(partitions))
    return found, untold


async def topic_identities(
    asking: AIOKafkaAdminClient | AIOKafkaConsumer, topics: Collection[str]
) -> dict[str, TopicIdentity]:
    """Topic -> identity; topics that do not exist are absent. Raises: KafkaError, also if one of them is not told."""
    found, untold = await topic_answers(asking, topics)
    for error in untold.values():
        raise error
    return found

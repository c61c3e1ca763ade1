"""`privstream topics --register`: the JSON Schemas of the public topics, at the job's schema registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.kafka.schema_registry import RegistryClient, RegistryError
from agents.readers.consume.asyncapi import json_schemas
from schemas.errors import PrivstreamError

if TYPE_CHECKING:
    from schemas.config import Config


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

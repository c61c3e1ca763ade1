"""What each stream does with the topics that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from agents.kafka.schema_registry import check_files
from agents.protocol.formats.schemas import SchemaBook
from agents.protocol.ingest.spec import SourceSpec
from agents.worker.ingest.user_keys import user_keys
from engines.core.registry import build_domain, build_evaluator

if TYPE_CHECKING:
    from schemas.config import Config


def source_specs(
    config: Config, *, source_partitions: Mapping[str, int], audit_partitions: Mapping[str, int] | None = None
) -> dict[str, list[SourceSpec]]:
    """Source and audit topic -> what each stream does with it.

    Args: source_partitions, audit_partitions: stream -> partitions of its topic.
    Raises: ConfigError, EngineInputError.
    """
    keys, schemas = user_keys(config), SchemaBook()
    check_files(config.kafka.registry)
    specs: dict[str, list[SourceSpec]] = {}
    for stream in config.streams:
        if stream.name not in source_partitions:
            continue  # it could not start
        partitions = source_partitions[stream.name]
        spec = SourceSpec.of(
            stream, build_domain(stream), key=keys[stream.name], partitions=partitions, schemas=schemas
        )
        specs.setdefault(spec.topic, []).append(spec)
        if stream.audit is not None and audit_partitions is not None:
            held_out = SourceSpec.held_out(
                stream, build_evaluator(stream).domain, partitions=audit_partitions[stream.name], schemas=schemas
            )
            specs.setdefault(held_out.topic, []).append(held_out)
    return specs

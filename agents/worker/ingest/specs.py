"""What each stream does with the topics that it reads, and the keys under which its user ids are hashed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from agents.kafka.schema_registry import check_files
from agents.kafka.security import read_secret
from agents.protocol.formats.contract import SchemaBook
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.userhash import KEY_BYTES, key_id, user_key
from engines.core.registry import build_domain, build_evaluator
from schemas.config import Config, Stream
from schemas.errors import ConfigError


def user_keys(config: Config) -> dict[str, bytes | None]:
    """Read the secret files: stream -> key of its user hash, None where it has no users. Raises: ConfigError."""
    return {stream.name: _user_key(stream) for stream in config.streams}


def user_key_ids(config: Config) -> dict[str, str | None]:
    """Return stream -> what names its key in the fingerprint. Raises: ConfigError."""
    return {name: None if key is None else key_id(key) for name, key in user_keys(config).items()}


def _user_key(stream: Stream) -> bytes | None:
    if not stream.privacy.bounds_users:
        return None
    where = f"streams.{stream.name}.privacy.user_key_file"
    fix = (
        "name a file with at least 16 random bytes, or set PRIVSTREAM_USER_KEY_FILE. To make one: "
        "head -c 32 /dev/urandom > user.key && chmod 600 user.key"
    )
    if stream.privacy.user_key_file is None:
        raise ConfigError.of(where, "missing: the hash of user ids needs a secret", fix)
    if not stream.privacy.user_key_file.exists():
        raise ConfigError.of(where, f"{stream.privacy.user_key_file} is not there", fix)
    secret = read_secret(stream.privacy.user_key_file, key=where)
    if len(secret) < KEY_BYTES:
        raise ConfigError.of(where, f"the file holds less than {KEY_BYTES} bytes", fix)
    return user_key(secret, stream=stream.name)


def source_specs(
    config: Config,
    *,
    source_partitions: Mapping[str, int],
    audit_partitions: Mapping[str, int] | None = None,
    topic_partitions: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, list[SourceSpec]]:
    """Return source, routed and audit topic -> what each stream does with it.

    Args:
        source_partitions, audit_partitions: stream -> partitions of the topic with its users, and of its audit.
        topic_partitions: source -> its partitions, where records of it are routed.
    Raises: ConfigError, EngineInputError.
    """
    keys, schemas = user_keys(config), SchemaBook()
    topics = config.topics
    check_files(config.kafka.registry)
    specs: dict[str, list[SourceSpec]] = {}
    for stream in config.streams:
        if stream.name not in source_partitions:
            continue  # it could not start
        partitions = source_partitions[stream.name]
        spec = SourceSpec.from_stream(
            stream, build_domain(stream), key=keys[stream.name], partitions=partitions, schemas=schemas
        )
        sources = topic_partitions.get(stream.source, 0)
        for each in spec.routing(topics.routed(stream.name), sources) if stream.routed else (spec,):
            specs.setdefault(each.topic, []).append(each)
        if stream.audit is not None and audit_partitions is not None:
            held_out = SourceSpec.held_out(
                stream, build_evaluator(stream).domain, partitions=audit_partitions[stream.name], schemas=schemas
            )
            specs.setdefault(held_out.topic, []).append(held_out)
    return specs

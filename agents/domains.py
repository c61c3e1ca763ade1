"""Domains and engines as configured, built to see whether they can be: what only geometry can tell of a map, and
whether noise can be as wide as a small epsilon asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from agents.presentation.trajectory import few_trips
from engines.contract import Columns, Domain
from engines.registry import build_domain, build_engine
from engines.spatial.domain.mapped import MappedDomain
from engines.trajectory.domain import TripDomain
from schemas.errors import ConfigError, ConfigProblem, EngineInputError
from schemas.events import Reason

if TYPE_CHECKING:
    from schemas.config import Config, Kafka, Stream

SAMPLE = 1000
"""Newest events that a check looks at."""

NEARLY_ALL = 0.9
"""Share of events outside from which a domain is likely to be the wrong one."""


def check_streams(config: Config) -> Mapping[str, Sequence[str]]:
    """Build every stream's domain and engine, and ask the engine for its guarantee.

    Returns: by stream, what an operator should know of it.
    Raises: ConfigError with all streams that cannot be built.
    """
    problems: list[ConfigProblem] = []
    remarks: dict[str, Sequence[str]] = {}
    for index, stream in enumerate(config.streams):
        try:
            domain = build_domain(stream)
        except EngineInputError as error:
            reason = f'stream "{stream.name}": {error}'
            mend = "mend its file or bounds as it says, or choose another depth in [streams.options]"
            problems.append(ConfigProblem(f"streams[{index}].domain", reason, mend))
            continue
        try:
            build_engine(stream).guarantee()
        except EngineInputError as error:
            reason = f'stream "{stream.name}": {error}'
            mend = "raise epsilon, lower max_contributions, or mend [streams.options] as it says"
            problems.append(ConfigProblem(f"streams[{index}].privacy.epsilon", reason, mend))
            continue
        if isinstance(domain, TripDomain):
            remarks[stream.name] = (few_trips(stream),)
        if isinstance(domain, MappedDomain):
            remarks[stream.name] = tuple(domain.remarks())
    if problems:
        raise ConfigError(problems)
    return remarks


async def newest_events(kafka: Kafka, stream: Stream) -> tuple[int, int]:
    """How many of a source's newest events have all fields of the domain, and how many of these lie outside.

    Raises: BrokerError, EngineInputError.
    """
    from agents.kafka_clients import log_reader
    from agents.topic_admin import admin_client
    from agents.topic_ids import topic_identities

    async with admin_client(kafka) as admin:
        found = await topic_identities(admin, [stream.source])
    partitions = found[stream.source].partitions if stream.source in found else 0
    events: list[Any] = []
    for partition in range(partitions):
        async with log_reader(kafka, stream.source, partition) as log:
            start = max(log.beginning, log.end - max(1, SAMPLE // partitions))
            async for batch in log.read(start):
                events += [decoded for record in batch if (decoded := _event(record.value)) is not None]
    return rows_outside(build_domain(stream), events)


def rows_outside(domain: Domain, events: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """How many events have all fields of a domain, and how many of these lie outside."""
    fields = (*domain.number_fields, *domain.text_fields, *domain.value_fields)
    whole = [
        event
        for event in events
        if all(field in event for field in fields)
        and all(_is_number(event[field]) for field in domain.number_fields)
        and all(isinstance(event[field], str) for field in domain.text_fields)
    ]
    columns = Columns(
        {field: np.array([event[field] for event in whole], np.float64) for field in domain.number_fields},
        {field: [event[field] for event in whole] for field in domain.text_fields},
        np.ones(len(whole), np.int8),
        {field: [event[field] for event in whole] for field in domain.value_fields},
    )
    _, reasons = domain.encode(columns)
    return len(whole), int((reasons == Reason.OUTSIDE_DOMAIN).sum())


def _event(value: bytes | None) -> dict[str, Any] | None:
    try:
        decoded = orjson.loads(value or b"")
    except orjson.JSONDecodeError:
        return None
    return decoded if isinstance(decoded, dict) else None


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def outside_warning(domain: Domain, *, outside: int, rows: int) -> str | None:
    """A sentence where nearly all events fall outside of the domain; None where they do not."""
    if rows == 0 or outside < NEARLY_ALL * rows:
        return None
    named = " and ".join((*domain.number_fields, *domain.text_fields, *domain.value_fields))
    return (
        f"{outside / rows:.0%} of the events lie outside of the domain. Look at [streams.domain]: is it the right "
        f"place, are {named} the right fields, in this order, and are they in its units?"
    )

"""What ingest would make of a source's newest records: the very same filters, without charging or writing anything."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from agents.kafka.clients import log_reader
from agents.kafka.lifecycle.refusals import Seen, by_reason_and_field
from agents.kafka.schema_registry import RegistryClient
from agents.protocol.clock import StepClock
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.userhash import KEY_BYTES
from engines.core.registry import build_domain

if TYPE_CHECKING:
    from schemas.config import Config, Stream

SAMPLE = 1000
"""Newest records that a check looks at."""
LONG_AGO_US = -(10**17)


async def newest_records(config: Config, stream: Stream, *, partitions: int, start_us: int | None) -> Seen:
    """What would become of the newest records of a stream's source; the bound of its users is left out.

    Args:
        partitions: of the source topic.
        start_us: begin of step 0; None where nobody has set it yet.
    Raises: BrokerError, EngineInputError, ConfigError, RegistryError.
    """
    spec = filters_of(stream, partitions=partitions, start_us=start_us)
    seen = Seen()
    registry = config.kafka.registry
    for partition in range(partitions):
        async with log_reader(config.kafka, stream.source, partition) as log:
            start = max(log.beginning, log.end - max(1, SAMPLE // partitions))
            machine = PartitionIngest(spec, partition)
            machine.resume(start)
            async for batch in log.read(start):
                while batch:
                    count, wanted = (len(batch), None) if registry is None else machine.decoder.missing(batch)
                    machine.take(batch[:count])
                    batch = batch[count:]
                    if registry is not None and wanted:
                        async with RegistryClient(registry) as client:
                            await client.learn(spec.schemas, wanted)
        if (block := machine.seal()[0]) is not None:
            seen.tally.update(by_reason_and_field(block))
    return seen


def filters_of(stream: Stream, *, partitions: int, start_us: int | None) -> SourceSpec:
    """The spec of a stream's source with all filters and no bounds. Its key hashes nothing that is kept."""
    steps = stream.time.steps_from(LONG_AGO_US if start_us is None else start_us)
    spec = SourceSpec.of(stream, build_domain(stream), key=bytes(KEY_BYTES), partitions=partitions, steps=steps)
    clock = spec.clock
    if spec.replay:  # how far its ticks have come is not known here
        clock = StepClock(steps, max_ahead=1 << 40)
    return dataclasses.replace(spec, bounds=None, clock=clock)

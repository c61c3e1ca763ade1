"""What `doctor` says of the sources: whether they are still the same, and what ingest makes of their records.

The newest records pass the very same filters as in ingest, without charging or writing anything.
"""

from __future__ import annotations

import dataclasses
import time

from agents.kafka.broker_clock import WHAT_TO_DO as FIX_CLOCK
from agents.kafka.broker_clock import worker_clocks
from agents.kafka.clients import log_reader
from agents.kafka.fingerprint import changed_source, stored_fingerprints
from agents.kafka.lifecycle.advice import PAGE, what_to_do
from agents.kafka.lifecycle.refusals import NEARLY_ALL, Seen, by_reason_and_field
from agents.kafka.schema_registry import WHAT_TO_DO as FIX_REGISTRY
from agents.kafka.schema_registry import RegistryClient, RegistryError
from agents.kafka.status import StreamStatus, status
from agents.kafka.topics import TopicIdentity, existing_topics
from agents.protocol.clock import MANY_STEPS, StepClock, backlog_sentence, steps_over
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.userhash import KEY_BYTES
from agents.readers.operator.findings import Finding, Verdict, of_error
from engines.core.registry import build_domain
from schemas.config import Config, Stream
from schemas.errors import BrokerError, ConfigError, EngineInputError
from schemas.releases import STEP_LIMIT

SAMPLE = 1000
"""Newest records that a check looks at."""
LONG_AGO_US = -(10**17)


async def newest_records(config: Config, stream: Stream, *, partitions: int, start_us: int | None) -> Seen:
    """Return what would become of the newest records of a stream's source; the bound of its users is left out.

    Raises: BrokerError, EngineInputError, ConfigError, RegistryError.
    """
    spec = filters_of(stream, partitions=partitions, start_us=start_us)
    seen = Seen()
    registry = config.kafka.registry
    for partition in range(partitions):
        async with log_reader(config.kafka, stream.source, partition) as log:
            start = max(log.beginning, log.end - max(1, SAMPLE // partitions))
            machine = PartitionIngest(spec, 0 if stream.routed else partition)
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


def filters_of(stream: Stream, *, partitions: int, start_us: int | None, rows: bool = False) -> SourceSpec:
    """Return the spec of a source with all filters and no bounds. Its key hashes nothing that is kept.

    Args:
        start_us: begin of step 0; None where nobody has set it yet: long ago, but with many steps still to come.
        rows: see `SourceSpec.from_stream`.
    """
    if start_us is None:
        start_us = max(LONG_AGO_US, time.time_ns() // 1000 - STEP_LIMIT // 2 * stream.time.shortest_us)
    steps = stream.time.steps_from(start_us)
    spec = SourceSpec.from_stream(
        stream, build_domain(stream), key=bytes(KEY_BYTES), partitions=partitions, steps=steps, rows=rows
    )
    clock = spec.clock
    if stream.routed:  # wherever its records are
        spec = dataclasses.replace(spec, partitioner="none")
    if spec.replay:  # how far its ticks have come is not known here
        clock = StepClock(steps, max_ahead=1 << 40)
    return dataclasses.replace(spec, bounds=None, clock=clock)


KEEP_LONGER = "raise retention.ms and retention.bytes of the source above the longest outage and lag"


async def source_findings(config: Config) -> list[Finding]:
    """Return what there is of the sources, stream by stream. Raises: BrokerError, WireError."""
    stored = await stored_fingerprints(config)
    read = {topic for stream in config.streams for topic in (stream.source, config.read_by(stream))}
    found = await existing_topics(config.kafka, sorted(read))
    states = {each.stream: each for each in await status(config)}
    findings = []
    for stream in config.streams:
        findings += _stopped(states[stream.name])
        if change := changed_source(config, stream, stored.get(stream.name), found):
            findings.append(Finding(f"source of {stream.name}", "problem", str(change), what_to_do(change)))
            continue
        before = stored.get(stream.name)
        timing = stream.time if before is None else stream.time.model_copy(update={"start": before.start})
        findings += await _events(config, stream, timing.start_us, found[stream.source])
        findings += _counted(states[stream.name])
        if states[stream.name].live:  # its steps end by the wall clock from now on
            timing = timing.model_copy(update={"clock": "wall"})
        steps = steps_over(stream.model_copy(update={"time": timing}), time.time_ns() // 1000)
        if (steps := steps - states[stream.name].over - 1) > MANY_STEPS:
            findings.append(Finding(f"steps of {stream.name}", "warning", backlog_sentence(steps)))
    by_clock = any(each.clock != "replay" for each in states.values())
    return findings + (await _clocks(config) if by_clock else [])


async def registry_findings(config: Config) -> list[Finding]:
    """Return whether the schema registry answers."""
    if config.kafka.registry is None:
        return []
    try:
        async with RegistryClient(config.kafka.registry) as client:
            await client.check()
    except (ConfigError, RegistryError) as error:
        return list(of_error("schema registry", error, fix=FIX_REGISTRY))
    return [Finding("schema registry", "ok", config.kafka.registry.url)]


async def _clocks(config: Config) -> list[Finding]:
    """Return what the workers' clocks are ahead of the brokers'."""
    most_s = config.job.max_clock_skew_us / 1e6
    return [
        Finding(f"clock of {worker}", "ok", "as the brokers'")
        if abs(ahead_s) <= most_s
        else Finding(
            f"clock of {worker}", "warning", f"{ahead_s:+.1f} s from the brokers' when it last asked", FIX_CLOCK
        )
        for worker, ahead_s in (await worker_clocks(config)).items()
    ]


async def _events(config: Config, stream: Stream, start_us: int | None, source: TopicIdentity) -> list[Finding]:
    """Return what ingest makes of the newest records. Says shares, reasons and configured fields, never an event."""
    what = f"events of {stream.name}"
    try:
        seen = await newest_records(config, stream, partitions=source.partitions, start_us=start_us)
    except BrokerError as error:
        return list(of_error(what, error, verdict="warning"))
    except (ConfigError, EngineInputError) as error:
        return list(of_error(what, error, verdict="warning", fix="run privstream validate CONFIG"))
    except RegistryError as error:
        return [Finding(what, "warning", f"cannot be read without their schemas: {error}", FIX_REGISTRY)]
    if seen.records == 0:
        return [Finding(what, "ok", "none there yet")]
    verdict: Verdict = "problem" if seen.share >= NEARLY_ALL else "warning" if seen.much else "ok"
    detail = f"of the newest {seen.records:,} records {seen.sentence()}"
    return [Finding(what, verdict, detail, "" if verdict == "ok" else seen.what_to_do())]


def _stopped(state: StreamStatus) -> list[Finding]:
    """Return what `status` says has stopped, and why it may have."""
    what = f"stream {state.stream}"
    findings = [
        Finding(what, "problem", f"{stop.where} has stopped: {stop.reason}", stop.what_to_do) for stop in state.stopped
    ]
    if state.doubt is not None:
        findings.append(Finding(what, "warning", state.doubt.detail, f"see {PAGE}"))
    return findings


def _counted(state: StreamStatus) -> list[Finding]:
    """Return what workers have counted so far."""
    findings = []
    if state.unrouted is not None:
        detail = f"{state.unrouted:,} records of the source are not copied to their users' partitions yet"
        findings.append(Finding(f"routing of {state.stream}", "ok", detail))
    if state.lost:
        detail = f"{state.lost:,} source offsets were deleted before they were read: the events there count nowhere"
        findings.append(Finding(f"lost records of {state.stream}", "warning", detail, KEEP_LONGER))
    recent = Seen.of(state.recent)
    if recent.much:
        detail = f"of the last {recent.records:,} that were read {recent.sentence()}"
        findings.append(Finding(f"refused records of {state.stream}", "warning", detail, recent.what_to_do()))
    return findings

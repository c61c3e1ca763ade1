"""What an ingest commits, what it has counted of it, and the metrics that show it.

Operator only: counts of private records are private.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agents.kafka.lifecycle.refusals import RefusalAlarm, by_reason_and_field
from agents.protocol.ingest.dead_letters import DeadLetter
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.route import Hop, PartitionRoute
from agents.protocol.ingest.snapshots import Snapshot
from agents.protocol.ingest.spec import Role
from schemas.blocks import Block


@dataclass(slots=True)
class SealedBlock:
    """The part of one machine in a transaction."""

    machine: PartitionIngest
    block: Block
    body: bytes
    letters: list[DeadLetter]
    snapshots: list[Snapshot]

    @property
    def hi(self) -> int:
        """Source offset up to which it reaches."""
        return self.block.hi


@dataclass(slots=True)
class SealedHop:
    """The part of one router in a transaction."""

    machine: PartitionRoute
    hop: Hop

    @property
    def hi(self) -> int:
        """Source offset up to which it reaches."""
        return self.hop.hi

    @property
    def snapshots(self) -> list[Snapshot]:
        return [self.hop.progress]


@dataclass(slots=True)
class IngestCounters:
    """Counts what this worker has committed. Operator only: counts are private.

    Attributes:
        records: (stream, role, reason, field) -> records; the field is "" where none is at fault.
        clock_ahead_s: what this worker's clock is ahead of the brokers', None where nobody asked.
        schemas_awaited: that the registry has not told yet.
        refusals: who says so where many records of a stream are refused.
        users: (stream, source partition) -> users held in the bounds.
    """

    records: Counter[tuple[str, Role, str, str]] = field(default_factory=Counter)
    clock_ahead_s: float | None = None
    schemas_awaited: int = 0
    refusals: RefusalAlarm = field(default_factory=RefusalAlarm)
    blocks: int = 0
    block_bytes: int = 0
    snapshots: int = 0
    users: dict[tuple[str, int], int] = field(default_factory=dict)
    bounds_bytes: dict[tuple[str, int], int] = field(default_factory=dict)

    def count(self, sealed: SealedBlock) -> None:
        """Count a sealed block that is committed."""
        machine, spec = sealed.machine, sealed.machine.spec
        self.blocks += 1
        self.block_bytes += len(sealed.body)
        self.snapshots += len(sealed.snapshots)
        for (reason, at_fault), records in by_reason_and_field(sealed.block).items():
            self.records[spec.stream, spec.role, reason, at_fault] += records
        if spec.role == "blocks":
            self.refusals.take(sealed.block)
        if spec.bounds is not None:
            self.users[spec.stream, machine.partition] = machine.users
            self.bounds_bytes[spec.stream, machine.partition] = machine.bounds_bytes


class IngestMetrics(Collector):
    """Reads the counters when it is asked, once registered; counting itself stays free of Prometheus."""

    def __init__(self, counters: IngestCounters) -> None:
        self._counters = counters

    def collect(self) -> Iterable[Metric]:
        counters = self._counters
        records = CounterMetricFamily(
            "privstream_ingest_records",
            "PRIVATE. Source records by what became of them",
            labels=["stream", "role", "reason", "field"],
        )
        for labels, count in list(counters.records.items()):
            records.add_metric(list(labels), count)
        yield records
        if counters.clock_ahead_s is not None:
            yield GaugeMetricFamily(
                "privstream_clock_ahead_seconds",
                "Public. What this worker's clock is ahead of the brokers'",
                value=counters.clock_ahead_s,
            )
        for name, told, found in (
            ("privstream_bounded_users", "PRIVATE. Users held in the contribution bounds", counters.users),
            ("privstream_bounds_bytes", "PRIVATE. Memory of the contribution bounds", counters.bounds_bytes),
        ):
            gauge = GaugeMetricFamily(name, told, labels=["stream", "partition"])
            for (stream, partition), count in list(found.items()):
                gauge.add_metric([stream, str(partition)], count)
            yield gauge
        yield GaugeMetricFamily(
            "privstream_schemas_awaited",
            "Public. Schemas that ingest waits for; above 0 for long where the registry is away",
            value=counters.schemas_awaited,
        )
        yield CounterMetricFamily("privstream_ingest_blocks", "PRIVATE. Blocks committed", value=counters.blocks)
        yield CounterMetricFamily("privstream_ingest_block_bytes", "PRIVATE. Their bytes", value=counters.block_bytes)

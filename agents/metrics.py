"""What a worker has counted, for Prometheus on loopback. Operator only: counts of private records are private."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client.core import REGISTRY, CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agents.protocol.ingest_spec import Role
from agents.refusals import RefusalAlarm, by_reason_and_field

if TYPE_CHECKING:
    from agents.ingest_owner import Sealed


@dataclass(slots=True)
class IngestCounters:
    """What this worker has committed. Operator only: counts are private.

    Attributes:
        records: (stream, role, reason, field) -> records; the field is "" where none is at fault.
        clock_ahead_s: what this worker's clock is ahead of the brokers', None where nobody asked.
        refusals: who says so where most records of a stream are refused.
        users: (stream, source partition) -> users held in the bounds.
    """

    records: Counter[tuple[str, Role, str, str]] = field(default_factory=Counter)
    clock_ahead_s: float | None = None
    refusals: RefusalAlarm = field(default_factory=RefusalAlarm)
    blocks: int = 0
    block_bytes: int = 0
    transactions: int = 0
    snapshots: int = 0
    users: dict[tuple[str, int], int] = field(default_factory=dict)
    bounds_bytes: dict[tuple[str, int], int] = field(default_factory=dict)

    def count(self, sealed: Sealed) -> None:
        """A sealed block is committed."""
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
    """Reads the counters when it is asked; counting itself stays free of Prometheus."""

    def __init__(self, counters: IngestCounters) -> None:
        self._counters = counters

    def collect(self) -> Iterable[Metric]:
        counters = self._counters
        records = CounterMetricFamily(
            "privstream_ingest_records",
            "Source records by what became of them",
            labels=["stream", "role", "reason", "field"],
        )
        for labels, count in list(counters.records.items()):
            records.add_metric(list(labels), count)
        yield records
        if counters.clock_ahead_s is not None:
            yield GaugeMetricFamily(
                "privstream_clock_ahead_seconds",
                "What this worker's clock is ahead of the brokers'",
                value=counters.clock_ahead_s,
            )
        users = GaugeMetricFamily(
            "privstream_bounded_users", "Users held in the contribution bounds", labels=["stream", "partition"]
        )
        for (stream, partition), count in list(counters.users.items()):
            users.add_metric([stream, str(partition)], count)
        yield users
        yield CounterMetricFamily("privstream_ingest_blocks", "Blocks committed", value=counters.blocks)
        yield CounterMetricFamily("privstream_ingest_block_bytes", "Their bytes", value=counters.block_bytes)


def expose_ingest(counters: IngestCounters) -> None:
    """Show these counters; once a process."""
    REGISTRY.register(IngestMetrics(counters))

"""What the ingest has counted, as metrics. Operator only: counts of private records are private."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import REGISTRY, CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agents.worker.ingest.counters import IngestCounters


class IngestMetrics(Collector):
    """Reads the counters when it is asked; counting itself stays free of Prometheus."""

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


def expose_ingest(counters: IngestCounters) -> None:
    """Show these counters; once a process."""
    REGISTRY.register(IngestMetrics(counters))

"""What a worker has counted, for Prometheus on loopback. Operator only: counts of private records are private."""

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

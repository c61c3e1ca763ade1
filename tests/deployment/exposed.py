"""What a worker really exposes: every metric with its labels and whether its help text calls it PRIVATE."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client import Histogram, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import CollectorRegistry

from agents.kafka.lifecycle import stops
from agents.kafka.lifecycle.vitals import Reach, Vitals
from agents.worker import metrics
from agents.worker.ingest.counters import IngestCounters, IngestMetrics

OURS = "privstream_"


@dataclass(frozen=True)
class Exposed:
    labels: frozenset[str]
    private: bool


def exposed() -> dict[str, Exposed]:
    """Name of a series, as Prometheus stores it -> what it is."""
    found = dict(_declared())
    for metric in _collected():
        for sample in metric.samples:
            labels = frozenset(sample.labels)
            found[sample.name] = Exposed(labels, metric.documentation.startswith("PRIVATE"))
    return found


def _declared() -> Iterable[tuple[str, Exposed]]:
    for module in (metrics, stops):
        for each in vars(module).values():
            if not isinstance(each, MetricWrapperBase):
                continue
            (described,) = each.describe()
            suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(described.type, [""])
            private = described.documentation.startswith("PRIVATE")
            for suffix in suffixes:
                labels = {*each._labelnames, *(["le"] if isinstance(each, Histogram) and suffix == "_bucket" else [])}
                yield described.name + suffix, Exposed(frozenset(labels), private)


def _collected() -> Iterable[Metric]:
    counters = IngestCounters(clock_ahead_s=0.0)
    counters.records["taxi", "blocks", "ACCEPTED", ""] += 1
    counters.users["taxi", 0] = counters.bounds_bytes["taxi", 0] = 1
    vitals = Vitals()
    vitals.lags["ingest"] = {("raw.taxi", 0): Reach(0, 1)}
    registry = CollectorRegistry()
    for collector in (IngestMetrics(counters), metrics.WorkerState(vitals)):
        registry.register(collector)
    ProcessCollector(registry=registry, pid=os.getpid)
    return registry.collect()

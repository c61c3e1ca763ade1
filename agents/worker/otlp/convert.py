"""What the Prometheus registry holds, as OTLP: one source for every number, so a metric is in both or in neither.

Names, labels and help texts (PRIVATE or public) stay, by OpenTelemetry's rules for Prometheus metrics: a counter has no
`_total`, `_created` is where its series starts. Labels that have a name in the semantic conventions for messaging get
it. Source records that were read are there as `messaging.client.consumed.messages` too, made of the same samples.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as OtlpMetric
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import Metric
from prometheus_client.samples import Sample

from agents.lifecycle.refusals import BESIDE

CUMULATIVE = AggregationTemporality.CUMULATIVE
SYSTEM = {"messaging.system": "kafka"}
CONVENTIONAL = {"topic": "messaging.destination.name", "partition": "messaging.destination.partition.id"}
"""Label -> attribute."""
UNITS = {"seconds": "s", "bytes": "By"}
"""End of a name -> unit (UCUM)."""
RECORDS = "privstream_ingest_records"
CONSUMED = "messaging.client.consumed.messages"

Attributes = Mapping[str, str]
Key = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Consumer:
    """Whose messages are counted.

    Attributes:
        group: of the consumers. topics: (stream, role) -> the topic that it reads.
    """

    group: str
    topics: Mapping[tuple[str, str], str]


def metrics_data(
    families: Iterable[Metric], *, resource: Resource, consumer: Consumer, begun_ns: int, now_ns: int
) -> MetricsData:
    """All that was collected.

    Args:
        begun_ns: nanoseconds since 1970, from which series count that do not say it themselves. now_ns: of the samples.
    """
    metrics: list[OtlpMetric] = []
    for family in families:
        metrics += _converted(family, begun_ns, now_ns)
        if family.name == RECORDS:
            metrics.append(_consumed(family, consumer, begun_ns, now_ns))
    scope = ScopeMetrics(InstrumentationScope("privstream"), [each for each in metrics if each.data.data_points], "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _converted(family: Metric, begun_ns: int, now_ns: int) -> Iterator[OtlpMetric]:
    said = family.name, family.documentation, UNITS.get(family.unit or family.name.rpartition("_")[2], "")
    samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
    starts = {_key(each.labels): int(each.value * 1e9) for each in family.samples if each.name.endswith("_created")}

    def point(sample: Sample, start_ns: int | None) -> NumberDataPoint:
        return NumberDataPoint(_attributes(sample.labels), start_ns, now_ns, float(sample.value))  # type: ignore[arg-type]

    if family.type == "counter":
        points = [point(sample, starts.get(_key(sample.labels), begun_ns)) for sample in samples]
        yield OtlpMetric(*said, Sum(points, CUMULATIVE, is_monotonic=True))
    elif family.type == "histogram":
        yield OtlpMetric(*said, Histogram(list(_distributions(samples, starts, begun_ns, now_ns)), CUMULATIVE))
    else:
        # Gauges, and kinds that OTLP has not: each of their series is a gauge by its own name.
        for name in dict.fromkeys(sample.name for sample in samples):
            points = [point(sample, None) for sample in samples if sample.name == name]
            yield OtlpMetric(name, *said[1:], Gauge(points))


def _distributions(
    samples: Iterable[Sample], starts: Mapping[Key, int], begun_ns: int, now_ns: int
) -> Iterator[HistogramDataPoint]:
    """Prometheus' buckets hold all that is below them, OTLP's what is between two bounds."""
    found: dict[Key, tuple[dict[float, float], list[float]]] = {}
    for sample in samples:
        labels = {name: value for name, value in sample.labels.items() if name != "le"}
        buckets, total = found.setdefault(_key(labels), ({}, []))
        if sample.name.endswith("_bucket"):
            buckets[float(sample.labels["le"])] = float(sample.value)
        elif sample.name.endswith("_sum"):
            total.append(float(sample.value))
    for key, (buckets, total) in found.items():
        bounds = sorted(buckets)
        below = [0, *(int(buckets[bound]) for bound in bounds)]
        yield HistogramDataPoint(
            attributes=_attributes(dict(key)),
            start_time_unix_nano=starts.get(key, begun_ns),
            time_unix_nano=now_ns,
            count=below[-1],
            sum=sum(total),
            bucket_counts=[after - before for before, after in pairwise(below)],
            explicit_bounds=[bound for bound in bounds if math.isfinite(bound)],
            min=None,  # type: ignore[arg-type]  # Prometheus keeps neither, and OTLP needs neither.
            max=None,  # type: ignore[arg-type]
        )


def _consumed(family: Metric, consumer: Consumer, begun_ns: int, now_ns: int) -> OtlpMetric:
    """Records that a stream was given, whatever became of them."""
    found: Counter[tuple[str, str]] = Counter()
    for sample in family.samples:
        if sample.labels["reason"] not in BESIDE:
            found[sample.labels["stream"], sample.labels["role"]] += int(sample.value)
    points = [
        NumberDataPoint(
            {
                **SYSTEM,
                "messaging.operation.name": "poll",
                "messaging.consumer.group.name": consumer.group,
                "messaging.destination.name": consumer.topics[stream, role],
                "stream": stream,
            },
            begun_ns,
            now_ns,
            float(count),
        )
        for (stream, role), count in found.items()
        if (stream, role) in consumer.topics
    ]
    told = "PRIVATE. Source records that a stream has read"
    return OtlpMetric(CONSUMED, told, "{message}", Sum(points, CUMULATIVE, is_monotonic=True))


def _attributes(labels: Mapping[str, str]) -> Attributes:
    named = {CONVENTIONAL.get(name, name): value for name, value in labels.items()}
    return {**named, **(SYSTEM if named.keys() & {*CONVENTIONAL.values()} else {})}


def _key(labels: Mapping[str, str]) -> Key:
    return tuple(sorted(labels.items()))

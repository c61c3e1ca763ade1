"""Metrics by OTLP are those of Prometheus, number by number; and a collector that is down, or hostile, harms nobody."""

from __future__ import annotations

import logging
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.semconv._incubating.attributes import messaging_attributes as conventions
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Enum, Gauge, Histogram, Info, Summary
from prometheus_client.core import Metric, UntypedMetricFamily
from prometheus_client.registry import Collector as Source

from agents.cli.doctor import otlp_findings
from agents.lifecycle.logs import EVERY_S, Reminder
from agents.lifecycle.reading import Reach
from agents.lifecycle.vitals import Vitals
from agents.worker.ingest.counters import IngestCounters
from agents.worker.ingest.metrics import IngestMetrics
from agents.worker.metrics import WorkerState
from agents.worker.otlp import push, settings
from agents.worker.otlp.convert import CONSUMED, CONVENTIONAL
from agents.worker.otlp.push import MetricsPush
from agents.worker.otlp.settings import OtlpSettings, otlp_settings
from schemas.config import Config, ConfigError, parse_config
from tests.agents.collector import Collector, Series, collector, resource_of
from tests.schemas.test_config_refusals import GOOD
from tests.security.secured import Authority

SECRET = "hunter2"
COUNT = 123_456_789
"""Of private records."""


def configured(endpoint: str = "https://collector:4318", more: str = "") -> Config:
    return parse_config(GOOD.replace("[kafka]", f'otlp_endpoint = "{endpoint}"\n{more}\n[kafka]', 1))


def pushing(at: Collector, registry: CollectorRegistry, **headers: str) -> MetricsPush:
    return MetricsPush(configured(at.url), OtlpSettings(f"{at.url}/v1/metrics", headers), registry)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_EXPORTER_OTLP_HEADERS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def at() -> Iterator[Collector]:
    with collector() as made:
        yield made


def of_a_worker() -> CollectorRegistry:
    counters = IngestCounters(clock_ahead_s=0.5, blocks=4)
    counters.records["taxi", "blocks", "ACCEPTED", ""] += COUNT
    counters.records["taxi", "blocks", "WRONG_TYPE", "lat"] += 2
    counters.records["taxi", "blocks", "LOST", ""] += 7
    counters.records["taxi", "held_out", "ACCEPTED", ""] += 3
    counters.users["taxi", 3] = counters.bounds_bytes["taxi", 3] = 7
    vitals = Vitals()
    vitals.lags["ingest"] = {("raw.taxi", 0): Reach(0, 11)}
    registry = CollectorRegistry()
    registry.register(IngestMetrics(counters))
    registry.register(WorkerState(vitals))
    return registry


def of_every_kind() -> CollectorRegistry:
    class Untyped(Source):
        def collect(self) -> Iterator[Metric]:
            yield UntypedMetricFamily("untyped", "Public", value=3.0)

    registry = CollectorRegistry()
    counter = Counter("counted", "Public", ["stream"], registry=registry)
    counter.labels("a").inc(2)
    counter.labels("b").inc(0.5)
    Gauge("level_bytes", "Public", ["topic", "partition"], registry=registry).labels("t", "0").set(-1.5)
    histogram = Histogram("took_seconds", "Public", ["stream"], buckets=(0.1, 1.0, 10.0), registry=registry)
    for seconds in (0.05, 0.5, 0.6, 5.0, 50.0):
        histogram.labels("a").observe(seconds)
    histogram.labels("b")
    Summary("seen", "Public", registry=registry).observe(4.0)
    Info("made", "Public", registry=registry).info({"version": "1"})
    Enum("is", "Public", states=["well", "ill"], registry=registry).state("ill")
    registry.register(Untyped())
    return registry


def as_prometheus(found: Series) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every series by its name and labels in Prometheus, a counter without `_total`."""
    labels = {attribute: label for label, attribute in CONVENTIONAL.items()}
    series: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for (name, attributes), point in found.items():
        if name == CONSUMED:
            continue
        said = frozenset((labels.get(key, key), value) for key, value in attributes if key != "messaging.system")
        if not hasattr(point, "bucket_counts"):
            series[name, said] = point.as_double
            continue
        below = 0
        for bound, count in zip([*point.explicit_bounds, float("inf")], point.bucket_counts, strict=True):
            below += count
            series[f"{name}_bucket", said | {("le", "+Inf" if bound == float("inf") else str(bound))}] = below
        series[f"{name}_sum", said], series[f"{name}_count", said] = point.sum, point.count
    return series


def collected(registry: CollectorRegistry) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """What a scrape would show."""
    return {
        (sample.name.removesuffix("_total"), frozenset(sample.labels.items())): sample.value
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


@pytest.mark.parametrize("registry", [of_a_worker(), of_every_kind()], ids=["worker", "every kind"])
def test_every_series_is_in_both(at: Collector, registry: CollectorRegistry) -> None:
    pusher = pushing(at, registry)
    assert pusher.push()
    assert as_prometheus(at.last()) == collected(registry)
    # What somebody adds later needs nothing more.
    Counter("privstream_later", "Public", ["stream"], registry=registry).labels("taxi").inc(5)
    assert pusher.push()
    assert at.last()["privstream_later", frozenset({("stream", "taxi")})].as_double == 5
    assert as_prometheus(at.last()) == collected(registry)


def test_what_this_process_holds_is_pushed(at: Collector) -> None:
    assert pushing(at, REGISTRY).push()
    names = {name for name, _ in as_prometheus(at.last())}
    assert names == {name for name, _ in collected(REGISTRY)}
    assert "process_resident_memory_bytes" in names


def test_kinds_units_and_marks(at: Collector) -> None:
    registry = of_every_kind()
    registry.register(IngestMetrics(IngestCounters(blocks=4)))
    assert pushing(at, registry).push()
    path, headers, request = at.requests[0]
    assert (path, headers["content-type"]) == ("/v1/metrics", "application/x-protobuf")
    metrics = {each.name: each for each in request.resource_metrics[0].scope_metrics[0].metrics}
    kinds = {name: each.WhichOneof("data") for name, each in metrics.items()}
    assert kinds["counted"] == kinds["privstream_ingest_blocks"] == "sum"
    assert metrics["counted"].sum.is_monotonic
    assert (
        metrics["counted"].sum.aggregation_temporality == metrics["took_seconds"].histogram.aggregation_temporality == 2
    )
    assert (kinds["level_bytes"], kinds["took_seconds"]) == ("gauge", "histogram")
    assert (metrics["level_bytes"].unit, metrics["took_seconds"].unit, metrics["counted"].unit) == ("By", "s", "")
    assert metrics["privstream_ingest_blocks"].description.startswith("PRIVATE")
    points = [*metrics["counted"].sum.data_points, *metrics["privstream_ingest_blocks"].sum.data_points]
    assert all(0 < point.start_time_unix_nano <= point.time_unix_nano for point in points)


def test_names_are_those_of_the_conventions(at: Collector) -> None:
    assert pushing(at, of_a_worker()).push()
    found = at.last()
    assert messaging_metrics.MESSAGING_CLIENT_CONSUMED_MESSAGES == CONSUMED
    consumed = {
        dict(attributes)["messaging.destination.name"]: point
        for (name, attributes), point in found.items()
        if name == CONSUMED
    }
    # What was never read, and what was counted beside a record, is none.
    assert {topic: point.as_double for topic, point in consumed.items()} == {"raw.taxi": COUNT + 2, "audit.taxi": 3}
    (said,) = [
        dict(attributes)
        for name, attributes in found
        if name == CONSUMED and ("messaging.destination.name", "raw.taxi") in attributes
    ]
    assert said == {
        conventions.MESSAGING_SYSTEM: conventions.MessagingSystemValues.KAFKA.value,
        conventions.MESSAGING_OPERATION_NAME: "poll",
        conventions.MESSAGING_CONSUMER_GROUP_NAME: "job-ingest",
        conventions.MESSAGING_DESTINATION_NAME: "raw.taxi",
        "stream": "taxi",
    }
    lag = {
        (conventions.MESSAGING_SYSTEM, "kafka"),
        (conventions.MESSAGING_DESTINATION_NAME, "raw.taxi"),
        (conventions.MESSAGING_DESTINATION_PARTITION_ID, "0"),
    }
    assert found["privstream_lag_offsets", frozenset(lag)].as_double == 11


def test_who_pushes_is_said_and_the_environment_wins(at: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pushing(at, CollectorRegistry()).push()
    said = resource_of(at.requests[-1][2])
    assert said["service.name"] == "job"
    assert said["service.instance.id"]
    assert said["service.version"]
    monkeypatch.setenv("OTEL_SERVICE_NAME", "trips")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=pod-0,deployment.environment.name=test")
    assert pushing(at, CollectorRegistry()).push()
    said = resource_of(at.requests[-1][2])
    assert (said["service.name"], said["service.instance.id"]) == ("trips", "pod-0")
    assert said["deployment.environment.name"] == "test"


# --- The way to the collector ---------------------------------------------------------------------------------------


def test_headers_are_sent_and_never_shown(
    at: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "headers"
    file.write_text(f"Authorization=Bearer%20{SECRET}, x-tenant=a=b\n")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-of-environment=1")
    config = configured(at.url, f'otlp_headers_file = "{file}"')
    with caplog.at_level(logging.DEBUG):
        found = otlp_settings(config, {"OTEL_EXPORTER_OTLP_HEADERS": "x-of-environment=1"})
        assert found is not None
        assert MetricsPush(config, found, of_a_worker()).push()
        at.status = 401
        assert not MetricsPush(config, found, of_a_worker()).push()
    sent = at.requests[0][1]
    assert (sent["authorization"], sent["x-tenant"], sent["x-of-environment"]) == (f"Bearer {SECRET}", "a=b", "1")
    assert SECRET not in caplog.text + repr(found)
    assert "HTTP 401" in caplog.text


def test_a_collector_that_is_down_is_named_once_a_minute_and_shown_nothing_of(
    at: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    pusher = pushing(at, of_a_worker())
    pusher._reminder = Reminder(now=lambda: now[0])

    def said(level: int = logging.WARNING) -> list[str]:
        found = [record.getMessage() for record in caplog.records if record.levelno >= level]
        caplog.clear()
        return found

    with caplog.at_level(logging.DEBUG):
        at.status, at.body = 400, f"cannot take {COUNT}".encode()
        assert [pusher.push() for _ in range(3)] == [False] * 3
        assert str(COUNT) not in caplog.text
        assert len(told := said()) == 1
        assert "(HTTP 400)" in told[0]
        now[0] = EVERY_S - 1
        assert not pusher.push()
        assert said() == []
        now[0] = EVERY_S
        assert not pusher.push()
        assert len(said()) == 1
        at.status = 200
        assert pusher.push()
        assert len(said(logging.INFO)) == 1
        assert pusher.push()
        assert said(logging.INFO) == []


def test_nobody_listens_and_a_collection_that_fails(
    at: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Source):
        def collect(self) -> Iterator[Metric]:
            raise ValueError(f"at {COUNT}")
            yield

    registry = CollectorRegistry()
    registry.register(Broken())
    assert not pushing(at, registry).push()
    assert "(ValueError)" in caplog.text
    assert str(COUNT) not in caplog.text
    caplog.clear()
    monkeypatch.setattr(push, "TIMEOUT_S", 0.5)
    assert not pushing(Collector(url="http://127.0.0.1:9"), of_a_worker()).push()
    assert "(ConnectionError)" in caplog.text


def test_no_redirection_is_followed_and_no_proxy_gets_what_is_for_loopback(
    at: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with collector() as other:
        at.status, at.location = 307, f"{other.url}/v1/metrics"
        assert not pushing(at, of_a_worker()).push()
        assert "HTTP 307" in caplog.text
        monkeypatch.setenv("HTTP_PROXY", other.url)
        monkeypatch.setenv("http_proxy", other.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        at.status = 200
        assert pushing(at, of_a_worker()).push()
        assert other.requests == []


def test_over_tls_to_whom_an_authority_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (another := tmp_path / "another").mkdir()
    authority = Authority(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.sign("collector"))
    monkeypatch.setattr(push, "TIMEOUT_S", 1.5)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(Authority(another).pem))
    with collector(tls) as at:
        assert not pushing(at, of_a_worker()).push()
        assert "(SSLError)" in caplog.text
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(authority.pem))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        monkeypatch.setattr(push, "TIMEOUT_S", 10.0)
        assert pushing(at, of_a_worker()).push()
    (taken,) = at.requests
    assert taken[1]["content-encoding"] == "gzip"


# --- What is refused --------------------------------------------------------------------------------------------------


def test_nothing_but_the_key_turns_it_on() -> None:
    everything = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_METRIC_EXPORT_INTERVAL": "1000"}
    assert otlp_settings(parse_config(GOOD), everything) is None
    assert otlp_settings(configured(), {"OTEL_SDK_DISABLED": "true"}) is None
    found = otlp_settings(configured("https://c/otlp/"), everything)
    assert found is not None
    assert (found.url, found.every_s) == ("https://c/otlp/v1/metrics", 1.0)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("OTEL_METRIC_EXPORT_INTERVAL", "soon", "milliseconds"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0", "milliseconds"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "brotli", "gzip"),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta", "would be ignored"),
        ("OTEL_EXPORTER_OTLP_HEADERS", SECRET, "list of headers"),
        ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", f"a={SECRET}%0d%0ab", "list of headers"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere.pem", "No such file"),
        ("OTEL_EXPORTER_OTLP_METRICS_CLIENT_KEY", "/nowhere.pem", "No such file"),
    ],
)
def test_a_variable_that_cannot_be_used_is_refused(name: str, value: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        otlp_settings(configured(), {name: value})
    (problem,) = caught.value.problems
    assert problem.key == name
    assert reason in problem.reason
    assert problem.fix
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "cannot be read"), (b"", "empty"), (b" ,\n", "no list"), (b"hunter2", "no list"), (b"a\xff=b", "no list")],
)
def test_a_file_of_headers_that_holds_none_is_refused(tmp_path: Path, content: bytes | None, reason: str) -> None:
    if content is not None:
        (tmp_path / "headers").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        otlp_settings(configured(more=f'otlp_headers_file = "{tmp_path / "headers"}"'), {})
    (problem,) = caught.value.problems
    assert problem.key == "job.otlp_headers_file"
    assert reason in problem.reason
    assert SECRET not in str(caught.value)


def test_without_the_extra_a_worker_is_refused_at_once(tmp_path: Path) -> None:
    program = "import sys; sys.modules['opentelemetry'] = None; from agents.cli import main; main()"
    (tmp_path / "job.toml").write_text(GOOD.replace("[kafka]", 'otlp_endpoint = "https://c"\n[kafka]', 1))
    command = [sys.executable, "-c", program, "run", str(tmp_path / "job.toml")]
    run = subprocess.run(command, capture_output=True, text=True)
    # All that a worker imports was imported before that, and none of it needed OpenTelemetry.
    assert run.returncode == 2, run.stderr
    assert "job.otlp_endpoint" in run.stderr
    assert "is not installed" in run.stderr
    assert "pip install 'privstream[otlp]'" in run.stderr


def test_doctor_says_what_a_worker_would_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [each.verdict for each in otlp_findings(configured(), {})] == ["ok"]
    assert list(otlp_findings(parse_config(GOOD), {})) == []
    monkeypatch.setattr(settings, "LIBRARY", "opentelemetry.exporter.nothing.at_all")
    (finding,) = otlp_findings(configured(), {})
    assert (finding.verdict, finding.what) == ("problem", "metrics by OTLP")
    assert finding.detail.startswith("job.otlp_endpoint: ")

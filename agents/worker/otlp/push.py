"""Pushes the metrics by a thread of its own: neither a slow collector nor one that is down is waited for by the job.

Nothing is kept for later: what was not taken is in the next push, since all of it is cumulative. The exporter's own
lines are not logged, for they repeat what the collector answers and headers that cannot be read.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from importlib import metadata
from typing import TYPE_CHECKING, Any

import requests
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from prometheus_client import CollectorRegistry

from agents.lifecycle.logs import Reminder
from agents.worker.otlp.convert import Consumer, metrics_data

if TYPE_CHECKING:
    from agents.worker.otlp.settings import OtlpSettings
    from schemas.config import Config

log = logging.getLogger(__name__)

TIMEOUT_S = 10.0
"""For one push, what the exporter tries again included."""


class _Session(requests.Session):
    """Says how the last request ended, as far as it may be said: a status, or the type of an error."""

    def __init__(self, *, secure: bool) -> None:
        super().__init__()
        # Else a proxy of the environment would get what is meant for loopback.
        self.trust_env = secure
        self.ended = ""

    def request(self, *arguments: Any, **options: Any) -> requests.Response:
        # Else REQUESTS_CA_BUNDLE would win over the authorities that were named for the collector.
        options.setdefault("verify", self.verify)
        try:
            response = super().request(*arguments, **options)
        except Exception as error:
            self.ended = type(error).__name__
            raise
        # A redirection is not followed, and the exporter takes it for well.
        self.ended = "" if response.status_code < 300 else f"HTTP {response.status_code}"
        return response


class MetricsPush:
    """Pushes what a registry holds, for as long as the process lives.

    Args:
        config: names the job, its streams and their topics.
        registry: read anew for each push.
    """

    def __init__(self, config: Config, settings: OtlpSettings, registry: CollectorRegistry) -> None:
        for library in ("opentelemetry", "urllib3"):
            logging.getLogger(library).setLevel(logging.CRITICAL + 1)
        self._settings = settings
        self._registry = registry
        self._session = _Session(secure=settings.url.startswith("https:"))
        self._exporter = OTLPMetricExporter(
            settings.url, headers=dict(settings.headers), timeout=TIMEOUT_S, session=self._session
        )
        self._resource = _resource(config.job.name)
        self._consumer = _consumer(config)
        self._begun_ns = time.time_ns()
        self._reminder = Reminder()
        self._failed = False

    def start(self) -> None:
        """Push from now on. The thread ends with the process, and keeps it from nothing."""
        threading.Thread(target=self._go_on, name="otlp", daemon=True).start()
        log.info("metrics are pushed by OTLP every %g s; they count private records", self._settings.every_s)

    def _go_on(self) -> None:
        due = time.monotonic()
        while True:
            due = max(due + self._settings.every_s, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
            self.push()

    def push(self) -> bool:
        """Push once. Returns whether the collector took it; where it did not, that is said, once a minute at most."""
        try:
            data = metrics_data(
                self._registry.collect(),
                resource=self._resource,
                consumer=self._consumer,
                begun_ns=self._begun_ns,
                now_ns=time.time_ns(),
            )
            self._session.ended = "nothing was sent"
            self._exporter.export(data)
            reason = self._session.ended
        except Exception as error:
            # Whatever it is, of a library or of ours: the job does not end because nobody can watch it.
            reason = type(error).__name__
        if reason and self._reminder.due("failed"):
            log.warning("the collector of otlp_endpoint does not take metrics (%s); the job goes on without", reason)
            self._failed = True
        elif not reason and self._failed:
            self._failed = False
            log.info("the collector of otlp_endpoint takes metrics")
        return not reason


def _resource(job: str) -> Resource:
    """Who pushes. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win."""
    ours = Resource.create(
        {
            "service.name": job,
            "service.version": metadata.version("privstream"),
            # The process stays the same where a worker begins anew; a pod keeps its name.
            "service.instance.id": f"{socket.gethostname()}:{os.getpid()}",
        }
    )
    return ours.merge(OTELResourceDetector().detect())


def _consumer(config: Config) -> Consumer:
    topics = {(stream.name, "blocks"): stream.source for stream in config.streams}
    topics |= {(stream.name, "held_out"): stream.audit for stream in config.streams if stream.audit is not None}
    return Consumer(f"{config.job.name}-ingest", topics)

"""An OpenTelemetry collector for tests: takes OTLP over HTTP, and reads it with the protocol's own messages."""

from __future__ import annotations

import ssl
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

Series = dict[tuple[str, frozenset[tuple[str, str]]], Any]
"""(name, attributes) -> data point."""


@dataclass(eq=False)
class Collector:
    """What came, and what is answered.

    Attributes:
        answers: where it is cleared, nobody is answered.
    """

    url: str = ""
    status: int = 200
    body: bytes = b""
    location: str = ""
    answers: threading.Event = field(default_factory=threading.Event)
    requests: list[tuple[str, dict[str, str], ExportMetricsServiceRequest]] = field(default_factory=list)

    def last(self) -> Series:
        return series_of(self.requests[-1][2])


def series_of(request: ExportMetricsServiceRequest) -> Series:
    found: Series = {}
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in getattr(metric, metric.WhichOneof("data")).data_points:
                    key = metric.name, frozenset((each.key, each.value.string_value) for each in point.attributes)
                    assert key not in found, f"{key} comes twice"
                    found[key] = point
    return found


def resource_of(request: ExportMetricsServiceRequest) -> dict[str, str]:
    (resource,) = request.resource_metrics
    return {each.key: each.value.string_value for each in resource.resource.attributes}


@contextmanager
def collector(tls: ssl.SSLContext | None = None) -> Iterator[Collector]:
    made = Collector()
    made.answers.set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = zlib.decompress(body, wbits=31)
            made.requests.append(
                (
                    self.path,
                    {name.lower(): value for name, value in self.headers.items()},
                    ExportMetricsServiceRequest.FromString(body),
                )
            )
            made.answers.wait()
            self.send_response(made.status)
            if made.location:
                self.send_header("Location", made.location)
            self.send_header("Content-Length", str(len(made.body)))
            self.end_headers()
            self.wfile.write(made.body)

        def log_message(self, *_: Any) -> None:
            """A test that fails says enough."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Who asked went away."""

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    made.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.answers.set()
        server.shutdown()
        server.server_close()
        thread.join()

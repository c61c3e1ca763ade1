"""`/livez`, `/readyz` and `/metrics` of a worker, answered by threads of their own: a frozen event loop still gets one.

Operator only: metrics count private records. On loopback unless `[job] http_host` says otherwise.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import orjson
from prometheus_client import REGISTRY, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from agents.lifecycle.vitals import Vitals

log = logging.getLogger(__name__)

PORTS = 10
"""Tried from `http_port` on: workers of one machine take one each."""
JSON, TEXT = "application/json", "text/plain; charset=utf-8"

Application = Callable[[Mapping[str, Any], Any], Iterable[bytes]]


def meant_for_loopback(host: str) -> bool:
    """Whether a request's `Host` is this machine's own: an address, `localhost`, or none at all.

    A browser sends the name that its page came from. Whoever points a name at 127.0.0.1 could else read private counts
    through an operator's browser (DNS rebinding).
    """
    name = host.strip().lower()
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    try:
        return name in ("", "localhost") or bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def application(vitals: Vitals, *, loopback: bool = False) -> Application:
    """What is answered, by path.

    Args: loopback: it listens on loopback alone; what calls it by another machine's name is refused.
    """
    metrics = make_wsgi_app(REGISTRY)
    reasons = {"/livez": lambda: vitals.dead, "/readyz": lambda: vitals.dead + vitals.unready}

    def answer(environ: Mapping[str, Any], start: Any) -> Iterable[bytes]:
        path = str(environ.get("PATH_INFO", ""))
        if environ.get("REQUEST_METHOD") not in ("GET", "HEAD"):
            start("405 Method Not Allowed", [("Content-Type", TEXT), ("Allow", "GET, HEAD")])
            return [b"GET or HEAD\n"]
        if loopback and not meant_for_loopback(str(environ.get("HTTP_HOST", ""))):
            start("421 Misdirected Request", [("Content-Type", TEXT)])
            return [b"this worker is called localhost, or by its address\n"]
        if path == "/metrics":
            found: Iterable[bytes] = metrics(environ, start)
            return found
        if path not in reasons:
            start("404 Not Found", [("Content-Type", TEXT)])
            return [b"/livez, /readyz, /metrics\n"]
        why = reasons[path]()
        start("503 Service Unavailable" if why else "200 OK", [("Content-Type", JSON), ("Cache-Control", "no-store")])
        parts = {pulse.name: pulse.doing for pulse in vitals.parts}
        return [orjson.dumps({"ok": not why, "reasons": why, "parts": parts}), b"\n"]

    return answer


class _Silent(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """A probe every few seconds is no news."""


def serve(host: str, port: int, vitals: Vitals) -> int | None:
    """Answer from now on, at the first free port of `PORTS`. Returns it; None where none can be had, which is said."""

    class Server(ThreadingWSGIServer):
        daemon_threads = True
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # The successor of this process takes the port at once; two that live at a time cannot share it all the same.
        allow_reuse_address = True

    loopback = ipaddress.ip_address(host).is_loopback
    reason = ""
    for at in range(port, min(port + PORTS, 65536)):
        try:
            server = make_server(host, at, application(vitals, loopback=loopback), Server, handler_class=_Silent)
        except OSError as error:
            # Another worker of this machine has it. Probes are no reason not to work.
            reason = error.strerror or type(error).__name__
            continue
        threading.Thread(target=server.serve_forever, name="probes", daemon=True).start()
        log.info("probes and metrics at http://%s:%d (/livez, /readyz, /metrics)", host, at)
        if not loopback:
            log.warning("metrics count private records: see to it that operators alone reach %s:%d", host, at)
        return at
    log.warning("no probes and metrics of this worker: no port from %d on can be used on %s (%s)", port, host, reason)
    return None

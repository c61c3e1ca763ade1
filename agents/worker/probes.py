"""`/livez`, `/readyz` and `/metrics` of a worker, answered by a thread of its own: a frozen event loop still gets one.

Operator only: metrics count private records. On loopback unless `[job] http_host` says otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import orjson
from aiohttp import web
from prometheus_client import REGISTRY
from prometheus_client.aiohttp import make_aiohttp_handler

from agents.kafka.lifecycle.connections import ConnectionLimits, LimitedRunner, host_of, is_address
from agents.kafka.lifecycle.vitals import Vitals

log = logging.getLogger(__name__)

PORTS = 10
"""Tried from `http_port` on: workers of one machine take one each."""
LIMITS = ConnectionLimits(most=64, most_each=32)
"""Those who probe and scrape are few."""


def meant_for_loopback(host: str) -> bool:
    """Return whether a request's `Host` is this machine's own: an address, `localhost`, or none at all.

    A browser sends the name that its page came from. Whoever points a name at 127.0.0.1 could else read private counts
    through an operator's browser (DNS rebinding).
    """
    name = host_of(host)
    return name in ("", "localhost") or is_address(name)


def application(vitals: Vitals, *, loopback: bool = False) -> web.Application:
    """Return what is answered, by path.

    Args: loopback: it listens on loopback alone; what calls it by another machine's name is refused.
    """

    @web.middleware
    async def guarded(request: web.Request, handler: Any) -> web.StreamResponse:
        if loopback and not meant_for_loopback(request.headers.get("Host", "")):
            return web.Response(status=421, text="this worker is called localhost, or by its address\n")
        answer: web.StreamResponse = await handler(request)
        return answer

    def shown(reasons: Callable[[], list[str]]) -> Any:
        async def answer(_: web.Request) -> web.Response:
            why = reasons()
            told = {"ok": not why, "reasons": why, "parts": {pulse.name: pulse.doing for pulse in vitals.parts}}
            headers = {"Content-Type": "application/json", "Cache-Control": "no-store"}
            return web.Response(status=503 if why else 200, body=orjson.dumps(told) + b"\n", headers=headers)

        return answer

    app = web.Application(middlewares=[guarded])
    app.router.add_get("/livez", shown(lambda: vitals.dead))
    app.router.add_get("/readyz", shown(lambda: vitals.dead + vitals.unready))
    app.router.add_get("/metrics", make_aiohttp_handler(REGISTRY))
    return app


def serve(host: str, port: int, vitals: Vitals) -> int | None:
    """Answer from now on, at the first free port of `PORTS`. Returns it; None where none can be had, which is said."""
    loopback = ipaddress.ip_address(host).is_loopback
    bound: Future[int] = Future()

    async def run() -> None:
        runner = LimitedRunner(application(vitals, loopback=loopback), "probes", LIMITS)
        await runner.setup()
        bound.set_result(await _listen(runner, host, port))
        await asyncio.Event().wait()

    def work() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:
            if bound.done():
                raise
            bound.set_exception(error)

    threading.Thread(target=work, name="probes", daemon=True).start()
    try:
        at = bound.result()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        log.warning(
            "no probes and metrics of this worker: no port from %d on can be used on %s (%s)", port, host, reason
        )
        return None
    log.info("probes and metrics at http://%s:%d (/livez, /readyz, /metrics)", host, at)
    if not loopback:
        log.warning("metrics count private records: see to it that operators alone reach %s:%d", host, at)
    return at


async def _listen(runner: web.AppRunner, host: str, port: int) -> int:
    """Listen at the first free port; a successor of this process takes it at once. Raises: OSError of the last."""
    last = min(port + PORTS, 65536) - 1
    for at in range(port, last):
        with contextlib.suppress(OSError):  # another worker of this machine has it: probes are no reason not to work
            await web.TCPSite(runner, host, at).start()
            return at
    await web.TCPSite(runner, host, last).start()
    return last

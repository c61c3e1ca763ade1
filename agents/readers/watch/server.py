"""The live page's server: one function for the command line, the demo and whoever embeds it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from agents.kafka.lifecycle.connections import ConnectionLimits, LimitedRunner
from agents.protocol.release.record_formats import record_format
from agents.readers.watch.guard import Guard, View, is_loopback, secure_headers, token_of
from agents.readers.watch.public import PublicReader, PublicRoutes, StreamSeen
from agents.readers.watch.routes import Reader
from agents.show.view import view_of
from engines.core.noise import fresh_seed
from schemas.config import Config
from schemas.errors import PrivstreamError

log = logging.getLogger(__name__)

SHORTEST_SECRET = 32
AGAIN_S = 1.0
LIMITS = ConnectionLimits(most=512, most_each=256)
"""Each open page is a connection, and behind a proxy all are of one address."""
ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  what to type where it listens everywhere
ASSETS = Path(__file__).parent / "assets"
"""Pages and what they load: nothing is asked of the network."""


@dataclass(frozen=True, slots=True)
class LivePage:
    """A page that is served. Addresses hold tokens where one is needed: print them once, and never log them.

    Attributes:
        public: what may be shown to anyone who may see the public topics.
        operator: the operator's view, which is not private; None where it is not served.
    """

    host: str
    port: int
    public: str = field(repr=False)
    operator: str | None = field(repr=False)


@contextlib.asynccontextmanager
async def serve(
    config: Config,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    operator: bool = True,
    public_without_token: bool = False,
    token: bytes | None = None,
    names: Sequence[str] = (),
) -> AsyncIterator[LivePage]:
    """Serve the live page of all streams of a job, in this event loop, until the body is left.

    Nothing waits for the cluster: where it does not answer, the page says so.

    Args:
        host, port: to listen on; port 0: any free one.
        operator: serve the operator's view, too. It always needs a token.
        public_without_token: off loopback, and where there are `names`, the public view needs a token as well,
            unless this says otherwise.
        token: secret from which both tokens are made, 32 random bytes or more, so that addresses outlive this
            process; None: a new one.
        names: by which the server may be called, beside its addresses and `localhost`.
    Raises: PrivstreamError if the port cannot be had, an engine's parts cannot be loaded or the secret is too short.
    """
    secret = fresh_seed() if token is None else token
    if len(secret) < SHORTEST_SECRET:
        raise PrivstreamError(
            f"the token file holds {len(secret)} bytes, fewer than {SHORTEST_SECRET}. "
            "Fix: head -c 32 /dev/urandom | base64 > FILE."
        )
    # Whoever is given a name comes through a proxy: a listener on loopback is then reached from elsewhere.
    unlocked = public_without_token or (is_loopback(host) and not names)
    locked: set[View] = {"operator"} if unlocked else {"operator", "public"}
    guard = Guard.of(secret, host=host, locked=frozenset(locked), names=names)
    app, readers = await asyncio.to_thread(application, config, guard, operator=operator)
    runner = LimitedRunner(app, "live page", LIMITS)
    tasks: list[asyncio.Task[None]] = []
    try:
        await runner.setup()
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise PrivstreamError(
                f"cannot listen on {host}, port {port}: {error.strerror or type(error).__name__}. "
                "Fix: choose another one with --port, or 0 for any."
            ) from error
        bound = runner.addresses[0][1]
        tasks += [asyncio.create_task(_kept_up(each.run)) for each in readers]
        yield LivePage(
            host,
            bound,
            _address(host, bound, "public", secret if "public" in locked else None),
            _address(host, bound, "operator", secret) if operator else None,
        )
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await runner.cleanup()


async def _kept_up(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run what never ends, and begin it anew where it ended all the same.

    A page that reads nothing looks like one of a stream without steps. A library that cancels what waits for it
    (`agents.kafka.lifecycle.cancellations`) ends it, too.
    """
    while True:
        task = asyncio.create_task(work())
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            await asyncio.wait([task])
        error = None if task.cancelled() else task.exception()
        log.warning("a reader of the live page ended with %s, and begins anew", type(error).__name__)
        await asyncio.sleep(AGAIN_S)


def _address(host: str, port: int, view: View, secret: bytes | None) -> str:
    shown = ANY.get(host, host)
    name = f"[{shown}]" if ":" in shown else shown
    fragment = "" if secret is None else f"#token={token_of(secret, view)}"
    return f"http://{name}:{port}/{view}{fragment}"


def application(config: Config, guard: Guard, *, operator: bool) -> tuple[web.Application, list[Reader]]:
    """Return the application and the readers that are to run beside it. Loads the engines' parts: in a thread."""
    boot = fresh_seed().hex()[:12]
    app = web.Application(middlewares=[guard.middleware], client_max_size=4096)
    app.on_response_prepare.append(secure_headers)
    app.router.add_post("/login", guard.login)
    app.router.add_get("/", _first)
    app.router.add_static("/assets/", ASSETS)
    app.router.add_get("/public", _page("public"))
    seen = [
        StreamSeen(stream, view_of(stream).picture(stream), record_format(stream).read) for stream in config.streams
    ]
    reader = PublicReader(config.kafka, seen)
    app.add_routes(PublicRoutes(seen, reader, boot).routes())

    async def close(_: web.Application) -> None:
        # Here and not where a reader ends: it begins anew on what has been seen so far.
        for each in seen:
            each.close()

    app.on_cleanup.append(close)
    if not operator:
        return app, [reader]
    # Imported where it is asked for: a server of the public view alone has nothing of it.
    from agents.readers.watch.operator import OperatorReader, OperatorRoutes, StreamTruth

    app.router.add_get("/operator", _page("operator"))
    truths = [StreamTruth(stream) for stream in config.streams]
    second = OperatorReader(config, truths)
    app.add_routes(OperatorRoutes(truths, second, boot).routes())
    return app, [reader, second]


async def _first(_: web.Request) -> web.Response:
    raise web.HTTPFound("/public")


def _page(view: View) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    text = (ASSETS / "page.html").read_text(encoding="utf-8").replace("VIEW", view)

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text=text, content_type="text/html")

    return answer

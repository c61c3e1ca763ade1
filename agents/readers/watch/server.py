"""The live page's server: one function for the command line, the demo and whoever embeds it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from importlib import resources
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from aiohttp import web

from agents.kafka.lifecycle.connections import ConnectionLimits, LimitedRunner
from agents.readers.watch.guard import VIEWS, Guard, View, is_loopback, secure_headers, token_of
from agents.readers.watch.public.reader import PublicReader
from agents.readers.watch.public.routes import PublicRoutes
from agents.readers.watch.public.seen import StreamSeen
from agents.show.view import view_of
from engines.core.noise import fresh_seed
from schemas.errors import PrivstreamError

if TYPE_CHECKING:
    from schemas.config import Config

log = logging.getLogger(__name__)

SHORTEST_SECRET = 32
AGAIN_S = 1.0
LIMITS = ConnectionLimits(most=512, most_each=256)
"""Each open page is a connection, and behind a proxy all are of one address."""
ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  what to type where it listens everywhere
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".png": "image/png",
}


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
    views: frozenset[View] = frozenset(VIEWS if operator else VIEWS[:1])
    # Whoever is given a name comes through a proxy: a listener on loopback is then reached from elsewhere.
    unlocked = public_without_token or (is_loopback(host) and not names)
    locked = views - ({"public"} if unlocked else set())
    runner, work = await asyncio.to_thread(_application, config, operator)
    app, guard_at = runner
    web_runner = LimitedRunner(app, "live page", LIMITS)
    tasks: list[asyncio.Task[None]] = []
    try:
        await web_runner.setup()
        site = web.TCPSite(web_runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise PrivstreamError(
                f"cannot listen on {host}, port {port}: {error.strerror or type(error).__name__}. "
                "Fix: choose another one with --port, or 0 for any."
            ) from error
        bound = web_runner.addresses[0][1]
        guard_at.append(Guard.of(secret, host=host, port=bound, locked=locked, names=names))
        tasks += [asyncio.create_task(_kept_up(each)) for each in work]
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
        await web_runner.cleanup()


@contextlib.contextmanager
def serve_in_background(config: Config, *, port: int) -> Iterator[LivePage]:
    """Serve both views in a thread, on loopback, until the body is left; at another port where this one is taken.

    Raises: PrivstreamError if an engine's parts cannot be loaded.
    """
    started: Future[LivePage] = Future()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def run() -> None:
        async with contextlib.AsyncExitStack() as stack:
            try:
                page = await stack.enter_async_context(serve(config, port=port))
            except PrivstreamError:
                page = await stack.enter_async_context(serve(config))
            started.set_result(page)
            await stop.wait()

    def work() -> None:
        try:
            loop.run_until_complete(run())
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)
        finally:
            loop.close()

    thread = threading.Thread(target=work, name="live page", daemon=True)
    thread.start()
    page = started.result()
    try:
        yield page
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


async def _kept_up(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run what never ends, and begin it anew where it ended all the same: a page that reads nothing looks like one of a
    stream without steps. A library that cancels what waits for it (`agents.kafka.lifecycle.cancellations`) ends it,
    too.
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


def _application(config: Config, operator: bool) -> tuple[tuple[web.Application, list[Guard]], list[Any]]:
    """The application, a place for its guard, and what is to run beside it. Loads the engines' parts: in a thread."""
    boot = fresh_seed().hex()[:12]
    guards: list[Guard] = []

    @web.middleware
    async def guarded(request: web.Request, handler: Any) -> web.StreamResponse:
        return await guards[0].middleware(request, handler)

    async def login(request: web.Request) -> web.Response:
        return await guards[0].login(request)

    app = web.Application(middlewares=[guarded], client_max_size=4096)
    app.on_response_prepare.append(secure_headers)
    app.router.add_post("/login", login)
    app.add_routes(_assets(operator))
    seen = [StreamSeen(stream, view_of(stream).picture(stream)) for stream in config.streams]
    reader = PublicReader(config.kafka, seen)
    app.add_routes(PublicRoutes(seen, reader, boot).routes())

    async def close(_: web.Application) -> None:
        # Here and not where a reader ends: it begins anew on what has been seen so far.
        for each in seen:
            each.close()

    app.on_cleanup.append(close)
    work: list[Any] = [reader.run]
    if operator:
        work.append(_operator(config, app, boot))
    return (app, guards), work


def _operator(config: Config, app: web.Application, boot: str) -> Any:
    """Imported where it is asked for: a server of the public view alone has nothing of it."""
    from agents.readers.watch.operator import OperatorReader, OperatorRoutes, StreamTruth

    truths = [StreamTruth(stream) for stream in config.streams]
    reader = OperatorReader(config, truths)
    app.add_routes(OperatorRoutes(truths, reader, boot).routes())
    return reader.run


def _assets(operator: bool) -> list[web.RouteDef]:
    """Pages and what they load, read once; from this package, so that nothing is asked of the network."""
    folder = resources.files("agents.readers.watch") / "assets"
    routes = []
    for path in sorted(_files(folder, PurePosixPath())):
        routes.append(web.get(f"/assets/{path}", _asset(folder.joinpath(*path.parts).read_bytes(), path)))
    pages = {"/public": "public.html", **({"/operator": "operator.html"} if operator else {})}
    for address, name in pages.items():
        routes.append(web.get(address, _asset((folder / name).read_bytes(), PurePosixPath(name))))

    async def first(_: web.Request) -> web.Response:
        raise web.HTTPFound("/public")

    return [*routes, web.get("/", first)]


def _files(folder: Any, below: PurePosixPath) -> list[PurePosixPath]:
    found = []
    for each in folder.iterdir():
        if each.is_dir():
            found += _files(each, below / each.name)
        elif PurePosixPath(each.name).suffix in TYPES and not each.name.endswith(".html"):
            found.append(below / each.name)
    return found


def _asset(content: bytes, path: PurePosixPath) -> Any:
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}

    async def answer(request: web.Request) -> web.Response:
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=content, content_type=TYPES[path.suffix], charset="utf-8", headers=headers)

    return answer

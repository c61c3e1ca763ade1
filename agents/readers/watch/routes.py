"""What both views of the live page send: rows of steps, and server-sent events whenever something has changed."""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import orjson
from aiohttp import web

from schemas.config import Stream

ALIVE_S = 5.0
"""The longest time without an event; the page takes three times that as a sign that the server is gone."""
SOONEST_S = 0.25
"""Between two rounds of events."""
RETRY_MS = 1_000
MOST_PAGES = 200
"""Of a view that are open at a time: each costs a connection and its events."""
NO_STORE = {"Cache-Control": "no-store"}
EVENTS = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no", **NO_STORE}


class StreamShown(Protocol):
    """What a view shows of a stream. Attributes: revision: it grows with each change of the summary or the rows."""

    stream: Stream
    revision: int

    def summary(self) -> dict[str, Any]:
        """Return what changes from step to step, JSON-able."""

    def rows(self, after: int) -> list[list[Any]]:
        """Return a row for each step after `after`, oldest first."""


class Reader(ABC):
    """What feeds the streams of a view.

    Attributes:
        problem: why nothing can be read now, in words for all who may see the view; None: it reads.
        behind: records that were there when it (re)connected and are not read yet.
        news: set once there is something new; ask again for the next time.
    """

    def __init__(self) -> None:
        self.problem: str | None = "connecting to the cluster"
        self.behind = 0
        self.news = asyncio.Event()

    @abstractmethod
    async def run(self) -> None:
        """Read for ever."""

    def tell(self) -> None:
        """Wake the pages that wait for news."""
        self.news.set()
        self.news = asyncio.Event()


S = TypeVar("S", bound=StreamShown)


class Routes(Generic[S]):
    """The handlers that both views have. Args: boot: what tells this server from the next one at the same address."""

    def __init__(self, streams: Sequence[S], reader: Reader, boot: str) -> None:
        self.streams: Mapping[str, S] = {each.stream.name: each for each in streams}
        self.boot = boot
        self._reader = reader
        self._open = 0

    def stream(self, request: web.Request) -> S:
        """Return the stream that a request names."""
        try:
            return self.streams[request.match_info["stream"]]
        except KeyError:
            raise web.HTTPNotFound(text="there is no such stream\n") from None

    async def rows(self, request: web.Request) -> web.Response:
        """Answer with the rows of a stream after a step."""
        after = whole_numbers(request).get("after", -1)
        return json_response({"boot": self.boot, "rows": self.stream(request).rows(after)})

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Send an event for each stream that has changed, as a whole: whoever missed some needs only the last."""
        if self._open >= MOST_PAGES:
            raise web.HTTPServiceUnavailable(text=f"{MOST_PAGES} pages are open; try again later\n")
        self._open += 1
        response = web.StreamResponse(headers=EVENTS)

        async def send(event: str, data: Mapping[str, Any]) -> None:
            words = orjson.dumps({"boot": self.boot, **data})
            await response.write(f"event: {event}\ndata: ".encode() + words + b"\n\n")

        try:
            await response.prepare(request)
            await response.write(b"retry: %d\n\n" % RETRY_MS)
            sent: dict[str, int] = {}
            while True:
                reader, news = self._reader, self._reader.news
                for name, each in self.streams.items():
                    if sent.get(name) != each.revision:
                        sent[name] = each.revision
                        await send("stream", each.summary())
                await send("reading", {"problem": reader.problem, "behind": reader.behind, "now": time.time()})
                await asyncio.sleep(SOONEST_S)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ALIVE_S):
                        await news.wait()
        except ConnectionError:  # the page has gone
            return response
        finally:
            self._open -= 1


def whole_numbers(request: web.Request) -> dict[str, int]:
    """Return the parameters of a request."""
    try:
        return {name: int(value) for name, value in request.query.items()}
    except ValueError:
        raise web.HTTPBadRequest(text="each parameter is a whole number\n") from None


def json_response(value: Any) -> web.Response:
    """Return an answer that no cache keeps."""
    return web.Response(body=orjson.dumps(value), content_type="application/json", headers=NO_STORE)

"""Server-sent events: what both views send by."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson
from aiohttp import web

ALIVE_S = 5.0
"""At most so long nothing is sent; the page takes three times that as a sign that the server is gone."""
SOONEST_S = 0.25
"""Between two rounds of events."""
RETRY_MS = 1_000


class Teller:
    """What pages wait for: a reader that says when it has something new."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    @property
    def news(self) -> asyncio.Event:
        """Set once there is something new; ask again for the next time."""
        return self._changed

    def _tell(self) -> None:
        old, self._changed = self._changed, asyncio.Event()
        old.set()


class Events:
    """One page that listens."""

    def __init__(self, response: web.StreamResponse, last_id: str) -> None:
        self._response = response
        self.last_id = last_id

    @staticmethod
    @contextlib.asynccontextmanager
    async def to(request: web.Request) -> AsyncIterator[Events]:
        """Until the page or the server goes away."""
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        await response.prepare(request)
        await response.write(b"retry: %d\n\n" % RETRY_MS)
        with contextlib.suppress(ConnectionError):
            yield Events(response, request.headers.get("Last-Event-ID", ""))

    async def send(self, event: str, data: Mapping[str, Any], *, id_: str = "") -> None:
        """Raises: ConnectionError if the page has gone."""
        head = f"id: {id_}\n" if id_ else ""
        await self._response.write(f"{head}event: {event}\ndata: ".encode() + orjson.dumps(data) + b"\n\n")

    async def pause(self, news: asyncio.Event) -> None:
        """Until something has changed, or it is time to say that the server lives."""
        await asyncio.sleep(SOONEST_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ALIVE_S):
                await news.wait()

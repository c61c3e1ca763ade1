"""The public view over HTTP: what has been seen of each stream, and events when that changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from aiohttp import web

from agents.readers.watch.events import Events
from agents.readers.watch.public.reader import PublicReader
from agents.readers.watch.public.seen import StreamSeen

NO_STORE = {"Cache-Control": "no-store"}
MOST_PAGES = 200
"""That are open at a time: each costs a connection and its events."""
MOST_PICTURES = 32
"""Large ones that are being sent at a time: each keeps its bytes until its page has read them."""
LARGE, PIECE = 1 << 18, 1 << 16
"""Bytes from which on a picture is sent in pieces, and of a piece."""
SENT_S = 120.0
"""After which a picture that is not read is given up."""
ABOUT = ("stream", "engine", "mode", "kind")


class PublicRoutes:
    """All handlers under `/public`. They know what has been seen, and no more.

    Args: boot: what tells this server from the next one at the same address.
    """

    def __init__(self, streams: Sequence[StreamSeen], reader: PublicReader, boot: str) -> None:
        self._streams: Mapping[str, StreamSeen] = {seen.stream.name: seen for seen in streams}
        self._reader = reader
        self._boot = boot
        self._open = self._sending = 0

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/public/streams", self._about),
            web.get("/public/events", self._events),
            web.get("/public/streams/{stream}/picture", self._picture),
            web.get("/public/streams/{stream}/ledger", self._ledger),
        ]

    async def _about(self, _: web.Request) -> web.Response:
        about = [
            {**{name: summary[name] for name in ABOUT}, "picture": dict(seen.picture.about()), "summary": summary}
            for seen in self._streams.values()
            for summary in [seen.summary()]
        ]
        return _json({"boot": self._boot, "streams": about})

    async def _picture(self, request: web.Request) -> web.StreamResponse:
        picture = self._seen(request).picture
        try:
            query = {name: int(value) for name, value in request.query.items()}
        except ValueError:
            raise web.HTTPBadRequest(text="each parameter is a whole number\n") from None
        body = picture.body(query)
        kind = "application/octet-stream" if picture.binary and "step" not in query else "application/json"
        if len(body) < LARGE or request.method == "HEAD":
            return web.Response(body=body, content_type=kind, headers=NO_STORE)
        if self._sending >= MOST_PICTURES:
            raise web.HTTPServiceUnavailable(text=f"{MOST_PICTURES} pictures are being sent; try again later\n")
        self._sending += 1
        try:
            return await _in_pieces(request, body, kind)
        finally:
            self._sending -= 1

    async def _ledger(self, request: web.Request) -> web.Response:
        try:
            after = int(request.query.get("after", "-1"))
        except ValueError:
            raise web.HTTPBadRequest(text="after is a whole number\n") from None
        return _json({"boot": self._boot, "rows": self._seen(request).ledger(after)})

    def _seen(self, request: web.Request) -> StreamSeen:
        try:
            return self._streams[request.match_info["stream"]]
        except KeyError:
            raise web.HTTPNotFound(text="there is no such stream\n") from None

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """One event for each stream that has changed, as a whole: whoever missed some needs only the last."""
        if self._open >= MOST_PAGES:
            raise web.HTTPServiceUnavailable(text=f"{MOST_PAGES} pages are open; try again later\n")
        self._open += 1
        try:
            return await self._follow(request)
        finally:
            self._open -= 1

    async def _follow(self, request: web.Request) -> web.StreamResponse:
        async with Events.to(request) as events:
            had = _had(events.last_id, self._boot)
            while True:
                news = self._reader.news
                for number, seen in enumerate(self._streams.values()):
                    if had.get(number) != seen.revision:
                        had[number] = seen.revision
                        await events.send("stream", seen.summary(), id_=_id(had, self._boot))
                await events.send("reading", self._reading())
                await events.pause(news)

    def _reading(self) -> Mapping[str, Any]:
        return {"boot": self._boot, "problem": self._reader.problem, "behind": self._reader.behind, "now": time.time()}


async def _in_pieces(request: web.Request, body: bytes, kind: str) -> web.StreamResponse:
    """Send no more than the page reads: a whole body is copied for each page that does not read it."""
    response = web.StreamResponse(headers={**NO_STORE, "Content-Type": kind})
    response.content_length = len(body)
    view = memoryview(body)
    try:
        async with asyncio.timeout(SENT_S):
            await response.prepare(request)
            for at in range(0, len(body), PIECE):
                await response.write(view[at : at + PIECE])
            await response.write_eof()
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    return response


def _json(value: Any) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type="application/json", headers=NO_STORE)


def _id(revisions: Mapping[int, int], boot: str) -> str:
    return boot + ":" + ",".join(f"{number}.{revision}" for number, revision in sorted(revisions.items()))


def _had(last_id: str, boot: str) -> dict[int, int]:
    """What a page that comes back has of this server; nothing of another one."""
    of, _, text = last_id.partition(":")
    if of != boot:
        return {}
    try:
        return {int(number): int(revision) for number, _, revision in (each.partition(".") for each in text.split(","))}
    except ValueError:
        return {}

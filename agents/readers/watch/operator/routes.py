"""The operator's view over HTTP. Behind a token always: `agents.readers.watch.guard` sees to it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import orjson
from aiohttp import web

from agents.readers.watch.events import Events
from agents.readers.watch.operator.reader import OperatorReader
from agents.readers.watch.operator.seen import StreamTruth

NO_STORE = {"Cache-Control": "no-store"}


class OperatorRoutes:
    """All handlers under `/operator`."""

    def __init__(self, streams: Sequence[StreamTruth], reader: OperatorReader, boot: str) -> None:
        self._streams: Mapping[str, StreamTruth] = {truth.stream.name: truth for truth in streams}
        self._reader = reader
        self._boot = boot

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/operator/allowed", self._allowed),
            web.get("/operator/events", self._events),
            web.get("/operator/streams/{stream}/utility", self._utility),
        ]

    async def _allowed(self, _: web.Request) -> web.Response:
        """For a page that has to know whether its cookie is good: an event stream cannot tell why it is refused."""
        return web.Response(status=204, headers=NO_STORE)

    async def _utility(self, request: web.Request) -> web.Response:
        truth = self._streams.get(request.match_info["stream"])
        if truth is None:
            raise web.HTTPNotFound(text="there is no such stream\n")
        try:
            after = int(request.query.get("after", "-1"))
        except ValueError:
            raise web.HTTPBadRequest(text="after is a whole number\n") from None
        body = orjson.dumps({"boot": self._boot, "rows": truth.rows(after)})
        return web.Response(body=body, content_type="application/json", headers=NO_STORE)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """One event for each stream that has changed, as a whole."""
        async with Events.to(request) as events:
            had: dict[str, int] = {}
            while True:
                news = self._reader.news
                for name, truth in self._streams.items():
                    if had.get(name) != truth.revision:
                        had[name] = truth.revision
                        await events.send("stream", {"boot": self._boot, **truth.summary()})
                await events.send("reading", {"problem": self._reader.problem, "now": time.time()})
                await events.pause(news)

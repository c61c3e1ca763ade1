"""A small server of documents with entity tags and conditions, as an HTTP endpoint and as S3 (path style) have them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web


class Documents:
    """What is stored, and what is wrong with the server.

    Attributes:
        fails: status that it answers every request with; None: none.
        forgetful: it stores, and answers with status 503 once.
        heeds, tags: whether it looks at conditions, and tells entity tags.
        hangs: it does not answer before this is set.
        asked: authorization of each request.
    """

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}
        self.fails: int | None = None
        self.forgetful = False
        self.heeds = self.tags = True
        self.hangs: asyncio.Event | None = None
        self.asked: list[str | None] = []
        self.url = ""

    def tag(self, path: str) -> str | None:
        return f'"{hashlib.md5(self.stored[path]).hexdigest()}"' if path in self.stored else None

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append(request.headers.get("Authorization"))
        if self.hangs is not None:
            await self.hangs.wait()
        if self.fails is not None:
            return web.Response(status=self.fails)
        path, tag = request.path, self.tag(request.path)
        if request.method == "PUT":
            wanted, absent = request.headers.get("If-Match"), request.headers.get("If-None-Match")
            if self.heeds and ((wanted is not None and wanted != tag) or (absent == "*" and tag is not None)):
                return web.Response(status=412)
            self.stored[path] = await request.read()
            if self.forgetful:
                self.forgetful = False
                return web.Response(status=503)
        elif tag is None:
            return web.Response(status=404)
        headers = {"ETag": self.tag(path) or "", "Last-Modified": "Wed, 01 Jan 2020 00:00:00 GMT"}
        if not self.tags:
            del headers["ETag"]
        return web.Response(body=b"" if request.method == "PUT" else self.stored[path], headers=headers)


@asynccontextmanager
async def serving() -> AsyncIterator[Documents]:
    documents = Documents()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", documents.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    documents.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield documents
    finally:
        await runner.cleanup()

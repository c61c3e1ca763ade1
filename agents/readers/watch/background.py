"""The live page beside a program that is busy with something else: in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING

from agents.readers.watch.server import LivePage, serve
from schemas.errors import PrivstreamError

if TYPE_CHECKING:
    from schemas.config import Config


@contextlib.contextmanager
def serve_in_background(config: Config, *, port: int) -> Iterator[LivePage]:
    """Serve both views on loopback until the body is left; at another port where this one is taken.

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

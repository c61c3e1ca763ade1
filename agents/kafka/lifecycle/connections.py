"""How a server of ours listens: half requests are not held for ever, and take no descriptor from anybody else.

A worker has one process for its probes and its Kafka connections. Whoever opens sockets and never ends a header would
take all descriptors, `/livez` would get none, and the worker be restarted for it. So a header has its time, and beyond
a number of connections, for each address and in all, the oldest that asks nothing goes: who does ask gets an answer.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from dataclasses import dataclass

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from agents.kafka.lifecycle.logs import Reminder

log = logging.getLogger(__name__)

REQUEST_S = 10.0
"""For a header, for the body of a request, and between two requests of a connection."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Connections of one server, in all and of one address: a proxy is one."""

    most: int
    most_each: int


class LimitedServer(web.Server):
    """aiohttp's server, which counts its connections."""

    limits: ConnectionLimits
    name: str
    reminder: Reminder

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        everybody = [each for each in self.connections if each.transport is not None]
        of_it = [each for each in everybody if _address(each) == _address(handler)]
        for held, most, whose in (
            (of_it, self.limits.most_each, "one address has"),
            (everybody, self.limits.most, "there are"),
        ):
            if len(held) > most and handler.transport is not None:
                # In the order in which they came. Where all others ask something, it is the new one that goes.
                next(each for each in held if each is handler or _asks_nothing(each)).force_close()
                self._say(f"{whose} more than {most} connections: the oldest that ask nothing are closed")

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        if _asks_nothing(handler) and asyncio.get_running_loop().time() >= handler._next_keepalive_close_time > 0:
            self._say("connections on which no whole request came in time were closed")
        super().connection_lost(handler, exc)

    def _say(self, what: str) -> None:
        if self.reminder.due(what):
            log.warning("%s: %s (docs/operations.md, %r)", self.name, what, "Connections that ask nothing")


class LimitedRunner(web.AppRunner):
    """Runner of an application behind a `LimitedServer`.

    What aiohttp would log holds lines of requests, and so tokens: it is left unsaid.

    Args: name: of the server, for the log.
    """

    def __init__(self, app: web.Application, name: str, limits: ConnectionLimits) -> None:
        unsaid = logging.getLogger(f"{__name__}.requests")
        unsaid.disabled = True
        super().__init__(
            app, access_log=None, logger=unsaid, shutdown_timeout=0.2, handler_cancellation=True,
            keepalive_timeout=REQUEST_S,
        )  # fmt: skip
        self._name, self._limits = name, limits

    async def _make_server(self) -> LimitedServer:
        server = await super()._make_server()
        server.__class__ = LimitedServer
        assert isinstance(server, LimitedServer)
        server.name, server.limits, server.reminder = self._name, self._limits, Reminder()
        return server


def _asks_nothing(handler: RequestHandler) -> bool:
    return not handler._request_in_progress and not handler._messages


def _address(handler: RequestHandler) -> str:
    return str((handler.peername or ("",))[0])


def host_of(header: str) -> str:
    """Return the name or address that a `Host` header has, in lower case, without brackets and port."""
    name = header.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0] if name.count(":") == 1 else name


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

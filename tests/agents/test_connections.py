"""Sockets that send half a request: who asks for something gets an answer all the same, of both servers of ours."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest
from aiohttp import web

from agents.kafka.lifecycle import connections
from agents.kafka.lifecycle.connections import ConnectionLimits, LimitedRunner
from agents.kafka.lifecycle.vitals import Vitals
from agents.readers.watch import server
from agents.worker import probes
from tests.kafka.support import until
from tests.watch.test_server import served

HALF = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Half: "


@contextlib.contextmanager
def half_requests(port: int, number: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(number)]
        for each in opened:
            with contextlib.suppress(ConnectionError):  # it is closed already
                each.sendall(HALF)
        yield opened


def closed(sockets: list[socket.socket]) -> int:
    """How many the server has closed by now."""
    return sum(map(_closed, sockets))


def _closed(each: socket.socket) -> bool:
    each.setblocking(False)
    try:
        return each.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


async def _answers(address: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(address) as answer:
        return answer.status


async def test_probes_answer_behind_more_half_requests_than_a_process_has_descriptors(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As many as it takes to fill the server several times over; each of them is open on this side."""
    port, number = probes.serve("127.0.0.1", 20_400, Vitals()), 400
    assert port is not None

    caplog.set_level(logging.WARNING)
    with half_requests(port, number) as sockets:
        assert await _answers(f"http://127.0.0.1:{port}/livez") == 200
        await until(lambda: closed(sockets) >= number - probes.LIMITS.most_each)
    told = [line for line in caplog.messages if "more than 32 connections" in line]
    assert len(told) == 1, "once, however many"


async def test_the_live_page_answers_behind_half_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LIMITS", ConnectionLimits(most=20, most_each=10))

    async with served() as (page, _, at):
        with half_requests(page.port, 60) as sockets:
            assert await _answers(f"{at}/public/streams") == 200
            await until(lambda: closed(sockets) >= 50)


@contextlib.asynccontextmanager
async def slow_server(limits: ConnectionLimits) -> AsyncIterator[tuple[int, asyncio.Event, list[int]]]:
    """A server whose answer waits for an event; it says how many are being answered."""
    go_on, under_way = asyncio.Event(), []

    async def wait(_: web.Request) -> web.Response:
        under_way.append(1)
        await go_on.wait()
        return web.Response()

    app = web.Application()
    app.router.add_get("/livez", wait)
    runner = LimitedRunner(app, "slow", limits)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1], go_on, under_way
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("limits", [ConnectionLimits(most=4, most_each=9), ConnectionLimits(most=9, most_each=4)])
async def test_what_is_being_answered_is_not_cut_off_for_a_newcomer(limits: ConnectionLimits) -> None:
    async with slow_server(limits) as (port, go_on, under_way):
        asked = [asyncio.ensure_future(_answers(f"http://127.0.0.1:{port}/livez")) for _ in range(4)]
        await until(lambda: len(under_way) == 4)
        with half_requests(port, 3) as sockets:
            await until(lambda: closed(sockets) == 3)
        go_on.set()
        assert await asyncio.gather(*asked) == [200] * 4
        assert len(under_way) == 4, "a client that is cut off may ask again"


async def test_half_a_header_has_its_time_and_so_has_half_a_body(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A short one here: nothing else ends these connections."""
    monkeypatch.setattr(connections, "REQUEST_S", 0.1)
    monkeypatch.setattr("agents.readers.watch.guard.REQUEST_S", 0.1)

    caplog.set_level(logging.WARNING)
    async with served() as (page, _, _):
        with half_requests(page.port, 3) as sockets:
            await until(lambda: closed(sockets) == 3)
        reader, writer = await asyncio.open_connection("127.0.0.1", page.port)
        writer.write(b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 40\r\n\r\n{")
        assert b" 400 " in await reader.readline()
        writer.close()
    assert [line for line in caplog.messages if "no whole request came in time" in line]

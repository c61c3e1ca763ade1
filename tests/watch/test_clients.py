"""Clients that come through a proxy, send what is no token, or do not read what they asked for. No broker."""

from __future__ import annotations

import asyncio
import tracemalloc

import aiohttp
import pytest

from agents.readers.watch import public
from agents.readers.watch.guard import token_of
from agents.show.pictures import PointPicture
from tests.watch.test_server import PUBLIC, SECRET, served, status_of


async def test_behind_a_proxy_with_tls_one_logs_in_and_the_cookie_stays_on_tls() -> None:
    right = {"view": "operator", "token": token_of(SECRET, "operator")}
    async with served(names=["page.example"]) as (_, session, at):
        for origin, status in (
            ("https://page.example", 204),
            ("http://page.example", 204),
            ("https://evil.test", 403),
            ("https://page.example.evil.test", 403),
            ("null", 403),
            ("", 403),
        ):
            headers = {"Host": "page.example", "Origin": origin}
            async with session.post(f"{at}/login", json=right, headers=headers) as answer:
                assert answer.status == status, origin
                assert ("; Secure" in answer.headers.get("Set-Cookie", "")) is (origin == "https://page.example")


async def test_a_listener_on_loopback_that_has_a_name_is_reached_from_elsewhere_so_its_public_view_is_locked() -> None:
    async with served(names=["page.example"]) as (page, session, at):
        assert "#token=" in page.public
        assert [await status_of(session, at + path, Host="page.example") for path in PUBLIC] == [401] * 4
    async with served(names=["page.example"], public_without_token=True) as (page, session, at):
        assert "#token=" not in page.public
        assert await status_of(session, at + PUBLIC[0], Host="page.example") == 200


async def test_what_is_no_text_is_no_token() -> None:
    async with served() as (_, session, at):
        for body, status in (
            (b'{"view": "public", "token": "\\ud800"}', 401),
            (b'{"view": "operator", "token": 5}', 401),
            (b"[" * 4000, 400),
            (b'{"view": ["public"], "token": ""}', 400),
        ):
            async with session.post(f"{at}/login", data=body) as answer:
                assert answer.status == status, body
        kind = {"Content-Type": "application/json; charset=nothing"}
        async with session.post(f"{at}/login", data=b"{}", headers=kind) as answer:
            assert answer.status == 400
        for name, value in (("Authorization", "Bearer \udcff"), ("Cookie", "privstream-operator-1=\udcff")):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(at.rpartition(":")[2]))
            request = f"GET /operator/allowed HTTP/1.1\r\nHost: localhost\r\n{name}: {value}\r\n\r\n"
            writer.write(request.encode(errors="surrogateescape"))
            assert (await reader.readline()).split()[1] == b"401"
            writer.close()


LARGE = bytes(range(256)) * 80_000
"""20 MB: more than the system's buffers take."""


async def asked(at: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Whoever asks for a picture, and reads its head alone."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(at.rpartition(":")[2]), limit=1024)
    writer.write(b"GET /public/streams/taxi/picture HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (await reader.readline()).split()[1] == b"200"
    return reader, writer


async def picture(session: aiohttp.ClientSession, at: str) -> tuple[int, bytes]:
    async with session.get(f"{at}/public/streams/taxi/picture") as answer:
        return answer.status, await answer.read()


async def test_pictures_that_nobody_reads_are_few_and_cost_no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public, "MOST_PICTURES", 2)
    monkeypatch.setattr(PointPicture, "body", lambda *_: LARGE)

    async with served() as (_, session, at):
        assert await picture(session, at) == (200, LARGE)
        tracemalloc.start()
        idle = [await asked(at) for _ in range(2)]
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < len(LARGE) // 2
        assert (await picture(session, at))[0] == 503
        async with session.head(f"{at}/public/streams/taxi/picture") as head:
            assert (head.status, head.headers["Content-Length"]) == (200, str(len(LARGE)))
        for _, writer in idle:
            writer.close()
        async with asyncio.timeout(20):
            while (await picture(session, at))[0] == 503:  # noqa: ASYNC110  it is the server that is asked
                await asyncio.sleep(0.01)


async def test_a_picture_that_is_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public, "MOST_PICTURES", 1)
    monkeypatch.setattr(public, "SENT_S", 0.2)
    monkeypatch.setattr(PointPicture, "body", lambda *_: LARGE)

    async with served() as (_, session, at):
        _, writer = await asked(at)
        monkeypatch.setattr(public, "SENT_S", 20.0)
        async with asyncio.timeout(20):
            while (await picture(session, at))[0] == 503:  # noqa: ASYNC110  it is the server that is asked
                await asyncio.sleep(0.01)
        writer.close()

"""Who may see what: tokens, hosts, headers, and a public view that has no door to anything else. No broker."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from agents.readers.watch import LivePage, routes, serve, server
from agents.readers.watch.guard import HEADERS, VIEWS, Guard, token_of
from agents.readers.watch.public import PublicReader, StreamSeen
from agents.readers.watch.server import application
from agents.show.pictures import Picture
from schemas.config import Config
from schemas.config.load import config_from_mapping
from schemas.errors import PrivstreamError
from schemas.topics import Topics
from tests.commands import invoked
from tests.kafka.support import stream_table

SECRET = b"thirty-two secret bytes or more.."
ASSETS = Path(__file__).resolve().parents[2] / "agents" / "readers" / "watch" / "assets"
PRIVATE = ("events_total", "ingest_lag", "refus", "error_small")


def config() -> Config:
    """A cluster that is not there: the page must be served, and say so."""
    table = {**stream_table("taxi"), "privacy": {"epsilon": 1.0, "unit": "event"}, "audit": "audit.taxi"}
    return config_from_mapping(
        {"job": {"name": "j", "data_dir": "unused"}, "kafka": {"bootstrap": "127.0.0.1:1"}, "streams": [table]}
    )


@asynccontextmanager
async def served(**options: Any) -> AsyncIterator[tuple[LivePage, aiohttp.ClientSession, str]]:
    # Cookies of addresses are kept by this client only if it is told so.
    jar = aiohttp.CookieJar(unsafe=True)
    async with serve(config(), token=SECRET, **options) as page, aiohttp.ClientSession(cookie_jar=jar) as session:
        yield page, session, f"http://127.0.0.1:{page.port}"


async def status_of(session: aiohttp.ClientSession, address: str, **headers: str) -> int:
    async with session.get(address, headers=headers, allow_redirects=False) as answer:
        return answer.status


OPERATOR = ("/operator/allowed", "/operator/events", "/operator/streams/taxi/utility")
PUBLIC = ("/public/streams", "/public/events", "/public/streams/taxi/picture", "/public/streams/taxi/ledger")


async def test_the_operators_view_needs_its_token_even_on_loopback_and_the_public_one_does_not() -> None:
    async with served() as (page, session, at):
        assert page.public == f"{at}/public"
        assert page.operator == f"{at}/operator#token={token_of(SECRET, 'operator')}"
        assert [await status_of(session, at + path) for path in OPERATOR] == [401] * 3
        assert [await status_of(session, at + path) for path in PUBLIC] == [200] * 4
        public = f"Bearer {token_of(SECRET, 'public')}"
        assert await status_of(session, at + OPERATOR[0], Authorization=public) == 401
        right = f"Bearer {token_of(SECRET, 'operator')}"
        assert await status_of(session, at + OPERATOR[0], Authorization=right) == 204


async def test_a_token_is_traded_for_a_cookie_that_is_not_the_token_and_is_of_one_view() -> None:
    async with served() as (page, session, at):
        for given, status in (("wrong", 401), (token_of(SECRET, "public"), 401)):
            async with session.post(f"{at}/login", json={"view": "operator", "token": given}) as answer:
                assert answer.status == status
        right = {"view": "operator", "token": token_of(SECRET, "operator")}
        async with session.post(f"{at}/login", json=right, headers={"Origin": "http://evil.test"}) as answer:
            assert answer.status == 403
        async with session.post(f"{at}/login", data=b"view=operator") as answer:
            assert answer.status == 400
        async with session.post(f"{at}/login", json=right) as answer:
            assert answer.status == 204
            cookie = answer.headers["Set-Cookie"]
        assert token_of(SECRET, "operator") not in cookie
        assert f"privstream-operator-{page.port}=" in cookie
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert await status_of(session, at + OPERATOR[0]) == 204


async def test_off_loopback_the_public_view_needs_a_token_unless_it_is_said_otherwise() -> None:
    async with served(host="0.0.0.0") as (page, session, at):
        assert page.public.endswith(f"/public#token={token_of(SECRET, 'public')}")
        assert [await status_of(session, at + path) for path in PUBLIC] == [401] * 4
        public = f"Bearer {token_of(SECRET, 'public')}"
        assert await status_of(session, at + PUBLIC[0], Authorization=public) == 200
    async with served(host="0.0.0.0", public_without_token=True) as (page, session, at):
        assert "token" not in page.public
        assert await status_of(session, at + PUBLIC[0]) == 200
        assert await status_of(session, at + OPERATOR[0]) == 401


async def test_without_an_operators_view_there_is_none() -> None:
    async with served(operator=False) as (page, session, at):
        assert page.operator is None
        right = f"Bearer {token_of(SECRET, 'operator')}"
        paths = (*OPERATOR, "/operator")
        assert [await status_of(session, at + path, Authorization=right) for path in paths] == [404] * 4


async def test_each_answer_has_the_headers_and_another_name_or_site_is_refused() -> None:
    async with served() as (_, session, at):
        for path in (
            "/public",
            "/operator",
            "/assets/public.js",
            "/public/streams",
            "/nowhere",
            OPERATOR[0],
            PUBLIC[1],
        ):
            async with session.get(at + path) as answer:
                assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS, path
        assert await status_of(session, at + "/public/streams", Host="evil.test") == 421
        assert await status_of(session, at + "/public", Host="evil.test:80") == 421
        assert await status_of(session, at + "/public/streams", **{"Sec-Fetch-Site": "cross-site"}) == 403
        assert await status_of(session, at + "/public", **{"Sec-Fetch-Site": "cross-site"}) == 200
        assert await status_of(session, at + "/public/streams/nothing/ledger") == 404
        assert await status_of(session, at + "/public/streams/taxi/picture?step=x") == 400
        assert await status_of(session, at + "/assets/../server.py") == 404


@pytest.mark.parametrize(
    ("host", "name", "known"),
    [
        ("127.0.0.1", "localhost:80", True),
        ("127.0.0.1", "[::1]:80", True),
        ("127.0.0.1", "192.0.2.7", False),
        ("127.0.0.1", "watch.example", False),
        ("0.0.0.0", "192.0.2.7:8765", True),
        ("0.0.0.0", "[2001:db8::1]:8765", True),
        ("0.0.0.0", "evil.example", False),
        ("0.0.0.0", "Dash.Example:8765", True),
    ],
)
def test_names_by_which_the_server_may_be_called(host: str, name: str, known: bool) -> None:
    guard = Guard.of(SECRET, host=host, locked=frozenset(), names=["dash.example"])
    assert guard.known_host(name) is known


def test_the_public_view_is_given_public_topics_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its reader, by its routes, and by what it may import (tests/architecture/rules.py)."""
    loaded = config()
    reader = PublicReader(loaded.kafka, [StreamSeen(stream, Picture()) for stream in loaded.streams])
    assert set(reader.topics) == {name for stream in loaded.streams for name in Topics.published(stream.name)}
    guard = Guard.of(SECRET, host="::1", locked=frozenset(), names=[])
    app, readers = application(loaded, guard, operator=False)
    assert len(readers) == 1
    paths = {route.resource.canonical for route in app.router.routes() if route.resource is not None}
    assert not [path for path in paths if "operator" in path and not path.startswith("/assets/")]


async def test_what_the_public_view_says_holds_no_word_of_the_operators() -> None:
    async with served() as (_, session, at):
        async with session.get(f"{at}/public/streams") as answer:
            text = await answer.text()
        async with session.get(f"{at}/public/events") as events:
            text += (await events.content.readuntil(b"reading")).decode()
            text += (await events.content.readline()).decode() + (await events.content.readline()).decode()
        assert "taxi" in text
        assert [word for word in PRIVATE if word in text] == []


async def test_pages_beyond_those_that_it_can_serve_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "MOST_PAGES", 1)

    async with served() as (_, session, at):
        async with session.get(f"{at}/public/events") as first:
            assert first.status == 200
            assert await status_of(session, f"{at}/public/events") == 503
        async with asyncio.timeout(20):
            while await status_of(session, f"{at}/public/events") == 503:  # noqa: ASYNC110  it is the server that is asked
                await asyncio.sleep(0.05)


async def test_where_the_cluster_does_not_answer_the_page_is_served_and_says_so() -> None:
    async with served() as (_, session, at), session.get(f"{at}/public/events") as events:
        text = ""
        while "does not answer" not in text:
            text = (await asyncio.wait_for(events.content.readline(), 60)).decode()


def test_a_reader_that_ends_begins_anew_also_where_a_library_cancelled_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "AGAIN_S", 0.0)
    begun: list[PublicReader] = []
    closed: list[StreamSeen] = []

    def noted(seen: StreamSeen) -> None:
        closed.append(seen)

    async def ends(reader: PublicReader) -> None:
        begun.append(reader)
        if len(begun) == 1:
            raise ZeroDivisionError
        if len(begun) == 2:
            raise asyncio.CancelledError
        await asyncio.Event().wait()

    monkeypatch.setattr(PublicReader, "run", ends)
    monkeypatch.setattr(StreamSeen, "close", noted)

    async def run() -> None:
        async with served(operator=False), asyncio.timeout(20):
            while len(begun) < 3:  # noqa: ASYNC110  what is waited for sets no event
                await asyncio.sleep(0.01)
            assert not closed  # the next one goes on with what was seen

    asyncio.run(run())
    assert len(closed) == len(config().streams)


async def test_a_port_that_is_taken_and_a_short_secret_are_refused_with_what_to_do() -> None:
    async with served() as (page, _, _at):
        with pytest.raises(PrivstreamError, match="Fix: choose another one"):
            async with serve(config(), port=page.port):
                pass
    with pytest.raises(PrivstreamError, match="fewer than 32"):
        async with serve(config(), token=b"x" * 31):
            pass


def test_tokens_are_in_no_representation() -> None:
    page = LivePage("h", 1, "http://h/public#token=abc", "http://h/operator#token=abc")
    assert "abc" not in repr(page)
    assert "secret" not in repr(Guard.of(b"secret" * 4, host="::1", locked=frozenset(), names=[]))


# --- Assets ---------------------------------------------------------------------------------------------------------


def assets(*endings: str) -> Sequence[Path]:
    return [path for path in ASSETS.rglob("*") if path.suffix in endings and "vendor" not in path.parts]


def test_pages_load_nothing_from_elsewhere_and_hold_no_script_of_their_own() -> None:
    assert len(assets(".html", ".js", ".css")) >= 8
    for path in assets(".html", ".js", ".css"):
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|//cdn|@import|\beval\(|innerHTML|new Function", text), path
    for path in assets(".html"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=", text), path
        for view in VIEWS:
            for linked in re.findall(r'(?:src|href)="/assets/([^"]+)"', text.replace("VIEW", view)):
                assert (ASSETS / linked).is_file(), linked


def test_each_library_that_is_kept_here_has_its_licence_and_is_what_was_published() -> None:
    lines = (ASSETS / "vendor" / "SHA256SUMS").read_text().splitlines()
    listed = {name: digest for digest, name in (line.split("  ", 1) for line in lines if line)}
    import hashlib

    found = {
        path.relative_to(ASSETS / "vendor").as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (ASSETS / "vendor").rglob("*")
        if path.is_file() and path.name != "SHA256SUMS"
    }
    assert found == listed
    for folder in (ASSETS / "vendor").iterdir():
        if folder.is_dir():
            assert (folder / "LICENSE.txt").read_text(encoding="utf-8").strip()


def test_no_log_repeats_a_request_that_cannot_be_read(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiohttp logs the line with a traceback: here the one with the token, with a blank where none may be."""
    caplog.set_level(logging.DEBUG)
    token = token_of(SECRET, "operator")

    async def run() -> None:
        async with served() as (page, session, at):
            for line in (f"Authorization : Bearer {token}", f"{token}\x01: 1", f"Host: {token}"):
                reader, writer = await asyncio.open_connection("127.0.0.1", page.port)
                writer.write(f"GET /operator/allowed HTTP/1.1\r\nHost: localhost\r\n{line}\r\n\r\n".encode())
                assert b" 400 " in await reader.readline()
                writer.close()
            assert await status_of(session, f"{at}/{token}" + "a" * 9_000) == 400

            def fails(_: object, after: int) -> None:
                raise ValueError(token)

            monkeypatch.setattr(StreamSeen, "rows", fails)
            assert await status_of(session, at + PUBLIC[3]) == 500

    asyncio.run(run())
    said = caplog.text + "".join(capfd.readouterr())
    assert token not in said
    assert "a page could not be answered: ValueError" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(("mode", "said"), [(0o600, False), (0o640, True), (0o604, True)])
def test_a_secret_of_the_tokens_that_others_may_read_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, said: bool
) -> None:
    monkeypatch.setattr(asyncio, "run", lambda serving: serving.close())
    secret = tmp_path / "page.token"
    secret.write_bytes(SECRET)
    secret.chmod(mode)
    example = Path(__file__).resolve().parents[2] / "examples" / "taxi.toml"
    result = invoked("watch", example, "--token-file", secret)
    assert result.exit_code == 0
    assert ("open to others" in result.output) == said
    assert SECRET.decode() not in result.output

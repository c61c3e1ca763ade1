"""What a registry, or whatever stands in its place, answers: it is understood, or asked again, and quoted nowhere."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from agents.kafka import schema_registry
from agents.kafka.schema_registry import RegistryClient, RegistryError, schema_ids
from agents.local.broker.embedded import free_ports
from agents.protocol.formats import protobuf
from agents.protocol.formats.avro import AvroEncoding
from agents.protocol.formats.contract import SchemaBook, SchemaRef, SchemaText, UnreadableError
from agents.protocol.formats.protobuf import ProtobufEncoding
from schemas.config import Config
from schemas.config.load import config_from_mapping
from schemas.config.server import Registry
from schemas.errors import ConfigError, StoreError
from tests.kafka.support import stream_table

CANARY = "c4n4ry-of-the-registry"
REF = SchemaRef(7)
TEXT = json.dumps({"type": "string", "doc": "d" * 200_000})

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def standing_in(answer: Answer) -> AsyncIterator[str]:
    """Yields its address."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[RegistryClient]:
    async with standing_in(answer) as url, RegistryClient(Registry(url=url), not_there_s=0.0) as client:
        yield client


def learnt(answer: Answer) -> SchemaText | None:
    """Raises: what `learn` raises."""

    async def scenario() -> SchemaText | None:
        book = SchemaBook()
        book.expect("AVRO", lambda text: text)
        async with answering(answer) as client:
            await client.learn(book, [REF])
        return book.reader(REF, "AVRO")

    return asyncio.run(scenario())


def of_bytes(body: bytes, status: int = 200) -> Answer:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, body=body, content_type="application/json")

    return answer


def in_pieces(body: bytes) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for at in range(0, len(body), 50_000):
            await response.write(body[at : at + 50_000])
            await asyncio.sleep(0.01)  # what was written so far is there before the rest is
        return response

    return answer


def test_a_schema_that_comes_in_pieces_is_read_to_its_end() -> None:
    assert learnt(in_pieces(json.dumps({"schema": TEXT}).encode())) == SchemaText("AVRO", TEXT)


def test_one_without_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "MOST_BYTES", 1 << 16)
    with pytest.raises(RegistryError, match="answers with more than"):
        learnt(in_pieces(json.dumps({"schema": TEXT}).encode()))


REFERENCE = {"name": "a", "subject": "s", "version": 1}
STRANGE: dict[str, Any] = {
    "a list": [CANARY],
    "a text": CANARY,
    "a number": 5,
    "null": None,
    "a schema that is none": {"schema": [CANARY]},
    "references that are a text": {"schema": "{}", "references": CANARY},
    "references that are a number": {"schema": "{}", "references": 5},
    "references that are texts": {"schema": "{}", "references": [CANARY]},
    "a reference without a name": {"schema": "{}", "references": [{"subject": CANARY}]},
    "a reference to another address": {"schema": "{}", "references": [{**REFERENCE, "version": f"1/../{CANARY}"}]},
}


@pytest.mark.parametrize("answer", STRANGE.values(), ids=STRANGE)
def test_what_is_no_answer_of_a_registry_is_asked_again(answer: Any) -> None:
    """A `RegistryError` is waited for; anything else would end the worker."""
    with pytest.raises(RegistryError) as caught:
        learnt(of_bytes(json.dumps(answer).encode()))
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize("status", [200, 302, 400, 404, 500])
def test_a_page_of_html_is_quoted_nowhere(status: int) -> None:
    with pytest.raises(RegistryError) as caught:
        learnt(of_bytes(f"<html>{CANARY}".encode(), status))
    assert CANARY not in str(caught.value)


def test_references_in_a_circle_are_asked_for_once() -> None:
    asked = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.json_response({"schema": '"string"', "references": [REFERENCE, {**REFERENCE, "name": "b"}]})

    found = learnt(answer)
    assert found is not None
    assert dict(found.references) == {"a": '"string"', "b": '"string"'}
    assert len(asked) == 3


def test_a_schema_whose_reference_is_not_there_yet_is_none_yet() -> None:
    """A copy of the registry may lag behind for one and not for the other; what comes later is read with both."""
    there = False

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/schemas/types":
            return web.json_response(["AVRO"])
        if request.path.startswith("/subjects/") and not there:
            return web.json_response({"error_code": 40402}, status=404)
        return web.json_response(
            {"schema": '"string"', "references": [] if request.path.startswith("/subjects/") else [REFERENCE]}
        )

    async def scenario() -> tuple[bool, SchemaText]:
        nonlocal there
        book = SchemaBook()
        book.expect("AVRO", lambda text: text)
        async with answering(answer) as client:
            await client.learn(book, [REF])
            lacking, there = book.lacks(REF), True
            book.ask_again([REF])
            await client.learn(book, [REF])
        found: SchemaText = book.reader(REF, "AVRO")
        return lacking, found

    assert asyncio.run(scenario()) == (True, SchemaText("AVRO", '"string"', (("a", '"string"'),)))


# --- the schemas of typed output -------------------------------------------------------------------------------------


def with_output(url: str, *formats: str) -> Config:
    streams = [
        stream_table(f"s-{number}", output={"format": each}, privacy={"epsilon": 1.0, "unit": "event"})
        for number, each in enumerate(formats)
    ]
    kafka = {"bootstrap": "b:9092", "registry": {"url": url}}
    return config_from_mapping({"job": {"name": "j"}, "kafka": kafka, "streams": streams})


def registered(answer: Answer, *formats: str) -> dict[str, int]:
    """Raises: what `schema_ids` raises."""

    async def scenario() -> dict[str, int]:
        async with standing_in(answer) as url:
            config = with_output(url, *formats)
            return await schema_ids(config, config.streams)

    return asyncio.run(scenario())


@pytest.mark.parametrize("known", [True, False])
def test_a_schema_is_looked_up_and_registered_where_it_is_not_there(known: bool) -> None:
    asked: list[tuple[str, str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        told = await request.json()
        asked.append((request.method, request.path, told["schemaType"]))
        if not known and not request.path.endswith("/versions"):
            return web.json_response({"error_code": 40401}, status=404)
        return web.json_response({"id": 7 if told["schemaType"] == "AVRO" else 8})

    assert registered(answer, "avro", "json", "json-schema") == {"s-0": 7, "s-2": 8}
    one, other = "/subjects/s-0.synthetic-value", "/subjects/s-2.synthetic-value"
    looked_up = [("POST", one, "AVRO"), ("POST", other, "JSON")]
    versions = [("POST", f"{path}/versions", kind) for _, path, kind in looked_up]
    assert asked == (looked_up if known else [looked_up[0], versions[0], looked_up[1], versions[1]])


@pytest.mark.parametrize(
    ("status", "reason"),
    [(409, "does not take the schema"), (403, "refuses this client"), (500, "does not take the schema")],
)
def test_a_schema_that_is_not_taken_is_refused_with_key_reason_and_fix(status: int, reason: str) -> None:
    async def answer(request: web.Request) -> web.Response:
        looked_up = not request.path.endswith("/versions")
        return web.json_response({"error_code": 1}, status=404 if looked_up else status)

    with pytest.raises(ConfigError) as refused:
        registered(answer, "json", "avro")
    (problem,) = refused.value.problems
    assert problem.key == "streams.s-1.output.format"
    assert reason in problem.reason
    assert "s-1.synthetic-value" in problem.reason
    assert "--register" in problem.fix


@pytest.mark.parametrize("number", [-1, 1 << 32])
def test_an_id_that_no_record_can_hold_is_refused(number: int) -> None:
    with pytest.raises(ConfigError, match="an id that no record can hold"):
        registered(of_bytes(json.dumps({"id": number}).encode()), "avro")


def test_a_registry_that_is_away_is_asked_for_typed_output_alone() -> None:
    with free_ports(1) as [port]:
        pass
    url = f"http://127.0.0.1:{port}"
    config = with_output(url, "json")
    assert asyncio.run(schema_ids(config, config.streams)) == {}
    typed = with_output(url, "json-schema")
    with pytest.raises(ConfigError, match="cannot be reached"):
        asyncio.run(schema_ids(typed, typed.streams))


async def test_a_schema_is_compiled_beside_the_event_loop_and_not_known_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 3.9 MiB took 4.6 s, in which a worker did nothing else for any stream."""
    loop, turns = threading.get_ident(), threading.Event()
    compiled: list[int] = []
    book = SchemaBook()
    encoding = ProtobufEncoding(book)
    real = protobuf._protoc

    def protoc(folder: str) -> bytes:
        compiled.append(threading.get_ident())
        assert compiled[-1] == loop or turns.wait(60), "the loop has its turn meanwhile"
        assert REF not in book, "a partition that knows of it reads on"
        return real(folder)

    monkeypatch.setattr(protobuf, "_protoc", protoc)
    schema = json.dumps({"schemaType": "PROTOBUF", "schema": 'syntax = "proto3"; message A { string b = 1; }'})
    async with answering(of_bytes(schema.encode())) as client:
        learning = asyncio.create_task(client.learn(book, [REF]))
        while not compiled and not learning.done():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        turns.set()
        await learning
    assert encoding.read(b"\0\0\0\0\7\0\x0a\1c", None) == {"b": "c"}
    assert len(compiled) == 1
    assert compiled != [loop]


async def test_what_a_thread_cannot_make_is_made_where_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a disk without room stops the streams that read with the schema, and nothing else."""
    book = SchemaBook()
    encoding = ProtobufEncoding(book)
    monkeypatch.setattr("tempfile.tempdir", "/proc/nowhere")
    schema = json.dumps({"schemaType": "PROTOBUF", "schema": "message A {}"})
    async with answering(of_bytes(schema.encode())) as client:
        await client.learn(book, [REF])
    with pytest.raises(StoreError):
        encoding.read(b"\0\0\0\0\7\0", None)


async def test_a_schema_of_a_kind_that_nobody_reads_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may write to a source of Avro names a schema of another kind as he likes."""
    monkeypatch.setattr(protobuf, "_protoc", lambda folder: pytest.fail("compiled"))
    book = SchemaBook()
    encoding = AvroEncoding(book)
    schema = json.dumps({"schemaType": "PROTOBUF", "schema": "message A {}"})
    async with answering(of_bytes(schema.encode())) as client:
        await client.learn(book, [REF])
    with pytest.raises(UnreadableError, match="UNUSABLE_SCHEMA"):
        encoding.read(b"\0\0\0\0\7\0", None)

"""The fault proxy reads frames right, changes nothing but addresses, and draws the same faults from the same seed."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import struct
import warnings
from collections import Counter

import pytest
from aiokafka.protocol.admin import ApiVersionRequest
from aiokafka.protocol.api import RequestHeader_v1
from aiokafka.protocol.coordination import FindCoordinatorResponse_v0, FindCoordinatorResponse_v1
from aiokafka.protocol.metadata import (
    MetadataResponse_v0,
    MetadataResponse_v1,
    MetadataResponse_v2,
    MetadataResponse_v3,
    MetadataResponse_v4,
    MetadataResponse_v5,
)
from aiokafka.protocol.transaction import EndTxnRequest_v0
from hypothesis import given
from hypothesis import strategies as st

from agents.kafka.topics import NO_ID, MetadataResponse12
from tests.crash.proxy.faults import TARGETS, Fault, Kind, Once, Seeded
from tests.crash.proxy.frames import (
    FIND_COORDINATOR,
    METADATA,
    MOST_BYTES,
    FrameError,
    Frames,
    Request,
    correlation_of,
    framed,
    parse_request,
    readdressed,
)
from tests.crash.proxy.server import Proxy

METADATA_ANSWERS = (
    MetadataResponse_v0, MetadataResponse_v1, MetadataResponse_v2, MetadataResponse_v3, MetadataResponse_v4,
    MetadataResponse_v5,
)  # fmt: skip
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
INT32 = st.integers(-(2**31), 2**31 - 1)
HOSTS = st.from_regex(r"[a-z0-9.-]{1,40}", fullmatch=True)
PORTS = st.integers(1, 65_535)
BROKERS = st.lists(st.tuples(st.integers(0, 99), HOSTS, PORTS, st.none() | TEXT), max_size=4)
HERE = ("proxy.example", 9)


@given(contents=st.lists(st.binary(max_size=60), max_size=8), cuts=st.lists(st.integers(1, 50)))
def test_frames_are_the_same_however_they_arrive(contents: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(framed, contents))
    frames, found, at = Frames(), [], 0
    for size in [*cuts, len(stream)]:
        found += frames.feed(stream[at : at + size])
        at += size
    assert found == contents
    assert frames.rest == 0


@given(contents=st.binary(min_size=1, max_size=60), missing=st.integers(1, 60))
def test_a_part_of_a_frame_is_none(contents: bytes, missing: int) -> None:
    frames = Frames()
    sent = framed(contents)[:-missing] if missing < len(contents) + 4 else b""
    assert frames.feed(sent) == []
    assert frames.rest == len(sent)


@pytest.mark.parametrize("size", [-1, -(2**31), MOST_BYTES + 1])
def test_an_impossible_length_is_refused(size: int) -> None:
    with pytest.raises(FrameError):
        Frames().feed(struct.pack(">i", size))


@given(correlation=INT32, client=st.none() | TEXT, epoch=st.integers(0, 2**15 - 1))
def test_the_head_of_a_request_is_what_aiokafka_wrote(correlation: int, client: str | None, epoch: int) -> None:
    body = EndTxnRequest_v0("id", 1, epoch, True)
    head = RequestHeader_v1(body, correlation_id=correlation, client_id=client)
    assert parse_request(head.encode() + body.encode()) == Request(26, 0, correlation, client)


@given(frame=st.binary(max_size=80))
def test_any_bytes_are_a_request_or_refused(frame: bytes) -> None:
    try:
        request = parse_request(frame)
    except FrameError:
        return
    assert request.name


def test_a_request_without_a_client_has_a_name() -> None:
    body = ApiVersionRequest().prepare({})
    assert parse_request(RequestHeader_v1(body, client_id=None).encode() + body.encode()).name == "ApiVersions"


@given(brokers=BROKERS, topic=TEXT, host=st.text("a", min_size=1, max_size=300))
def test_flexible_metadata_names_the_proxy_too(
    brokers: list[tuple[int, str, int, str | None]], topic: str, host: str
) -> None:
    def answer(listed: list[tuple[int, str, int, str | None]]) -> bytes:
        topics = [(0, topic, NO_ID, False, [(0, 3, 1, 9, [1, 2], [1], [], {})], 0, {})]
        body = MetadataResponse12(7, [(*each, {}) for each in listed], None, 1, topics, {})
        return struct.pack(">ib", 5, 0) + body.encode()

    request = Request(METADATA, 12, 5, "c")
    moved = readdressed(answer(brokers), request, lambda address: (host, 9))
    assert moved == answer([(node, host, 9, rack) for node, _, _, rack in brokers])


def answered(correlation: int, body: object) -> bytes:
    return struct.pack(">i", correlation) + body.encode()  # type: ignore[attr-defined]


@given(version=st.integers(0, 5), correlation=INT32, brokers=BROKERS, topic=TEXT)
def test_metadata_names_the_proxy_and_is_else_unchanged(
    version: int, correlation: int, brokers: list[tuple[int, str, int, str | None]], topic: str
) -> None:
    kind = METADATA_ANSWERS[version]

    def answer(listed: list[tuple[int, str, int, str | None]]) -> bytes:
        partition = (0, 3, 1, [1, 2], [1], *([[2]] if version >= 5 else []))
        fields = {
            "throttle_time_ms": 7,
            "brokers": [each if version >= 1 else each[:3] for each in listed],
            "cluster_id": None,
            "controller_id": 1,
            "topics": [(0, topic, *([True] if version >= 1 else []), [partition])],
        }
        return answered(correlation, kind(*(fields[name] for name in kind.SCHEMA.names)))

    request = Request(METADATA, version, correlation, "c")
    moved = readdressed(answer(brokers), request, lambda address: HERE)
    assert moved == answer([(node, *HERE, rack) for node, _, _, rack in brokers])
    assert correlation_of(moved) == correlation
    assert readdressed(answer(brokers), request, lambda address: address) == answer(brokers)
    for end in range(18 if brokers else 8):  # within the first broker's address, or before the number of brokers
        with pytest.raises(FrameError):
            readdressed(answer(brokers)[:end], request, lambda address: HERE)


@given(version=st.integers(0, 1), host=HOSTS | st.just(""), port=PORTS, message=st.none() | TEXT)
def test_a_coordinator_is_the_proxy(version: int, host: str, port: int, message: str | None) -> None:
    def answer(address: tuple[str, int]) -> bytes:
        if version == 0:
            return answered(5, FindCoordinatorResponse_v0(0, 1, *address))
        return answered(5, FindCoordinatorResponse_v1(0, 0, message, 1, *address))

    request = Request(FIND_COORDINATOR, version, 5, "c")
    expected = answer(HERE if host else ("", port))
    assert readdressed(answer((host, port)), request, lambda address: HERE) == expected


def test_a_version_that_is_not_understood_is_refused() -> None:
    for api, version in ((METADATA, 13), (FIND_COORDINATOR, 3)):
        with pytest.raises(FrameError):
            readdressed(bytes(99), Request(api, version, 1, "c"), lambda address: HERE)


def requests(names: list[int]) -> list[Request]:
    keys = {"EndTxn": 26, "Produce": 0, "Fetch": 1, "Heartbeat": 12, "JoinGroup": 11}
    return [Request(list(keys.values())[name], 0, number, "c") for number, name in enumerate(names)]


@given(seed=st.integers(0, 99), names=st.lists(st.integers(0, 4), max_size=300), most=st.none() | st.integers(0, 9))
def test_equal_seeds_and_requests_give_equal_faults(seed: int, names: list[int], most: int | None) -> None:
    plans = [Seeded(seed, most=most, apart=(1, 9)) for _ in range(2)]
    one, other = ([plan(request) for request in requests(names)] for plan in plans)
    assert one == other
    faults = [fault for fault in one if fault is not None]
    assert len(faults) == plans[0].faults <= (len(names) if most is None else most)


def test_every_target_and_every_kind_has_its_turn() -> None:
    plan = Seeded(1, apart=(30, 60))
    keys = {26: 1, 24: 1, 25: 1, 28: 1, 0: 40, 22: 1, 1: 200, 11: 1, 12: 20, 8: 1}
    number = 0
    for _ in range(300):
        for key, times in keys.items():
            for _ in range(times):
                number += 1
                plan(Request(key, 0, number, "c"))
    by_name, by_kind = Counter[str](), Counter[str]()
    for (name, kind), count in plan.done.items():
        by_name[name] += count
        by_kind[kind] += count
    assert set(by_name) == set(TARGETS)
    assert set(by_kind) == {kind.value for kind in Kind}
    assert by_name["Fetch"] < plan.faults / 3  # though it is three quarters of all requests


def test_once_is_once() -> None:
    plan = Once("EndTxn", Fault(Kind.HOLD), nth=2)
    faults = [plan(request) for request in requests([0, 1, 0, 0, 1])]
    assert [fault is not None for fault in faults] == [False, False, True, False, False]


@pytest.mark.parametrize("turns", range(7))
def test_who_connects_while_the_proxy_ends_is_let_go(turns: int) -> None:
    """However far the event loop is with a new connection: it is closed, and at once."""

    async def stalls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstreams.append(writer)

    async def scenario() -> None:
        async with await asyncio.start_server(stalls, "127.0.0.1", 0) as broker:
            host, port = broker.sockets[0].getsockname()
            async with Proxy(f"{host}:{port}") as proxy:
                # Not by the event loop, which would have accepted it meanwhile.
                clients.extend(socket.create_connection(proxy.address) for _ in range(3))
                for _ in range(turns):
                    await asyncio.sleep(0)
            for each in upstreams:
                each.transport.abort()
            await asyncio.sleep(0)

    upstreams: list[asyncio.StreamWriter] = []
    clients: list[socket.socket] = []
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        asyncio.run(scenario())
        gc.collect()
    assert [str(each.message) for each in seen] == []
    for client in clients:
        with client, contextlib.suppress(ConnectionResetError):
            client.settimeout(5)
            assert client.recv(1) == b""

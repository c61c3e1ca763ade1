"""The fault proxy reads frames right, changes nothing but addresses, and draws the same faults from the same seed."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import socket
import struct
import warnings
from collections import Counter
from typing import Any

import pytest
from aiokafka.protocol.api import RequestHeader_v1
from aiokafka.protocol.transaction import EndTxnRequest_v0
from hypothesis import given
from hypothesis import strategies as st

from agents.kafka.topics import NO_ID
from tests.crash.proxy.faults import TARGETS, Fault, Kind, Once, Seeded
from tests.crash.proxy.frames import (
    ADDRESSED,
    FIND_COORDINATOR,
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

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
INT32 = st.integers(-(2**31), 2**31 - 1)
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


@pytest.mark.parametrize(("api", "version"), ADDRESSED)
def test_every_answer_that_names_brokers_names_the_proxy_and_is_else_unchanged(api: int, version: int) -> None:
    kind, head = ADDRESSED[api, version], struct.pack(">i", 5) + (b"\0" if version == 12 else b"")

    def answer(*addresses: tuple[str, int]) -> bytes:
        tags: list[Any] = [{}] if version == 12 else []
        partition = (0, 3, 1, *([9] if tags else []), [1, 2], [1], *([[2]] if version >= 5 else []), *tags)
        fields = {
            "throttle_time_ms": 7,
            "brokers": [(1, *each, *(["rack"] if version >= 1 else []), *tags) for each in addresses],
            "cluster_id": None,
            "controller_id": 1,
            "topics": [
                (0, "topic", *([NO_ID] if tags else []), *([True] if version >= 1 else []), [partition],
                 *([0, {}] if tags else [])),
            ],
            "tags": {},
            "error_code": 0, "error_message": None, "coordinator_id": 1, "host": addresses[0][0],
            "port": addresses[0][1],
        }  # fmt: skip
        return head + kind(*(fields[name] for name in kind.SCHEMA.names)).encode()

    request = Request(api, version, 5, "c")
    assert readdressed(answer(("a", 1), ("b.example", 65_535)), request, lambda address: HERE) == answer(HERE, HERE)
    assert correlation_of(answer(HERE)) == 5
    with pytest.raises(FrameError):
        readdressed(answer(HERE)[:12], request, lambda address: HERE)
    with pytest.raises(FrameError, match="not understood"):
        readdressed(answer(HERE), dataclasses.replace(request, version=13), lambda address: HERE)
    if api == FIND_COORDINATOR:
        assert readdressed(answer(("", -1)), request, lambda address: HERE) == answer(("", -1)), "none is known"


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

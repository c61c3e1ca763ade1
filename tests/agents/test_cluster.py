"""Why a cluster cannot be used: what waiting cures and what it does not."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from typing import Any

import pytest
from aiokafka.errors import (
    KafkaConnectionError,
    ProducerFenced,
    RequestTimedOutError,
    SaslAuthenticationFailed,
    TopicAuthorizationFailedError,
)

from agents.kafka import cluster
from agents.kafka.cluster import access_error, passes, probe, said
from agents.kafka.lifecycle.advice import advice, explain
from agents.kafka.lifecycle.stops import Stops, StreamStoppedError, alone
from agents.kafka.topics import admin_client
from schemas.config.server import Kafka
from schemas.errors import (
    AccessError,
    BrokerError,
    ConfigError,
    DescriptorsError,
    GapError,
    OutcomeUnknownError,
    StoreError,
    TopicError,
)

KAFKA = Kafka(bootstrap="127.0.0.1:1")


def wrapped(error: Exception) -> BrokerError:
    """As our own clients raise it."""
    try:
        raise BrokerError("no transactions") from error
    except BrokerError as outer:
        return outer


REFUSALS = [
    SaslAuthenticationFailed("for bob"),
    TopicAuthorizationFailedError("raw.taxi"),
    ssl.SSLCertVerificationError(1, "certificate verify failed"),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("wrap", [lambda error: error, wrapped])
def test_a_refusal_is_named_and_not_waited_for(refusal: Exception, wrap: Any) -> None:
    error = wrap(refusal)
    assert not passes(error)
    assert advice(access_error(error) or error).section == "Refused by the cluster"


@pytest.mark.parametrize(
    "error",
    [
        BrokerError("away"),
        OutcomeUnknownError("EndTxn"),
        ProducerFenced(),
        RequestTimedOutError(),
        TimeoutError(),
        ConnectionResetError(),
        ssl.SSLEOFError(8, "EOF occurred in violation of protocol"),
        wrapped(KafkaConnectionError()),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_the_network_did_is_met_by_another_life(error: Exception) -> None:
    assert passes(error)


@pytest.mark.parametrize(
    "error",
    [
        StoreError("full"),
        TopicError("missing"),
        ConfigError([]),
        GapError("gap"),
        ValueError(),
        MemoryError(),
        OSError(28, ""),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_another_life_would_meet_again_ends_the_worker(error: Exception) -> None:
    assert not passes(error)


def stopped_the_last_stream() -> None:
    """Raises: what the stream stopped for, as its task raises it."""
    stops = Stops.of(["s"])
    try:
        with alone("s"):
            raise GapError("stream s: blocks 1 to 2 are missing")
    except StreamStoppedError as stopped:
        stops.add("s", "publish", 0, stopped.cause)


def test_what_stopped_the_last_stream_ends_the_worker() -> None:
    """Its chain goes in a circle: raised from inside of the stream that it stopped, it is its own context's cause."""
    with pytest.raises(GapError) as caught:
        stopped_the_last_stream()
    assert caught.value.__context__ is not None
    assert caught.value.__context__.__cause__ is caught.value
    assert access_error(caught.value) is None
    assert not passes(caught.value)


def test_a_wrong_password_is_told_by_every_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """aiokafka's clients only say that they could not bootstrap."""

    async def refuse(*_: Any, **__: Any) -> None:
        raise SaslAuthenticationFailed

    async def ask() -> None:
        async with admin_client(KAFKA):
            raise AssertionError

    monkeypatch.setattr(cluster, "create_conn", refuse)
    for question in (lambda: probe(KAFKA), ask):
        with pytest.raises(AccessError, match=r"authentication failed: 127\.0\.0\.1:1 refused"):
            asyncio.run(question())


def test_too_few_descriptors_are_no_fault_of_disk_or_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a question to the brokers meets it, whatever a client then made of it, and in an error of the system."""

    async def no_more(*_: Any, **__: Any) -> None:
        raise KafkaConnectionError from OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(cluster, "create_conn", no_more)
    with pytest.raises(DescriptorsError) as caught:
        asyncio.run(probe(KAFKA))
    for error in (caught.value, OSError(errno.ENFILE, "")):
        assert not passes(error)
        assert "ulimit -n" in explain(said(error))
        assert "disk" not in explain(said(error))


@pytest.mark.parametrize("kind", [AssertionError, KeyError])
def test_an_error_of_the_program_says_where_it_was(kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        raise kind("a value of somebody")
    told = explain(said(caught.value))
    assert f"{kind.__name__} in {__name__}, line " in told
    assert "somebody" not in told


def test_nobody_there_is_told_for_each_server() -> None:
    with pytest.raises(
        BrokerError, match=r"no answer from the cluster at .*: 127\.0\.0\.1:1 refused the .*; 127\.0\.0\.1:2 r"
    ):
        asyncio.run(probe(Kafka(bootstrap="127.0.0.1:1,127.0.0.1:2")))


def test_one_server_that_answers_is_enough_and_the_others_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    gone: list[str] = []

    async def ask(server: str, *_: Any) -> None:
        if server == "silent:1":
            try:
                await asyncio.Event().wait()
            finally:
                gone.append(server)

    monkeypatch.setattr(cluster, "ask", ask)
    kafka = Kafka(bootstrap="silent:1,answers:1")
    assert asyncio.run(cluster.unanswered(kafka, "no answer")) is None
    assert gone == ["silent:1"]


@pytest.mark.parametrize(("others", "kind"), [(True, AccessError), (False, BrokerError)])
def test_only_where_every_server_refuses_waiting_is_in_vain(
    monkeypatch: pytest.MonkeyPatch, others: bool, kind: type[BrokerError]
) -> None:
    async def ask(server: str, *_: Any) -> BrokerError:
        return (AccessError if server == "a:1" or others else BrokerError)(f"{server} says no. What to do: ask it")

    monkeypatch.setattr(cluster, "ask", ask)
    error = asyncio.run(cluster.unanswered(Kafka(bootstrap="a:1,b:1"), "no answer"))
    assert type(error) is kind
    assert str(error) == "no answer: a:1 says no; b:1 says no. What to do: ask it"


def test_a_broker_that_takes_connections_and_stalls_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "ASK_TIMEOUT_MS", 200)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        kafka = Kafka(bootstrap=f"127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(BrokerError, match=r"no answer from the cluster .* did not answer in time"):
            asyncio.run(probe(kafka))

"""The embedded broker is a real Kafka that can be crashed and stalled, and that leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

import agents.local.broker.embedded
import agents.local.broker.jars
from agents.local.broker.embedded import EmbeddedBroker, ExternalBroker, broker_from_env
from agents.local.broker.jars import BOOTSTRAP_VARIABLE, jars
from schemas.errors import BrokerError

pytestmark = pytest.mark.kafka
WATCHED = 60.0


@pytest.fixture(scope="module")
def own() -> Iterator[EmbeddedBroker]:
    """A broker of this module's own, because it is killed."""
    with EmbeddedBroker() as running:
        yield running


async def create(bootstrap: str, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, 1, 1)])
    finally:
        await admin.close()


async def produce(bootstrap: str, topic: str, values: list[bytes], **settings: object) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **settings)
    await producer.start()
    try:
        for value in values:
            await producer.send_and_wait(topic, value)
    finally:
        await producer.stop()


async def consume(bootstrap: str, topic: str) -> list[bytes]:
    # Not seek_to_beginning: it can lose against the first look-up of the default reset, which is to the end.
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        values: list[bytes] = []
        while await consumer.position(partition) < end:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                values += [record.value for record in records]
        return values
    finally:
        await consumer.stop()


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WATCHED
    while not condition():
        assert time.monotonic() < deadline, f"{what} not seen within {WATCHED} s"
        time.sleep(0.02)


def gone(pid: int) -> bool:
    """True for a zombie too: it only waits for its parent."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return not state.strip() or state.strip().startswith("Z")


def test_records_survive_a_crash_at_the_same_address(own: EmbeddedBroker) -> None:
    address = own.bootstrap
    asyncio.run(create(address, "survivor"))
    asyncio.run(produce(address, "survivor", [b"one", b"two"]))
    own.kill()
    assert not own.running
    own.start()
    assert own.bootstrap == address
    asyncio.run(produce(address, "survivor", [b"three"]))
    assert asyncio.run(consume(address, "survivor")) == [b"one", b"two", b"three"]


def test_a_paused_broker_keeps_silent_and_then_answers(own: EmbeddedBroker) -> None:
    asyncio.run(create(own.bootstrap, "stalled"))

    async def scenario() -> bool:
        producer = AIOKafkaProducer(bootstrap_servers=own.bootstrap, acks="all")
        await producer.start()
        try:
            await producer.send_and_wait("stalled", b"before")
            own.pause()
            try:
                answer = await producer.send("stalled", b"during")
                silent = not (await asyncio.wait([answer], timeout=1.0))[0]
            finally:
                own.resume()
            await answer
        finally:
            await producer.stop()
        return silent

    assert asyncio.run(scenario())
    assert asyncio.run(consume(own.bootstrap, "stalled")) == [b"before", b"during"]


def test_it_starts_from_within_an_event_loop(own: EmbeddedBroker) -> None:
    async def scenario() -> None:
        own.kill()
        own.start()

    asyncio.run(scenario())
    assert own.running


def test_topics_are_never_made_by_accident(own: EmbeddedBroker) -> None:
    async def scenario() -> set[str]:
        admin = AIOKafkaAdminClient(bootstrap_servers=own.bootstrap)
        await admin.start()
        try:
            await admin.describe_topics(["misspelt"])
            return set(await admin.list_topics())
        finally:
            await admin.close()

    assert "misspelt" not in asyncio.run(scenario())


def test_it_ends_with_the_process_that_started_it_even_by_sigkill() -> None:
    program = (
        "import sys, time\n"
        "from agents.local.broker.embedded import EmbeddedBroker\n"
        "broker = EmbeddedBroker()\n"
        "broker.start()\n"
        "print(broker._process.pid, broker.log_path.parent, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, folder = parent.stdout.readline().split()
        assert not gone(int(pid))
        parent.send_signal(signal.SIGKILL)
    until(lambda: gone(int(pid)), "the end of the orphaned broker")
    until(lambda: not Path(folder).exists(), "the removal of its folder")


def test_stop_removes_its_folder_and_may_be_repeated() -> None:
    broker = EmbeddedBroker()
    broker.start()
    folder = broker.log_path.parent
    broker.stop()
    broker.stop()
    assert not folder.exists()
    with pytest.raises(BrokerError, match=r"call start\(\) first"):
        _ = broker.bootstrap


def test_a_failed_start_quotes_kafkas_log_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(
        agents.local.broker.embedded, "_PROPERTIES", agents.local.broker.embedded._PROPERTIES + "num.io.threads=none\n"
    )
    with pytest.raises(BrokerError, match=r"(?s)did not start.*Fix: .*num\.io\.threads"):
        EmbeddedBroker().start()
    assert list(tmp_path.iterdir()) == []


def test_a_jar_with_another_hash_is_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    smallest = next(
        jar
        for jar in agents.local.broker.jars._pinned_jars(agents.local.broker.jars.BROKER)
        if jar.artifact == "slf4j-simple"
    )
    planted = agents.local.broker.jars._Jar("0" * 64, smallest.group, smallest.artifact, smallest.version)
    monkeypatch.setattr(agents.local.broker.jars, "_pinned_jars", lambda _: [planted])
    monkeypatch.setenv(agents.local.broker.jars.CACHE_VARIABLE, str(tmp_path))
    with pytest.raises(BrokerError, match="its hash differs"):
        jars()
    assert not list(tmp_path.rglob("*.jar"))


def test_no_way_to_the_jars_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(agents.local.broker.jars.CACHE_VARIABLE, str(tmp_path))
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(BrokerError, match=r"(?s)could not be downloaded.*Fix: .*HTTPS_PROXY"):
        jars()


def test_a_cache_that_cannot_be_written_to_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Below a file rather than in a read-only folder, which would not stop root.
    (tmp_path / "file").touch()
    monkeypatch.setenv(agents.local.broker.jars.CACHE_VARIABLE, str(tmp_path / "file"))
    with pytest.raises(BrokerError, match=agents.local.broker.jars.CACHE_VARIABLE):
        jars()


def test_downloads_are_announced_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    smallest = next(
        jar
        for jar in agents.local.broker.jars._pinned_jars(agents.local.broker.jars.BROKER)
        if jar.artifact == "slf4j-simple"
    )
    monkeypatch.setattr(agents.local.broker.jars, "_pinned_jars", lambda _: [smallest])
    monkeypatch.setenv(agents.local.broker.jars.CACHE_VARIABLE, str(tmp_path))
    told: list[tuple[str, int, int]] = []
    for _ in range(2):
        jars(lambda what, done, of: told.append((what, done, of)))
    assert told == [("downloading Kafka 4.3.0 (1 jars)", 0, 1), ("downloading Kafka 4.3.0 (1 jars)", 1, 1)]


def test_another_cluster_is_used_and_never_disturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, "kafka.example:9092")
    with broker_from_env() as broker:
        assert isinstance(broker, ExternalBroker)
        assert broker.bootstrap == "kafka.example:9092"
        for act in (broker.kill, broker.pause, broker.resume):
            with pytest.raises(BrokerError, match=BOOTSTRAP_VARIABLE):
                act()
    monkeypatch.delenv(BOOTSTRAP_VARIABLE)
    assert isinstance(broker_from_env(), EmbeddedBroker)


def test_the_sessions_broker_answers(bootstrap: str) -> None:
    topic = f"session-{os.getpid()}"
    asyncio.run(create(bootstrap, topic))
    asyncio.run(produce(bootstrap, topic, [b"x"], transactional_id=None))
    assert asyncio.run(consume(bootstrap, topic)) == [b"x"]

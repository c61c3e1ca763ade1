"""`privstream dev`: a configuration with everything around it, on this machine; nothing of it is left behind.

The broker is its own, always: what the configuration says of a cluster, a collector, secrets and folders is not used.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import orjson
import tomlkit
from aiokafka import TopicPartition

from agents.kafka.clients import follower
from agents.kafka.lifecycle.refusals import Seen
from agents.kafka.topics import create_topics
from agents.local.broker.embedded import EmbeddedBroker, Watchdog, broker_from_env, free_ports
from agents.local.offline.domains import check_streams
from agents.local.offline.files import rows_for
from agents.local.offline.replay import Replayed, replay
from agents.local.offline.seen import RowsSeen
from agents.local.offline.simulate import driven_by_ticks
from agents.protocol.replay import check_writable
from agents.readers.watch import LivePage, serve
from engines.core.noise import fresh_seed
from schemas.blocks import Block, Tally
from schemas.config import Config, Stream, load_config
from schemas.config.formats import BY_SCHEMA
from schemas.config.values import PublicFile, Section
from schemas.errors import PrivstreamError
from schemas.topics import Topics

KEPT_OF_JOB = ("name", "max_clock_skew", "keep_private_log", "retired")
SESSION_S = 6
"""Nobody waits for a worker that is killed here."""


def local_copy(
    text: str,
    config: Config,
    *,
    bootstrap: str,
    folder: Path,
    user_key: Path,
    metrics_port: int,
    times: Mapping[str, Mapping[str, str]],
    audits: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return the text of a configuration file that runs on this machine; `config` was read from it.

    Args:
        folder: for the state tables. user_key: takes the place of every key file.
        times: stream -> keys of its `[streams.time]` that are others here.
        audits: stream -> its audit topic, where it has none of its own.
    """
    document: Any = tomlkit.parse(text.removeprefix("\ufeff"))
    kept = {key: value for key, value in document.get("job", {}).items() if key in KEPT_OF_JOB}
    document["job"] = {**kept, "data_dir": str(folder / "state"), "http_port": metrics_port}
    partitions = config.kafka.partitions
    kafka = {"bootstrap": bootstrap, "partitions": partitions, "replication_factor": 1, "session_timeout_s": SESSION_S}
    document["kafka"] = kafka
    for table, stream in zip(document["streams"], config.streams, strict=True):
        _name_files(table, stream)
        if stream.privacy.bounds_users:
            table["privacy"]["user_key_file"] = str(user_key)
        if stream.name in audits:
            table["audit"] = audits[stream.name]
        for key, value in times.get(stream.name, {}).items():
            table["time"][key] = value
        table.pop("output", None)  # its schema needs a registry
    return tomlkit.dumps(document)


def _name_files(table: Any, section: Section) -> None:
    """Name public files by their whole path: the copy lies in another folder."""
    for name, known in type(section).model_fields.items():
        key, value = known.alias or name, getattr(section, name)
        if key not in table:
            continue
        if isinstance(value, PublicFile):
            table[key] = str(Path(value.path).absolute())
        elif isinstance(value, Section):
            _name_files(table[key], value)
        elif isinstance(value, tuple) and value and isinstance(value[0], Section):
            for inner, each in zip(table[key], value, strict=True):
                _name_files(inner, each)


LAST_LINES = 15


class WorkerEndedError(PrivstreamError):
    """The worker of a run on this machine has ended, and nobody asked it to."""


class WorkerProcess:
    """`privstream run` as a process of its own, as in a deployment; it ends with this one, however this one ends, and
    so does the folder of its log.
    """

    def __init__(self, config: Path, environment: Mapping[str, str], folder: Path) -> None:
        self._command = [sys.executable, "-m", "agents.cli", "run", str(config)]
        self._environment = dict(environment)
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: Watchdog | None = None

    @property
    def log(self) -> Path:
        """The file that it logs to."""
        return self._folder / "worker.log"

    def start(self) -> None:
        with self.log.open("wb") as log:
            # A session of its own: Ctrl-C is for the command, which then stops the worker in order.
            self._process = subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )
        self._watchdog = Watchdog(self._process.pid, self._folder)

    def check(self) -> None:
        """Raises: WorkerEndedError."""
        if self._process is not None and (code := self._process.poll()) is not None:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-LAST_LINES:])
            raise WorkerEndedError(f"the worker ended with code {code}. Its last lines:\n{tail}")

    def stop(self) -> None:
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is not None:
            watchdog.call_off()
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what would win over a configuration file."""
    return {name: value for name, value in environment.items() if not name.startswith("PRIVSTREAM_")}


SOURCE_PARTITIONS = 4
POLL_MS = 200
RECORDS_S = 1.0
"""Least time between two reports of what became of a stream's records."""
CONFIG = "dev.toml"
AUDIT = "audit"


@dataclass(slots=True)
class StreamOutcome:
    """What the job has made of one stream so far: its published steps, and the synthetic records that these added and
    removed.
    """

    stream: str
    steps: int = 0
    added: int = 0
    removed: int = 0
    _totals: dict[int, Tally] = field(default_factory=dict)

    def ingested(self, block: Block) -> None:
        """Add a block. It counts all records of its partition, so it takes the place of the one before it."""
        self._totals[block.partition] = block.totals

    def published(self, entry: Mapping[str, Any]) -> None:
        """Add a step's entry in the ledger."""
        self.steps += 1
        self.added += entry["added"]
        self.removed += entry["removed"]

    @property
    def records(self) -> Seen:
        """All records of its source, by what became of them. NOT private."""
        return Seen(sum((Seen.of(tally).tally for tally in self._totals.values()), Counter()))


class DevScreen(Protocol):
    """Whoever is at the terminal."""

    def say(self, line: str) -> None: ...

    def starting(self, what: str, done: int, total: int) -> None:
        """How far Kafka is."""

    def up(self, running: DevRun) -> None:
        """All is up, and the addresses can be told."""

    def looked(self, stream: str, seen: RowsSeen) -> None:
        """What becomes of the next rows of its file."""

    def rows(self, stream: str, done: int, total: int) -> None:
        """How many rows of its file are replayed."""

    def replayed(self, done: Replayed) -> None: ...

    def records(self, stream: str, records: Seen) -> None:
        """More records of its source were read: all of them so far, NOT private."""

    def step(self, stream: str, entry: Mapping[str, Any]) -> None:
        """A step is public: its entry in the ledger."""

    def measured(self, stream: str, utility: Mapping[str, Any]) -> None:
        """A step is compared with the truth: its record for operators, NOT private."""

    def done(self) -> None:
        """All steps that the files close are public, and compared with the truth."""

    def ended(self, outcome: StreamOutcome) -> None:
        """The run is over: what came of a stream, NOT private."""


@dataclass(frozen=True, slots=True)
class Played:
    """A file that is replayed into a stream's source, at so many event seconds per second; None: as fast as can be."""

    file: Path
    speed: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DevOptions:
    """How to run.

    Attributes:
        files: stream -> what is replayed into its source. The sources of all others wait for producers.
        exit_when_done: end when all steps that the files close are public, and compared with the truth.
        page: serve the live page.
        own_broker: start a broker, whatever the environment names.
    """

    files: Mapping[str, Played] = field(default_factory=dict)
    exit_when_done: bool = False
    allow_refused: bool = False
    page: bool = True
    own_broker: bool = True


@dataclass(frozen=True, slots=True)
class DevRun:
    """What is up.

    Attributes:
        config: as it runs here. path: its file, for other commands while this goes on.
        log: of the worker. metrics: of the worker, for operators only.
    """

    config: Config
    path: Path
    log: Path
    page: LivePage | None

    @property
    def metrics(self) -> str:
        job = self.config.job
        return f"http://{job.http_host}:{job.http_port}/metrics"


def dev(text: str, config: Config, options: DevOptions, screen: DevScreen) -> None:
    """Run until interrupted, or, if it is asked for, until the files' steps are public. Leaves nothing behind.

    Args: text, config: a configuration file, and what was read from it without a cluster and its settings.
    Raises: ConfigError, FileError, ReplayError, BrokerError, WorkerEndedError; KeyboardInterrupt once all is stopped.
    """
    check_readable(config)
    for name in options.files:
        check_writable(config.stream(name))
    for stream in config.streams:
        if stream.output.typed:
            screen.say(
                f"stream {stream.name}: the synthetic records are plain JSON here: of [streams.output] format = "
                f'"{stream.output.format}" the schema is registered, and dev has no registry'
            )
    times = {name: _times(config.stream(name), played.file, screen) for name, played in options.files.items()}
    environment = without_settings(os.environ)
    # The clients complain while new topics find their leaders; they try again, and the screen is for the newcomer.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    with (
        _terminable(),
        tempfile.TemporaryDirectory(prefix="privstream-dev-") as scratch,
        contextlib.ExitStack() as stack,
    ):
        folder = Path(scratch)
        key = folder / "user.key"
        key.touch(mode=0o600)
        key.write_bytes(fresh_seed())
        screen.say("starting Apache Kafka ...")
        broker = stack.enter_context(
            EmbeddedBroker(progress=screen.starting) if options.own_broker else broker_from_env(screen.starting)
        )
        with free_ports(1) as [metrics_port]:
            pass
        here = folder / CONFIG
        copy = local_copy(
            text, config, bootstrap=broker.bootstrap, folder=folder, user_key=key, metrics_port=metrics_port,
            times=times, audits=_audits(config, options, screen),
        )  # fmt: skip
        here.write_text(copy, encoding="utf-8")
        config = load_config(here, environment)
        check_streams(config)
        for stream in config.streams:
            if (said := stream.privacy.epsilon_warning) is not None:
                screen.say(f"ATTENTION: stream {stream.name}: {said}")
        worker = WorkerProcess(here, environment, folder)
        stack.callback(worker.stop)
        asyncio.run(_run(config, here, worker, options, screen))


def check_readable(config: Config) -> None:
    """Raises: PrivstreamError where records can be read with schemas alone, which only the configured registry has."""
    for stream in config.streams:
        for key, chosen in (("format", stream.format), ("key_format", stream.key_format)):
            if chosen in BY_SCHEMA:
                raise PrivstreamError(
                    f'stream {stream.name}: {key} is "{chosen}", which is read with schemas of a registry. dev has '
                    "none, and does not use the configured one, so that nothing reaches your cluster. Fix: try a copy "
                    'of the file with format = "json" (and key_format = "text"), whose fields have the same names; or '
                    "take simulate for rows of a file, and run for a test cluster with a registry."
                )


def _times(stream: Stream, file: Path, screen: DevScreen) -> dict[str, str]:
    """Return the keys of `[streams.time]` that must be others for a file to be replayed."""
    time = driven_by_ticks(stream, rows_for(file, stream)).time
    changed = {key: getattr(time, key) for key in ("clock", "start") if getattr(time, key) != getattr(stream.time, key)}
    if "clock" in changed:
        screen.say(
            f'stream {stream.name}: clock is "{stream.time.clock}" in the file. Here the times of the rows say when a '
            'step is over, as with clock = "replay"; nobody waits for the wall clock'
        )
    if "start" in changed:
        screen.say(f'stream {stream.name}: start is "now" in the file. Here it is the time of the first row')
    return changed


def _audits(config: Config, options: DevOptions, screen: DevScreen) -> dict[str, str]:
    """Return an audit topic for each stream with a file that has none: its rows are a truth to compare with."""
    audits: dict[str, str] = {}
    taken = {topic for each in config.streams for topic in (each.source, each.audit)}
    for name in options.files:
        if config.stream(name).audit is None:
            audits[name] = next(topic for n in count() if (topic := f"{AUDIT}{n or ''}.{name}") not in taken)
            screen.say(
                f"stream {name}: no audit topic in the file. Here it is {audits[name]}, so that operators see errors"
            )
    return audits


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM stop everything in order, as Ctrl-C does, which background jobs of a shell ignore."""
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT)),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def _run(config: Config, path: Path, worker: WorkerProcess, options: DevOptions, screen: DevScreen) -> None:
    screen.say("creating topics ...")
    await create_topics(config, source_partitions=SOURCE_PARTITIONS)
    screen.say("starting the worker ...")
    worker.start()
    topics = config.topics
    ledgers = {Topics.ledger(stream.name): stream.name for stream in config.streams}
    utilities = {Topics.utility(name): name for name in options.files}
    outcomes = {stream.name: StreamOutcome(stream.name) for stream in config.streams}
    unsaid: set[str] = set()
    said_at = 0.0
    last: dict[str, int] = {}
    done = False
    async with contextlib.AsyncExitStack() as stack:
        page = await stack.enter_async_context(serve(config)) if options.page else None
        screen.up(DevRun(config, path, worker.log, page))
        for outcome in outcomes.values():
            stack.callback(screen.ended, outcome)
        players = [asyncio.create_task(_play(config, name, options, screen)) for name in options.files]
        stack.push_async_callback(_ended, players)
        read = [TopicPartition(topics.blocks, partition) for partition in range(config.kafka.partitions)]
        read += [TopicPartition(topic, 0) for topic in (*ledgers, *utilities)]
        consumer = await stack.enter_async_context(follower(config.kafka, dict.fromkeys(read)))
        while True:
            worker.check()
            for records in (await consumer.getmany(timeout_ms=POLL_MS)).values():
                for record in records:
                    if record.topic == topics.blocks:
                        block = Block.decode(record.value)
                        if block.stream in outcomes:  # and not retired, on a cluster that the environment names
                            outcomes[block.stream].ingested(block)
                            unsaid.add(block.stream)
                        continue
                    value = orjson.loads(record.value)
                    last[record.topic] = int(value["step"])
                    if record.topic in ledgers:
                        outcomes[ledgers[record.topic]].published(value)
                        screen.step(ledgers[record.topic], value)
                    else:
                        screen.measured(utilities[record.topic], value)
            if unsaid and time.monotonic() - said_at >= RECORDS_S:
                for name in sorted(unsaid):
                    screen.records(name, outcomes[name].records)
                unsaid.clear()
                said_at = time.monotonic()
            closed = [player.result() for player in players if player.done()]
            if players and not done and len(closed) == len(players):
                done = all(
                    last.get(topic(each.stream), -1) >= each.step
                    for each in closed
                    for topic in (Topics.ledger, Topics.utility)
                ) and all(outcomes[each.stream].records.read >= each.rows for each in closed)
                if done:
                    screen.done()
            if done and options.exit_when_done:
                return


async def _ended(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _play(config: Config, name: str, options: DevOptions, screen: DevScreen) -> Replayed:
    played = options.files[name]
    done = await replay(
        config,
        config.stream(name),
        played.file,
        speed=played.speed,
        allow_refused=options.allow_refused,
        progress=partial(screen.rows, name),
        on_rows_seen=partial(screen.looked, name),
    )
    screen.replayed(done)
    return done

"""Whatever can stop a stream or a worker passes one place, which writes it down; found by reading the code.

Each error that a place of the program makes is raised in each part of a worker, in jobs of one and of two streams. A
new place, kind or part is in these lists without anybody thinking of it. And nothing leaves a worker by another way: an
error that is caught and not raised again is in `SWALLOWED` with its reason.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import importlib
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

import schemas.errors
from agents.kafka import stop_log
from agents.kafka.cluster import passes
from agents.kafka.lifecycle.leaving import VARIABLE, Leaving, Lives
from agents.kafka.lifecycle.stops import STOPPED, Stop, Stops, StreamStoppedError, alone
from agents.kafka.lifecycle.vitals import Vitals
from agents.kafka.status import StreamStatus, _doubt
from agents.worker import process
from agents.worker.ingest.partition_task import SourceTask
from agents.worker.partition_tasks import PartitionTasks, StreamsTask
from agents.worker.topic_watch import TopicWatch
from schemas.config import Config
from schemas.errors import ConfigError, PrivstreamError, ReplacedError
from tests.agents.test_advice import OF_THE_LIBRARY
from tests.kafka.support import job_config, stream_table

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("agents/kafka", "agents/protocol", "agents/worker", "engines", "schemas")
"""What a worker runs."""

LATER = "is raised later, or given to who stops"
FORGOTTEN = "fences anew and tries once more, and raises it the second time"
SWALLOWED = {
    ("agents/protocol/formats/contract.py", "_made"): "a record that cannot be read is refused by reason",
    ("agents/protocol/formats/contract.py", "SchemaBook.prepared"): "the reader makes it again, and raises it",
    ("agents/kafka/batches.py", "ReadBatch.chunks"): "records that cannot be read are refused by reason",
    ("agents/kafka/cluster.py", "until_it_answers"): "waits for the cluster",
    ("agents/kafka/fingerprint.py", "_refused"): LATER,
    ("agents/kafka/status.py", "_is_of"): "a command",
    ("agents/kafka/status.py", "_look_back"): "a command",
    ("agents/kafka/status.py", "_newest_entry"): "a command",
    ("agents/kafka/status.py", "registry_doubts"): "a command",
    ("agents/kafka/stop_log.py", "last_words"): "the worker ends, and says in the log that it could not write",
    ("agents/kafka/topics.py", "admin_client"): "closes what could not start, and raises why",
    ("agents/kafka/lifecycle/cancellations.py", "LongService._told"): "the worker leaves, and raises it otherwise",
    ("agents/kafka/witness/streams.py", "StreamWitness._patiently"): "waits for its witness, and says so",
    ("agents/kafka/witness/streams.py", "StreamWitness._tell"): "the log and the metric say what could not be recorded",
    ("agents/kafka/status.py", "witness_state"): "a command",
    ("agents/worker/engine.py", "EngineTask._commit"): FORGOTTEN,
    ("agents/worker/ingest/add_partitions.py", "_check_drained"): "a command",
    ("agents/worker/ingest/partition_task.py", "SourceTask.serving"): "Stops.add",
    ("agents/worker/ingest/partition_task.py", "SourceTask.settled"): "of a revoked partition; raised otherwise",
    ("agents/worker/ingest/restore.py", "_fold"): LATER,
    ("agents/worker/ingest/service.py", "IngestService._reopening"): FORGOTTEN,
    ("agents/worker/partition_tasks.py", "PartitionTasks._leave"): "of a partition that was revoked",
    ("agents/worker/partition_tasks.py", "PartitionTasks._run"): "crashes the application",
    ("agents/worker/partition_tasks.py", "StreamsTask.serving"): "Stops.add",
    ("agents/worker/probes.py", "serve.work"): "probes are no reason not to work",
    ("agents/worker/process.py", "_live"): "Stops.end",
    ("agents/worker/process.py", "run_worker"): "ends the process",
    ("agents/worker/publish.py", "PublishStreamTask.publish"): FORGOTTEN,
    ("agents/worker/state_store.py", "StateStore._close"): "what a damaged store lacks comes from its changelog",
    ("agents/worker/topic_watch.py", "TopicWatch._wait_for_it"): "says so, and looks again",
    ("agents/worker/topic_watch.py", "TopicWatch.record"): "writes it at the next look",
    ("agents/worker/topic_watch.py", "TopicWatch._watch"): "waits for the cluster",
    ("agents/worker/trimming.py", "Deletions._run"): "deleting is tried again with the next step",
    ("schemas/config/load.py", "config_from_mapping"): LATER,
    ("schemas/config/load.py", "with_overrides"): LATER,
    ("engines/checks/contract_checks.py", "check_order"): "a check, that no worker runs",
    ("engines/checks/contract_checks.py", "check_state_is_kept"): "a check, that no worker runs",
}  # fmt: skip
ENDS = {
    ("agents/kafka/lifecycle/leaving.py", "Leaving.end"): {"os._exit"},
    ("agents/kafka/lifecycle/leaving.py", "Leaving.again"): {"os.execv"},
    ("agents/worker/failpoints.py", "failpoint"): {"os.kill"},
}
"""Ways out of a process."""
WAYS_OUT = re.compile(r"os\.(_exit|abort|kill\w*|exec\w+)|sys\.exit|exit|quit|SystemExit|KeyboardInterrupt")


@cache
def nodes() -> list[tuple[str, str, ast.AST]]:
    """File, function and node of all that a worker runs."""
    found: list[tuple[str, str, ast.AST]] = []

    def walk(node: ast.AST, path: str, names: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            found.append((path, ".".join(names), child))
            named = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            walk(child, path, (*names, child.name) if named else names)  # type: ignore[attr-defined]

    for path in sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        walk(ast.parse(path.read_text(encoding="utf-8")), str(path.relative_to(ROOT)), ())
    return found


def meaning(node: ast.expr | None, path: str) -> Iterator[Any]:
    """The classes that an expression of a file names, of tuples and their names each."""
    if node is None:
        yield BaseException
        return
    if isinstance(node, ast.Tuple):
        for each in node.elts:
            yield from meaning(each, path)
        return
    first, *more = ast.unparse(node).split(".")
    value = vars(builtins).get(first, vars(schemas.errors).get(first))
    if value is None:  # only now: to import all that a worker may is slow
        value = vars(importlib.import_module(path.removesuffix(".py").replace("/", "."))).get(first)
    for attribute in more:
        value = getattr(value, attribute, None)
    yield from value if isinstance(value, tuple) else (value,)


def stops(kind: Any) -> bool:
    """Whether an error of this kind stops a stream or a job."""
    return isinstance(kind, type) and issubclass(kind, PrivstreamError) and kind not in OF_THE_LIBRARY and (
        kind.stops != "record"
    )  # fmt: skip


def catches_stops(kind: Any) -> bool:
    return stops(kind) or kind in (Exception, BaseException, StreamStoppedError)


def places() -> dict[tuple[str, str], set[type[PrivstreamError]]]:
    """Where an error that stops is made: file and function -> its kinds."""
    found: dict[tuple[str, str], set[type[PrivstreamError]]] = {}
    for path, name, node in nodes():
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Error"):
            for kind in filter(stops, meaning(node.func, path)):
                found.setdefault((path, name), set()).add(kind)
    return found


@cache
def kinds() -> list[type[PrivstreamError]]:
    """Those that a place makes."""
    return sorted(set().union(*places().values()), key=lambda kind: kind.__name__)


FOREIGN = (ZeroDivisionError, KeyError, MemoryError, OSError, KafkaError)
PARTS = sorted({each.role for each in StreamsTask.__subclasses__() if each.__module__.startswith("agents.")})


def made(kind: type[BaseException]) -> BaseException:
    if kind is ConfigError:
        return ConfigError.of("a key", "a reason", "a fix")
    return kind(28, "No space left on device") if kind is OSError else kind("stream a: as a test says")


def test_the_lists_are_read_from_the_code() -> None:
    assert len(places()) > 150
    assert PARTS == ["audit", "engine", "publish"]
    defined = {kind for kind in vars(schemas.errors).values() if stops(kind)}
    assert {kind.__name__ for kind in defined - set(kinds())} == {"PromiseError"}, "of which others are kinds"


def test_what_is_caught_and_not_raised_again_has_its_reason() -> None:
    found = set()
    for path, name, node in nodes():
        if isinstance(node, ast.ExceptHandler):
            last, caught = node.body[-1], node.type
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            last, caught = (
                None,
                ast.Tuple([each.value if isinstance(each, ast.Starred) else each for each in node.args]),
            )
        else:
            continue
        if not isinstance(last, ast.Raise) and any(map(catches_stops, meaning(caught, path))):
            found.add((path, name))
    assert found == set(SWALLOWED) - {("agents/kafka/stop_log.py", "last_words")}


def test_a_process_ends_in_one_place_and_a_stop_is_noted_in_one() -> None:
    out: dict[tuple[str, str], set[str]] = {}
    noted, written, told = set(), set(), set()
    for path, name, node in nodes():
        called = node.func if isinstance(node, ast.Call) else node.exc if isinstance(node, ast.Raise) else None
        if called is None:
            continue
        text = ast.unparse(called)
        if WAYS_OUT.fullmatch(text):
            out.setdefault((path, name), set()).add(text)
        if text.rpartition(".")[2] == "Stop":
            noted.add((path, name))
        if text == "_write" and path == "agents/kafka/stop_log.py":
            written.add(name)
        if re.search(r"leaving\.(end|begin|again)$", text):
            told.add((path, name))
    assert out == ENDS
    assert noted == {
        ("agents/kafka/lifecycle/stops.py", "Stops._note"),
        ("agents/kafka/stop_log.py", "decode"),
        ("agents/kafka/witness/streams.py", "StreamWitness._tell"),  # waits, and goes on by itself
    }
    assert written == {"may_write", "keep", "record", "clear"}
    assert told == {("agents/worker/process.py", "_live"), ("agents/worker/process.py", "run_worker")}


class Quiet(Leaving):
    """For a worker whose process lives on."""

    def begin(self, reason: str | None) -> None:
        self._reason = reason


class App:
    """What Faust's application is to `_live`: parts that fail, and the service that writes down what stops."""

    def __init__(self, watch: TopicWatch, work: Callable[[App], Awaitable[None]], record: Mapping[bytes, Stop]) -> None:
        self.crash_reason: BaseException | None = None
        self.at_stop: dict[bytes, Stop] | None = None
        self._watch, self._work, self._record = watch, work, record
        self._ended = asyncio.Event()

    async def start(self) -> None:
        await self._work(self)

    async def crash(self, error: BaseException) -> None:
        self.crash_reason = error
        self._ended.set()

    async def wait_until_stopped(self) -> None:
        await self._ended.wait()

    async def stop(self) -> None:
        """From here on anything may fail, and hang."""
        self.at_stop = dict(self._record)
        raise OSError


class Failing(StreamsTask):
    """A part of a worker on a partition. Args: beside: it fails where nobody knows what has been sent."""

    def __init__(self, role: Any, stops: Stops, error: BaseException, *, beside: bool) -> None:
        self.role = role
        super().__init__(0, stops)
        self._error, self._beside = error, beside

    async def open(self) -> None:
        if self._beside:
            raise self._error
        with self.serving("a"), alone("a"):
            raise self._error

    async def handle(self, event: Any) -> None:
        raise AssertionError

    def leave_out(self, stream: str) -> None:
        pass


DOORS = [*(f"alone in {part}" for part in PARTS), "alone in ingest", *(f"beside {part}" for part in PARTS), "start"]


class Worker:
    """One life of a worker, over a record of stops in memory."""

    def __init__(self, folder: Path, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
        self.config: Config = job_config("localhost:1", folder, streams=[stream_table(name) for name in names], job="j")
        self.record: dict[bytes, Stop] = {}
        self.stops = Stops.of(names)
        self.stops.watched = True
        self.app: App | None = None
        self._monkeypatch = monkeypatch

        async def write(_: object, records: Mapping[bytes, bytes | None]) -> None:
            for key, value in records.items():
                if value is not None and (stop := stop_log.decode(value)) is not None:
                    self.record[key] = stop
                else:
                    self.record.pop(key, None)

        async def recorded(_: object) -> dict[bytes, Stop]:
            return dict(self.record)

        async def answers(_: object) -> None:
            pass

        monkeypatch.setattr(stop_log, "_write", write)
        monkeypatch.setattr(stop_log, "recorded", recorded)
        monkeypatch.setattr(process, "until_it_answers", answers)

    async def live(self, door: str, error: BaseException) -> bool:
        """Returns whether it goes on."""
        watch = TopicWatch(self.config, self.stops, {}, Vitals())

        async def work(app: App) -> None:
            kind, _, part = door.rpartition(" ")
            if part == "ingest":
                source = SimpleNamespace(
                    _stops=self.stops, source=TopicPartition("raw", 0), leave_out=lambda machine: None
                )
                with SourceTask.serving(source, SimpleNamespace(spec=SimpleNamespace(stream="a", role="blocks"))):  # type: ignore[arg-type]
                    raise error
            else:
                beside = kind == "beside"
                tasks = PartitionTasks(
                    {part: lambda _: Failing(part, self.stops, error, beside=beside)}, app.crash, Vitals()
                )
                tasks.open([0])
                for _ in range(5):
                    await asyncio.sleep(0)
            await watch.record()

        async def prepare(*_: object, **__: object) -> App:
            if door == "start":
                raise error
            self.app = App(watch, work, self.record)
            return self.app

        self._monkeypatch.setattr(process, "prepare", prepare)
        leaving = Quiet()
        life = asyncio.ensure_future(
            process._live(self.config, leaving, Vitals(), self.stops, insecure_seed=None, trusted={}, roles=())
        )
        for _ in range(50):
            await asyncio.sleep(0)
        goes_on = not life.done()
        if goes_on:
            self.at_work = {name: self.health(name, idle=[]) for name in self.stops.streams}
            assert leaving._asked is not None
            leaving._asked()
        await life
        if self.app is not None:
            assert self.app.at_stop == self.record, "nothing is written once the worker gives up what it has"
        return goes_on

    def health(self, stream: str, *, idle: list[str]) -> str:
        said = list(self.record.values())
        doubt, ended = _doubt(self.config, idle, said, kept=True)
        stopped = (*[stop for stop in said if stop.stream == stream], *ended)
        return StreamStatus(
            stream=stream, published=-1, published_at=None, records=0, epsilon_spent=0.0, epsilon=1.0, private=True,
            ingest_lag=0, over=-1, waiting=0, totals={}, recent={}, lost=0, source_problem=None, live=None,
            partitions=1, stopped=stopped, doubt=doubt,
        ).health  # fmt: skip


@pytest.mark.parametrize("names", [("a",), ("a", "b")])
@pytest.mark.parametrize("door", DOORS)
def test_no_error_that_stops_leaves_a_stream_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, door: str, names: tuple[str, ...]
) -> None:
    for kind in (*kinds(), *FOREIGN):
        STOPPED.clear()
        monkeypatch.setenv(VARIABLE, "{}")  # undone at the end, so that no later worker pauses for these lives
        worker, error = Worker(tmp_path, names, monkeypatch), made(kind)
        goes_on = asyncio.run(worker.live(door, error))
        by_itself = kind.stops == "stream" if issubclass(kind, PrivstreamError) else kind not in (MemoryError, OSError)
        if door.startswith("alone") and by_itself:
            said = worker.at_work if goes_on else {name: worker.health(name, idle=["engine"]) for name in names}
            assert said["a"] == "stopped", kind
            assert goes_on or len(names) == 1 or said["b"] != "ok", kind
            assert set(worker.record) == {f"a/{door.rsplit(maxsplit=1)[-1]}/0".encode()}, kind
            continue
        assert not goes_on, kind
        again = passes(error) or isinstance(error, ReplacedError)
        health = {worker.health(name, idle=["engine", "ingest", "publish"]) for name in names}
        # What lasted for long before it was an error is recorded in the first life that it ends.
        told = not again or Lives().ended(error, 1.0).told
        assert health == ({"stopped"} if told else {"no worker"}), kind
        assert bool(worker.record) is told, kind
    STOPPED.clear()

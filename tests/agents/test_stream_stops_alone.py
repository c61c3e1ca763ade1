"""A stream that must stop stops alone, and an error of unknown effect still stops everything: the engine's shell, with
two streams at home on one partition, over a log in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaError
from prometheus_client import REGISTRY

from agents.kafka.lifecycle.stops import STOPPED, Stops
from agents.protocol.release.stepper import Stepper
from agents.worker import engine, job
from agents.worker.engine import EngineTask
from agents.worker.job import Job
from schemas.blocks import Block
from schemas.errors import ForkError, GapError, WireError
from schemas.releases import Candidate, Seed, decode_log_record
from tests.agents.test_engine_trim import Producer, Table, reading
from tests.kafka.support import job_config, stream_table

STEPS = 4


@pytest.fixture(autouse=True)
def nothing_has_stopped() -> None:
    """A process has one set of metrics, and other tests' streams have the same names."""
    STOPPED.clear()


class Bench:
    """An engine's partition. Each `life` is a worker on what the lives before left."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, names: Sequence[str] = ("a", "b")) -> None:
        streams = [stream_table(name) for name in names]
        config = job_config("localhost:1", folder, streams=streams, partitions=1, job="j")
        self.log: list[Any] = []
        self.acked: list[int] = []
        self.trimmed: list[int] = []
        self.started = list(names)  # what the fingerprints topic says
        self.job = Job(config=config, source_partitions=dict.fromkeys(names, 1))
        self.table: Any = Table()
        self.producer = Producer(self.log)

        async def producer(*_: Any) -> Producer:
            return self.producer

        def trimmer(*_: Any, held: Any) -> Any:
            return SimpleNamespace(below=lambda offset: None if held() else self.trimmed.append(offset))

        async def fingerprints(_: Any) -> dict[str, Any]:
            return dict.fromkeys(self.started)

        monkeypatch.setattr(job, "stored_fingerprints", fingerprints)
        monkeypatch.setattr(engine, "fenced_producer", producer)
        monkeypatch.setattr(engine, "log_reader", lambda *_: reading(self.log))
        monkeypatch.setattr(engine, "Trimmer", trimmer)

    async def life(self, records: Iterable[tuple[bytes | None, bytes]], *, restarted: bool = True) -> None:
        if restarted:
            self.job.stops = Stops.of(["a", "b"])
        task = EngineTask(self.job, self.table, 0)
        await task.open()
        for offset, (key, value) in enumerate(records):
            message = SimpleNamespace(offset=offset, key=key)
            await task.handle(
                SimpleNamespace(message=message, value=value, ack=lambda at=offset: self.acked.append(at))
            )

    def seeds(self, stream: str) -> list[int]:
        """Steps that have one, in the order in which they were committed."""
        entries = [decode_log_record(record.value) for record in self.log]
        return [entry.step for entry in entries if entry.stream == stream and isinstance(entry, Seed)]

    def answered(self, stream: str) -> list[int]:
        """Steps with a candidate, of one chunk each."""
        entries = [decode_log_record(record.value) for record in self.log]
        return [entry.step for entry in entries if entry.stream == stream and not isinstance(entry, Seed)]


def block(stream: str, step: int, *, lo: int | None = None) -> tuple[bytes, bytes]:
    begin = 10 * step if lo is None else lo
    return stream.encode(), Block(stream, 0, begin, begin + 10, step, {}).encode()


def both(steps: Iterable[int]) -> list[tuple[bytes | None, bytes]]:
    return [block(stream, step) for step in steps for stream in ("a", "b")]


def gap(bench: Bench) -> list[tuple[bytes | None, bytes]]:
    return [*both(range(2)), block("a", 2, lo=25), block("b", 2), *both(range(3, STEPS))]


def foreign_record(bench: Bench) -> list[tuple[bytes | None, bytes]]:
    return [*both(range(2)), (b"a", b"of another program"), *both(range(2, STEPS))]


def two_seeds(bench: Bench) -> list[tuple[bytes | None, bytes]]:
    for byte in (b"1", b"2"):
        value = Seed("a", 0, byte * 32).encode()
        bench.log.append(SimpleNamespace(offset=len(bench.log), key=b"a", value=value))
    return both(range(STEPS))


@pytest.mark.parametrize(
    ("fault", "kind", "before"), [(gap, GapError, 2), (foreign_record, WireError, 2), (two_seeds, ForkError, 0)]
)
async def test_the_other_stream_goes_on_at_full_pace(
    bench: Bench, caplog: pytest.LogCaptureFixture, fault: Any, kind: type[Exception], before: int
) -> None:
    records = fault(bench)
    for life in range(2):  # and stays stopped in the next worker, which says so again
        caplog.clear()
        await bench.life(records)
        assert bench.answered("b") == list(range(STEPS))
        assert [stop.stream for stop in bench.job.stops] == ["a"], life
        [line] = [record.getMessage() for record in caplog.records if record.levelname == "CRITICAL"]
        assert line.startswith("STOPPED: stream a (engine of partition 0)")
        assert "What to do" in line
        assert "The other streams go on (1)" in line
        assert REGISTRY.get_sample_value("privstream_stopped", {"stream": "a", "part": "engine"}) == 1
        assert REGISTRY.get_sample_value("privstream_stopped", {"stream": "b", "part": "engine"}) is None
    assert bench.answered("a") == list(range(before))
    # What it may still need stays, and nobody waits for its acknowledgements.
    assert bench.job.holds_back(0)
    assert max(bench.trimmed, default=0) <= 2 * before
    assert bench.acked[-1] >= len(records) - 2


async def test_a_rebalance_does_not_start_it_again(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    await bench.life(gap(bench))
    await bench.life(both(range(STEPS)), restarted=False)  # as if the record that was missing had come back
    assert bench.answered("a") == [0, 1]
    assert "STOPPED before, and still: stream a" in caplog.text
    await bench.life(both(range(STEPS)))  # a person has put it back and restarted the worker
    assert bench.answered("a") == bench.answered("b") == list(range(STEPS))


async def test_a_fault_of_the_program_in_one_stream_stops_that_stream(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compute = Stepper.compute

    def failing(self: Stepper, seed: bytes) -> Candidate:
        if self.stream.name == "a" and self.step == 1:
            raise ZeroDivisionError("x = 0.123")
        return compute(self, seed)

    monkeypatch.setattr(Stepper, "compute", failing)
    await bench.life(both(range(STEPS)))
    assert bench.answered("b") == list(range(STEPS))
    assert bench.seeds("a") == [0, 1]
    assert bench.answered("a") == [0]
    monkeypatch.setattr(Stepper, "compute", compute)
    await bench.life(both(range(STEPS)))
    assert bench.seeds("a") == bench.answered("a") == list(range(STEPS)), "with the seed that was committed"
    assert "stream a (engine of partition 0): ZeroDivisionError in tests.agents.test_stream_stops_alone" in caplog.text
    assert "0.123" not in caplog.text, "texts of foreign errors may hold values"


async def test_a_step_that_fails_withholds_none_of_those_before_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many steps that are closed go together."""
    compute = Stepper.compute

    def failing(self: Stepper, seed: bytes) -> Candidate:
        if self.stream.name == "a" and self.step == 2:
            raise ZeroDivisionError
        return compute(self, seed)

    monkeypatch.setattr(Stepper, "compute", failing)
    together = [(name.encode(), Block(name, 0, 0, 10, STEPS - 1, {}).encode()) for name in ("a", "b")]
    await bench.life(together)
    assert bench.answered("b") == list(range(STEPS))
    assert bench.answered("a") == [0, 1]
    assert [(stop.stream, stop.step) for stop in bench.job.stops] == [("a", 2)]
    monkeypatch.setattr(Stepper, "compute", compute)
    await bench.life(together)
    assert bench.seeds("a") == bench.answered("a") == list(range(STEPS)), "with the seeds that were committed"


async def test_an_error_of_unknown_effect_stops_everything(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that failed may have happened: only a successor that fences and reads can tell."""

    async def unknown() -> None:
        raise KafkaError

    monkeypatch.setattr(bench.producer, "commit_transaction", unknown)
    with pytest.raises(KafkaError):
        await bench.life(both(range(STEPS)))
    assert not list(bench.job.stops)


async def test_the_last_stream_that_stops_ends_the_worker(bench: Bench) -> None:
    with pytest.raises(GapError, match="stream b"):
        await bench.life([*both(range(2)), block("a", 2, lo=25), block("b", 2, lo=25)])


async def test_a_record_that_may_be_anyones_stops_all_streams_of_its_partition(bench: Bench) -> None:
    with pytest.raises(WireError):
        await bench.life([*both(range(2)), (None, b"of another program")])

"""A partition that waits for a schema: nothing behind it is taken in, and no step ends otherwise than it would have."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from aiokafka import TopicPartition
from hypothesis import example, given
from hypothesis import strategies as st

from agents.kafka.lifecycle.vitals import Vitals
from agents.kafka.schema_registry import RegistryClient, RegistryError
from agents.protocol.formats import contract
from agents.protocol.formats.contract import SchemaBook, SchemaRef, SchemaText
from agents.protocol.ingest.events import RawRecord
from agents.worker.ingest import schema_wait
from agents.worker.ingest.counters import IngestCounters
from agents.worker.ingest.partition_task import IngestOptions, SourceTask
from agents.worker.ingest.schema_wait import SchemaWait
from agents.worker.ingest.specs import source_specs
from schemas.config.load import config_from_mapping
from schemas.config.server import Registry
from tests.formats.forms import in_avro
from tests.kafka.support import job_config, stream_table

START_S = 1_577_836_800
SCHEMA = {
    "type": "record",
    "name": "E",
    "fields": [{"name": "at", "type": "long"}, {"name": "x", "type": "double"}, {"name": "y", "type": "double"}],
}
TEXT = SchemaText("AVRO", json.dumps(SCHEMA))
SOURCE = TopicPartition("raw.s", 0)
OTHER = TopicPartition("raw.s", 1)
REFS = [SchemaRef(number) for number in range(4)]


def task_of(registry: dict[str, str] | None = None) -> SourceTask:
    stream = stream_table(
        "s",
        format="avro",
        privacy={"epsilon": 1.0, "unit": "event"},
        time={"field": "at", "format": "s", "start": "2020-01-01T00:00:00", "step": "60s", "clock": "wall"},
    )
    document = job_config("localhost:1", Path("unused"), streams=[{**stream, "format": "json"}], job="w").model_dump()
    document["kafka"]["registry"] = registry or {"url": "http://localhost:1"}
    document["streams"][0]["format"] = "avro"
    specs = source_specs(config_from_mapping(document), source_partitions={"s": 1}, audit_partitions=None)
    return SourceTask(
        config_from_mapping(document), SOURCE, specs["raw.s"], options=IngestOptions(), counters=IngestCounters()
    )


def book_of(task: SourceTask) -> SchemaBook:
    return task.clocked[0].spec.schemas


def record(offset: int, ref: SchemaRef) -> RawRecord:
    """Every event is of step 0: those behind a tick are late, and join the step after it."""
    value = in_avro({"at": START_S + offset, "x": 0.5, "y": 0.5}, SCHEMA, ref)
    return RawRecord(offset, (START_S + offset) * 1000, None, value)


async def run(refs: list[SchemaRef], ticks_at: list[int], known: Collection[SchemaRef]) -> tuple[Any, list[int]]:
    """Read as the service does: from where the task stands, and learn what it wants when it wants it."""
    task = task_of()
    (machine,) = task.clocked
    for ref in known:
        book_of(task).put(ref, TEXT)
    feed = [record(offset, ref) for offset, ref in enumerate(refs)]
    waited = []
    for step, at in enumerate(ticks_at):
        task.awaited.put(machine, step, at)
    while task.position < len(feed):
        before = task.position
        await task.take(feed[task.position :])
        if task.wanted:
            waited.append(task.position)
            assert feed[task.position].value is not None
            assert machine.next_offset <= task.position, "nothing behind it is taken in"
            assert all(at <= task.position for at in ticks_at[: machine.ticked + 1]), "no tick behind it has come"
            for ref in task.wanted:
                book_of(task).put(ref, TEXT)
        else:
            assert task.position > before
    task.reached(len(feed))
    block, letters = machine.seal()
    assert letters == []
    assert block is not None
    return {step: folded.total for step, folded in block.steps.items()}, waited


@given(
    st.lists(st.sampled_from(REFS), min_size=1, max_size=12),
    st.lists(st.integers(0, 12), max_size=4).map(sorted),
    st.sets(st.sampled_from(REFS)),
)
def test_when_a_schema_is_learnt_changes_no_step(
    refs: list[SchemaRef], ticks: list[int], known: set[SchemaRef]
) -> None:
    expected, waited = asyncio.run(run(refs, ticks, REFS))
    assert waited == []
    found, waited = asyncio.run(run(refs, ticks, known))
    assert found == expected
    assert bool(waited) == bool(set(refs) - known)


class Held:
    """What is asked of a task."""

    closed, position, absent = False, 0, frozenset[SchemaRef]()

    def __init__(self, source: TopicPartition, wanted: Collection[SchemaRef]) -> None:
        self.source, self.wanted = source, frozenset(wanted)


class Consumer:
    """What is asked of Kafka's."""

    def __init__(self) -> None:
        self.paused: set[TopicPartition] = set()
        self.position: int | None = None

    def pause(self, source: TopicPartition) -> None:
        self.paused.add(source)

    def resume(self, source: TopicPartition) -> None:
        self.paused.discard(source)

    def seek(self, source: TopicPartition, offset: int) -> None:
        self.position = offset

    def assignment(self) -> set[TopicPartition]:
        return {SOURCE}


async def test_what_waits_is_paused_said_and_read_again_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [RegistryError("it cannot be reached"), RegistryError("it cannot be reached"), TEXT]

    class Client:
        def __init__(self, registry: Registry) -> None: ...
        async def __aenter__(self) -> Client:
            return self

        async def __aexit__(self, *_: Any) -> None: ...
        async def learn(self, book: SchemaBook, refs: Collection[SchemaRef]) -> None:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            for ref in refs:
                book.put(ref, answer)

    monkeypatch.setattr(schema_wait, "RegistryClient", Client)
    monkeypatch.setattr(schema_wait, "FIRST_S", 0.0)

    task, consumer, counters, vitals = task_of(), Consumer(), IngestCounters(), Vitals(phase="")
    wait = SchemaWait(Registry(url="http://localhost:1"), book_of(task), counters, vitals)
    book_of(task).put(REFS[0], TEXT)
    await task.take([record(0, REFS[0]), record(1, REFS[1]), record(2, REFS[0])])
    wait.hold(consumer, task)
    assert (consumer.paused, consumer.position) == ({SOURCE}, 1)
    assert wait.held({SOURCE: task}) == [("raw.s", 0)]
    assert vitals.dead == []
    seen: set[str] = set()
    while task.wanted:
        await asyncio.sleep(0)
        seen |= {*vitals.unready, *([str(counters.schemas_awaited)])}
        wait.go_on(consumer, {SOURCE: task})
    assert "schema registry: waits for schema 1 of the registry" in seen
    assert "1" in seen
    assert consumer.paused == set()
    while counters.schemas_awaited:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert vitals.unready == []
    await wait.close()


class Answers:
    """A registry that has every schema; its session takes a while to close."""

    def __init__(self, registry: Registry) -> None: ...
    async def __aenter__(self) -> Answers:
        return self

    async def __aexit__(self, *__: Any) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def learn(self, book: SchemaBook, refs: Collection[SchemaRef]) -> None:
        await asyncio.sleep(0)
        for ref in refs:
            book.put(ref, TEXT)


class Both(Consumer):
    """Of two partitions."""

    def assignment(self) -> set[TopicPartition]:
        return {SOURCE, OTHER}


async def reads_on(wait: SchemaWait, consumer: Consumer, tasks: dict[TopicPartition, Any]) -> bool:
    """Whether all go on before long."""
    for _ in range(200):
        await asyncio.sleep(0)
        wait.go_on(consumer, tasks)
    return not consumer.paused


async def test_what_is_wanted_while_the_session_closes_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_wait, "RegistryClient", Answers)

    book, consumer = SchemaBook(), Both()
    wait = SchemaWait(Registry(url="http://localhost:1"), book, IngestCounters(), Vitals())
    first, second = Held(SOURCE, REFS[:1]), Held(OTHER, REFS[1:2])
    wait.hold(consumer, first)  # type: ignore[arg-type]
    while REFS[0] not in book:  # noqa: ASYNC110
        await asyncio.sleep(0)
    for _ in range(5):  # the session is being closed now
        await asyncio.sleep(0)
    wait.hold(consumer, second)  # type: ignore[arg-type]
    assert await reads_on(wait, consumer, {SOURCE: first, OTHER: second})
    assert REFS[1] in book
    await wait.close()


async def test_an_answer_that_the_book_forgot_holds_nothing_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids that are made up push each other out of the book."""
    monkeypatch.setattr(schema_wait, "RegistryClient", Answers)
    monkeypatch.setattr(contract, "MOST", 2)

    consumer = Both()
    wait = SchemaWait(Registry(url="http://localhost:1"), SchemaBook(), IngestCounters(), Vitals())
    tasks = {SOURCE: Held(SOURCE, REFS[:2]), OTHER: Held(OTHER, REFS[2:])}
    for task in tasks.values():
        wait.hold(consumer, task)  # type: ignore[arg-type]
    assert await reads_on(wait, consumer, tasks)
    assert not any(task.wanted for task in tasks.values()), "what is still wanted there is found out by reading"
    await wait.close()


async def test_reading_goes_on_from_its_record_whatever_the_book_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A book of one schema: each record is taken in once, in order, though every answer pushes another one out."""
    monkeypatch.setattr(schema_wait, "RegistryClient", Answers)
    monkeypatch.setattr(contract, "MOST", 1)

    task, consumer = task_of(), Consumer()
    wait = SchemaWait(Registry(url="http://localhost:1"), book_of(task), IngestCounters(), Vitals())
    feed = [record(offset, REFS[offset % 2]) for offset in range(4)]
    for _ in range(400):
        if not consumer.paused and task.position < len(feed):
            await task.take(feed[task.position : task.position + 1])
            wait.hold(consumer, task)
        await asyncio.sleep(0)
        wait.go_on(consumer, {SOURCE: task})
    block, letters = task.clocked[0].seal()
    assert (task.position, block.counts, letters) == (4, {"ACCEPTED": 4}, [])  # type: ignore[union-attr]
    await wait.close()


class Growing(Answers):
    """A registry that has what was registered by now, and says late what it saw."""

    there: set[SchemaRef]

    async def learn(self, book: SchemaBook, refs: Collection[SchemaRef]) -> None:
        for ref in sorted(refs, key=str):
            if ref not in book:
                seen = TEXT if ref in self.there else None
                await asyncio.sleep(0)
                book.put(ref, seen)
                await asyncio.sleep(0)


async def lost(deeds: str) -> tuple[set[int], set[int]]:
    """Return offsets of records that are refused, and of those that were written with a schema that was there.

    Args: deeds: m: somebody makes up an id; r: another one registers it; w: and writes a record with it, if it is
        there; a, b: a partition with all of these records is read; a dot: something else has its turn.
    """
    Growing.there = set()
    a, b = task_of(), task_of()
    b.source, b.clocked[0].decoder = OTHER, a.clocked[0].decoder  # of one worker, with one book
    tasks, consumer = {SOURCE: a, OTHER: b}, Both()
    b.clocked[0].spec = a.clocked[0].spec
    wait = SchemaWait(Registry(url="http://localhost:1"), book_of(a), IngestCounters(), Vitals())
    feed: list[RawRecord] = []
    honest: set[int] = set()

    async def read(task: SourceTask) -> None:
        if task.source not in consumer.paused and task.position < len(feed):
            await task.take(feed[task.position :])
            wait.hold(consumer, task)
        wait.go_on(consumer, tasks)

    for deed in deeds + "ab." * 400:
        match deed:
            case "m":
                feed.append(record(len(feed), REFS[0]))
            case "r":
                Growing.there.add(REFS[0])
            case "w" if Growing.there:
                honest.add(len(feed))
                feed.append(record(len(feed), REFS[0]))
            case "a":
                await read(a)
            case "b":
                await read(b)
            case _:
                await asyncio.sleep(0)
    assert a.position == b.position == len(feed)
    await wait.close()
    return {letter.offset for task in (a, b) for letter in task.clocked[0].seal()[1]}, honest


@given(st.text("mrwab....", max_size=30))
@example("ma.....arwa")  # it was answered before there was one
@example("ma.rwbb")  # it is being answered
@example("m.a.wbwrbwm.m")  # it comes behind those that wait
def test_an_id_that_somebody_makes_up_costs_others_no_record(deeds: str) -> None:
    with mock.patch.object(schema_wait, "RegistryClient", Growing):
        refused, honest = asyncio.run(lost(deeds))
    assert not refused & honest


def test_what_nobody_ever_registers_is_refused() -> None:
    with mock.patch.object(schema_wait, "RegistryClient", Growing):
        assert asyncio.run(lost("mmm")) == ({0, 1, 2}, set())


async def test_an_answer_is_known_as_it_comes() -> None:
    """Not when all have come: ids that are made up keep no others waiting."""

    class Slow(RegistryClient):
        async def _get(self, path: str) -> Any:
            if path.endswith("/0"):
                return {"schema": TEXT.text}
            return [] if path == "/schemas/types" else None

    book = SchemaBook()
    made_up = [SchemaRef(number) for number in range(1, 40)]
    async with Slow(Registry(url="http://localhost:1"), not_there_s=30.0) as client:
        asking = asyncio.create_task(client.learn(book, [*made_up, REFS[0]]))
        for _ in range(200):
            await asyncio.sleep(0)
        assert REFS[0] in book
        assert not asking.done()
        asking.cancel()
        await asyncio.wait([asking])


def test_files_of_the_registry_are_looked_at_before_anything_starts(tmp_path: Path) -> None:
    secured = {"url": "https://localhost:1", "username": "me", "password_file": str(tmp_path / "gone")}
    with pytest.raises(Exception, match=r"kafka.registry.password_file: cannot be read"):
        task_of(secured)


async def test_what_ends_the_asking_ends_the_ingest(tmp_path: Path) -> None:
    """Such as a password that cannot be read: said, not waited for in silence."""

    async def ask() -> None:
        for _ in range(5):
            await asyncio.sleep(0)
            wait.go_on(Consumer(), {SOURCE: task})

    task = task_of()
    gone = Registry(url="https://localhost:1", username="me", password_file=tmp_path / "gone")
    wait = SchemaWait(gone, book_of(task), IngestCounters(), Vitals())
    await task.take([record(0, REFS[0])])
    wait.hold(Consumer(), task)
    with pytest.raises(Exception, match=r"kafka.registry.password_file: cannot be read"):
        await ask()

"""Wall-clock ticks stand at their offset, however Kafka cuts the fetch. No broker: the task is fed by hand."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import READ_COMMITTED
from hypothesis import given
from hypothesis import strategies as st

from agents.kafka.lifecycle.vitals import Reach
from agents.protocol.ingest.events import RawRecord
from agents.worker.ingest.counters import IngestCounters
from agents.worker.ingest.partition_task import IngestOptions, SourceTask
from agents.worker.ingest.service import (
    FEW_RECORDS,
    LEAD_S,
    LEAST_S,
    REPLAYED_S,
    TOGETHER_RECORDS,
    IngestService,
    StepEnds,
)
from agents.worker.ingest.specs import source_specs
from schemas.events import TICK_HEADER, encode_going_live
from tests.kafka.support import job_config, stream_table

START_S = 1_577_836_800
RECORDS = 12


def task_of(*names: str, clock: str = "wall") -> SourceTask:
    """Of streams on one source partition; all but the first follow the wall clock."""
    time = {"field": "at", "format": "s", "start": "2020-01-01T00:00:00", "step": "60s"}
    names = names or ("s",)
    tables = [
        stream_table(
            name,
            source="raw.s",
            privacy={"epsilon": 1.0, "unit": "event"},
            time={**time, "clock": clock if name == names[0] else "wall"},
        )
        for name in names
    ]
    config = job_config("localhost:1", Path("unused"), streams=tables, job="ticks")
    specs = source_specs(config, source_partitions=dict.fromkeys(names, 1), audit_partitions=None)
    source = TopicPartition("raw.s", 0)
    return SourceTask(config, source, specs[source.topic], options=IngestOptions(), counters=IngestCounters())


def record(offset: int) -> RawRecord:
    """Every event is of step 0, so those after a tick are late and join the step after it."""
    value = json.dumps({"at": START_S + offset, "x": 0.5, "y": 0.5}).encode()
    return RawRecord(offset, (START_S + offset) * 1000, None, value)


def steps_of(cuts: list[int], ticks_at: list[int]) -> dict[int, int]:
    async def scenario() -> Any:
        task = task_of()
        (machine,) = task.clocked
        for step, at in enumerate(ticks_at):
            task.awaited.put(machine, step, at)
        edges = sorted({0, *cuts, RECORDS})
        for low, high in pairwise(edges):
            await task.take([record(offset) for offset in range(low, high)])
            task.reached(high)
        return machine.seal()[0]

    block = asyncio.run(scenario())
    return {step: folded.total for step, folded in block.steps.items()}


async def test_the_clock_is_looked_at_again_at_an_end_within_a_second_and_when_it_was_set_back() -> None:
    task, looks = task_of(), list[int]()
    over_us = task.clocked[0].spec.clock.end_of(0)

    class Looked(StepEnds):
        def due(self, tasks: Any, now_us: int, *, grace_us: Any) -> Any:
            looks.append(now_us - over_us)
            super().due(tasks, now_us, grace_us=grace_us)
            return []

    service: Any = SimpleNamespace(
        _consumer=object(), _step_ends=Looked(), partition_tasks={task.source: task}, _grace_us={"s": 0}
    )
    for now_us in -2_500_000, -2_000_000, -1_500_000, -600_000, -500_000, -1, 0, 10, -3_600_000_000, -3_599_999_999:
        service._broker_clock = SimpleNamespace(bounded_us=lambda now_us=now_us: over_us + now_us)
        await IngestService._place_ticks(service)
    assert looks == [-2_500_000, -1_500_000, -500_000, 0, 10, -3_600_000_000]


def test_nobody_sleeps_until_the_next_end_while_a_tick_has_no_place() -> None:
    """The main loop polls briefly until then: with a poll that lasts until the next end the tick would wait for it."""
    task = task_of()
    (machine,) = task.clocked
    ends = StepEnds()
    over = machine.spec.clock.end_of(0)

    def found(now_us: int) -> list[int]:
        return [step for _, _, step in ends.due([task], now_us, grace_us={"s": 0})]

    assert found(over - 400_000) == []
    assert ends.next_us == over
    assert found(over) == [0]
    assert ends.next_us <= over
    task.awaited.put(machine, 0, 0)
    assert found(over + 10_000) == []
    assert ends.next_us == over + 1_010_000


@pytest.mark.parametrize(
    ("ago_s", "wait_s"), [(-30.0, 1.0), (-0.3, 0.3), (0.0, LEAST_S), (0.05, LEAST_S), (5.0, 0.5), (900.0, 1.0)]
)
def test_a_place_that_does_not_come_is_not_asked_for_without_pause(ago_s: float, wait_s: float) -> None:
    """Once a clock that hung let the main loop poll a hundred times a second."""
    service: Any = SimpleNamespace(
        _broker_clock=SimpleNamespace(bounded_us=lambda: 10**9 + int(1e6 * ago_s)),
        _step_ends=SimpleNamespace(next_us=10**9),
    )
    assert IngestService._until_next_end_s(service) == pytest.approx(wait_s)


async def test_beside_many_partitions_records_wait_longer_for_their_block_and_ticks_do_not() -> None:
    task, flushed = task_of(), []

    async def flush() -> None:
        flushed.append(task.position)

    task._options, task.flush = IngestOptions(flush_s=0.0, flush_share_s=1e6), flush  # type: ignore[method-assign]
    await task.take([record(0)])
    await task.flush_if_due(2)
    assert flushed == []
    await task.flush_if_due(0)
    assert flushed == [1]
    (machine,) = task.clocked
    task.awaited.put(machine, 0, 2)
    await task.take([record(1)])
    task.reached(2)
    await task.flush_if_due(2)
    assert flushed == [1, 2]


async def test_what_is_to_be_routed_waits_as_long_beside_many_partitions_as_alone(tmp_path: Path) -> None:
    """Chaos found it: forty streams beside it, and lives of eight seconds, kept a routed stream from its first step."""
    (tmp_path / "key").write_bytes(b"a secret of thirty-two bytes or more")
    (tmp_path / "key").chmod(0o600)
    privacy = {"user_key_file": str(tmp_path / "key"), "unit": "user", "user": "user", "max_contributions": 1}
    table = stream_table("s", partitioner="any", privacy={"epsilon": 1.0, **privacy})
    config = job_config("localhost:1", Path("unused"), streams=[table], job="ticks")
    specs = source_specs(config, source_partitions={"s": 1}, topic_partitions={"raw.s": 1}, audit_partitions=None)
    options = IngestOptions(flush_s=0.0, flush_share_s=1e6)
    source = TopicPartition("raw.s", 0)
    task = SourceTask(config, source, specs["raw.s"], options=options, counters=IngestCounters())
    flushed = []

    async def flush() -> None:
        flushed.append(task.position)

    task.flush = flush  # type: ignore[method-assign]
    await task.take([record(0)])
    await task.flush_if_due(80)
    assert (task.flush_wait_s(80), flushed) == (0.0, [1])


@pytest.mark.parametrize(("each_s", "turns"), [(2**-13, 1), (2**-7, 34), (2**-4, 100)])
async def test_taking_in_gives_way_by_time_and_not_by_partition(
    each_s: float, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 100 partitions each takes so long. With a turn for each, the blocks of 200 small ones came up to 14 s late."""
    now, given = 0.0, []

    class Work:
        async def take(self, records: object) -> None:
            nonlocal now
            now += each_s

        async def flush_if_due(self, partitions: int) -> None:
            pass

    async def others(done: asyncio.Event) -> None:
        while not done.is_set():
            given.append(now)
            await asyncio.sleep(0)

    async def nothing(*_: object) -> None:
        pass

    sources = [TopicPartition("t", at) for at in range(100)]
    service: Any = SimpleNamespace(
        partition_tasks=dict.fromkeys(sources, Work()),
        _reopening=lambda *_: contextlib.nullcontext(),
        _pass_over=nothing,
        _schemas=SimpleNamespace(hold=lambda *_: None),
    )
    monkeypatch.setattr("agents.worker.ingest.service.time", SimpleNamespace(monotonic=lambda: now))
    done = asyncio.Event()
    beside = asyncio.create_task(others(done))
    await IngestService._work(service, None, {each: [record(0)] for each in sources})
    done.set()
    await beside
    assert turns <= len(given) <= turns + 2


@given(
    cuts=st.lists(st.integers(1, RECORDS - 1), max_size=6),
    ticks_at=st.lists(st.integers(0, RECORDS), min_size=1, max_size=4).map(sorted),
)
def test_ticks_stand_at_their_offsets_however_the_fetch_is_cut(cuts: list[int], ticks_at: list[int]) -> None:
    """Also while earlier ones still wait for their records."""
    edges = [0, *ticks_at, RECORDS]
    expected = {step: high - low for step, (low, high) in enumerate(pairwise(edges)) if high > low}
    assert steps_of(cuts, ticks_at) == expected


@given(
    begins=st.tuples(st.integers(0, RECORDS), st.integers(0, RECORDS)),
    cuts=st.lists(st.integers(1, RECORDS - 1), max_size=6),
    ticks=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 6), st.integers(0, RECORDS)), max_size=8),
    gaps=st.sets(st.integers(0, RECORDS - 1)),
    by_take=st.booleans(),
)
def test_a_stream_that_catches_up_stops_no_clock_but_its_own(
    begins: tuple[int, int], cuts: list[int], ticks: list[tuple[int, int, int]], gaps: set[int], by_take: bool
) -> None:
    """A tick is made exactly when its machine has taken in every record below its place: not before, and not later
    because another machine of the partition has yet to.

    `ticks` are (machine, piece before which it is asked for, place: where the partition ends then, so at least where
    reading is); `gaps` are offsets without a record. With `by_take` nothing but records tells where reading is.
    """

    async def scenario() -> None:
        task = task_of("a", "b")
        for machine, begin in zip(task.clocked, begins, strict=True):
            machine.resume(begin)
        task.position = min(begins)
        placed: list[list[int]] = [[], []]
        edges = [edge for edge in sorted({min(begins), *cuts, RECORDS}) if edge >= min(begins)]
        for piece, (low, high) in enumerate([(min(begins),) * 2, *pairwise(edges)]):
            for index, before, place in ticks:
                if before == piece:
                    task.awaited.put(task.clocked[index], len(placed[index]), max(place, low))
                    placed[index].append(max(place, low, *placed[index][-1:]))
            await task.take([record(offset) for offset in range(low, high) if offset not in gaps])
            told = not by_take or high == RECORDS
            if told:
                task.reached(high)
            for index, machine in enumerate(task.clocked):
                due = sum(place <= max(high, begins[index]) for place in placed[index]) - 1
                assert machine.ticked == due if told else machine.ticked <= due
        for index, machine in enumerate(task.clocked):
            joined: dict[int, int] = {}
            for offset in range(begins[index], RECORDS):
                if offset not in gaps:
                    step = sum(place <= offset for place in placed[index])
                    joined[step] = joined.get(step, 0) + 1
            block = machine.seal()[0]
            found = {} if block is None else {step: folded.total for step, folded in block.steps.items()}
            assert found == joined

    asyncio.run(scenario())


def test_a_later_tick_never_stands_before_an_earlier_one() -> None:
    task = task_of()
    (machine,) = task.clocked
    task.awaited.put(machine, 0, 7)
    task.awaited.put(machine, 1, 5)  # the end of a partition can seem to fall where its leader changes
    task.awaited.put(machine, 1, 9)  # its place is given
    assert task.awaited.asked(machine) == 1
    task.reached(6)
    assert machine.ticked == -1
    task.reached(7)
    assert machine.ticked == 1


class Partition:
    """What is asked of a consumer of committed records: where partitions end. It reads them up to `committed`."""

    _request_timeout_ms = 0
    _client = SimpleNamespace(cluster=SimpleNamespace(leader_for_partition=lambda _: 0))

    def __init__(self, *, end: int, committed: int | None = None) -> None:
        self.end, self.committed, self.asked = end, end if committed is None else committed, 0
        self._fetcher = Fetcher(self)


class Fetcher:
    _isolation_level = READ_COMMITTED

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    async def end_offsets(self, sources: list[TopicPartition], _: int) -> dict[TopicPartition, int]:
        partition = self._partition
        partition.asked += 1
        return dict.fromkeys(sources, partition.committed if self._isolation_level == READ_COMMITTED else partition.end)


async def test_a_transaction_that_somebody_keeps_open_moves_nobodys_event_to_another_step() -> None:
    """What is behind it cannot be read yet, and was sent before the step was over. It is seen as lag meanwhile."""
    task = task_of()
    service = IngestService(task._config, {"raw.s": [task.clocked[0].spec]}, now_us=lambda: (START_S + 60) * 10**6)
    service._grace_us = {"s": 0}
    service._broker_clock.told((START_S + 60) * 10**6)
    service._consumer = Partition(end=8, committed=3)
    service.partition_tasks[task.source] = task
    await service._place_ticks()
    await task.take([record(offset) for offset in range(3)])
    task.reached(3)
    assert task.clocked[0].ticked == -1
    await service._see_what_waits(service._consumer)
    assert service.vitals.lags["ingest"]["raw.s", 0] == Reach(3, 8)
    await task.take([record(offset) for offset in range(3, RECORDS)])
    block, _ = task.clocked[0].seal()
    assert block is not None
    assert {step: folded.total for step, folded in block.steps.items()} == {0: 8, 1: RECORDS - 8}


async def test_a_source_without_a_leader_holds_up_no_other_ones_steps(caplog: pytest.LogCaptureFixture) -> None:
    """aiokafka answers for all partitions that it is asked about, or for none."""
    led, leaderless = task_of(), task_of()
    leaderless.source = TopicPartition("raw.away", 0)
    service = IngestService(led._config, {"raw.s": [led.clocked[0].spec]}, now_us=lambda: (START_S + 60) * 10**6)
    service._grace_us = {"s": 0}
    service._broker_clock.told((START_S + 60) * 10**6)

    class Waiting(Fetcher):
        async def end_offsets(self, sources: list[TopicPartition], timeout_ms: int) -> dict[TopicPartition, int]:
            if leaderless.source in sources:
                raise TimeoutError  # as it does once the time is over
            return await super().end_offsets(sources, timeout_ms)

    consumer: Any = Partition(end=8)
    consumer._fetcher = Waiting(consumer)
    leaders = {led.source: 0, leaderless.source: -1}
    consumer._client = SimpleNamespace(cluster=SimpleNamespace(leader_for_partition=leaders.get))
    service._consumer = consumer
    service.partition_tasks = {task.source: task for task in (led, leaderless)}
    await service._place_ticks()
    assert led.awaited.asked(led.clocked[0]) == 0
    assert leaderless.awaited.asked(leaderless.clocked[0]) == -1
    with caplog.at_level("WARNING"):
        await service._see_what_waits(consumer)
    assert "raw.away-0 has no leader: steps of what reads it wait" in caplog.text
    leaders[leaderless.source] = 1
    consumer._fetcher = Fetcher(consumer)
    service._step_ends.next_us = 0  # a moment later
    await service._place_ticks()
    assert leaderless.awaited.asked(leaderless.clocked[0]) == 0


def test_ticks_get_their_places_while_records_are_worked_on() -> None:
    """The main loop does nothing here, as where a fetch of many records takes long."""

    async def scenario() -> None:
        task, partition, now_s = task_of(), Partition(end=3), [START_S + 60]
        service = IngestService(task._config, {"raw.s": [task.clocked[0].spec]}, now_us=lambda: now_s[0] * 1_000_000)
        service._grace_us = {"s": 0}
        service._broker_clock.told(now_s[0] * 10**6 + 3600 * 10**6)
        service._consumer = partition
        service.partition_tasks[task.source] = task
        clock = asyncio.create_task(service._clock.fun(service))
        for step, end in ((0, 3), (1, 8)):
            partition.end = end
            while task.awaited.asked(task.clocked[0]) < step:  # noqa: ASYNC110 - nothing else tells of it
                await asyncio.sleep(0.01)
            now_s[0] += 60
        clock.cancel()
        await task.take([record(offset) for offset in range(RECORDS)])
        block, _ = task.clocked[0].seal()
        assert block is not None
        assert {step: folded.total for step, folded in block.steps.items()} == {0: 3, 1: 5, 2: RECORDS - 8}

    asyncio.run(asyncio.wait_for(scenario(), 120))


async def test_a_failed_transaction_is_noticed_even_if_nothing_follows() -> None:
    class Failing:
        async def begin_transaction(self) -> None: ...

        async def send(self, *_: Any, **__: Any) -> None:
            raise RuntimeError("the broker refused")

    async def flush() -> None:
        for _ in range(20):
            await task.flush_if_due()
            await asyncio.sleep(0.001)

    task = task_of()
    task._producer = Failing()
    (machine,) = task.clocked
    task.awaited.put(machine, 0, 2)
    await task.take([record(0), record(1)])
    task.reached(2)
    with pytest.raises(RuntimeError, match="the broker refused"):
        await flush()


def test_no_step_ends_before_the_brokers_were_asked() -> None:
    class Nobody:
        _client = Partition._client

        @property
        def _fetcher(self) -> Any:
            raise AssertionError("asked where the partition ends")

    task = task_of()
    service = IngestService(task._config, {"raw.s": [task.clocked[0].spec]})
    service._grace_us = {"s": 0}
    service._consumer = Nobody()
    service.partition_tasks[task.source] = task
    asyncio.run(service._place_ticks())
    service._broker_clock.told(START_S * 10**6)
    asyncio.run(service._place_ticks())  # 2020, for the brokers: nothing is over
    service._broker_clock.told((START_S + 60) * 10**6)
    with pytest.raises(AssertionError, match="where the partition ends"):
        asyncio.run(service._place_ticks())


# --- A partition that goes live: an end holds if the partition has gone live before its place -------------------------


def marker(offset: int, step: int) -> RawRecord:
    value = encode_going_live(step, live_from=0, row=0, source="test")
    return RawRecord(offset, -1, None, None, ((TICK_HEADER, value),))


@given(
    live_at=st.integers(0, RECORDS),
    over=st.integers(-1, 3),
    places=st.lists(st.integers(0, RECORDS), max_size=6).map(sorted),
    cuts=st.lists(st.integers(1, RECORDS - 1), max_size=6),
)
def test_an_end_holds_where_it_stands_if_the_partition_has_gone_live_before(
    live_at: int, over: int, places: list[int], cuts: list[int]
) -> None:
    """However far behind reading is, and however Kafka cuts what is fetched. A stream by the wall clock beside it is
    none the wiser: it refuses the record, and its own ends hold wherever they stand.
    """

    async def scenario() -> None:
        task = task_of("s", "t", clock="replay")
        replayed, wall = task.clocked
        for machine in task.clocked:
            for step, place in enumerate(places):
                task.awaited.put(machine, step, place)
        everything = [marker(offset, over) if offset == live_at else record(offset) for offset in range(RECORDS)]
        for low, high in pairwise(sorted({0, *cuts, RECORDS})):
            await task.take(everything[low:high])
            task.reached(high)
        expected: dict[Any, Counter[int]] = {replayed: Counter(), wall: Counter()}
        closed = {replayed: -1, wall: -1}
        for offset in range(RECORDS + 1):
            for step, place in enumerate(places):
                if place == offset:
                    closed[wall] = max(closed[wall], step)
                    if live_at < offset:
                        closed[replayed] = max(closed[replayed], step)
            if offset == live_at < RECORDS:
                closed[replayed] = max(closed[replayed], over)
            elif offset < RECORDS:
                for machine in task.clocked:
                    expected[machine][closed[machine] + 1] += 1
        for machine in task.clocked:
            block = machine.seal()[0]
            assert block is not None
            assert Counter({step: folded.total for step, folded in block.steps.items()}) == expected[machine]
            assert (block.tick, block.hi) == (closed[machine], RECORDS)
        assert replayed.live is (live_at < RECORDS)

    asyncio.run(scenario())


async def test_an_end_that_was_void_is_placed_once_more_when_the_partition_has_gone_live() -> None:
    """Where the clock beside the replay was a little behind the worker's, and nothing else would close the step."""
    task = task_of(clock="replay")
    (machine,) = task.clocked
    task.awaited.put(machine, 4, 2)
    await task.take([record(0), record(1)])
    task.reached(2)
    assert (machine.ticked, task.awaited.asked(machine)) == (-1, 4), "not asked again and again while nothing is live"
    await task.take([marker(2, 3)])
    assert (machine.ticked, task.awaited.asked(machine)) == (3, 3)
    task.awaited.put(machine, 4, 5)
    task.reached(5)
    assert machine.ticked == 4


async def test_ends_of_replayed_streams_get_their_places_too_and_nobody_is_warned_of_them(caplog: Any) -> None:
    task, partition = task_of(clock="replay"), Partition(end=7)
    (machine,) = task.clocked
    service = IngestService(task._config, {"raw.s": [machine.spec]}, now_us=lambda: (START_S + 10**8) * 10**6)
    service._grace_us = {"s": 0}
    service._consumer = partition
    service.partition_tasks[task.source] = task
    await service._place_ticks()
    assert partition.asked == 0, "nobody has told the time yet"
    service._broker_clock.told((START_S + 10**8) * 10**6)
    for _ in range(3):
        await service._place_ticks()
    assert (partition.asked, machine.ticked) == (1, -1)
    await task.take([record(offset) for offset in range(4)])
    await task.take([marker(4, 0), record(5)])
    task.reached(7)
    assert machine.ticked == task.awaited.asked(machine) == 10**8 // 60 - 1
    assert "are over and not published" not in caplog.text


def reading(*tasks: SourceTask, gives: int = 0, next_end_s: float = 1.0, now_s: float | None = None) -> Any:
    """Return the parts of a service that decide what is read, and when: `got` is what was asked of Kafka.

    Args: now_s: the time behind the start of the steps; None: nobody knows it yet.
    """
    got: list[tuple[TopicPartition, ...]] = []
    slept: list[float] = []

    async def getmany(*partitions: TopicPartition, **_: Any) -> dict[TopicPartition, list[None]]:
        got.append(partitions)
        return {TopicPartition("raw.s", 0): [None] * gives}

    async def sleep(wait_s: float) -> None:
        slept.append(wait_s)

    sources = {TopicPartition("raw.s", number): task for number, task in enumerate(tasks)}
    paused = set[TopicPartition]()
    consumer = SimpleNamespace(
        getmany=getmany, assignment=lambda: set(sources), paused=lambda: set(paused),
        pause=lambda *some: paused.update(some), resume=lambda *some: paused.difference_update(some),
    )  # fmt: skip
    service: Any = SimpleNamespace(
        partition_tasks=sources, consumer=consumer, got=got, slept=slept, sleep=sleep, _together_until_s=0.0,
        _busy=set(), _resting=set(), _together_since_s=time.monotonic() - 1.0, _came=0, _took_s=0.0, _round_s=0.0,
        now_s=now_s, _grace_us={each.spec.stream: 0 for task in tasks for each in task.clocked},
        _pulse=SimpleNamespace(ready=True), _options=IngestOptions(), _until_next_end_s=lambda: next_end_s,
    )  # fmt: skip
    service._broker_clock = SimpleNamespace(
        bounded_us=lambda: None if service.now_s is None else int((START_S + service.now_s) * 1e6)
    )
    for name in ("_rest", "_wake", "_together_s"):
        setattr(service, name, partial(getattr(IngestService, name), service))
    return service


async def read(service: Any) -> Any:
    return await IngestService._fetch(service, service.consumer, IngestService._asked(service))


async def test_few_records_come_together_and_the_partition_of_an_end_is_read_at_once() -> None:
    quiet, other = task_of(), task_of()
    service = reading(quiet, other, gives=FEW_RECORDS - 1)
    await read(service)
    assert service.got == [()]
    await read(service)
    assert service.got == [()]
    assert 0 < service.slept[0] <= IngestOptions().flush_wait_s(2)
    other.awaited.put(other.clocked[0], 0, 5)
    await read(service)
    assert service.got == [(), (TopicPartition("raw.s", 1),)]
    assert len(service.slept) == 1


async def test_nobody_waits_for_more_records_beyond_the_end_of_a_step_or_where_many_came() -> None:
    service = reading(task_of(), next_end_s=0.02)
    await read(service)
    await read(service)
    assert service.slept == [0.02]


async def test_a_partition_with_many_records_is_read_at_once_while_those_of_others_come_together() -> None:
    service = reading(task_of(), task_of(), gives=FEW_RECORDS)
    await read(service)
    await read(service)
    assert (service.got, service.slept) == ([(), (TopicPartition("raw.s", 0),)], [])
    behind = reading(task_of(), task_of(), gives=IngestOptions().poll_records)
    await read(behind)
    await read(behind)
    assert behind.got == [(), ()], "more may wait of the other partition, for which there was no room"


async def test_nothing_is_fetched_while_records_come_together_for_long() -> None:
    many = [task_of() for _ in range(60)]
    first = many[0]
    service = reading(*many, gives=1)
    await read(service)
    assert service.consumer.paused() == set(service.partition_tasks)
    first.awaited.put(first.clocked[0], 0, 5)
    await read(service)
    assert service.consumer.paused() == set(list(service.partition_tasks)[1:]), "an end is read at once"
    first.reached(5)
    service._together_until_s = 0.0
    await read(service)
    assert service.got[-1] == ()
    assert len(service.got) == 3
    assert service.consumer.paused() == set(service.partition_tasks)


async def test_what_rests_and_is_paused_for_another_reason_is_not_woken() -> None:
    service = reading(*(task_of() for _ in range(60)), gives=1)
    held, resting, gone = list(service.partition_tasks)[:3]
    service.consumer.pause(held)
    await read(service)
    del service.partition_tasks[gone]
    service._together_until_s = 0.0
    woken = list[TopicPartition]()
    service.consumer.resume = lambda *some: woken.extend(some)
    await read(service)
    assert resting in woken
    assert held not in woken
    assert gone not in woken


async def test_what_comes_together_for_a_moment_is_fetched_meanwhile() -> None:
    service = reading(task_of(), gives=1, now_s=59.0)
    await read(service)
    assert service.consumer.paused() == set()
    assert together_s(service) == pytest.approx(IngestOptions().flush_s / 2, abs=0.1)


async def test_so_many_come_together_as_a_worker_can_hold() -> None:
    """By how many came since the last time, in however many fetches: of several brokers each answers by itself."""
    service = reading(*(task_of() for _ in range(400)))
    await read(service)
    assert together_s(service) == pytest.approx(IngestOptions().flush_most_s, abs=1)
    service._together_until_s = 0.0
    service._together_since_s, service._came = time.monotonic() - 10.0, 5 * TOGETHER_RECORDS
    await read(service)
    assert together_s(service) == pytest.approx(2.0, abs=0.5)
    assert service._came == 0


def together_s(service: Any) -> float:
    """Return for how long records come together from now on."""
    return float(service._together_until_s - time.monotonic())


@pytest.mark.parametrize(
    ("now_s", "took_s", "expected_s"),
    [
        (0.0, 1.0, 29.0),  # two times half of what is left until two seconds before the end
        (30.0, 1.0, 28.0),
        (30.0, 10.0, 30.0 - LEAD_S),
        (58.0, 1.0, 30.0),  # that end is at hand: the next one is not yet
        (50.0, 1.0, 30.0),  # so is this: few would have come
    ],
)
async def test_what_came_together_is_taken_in_shortly_before_a_step_ends(
    now_s: float, took_s: float, expected_s: float
) -> None:
    service = reading(*(task_of() for _ in range(400)), now_s=now_s)
    service._took_s = took_s
    await read(service)
    assert together_s(service) == pytest.approx(expected_s, abs=0.5)


async def test_the_lead_is_twice_what_taking_in_took_the_last_time() -> None:
    service = reading(*(task_of() for _ in range(400)), now_s=30.0)
    await read(service)
    service._together_until_s = time.monotonic() - 1.0
    await read(service)  # of what had come together a second ago
    service._together_until_s = 0.0
    service.now_s = 30.0
    await read(service)
    assert service._took_s == pytest.approx(1.0, abs=0.5)
    assert together_s(service) == pytest.approx(28.0, abs=1.0)


async def test_where_ticks_are_among_the_records_nothing_waits_long_for_others() -> None:
    service = reading(task_of(), task_of(clock="replay"), gives=1)
    await read(service)
    assert together_s(service) <= REPLAYED_S
    assert service.consumer.paused() == set()


async def test_a_worker_that_joins_its_group_asks_for_all_and_hears_of_errors() -> None:
    service = reading()
    await read(service)
    assert service.got == [()]


async def test_a_slice_has_few_records_where_each_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of another format takes seconds: sixty of one batch were a slice, and no heartbeat came in between."""
    task = task_of()
    [machine] = task.machines
    taken, take = list[int](), machine.take
    monkeypatch.setattr(machine, "take", lambda records: (taken.append(len(records)), take(records)))
    large = b" " * (1 << 20)
    small = [record(offset) for offset in range(10, 2_010)]
    await task.take([*(record(offset)._replace(value=large) for offset in range(10)), *small])
    assert sum(taken) == machine.pending == 2_010
    assert taken[:2] == [4, 4]
    monkeypatch.setattr(machine.decoder, "weight", 40)
    taken.clear()
    later = [*(record(offset)._replace(key=large) for offset in range(10)), *small]
    await task.take([each._replace(offset=each.offset + 2_010) for each in later])
    assert taken[:11] == [1] * 10 + [1_000]

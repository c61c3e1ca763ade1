"""Steps are computed where they keep nothing else waiting: see `agents.worker.processors`."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from agents.worker import processors
from agents.worker.processors import ALIKE, QUICK_S, STEPS, Processors

QUICK, SLOW = QUICK_S / 2, QUICK_S * 2


class World:
    """Processors, and a clock that goes on by what a step is said to take."""

    def __init__(self) -> None:
        self.now = 0.0
        self.processors = Processors()

    async def step(self, seconds: float, *, events: int = 10, stream: str = "taxi") -> bool:
        """Compute a step; return whether the event loop did."""

        def work() -> int:
            self.now += seconds
            return threading.get_ident()

        where = await self.processors.compute(stream, events, work, contextlib.nullcontext())
        return where == threading.get_ident()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(processors, "time", SimpleNamespace(thread_time=lambda: world.now))
    return world


async def test_a_stream_of_quick_steps_is_computed_by_the_event_loop(world: World) -> None:
    assert [await world.step(QUICK) for _ in range(3)] == [False, True, True]
    assert not await world.step(QUICK, stream="another")


async def test_a_slow_step_is_remembered_for_as_long_as_such_a_one_may_come_again(world: World) -> None:
    await world.step(QUICK)
    assert await world.step(SLOW)
    assert [await world.step(QUICK) for _ in range(STEPS + 1)] == [False] * STEPS + [True]


async def test_many_more_events_than_ever_before_may_take_long(world: World) -> None:
    await world.step(QUICK, events=500)
    assert await world.step(QUICK, events=2 * 500 + ALIKE)
    assert not await world.step(QUICK, events=2 * (2 * 500 + ALIKE) + ALIKE + 1)


async def test_everything_else_has_its_turn_between_two_quick_steps(world: World) -> None:
    streams = [f"stream{at}" for at in range(5)]
    for stream in streams:
        await world.step(QUICK, stream=stream)
    rounds, seen = 0, list[int]()

    async def others() -> None:
        nonlocal rounds
        while len(seen) < len(streams):
            rounds += 1
            await asyncio.sleep(0)

    async def one(stream: str) -> None:
        await world.processors.compute(stream, 10, lambda: seen.append(rounds), contextlib.nullcontext())

    await asyncio.gather(others(), *map(one, streams))
    assert len(set(seen)) == len(streams)


async def test_a_step_that_takes_long_holds_up_neither_quick_ones_nor_those_in_other_threads(world: World) -> None:
    await world.step(QUICK)
    go_on, entered = threading.Event(), list[str]()

    def at_work(name: str) -> contextlib.AbstractContextManager[None]:
        @contextlib.contextmanager
        def entering() -> Iterator[None]:
            entered.append(name)
            yield

        return entering()

    def waits() -> bool:
        return go_on.wait(60)

    def computed(name: str, work: Callable[[], bool]) -> asyncio.Task[bool]:
        return asyncio.create_task(world.processors.compute(name, 10, work, at_work(name)))

    long = computed("long", waits)
    assert await world.step(QUICK)
    assert await asyncio.wait_for(computed("beside", lambda: True), 60)
    assert not long.done()
    assert entered == ["long", "beside"]
    go_on.set()
    assert await long


async def test_a_step_that_waits_for_its_turn_is_not_at_work(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    world.processors = Processors()
    go_on, entered = threading.Event(), list[int]()

    @contextlib.contextmanager
    def at_work(number: int) -> Iterator[None]:
        entered.append(number)
        yield

    tasks = [
        asyncio.create_task(world.processors.compute(str(number), 1, lambda: go_on.wait(60), at_work(number)))
        for number in range(3)
    ]
    await asyncio.sleep(0.05)
    assert entered == [0, 1]
    go_on.set()
    await asyncio.gather(*tasks)
    assert entered == [0, 1, 2]


async def test_an_error_of_a_step_comes_out_wherever_it_is_computed(world: World) -> None:
    def fails() -> None:
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            await world.processors.compute("taxi", 10, fails, contextlib.nullcontext())
        await world.step(QUICK)
    assert await world.step(QUICK)

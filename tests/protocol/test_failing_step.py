"""A step that cannot be computed, in the midst of many that are closed: those before it are answered, and whoever goes
on after a restart uses the seeds that are committed.
"""

from __future__ import annotations

from typing import Any

import pytest

from agents.protocol.release.candidates import MOST_STEPS
from schemas.releases import Seed
from tests.protocol.test_promise import BULKS
from tests.protocol.world import PARTITIONS, EngineProcess, PublisherProcess, World, golden

STEPS = 6
FAILS = 3


def work(process: EngineProcess | PublisherProcess) -> None:
    for _ in range(20 * STEPS):
        process.act()


def seeds(world: World) -> list[int]:
    return [record.step for _, record in world.log_records() if isinstance(record, Seed)]


def answered(world: World) -> list[int]:
    return sorted({record.step for _, record in world.log_records() if not isinstance(record, Seed)})


def test_more_closed_steps_than_one_transaction_takes() -> None:
    world, steps = World(enough_bytes=1 << 20), 2 * MOST_STEPS + 1
    for partition in range(PARTITIONS):
        world.ingest(partition, dict.fromkeys(range(steps), 1), steps)
    process, publisher = EngineProcess(world), PublisherProcess(world)
    drawn = []
    while len(answered(world)) < steps:
        process.act()
        drawn.append(len(seeds(world)))
    assert sorted(set(drawn) - {0}) == [MOST_STEPS, 2 * MOST_STEPS, steps]
    for _ in range(3 * steps):
        publisher.act()
    assert world.answers() == {step: [copy] for step, copy in golden(world).items()}


@pytest.mark.parametrize("enough_bytes", BULKS)
@pytest.mark.parametrize("fails", [0, FAILS, STEPS - 1])
def test_the_steps_before_it_are_answered_and_its_seed_is_used_later(enough_bytes: int, fails: int) -> None:
    world = World(enough_bytes=enough_bytes)
    for partition in range(PARTITIONS):
        world.ingest(partition, dict.fromkeys(range(STEPS), 1), STEPS)
    process = EngineProcess(world)
    engine = process.machine.stepper.engine
    step = engine.step

    def failing(batch: Any, noise: Any) -> Any:
        if batch.step == fails:
            raise ZeroDivisionError
        return step(batch, noise)

    engine.step = failing  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        work(process)
    assert process.machine.step == fails
    assert answered(world) == list(range(fails))
    assert (-1 if world.table is None else world.table.step) == fails - 1
    assert seeds(world) == list(range(STEPS))
    publisher = PublisherProcess(world)
    work(publisher)
    assert list(world.answers()) == list(range(fails))
    work(EngineProcess(world))
    work(publisher)
    assert seeds(world) == answered(world) == list(range(STEPS)), "with the seeds that were committed"
    assert world.answers() == {step: [copy] for step, copy in golden(world).items()}

"""Faults planted in how partitions are added, each found; and what late records show, without any."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from agents.protocol.ingest import added as product
from agents.protocol.ingest.added import AddPartitions, Commit, Effect, StorePartitions, added, children
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.snapshots import BucketLog
from schemas.errors import GapError
from tests.protocol.added_world import KINDS, USERS, World, check, full, play
from tests.protocol.ingest_runs import SPEC


def nothing_copied(self: PartitionIngest, parent: PartitionIngest) -> Iterator[Any]:
    self.ticked = parent.ticked
    self.spread(self.spec.partitions)
    return iter(())


def not_ticked(self: PartitionIngest, parent: PartitionIngest) -> Iterator[Any]:
    found = begin_as(self, parent)
    self.ticked = -1
    return found


begin_as = PartitionIngest.begin_as


def half_of_the_buckets(self: BucketLog) -> Iterator[Any]:
    return (each for number, each in enumerate(copies(self)) if number % 2)


copies = BucketLog.copies


def stored_first(parents: Sequence[PartitionIngest], wanted: int) -> Iterator[Effect]:
    effects = list(added(parents, wanted))
    order: list[type[Effect]] = [AddPartitions, StorePartitions, Commit]
    yield from sorted(effects, key=lambda effect: order.index(type(effect)))


def of_the_wrong_parent(parent: int, partitions: int, wanted: int) -> range:
    return children((parent + 1) % partitions, partitions, wanted)


PLANTS: dict[str, Callable[[pytest.MonkeyPatch], Any]] = {
    "nothing copied": lambda patch: patch.setattr(PartitionIngest, "begin_as", nothing_copied),
    "not ticked": lambda patch: patch.setattr(PartitionIngest, "begin_as", not_ticked),
    "half of the buckets": lambda patch: patch.setattr(BucketLog, "copies", half_of_the_buckets),
    "another parent": lambda patch: patch.setattr(product, "children", of_the_wrong_parent),
}


def late_and_early(kind: str) -> World:
    """Everybody is at the bound, a period is over, partitions are added, and everybody sends again, also late."""
    world = full(KINDS[kind])
    play(world, ["tick"] * 4)
    world.work()
    play(world, USERS[:4])
    world.work()
    world.add(4)
    for user in USERS * 4:
        world.send(user, t=0.5)
        world.send(user)
    world.tick()
    world.work()
    return world


@pytest.mark.parametrize("kind", KINDS)
def test_late_records_count_where_they_would_have(kind: str) -> None:
    check(late_and_early(kind), 2)


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_fault_is_found(plant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTS[plant](monkeypatch)
    with pytest.raises((AssertionError, GapError)):
        check(late_and_early("periods"), 2)


def test_that_the_number_is_stored_first_is_found() -> None:
    """The command dies behind it: workers start, and users begin anew on partitions that know nobody."""
    world = full(SPEC)
    world.add(4, effects=2, plan=stored_first)
    play(world, USERS * 2)
    world.work()
    assert sum(world.outcome().charges.values()) > 3 * len(USERS)

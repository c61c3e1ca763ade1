"""Partitions that are added to a source: whatever comes before and after, nobody's bound begins anew, and each step has
the same events. Crashes between any two effects, planted faults, and workers that wake up with the old number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agents.protocol.ingest.added
from agents.protocol.ingest.added import AddPartitions, Commit, Effect, StorePartitions, added, children, possible
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.snapshots import BucketLog
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.release.merge import BlockMerge
from engines.core.registry import build_domain
from schemas.errors import GapError, SourceError
from tests.examples import examples
from tests.kafka.support import job_config, stream_table
from tests.protocol.added_world import KINDS, USERS, FencedError, World, check, full, home, play
from tests.protocol.ingest_runs import KEY, SPEC, body

EVENTS = st.lists(st.sampled_from([*USERS, "tick"]), max_size=60)


def trips(tmp_path: Any) -> SourceSpec:
    table = stream_table(
        "s",
        engine="trajectory",
        privacy={"epsilon": 1.0, "unit": "user", "user": "u", "max_contributions": 2, "user_key_file": "unused"},
        domain={"kind": "trips", "trip": "trip", "x": "x", "y": "y", "bounds": [0.0, 0.0, 1.0, 1.0]},
        options={"idle": "2m", "longest": "3m", "side": 8},
    )
    table["time"] = {**table["time"], "field": "t"}
    [stream] = job_config("localhost:1", tmp_path, streams=[table]).streams
    spec = SourceSpec.from_stream(stream, build_domain(stream), key=KEY, partitions=1)
    return replace(spec, clock=SPEC.clock)


@st.composite
def grown(draw: st.DrawFn, *, plan: Any = added) -> tuple[World, int]:
    """A source that got partitions, maybe twice, by commands of which some died; and how many it had."""
    first = draw(st.sampled_from([1, 2, 3]))
    world = World(KINDS[draw(st.sampled_from(sorted(KINDS)))], first)
    work: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
        {"piece": st.integers(1, 9), "budget": st.sampled_from([1, 1 << 20]), "step_by_step": st.booleans()}
    )
    play(world, draw(EVENTS))
    world.work(**draw(work))
    wanted = first * draw(st.sampled_from([2, 3]))
    for effects in draw(st.lists(st.integers(0, 20), max_size=2)):
        if world.add(wanted, effects=effects, plan=plan):
            break
        world.work()  # where workers may still start they do, and take in more
        play(world, draw(st.lists(st.sampled_from(USERS), max_size=3)) if world.topic == first else [])
        world.work()
    if world.stored != wanted:
        assert world.add(wanted, plan=plan)
    play(world, draw(EVENTS))
    world.work(**draw(work))
    play(world, draw(EVENTS))
    world.work(**draw(work))
    world.tick()
    world.work()
    return world, first


@given(grown())
@settings(max_examples=examples(0.5))
def test_it_is_as_if_one_table_had_seen_each_user(case: tuple[World, int]) -> None:
    check(*case)


@given(grown(), st.data())
@settings(max_examples=examples(0.3))
def test_each_step_has_its_events_wherever_the_engine_restarts(case: tuple[World, int], data: st.DataObject) -> None:
    """It may restore a state of fewer partitions, and go on with blocks that were committed before any were added."""
    world, first = case
    words = world.spec.domain.words
    whole = world.steps_of(BlockMerge("s", world.stored, words))
    assert max(whole, default=-1) == world.step - 1
    at = next(n for n, (_, block) in enumerate(world.all_blocks) if block.partition >= first)
    cut = data.draw(st.integers(0, at))
    earlier = BlockMerge("s", first, words)
    for offset, block in world.all_blocks[:cut]:
        earlier.fold(offset, block)
    answered = {}
    for step in range(data.draw(st.integers(0, earlier.closed_to + 1))):
        events = earlier.take(step)
        counted = dict(zip(map(tuple, events.keys.tolist()), events.counts.tolist(), strict=True))
        answered[step] = counted, earlier.take_surplus(step)
    later = BlockMerge("s", world.stored, words)
    later.restore(earlier.progress(), earlier.arrays())
    assert later.closed_to == -1, "no step ends before the new partitions have said how far they are"
    found = {}
    step = len(answered)
    for offset, block in world.all_blocks:
        later.fold(offset, block)
        while later.closed(step):
            events = later.take(step)
            counted = dict(zip(map(tuple, events.keys.tolist()), events.counts.tolist(), strict=True))
            found[step] = counted, later.take_surplus(step)
            step += 1
    assert answered | found == whole


@pytest.mark.parametrize("most", [1, 1 << 20])
def test_bounds_of_many_users_are_copied_in_several_transactions(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents.protocol.ingest.added, "COPIED_BYTES", most)
    world = full(KINDS["whole stream"])
    parents = [world.machine(partition) for partition in range(2)]
    copied = [effect for effect in added(parents, 4) if isinstance(effect, Commit) and effect.snapshots]
    assert max(len(effect.snapshots) for effect in copied) == 1 if most == 1 else len(copied) == 2
    assert world.add(4)
    play(world, USERS)
    world.tick()
    world.work()
    check(world, 2)


def test_an_engine_with_the_old_number_goes_no_further() -> None:
    world = World(SPEC, 2)
    play(world, [*USERS, "tick"])
    world.work()
    world.add(4)
    merge = BlockMerge("s", 2, SPEC.domain.words)
    with pytest.raises(SourceError, match="run privstream topics CONFIG --add-partitions again"):
        world.steps_of(merge)


EFFECTS = len(list(added([full(SPEC).machine(p) for p in range(2)], 4)))


@pytest.mark.parametrize("effects", range(EFFECTS))
def test_a_command_that_dies_is_run_again(effects: int) -> None:
    world = full(SPEC)
    assert not world.add(4, effects=effects)
    assert world.stored == 2, "what the stream is said to have is written last"
    assert world.topic == (2 if effects == 0 else 4), "and the partitions are added first: no worker starts in between"
    assert world.add(4)
    play(world, USERS * 2)
    world.tick()
    world.work()
    check(world, 2)
    assert sum(world.outcome().charges.values()) == 3 * len(USERS)


@pytest.mark.parametrize("effects", range(1, EFFECTS))
def test_another_number_may_be_asked_for_after_a_command_that_died(effects: int) -> None:
    world = full(SPEC)
    world.add(4, effects=effects)
    assert world.add(8)
    play(world, USERS * 2)
    world.work()
    assert sum(world.outcome().charges.values()) == 3 * len(USERS)


def test_partitions_are_added_again_and_again() -> None:
    world = full(SPEC, 1)
    for wanted in (2, 6, 12):
        world.add(wanted)
        play(world, USERS)
        world.work(step_by_step=True)
    assert sum(world.outcome().charges.values()) == 3 * len(USERS)


def test_trips_keep_their_users_and_their_admissions(tmp_path: Any) -> None:
    world = World(trips(tmp_path), 2, body=lambda **fields: body(**{"trip": 1, **fields}))
    for user in USERS:
        world.send(user)
        world.send(user, trip=2)
    world.work()
    world.add(6)
    for user in USERS:
        world.send(user)  # of an admitted trip: passes free
        world.send(user, trip=3)  # beyond the bound
    world.tick()
    world.work()
    check(world, 2)
    assert world.outcome().accepted == 3 * len(USERS)


# --- workers that wake up --------------------------------------------------------------------------------------------


def sleeper(world: World) -> tuple[PartitionIngest, int]:
    """A worker with the old number owns partition 0 from now on."""
    return world.machine(0, partitions=2), world.epochs[0]


def test_a_worker_that_was_fenced_commits_nothing() -> None:
    world = full(SPEC)
    machine, epoch = sleeper(world)
    world.add(4)
    machine.tick(9)
    with pytest.raises(FencedError):
        world.commit(machine, epoch)


def test_a_worker_that_fences_the_command_ends_it() -> None:
    """Whatever it has taken in is copied by the next one."""
    world = full(SPEC)

    def woken(parents: Sequence[PartitionIngest], wanted: int) -> Iterator[Effect]:
        for effect in added(parents, wanted):
            if isinstance(effect, Commit) and effect.partition == 0:
                machine, epoch = sleeper(world)
                machine.check_partitions()
                machine.tick(9)
                world.commit(machine, epoch)
            yield effect

    with pytest.raises(FencedError):
        world.add(4, plan=woken)
    assert world.stored == 2
    assert world.add(4)
    assert [block.tick for _, block in world.all_blocks if block.partition == 2] == [-1, 9]


@pytest.mark.parametrize("effects", [EFFECTS - 1, EFFECTS])
def test_a_worker_that_fences_later_stops(effects: int) -> None:
    """It has looked at the topic before the partitions were added, and comes to its partition only now."""
    world = full(SPEC)
    world.add(4, effects=effects)
    machine, _ = sleeper(world)
    with pytest.raises(SourceError, match="is read as one of 2 partitions, and its bounds are those of 4"):
        machine.check_partitions()
    if effects == EFFECTS:
        world.machine(0).check_partitions()


def test_the_number_is_said_by_every_later_block() -> None:
    world = full(SPEC)
    world.add(4)
    for _ in range(5):
        play(world, ["tick", *USERS])
        world.work(step_by_step=True)
    assert world.beginning > max(offset for offset, block in world.all_blocks if block.copied is None and block.lo == 0)
    with pytest.raises(SourceError):
        sleeper(world)[0].check_partitions()


# --- what is lost is noticed -----------------------------------------------------------------------------------------


def test_copied_bounds_that_are_lost_are_missed() -> None:
    world = full(SPEC)
    world.add(4)
    for key in [b"s/2/%d" % bucket for bucket in range(0, 256, 15)]:
        without = dict(world.snapshots)
        del without[key]
        with pytest.raises(GapError, match="has lost bounds that were copied"):
            replace(world, snapshots=without).machine(2)
    with pytest.raises(GapError, match="and no block is"):
        replace(world, blocks=[]).machine(2)


def test_a_copy_of_an_earlier_try_is_no_copy() -> None:
    world = full(SPEC, drained=False)
    world.add(4, effects=EFFECTS - 3)
    stale = dict(world.snapshots)
    world.topic = 2  # a worker that has not looked yet goes on for a while
    world.work()
    world.add(4)
    with pytest.raises(GapError, match="has lost bounds that were copied"):
        replace(world, snapshots=stale).machine(2)


def test_what_is_on_a_partition_of_former_users_is_refused_and_not_counted() -> None:
    """Not drained, or of a producer that has not heard of the new partitions: events are lost, nobody's bound is."""
    world = World(SPEC, 2)
    play(world, USERS)
    world.add(4)
    play(world, USERS, placed_among=2)
    play(world, USERS * 3)
    world.tick()
    world.work()
    moved = sum(home(user, 4) >= 2 for user in USERS)
    assert moved
    assert max(world.outcome().charges.values()) == 3
    assert sum(block.counts.get("WRONG_PARTITION", 0) for _, block in world.all_blocks) == 2 * moved


# --- numbers ---------------------------------------------------------------------------------------------------------


def test_which_numbers_are_possible() -> None:
    assert [n for n in range(1, 10) if possible(3, n, SPEC)] == [3, 6, 9]
    assert [n for n in range(1, 5) if possible(1, n, replace(SPEC, partitioner="none"))] == [1]
    assert [n for n in range(1, 6) if possible(3, n, KINDS["events alone"])] == [3, 4, 5]
    with pytest.raises(ValueError, match="cannot be kept together"):
        full(SPEC).add(3)


def test_users_of_a_new_partition_come_from_one_old_one() -> None:
    for partitions in (1, 2, 3, 4, 7):
        for wanted in (2 * partitions, 3 * partitions):
            parent = {child: old for old in range(partitions) for child in (old, *children(old, partitions, wanted))}
            assert sorted(parent) == list(range(wanted))
            for number in range(50):
                user = f"user {number}"
                assert parent[home(user, wanted)] == home(user, partitions)


# --- planted faults --------------------------------------------------------------------------------------------------


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
    "another parent": lambda patch: patch.setattr(agents.protocol.ingest.added, "children", of_the_wrong_parent),
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

"""A partition whose history was replayed goes live: by one record, for good, and whatever is restored in between."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.fingerprint import Fingerprint
from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.spec import Role
from agents.protocol.release.merge import BlockMerge
from agents.protocol.release.publisher import StreamPublisher
from agents.protocol.release.stepper import Stepper
from engines.checks.contract_case import contract_case
from schemas.blocks import Block
from schemas.errors import FingerprintError, GapError
from schemas.events import LARGEST_JUMP, Reason
from schemas.releases import split_into_chunks
from tests.protocol.ingest_runs import SPEC, body, live_header, sealed, taken, tick_header

SECOND_MS = 1000


def record(offset: int, *, at: float = 0.0, arrives: float | None = None, user: str = "ann") -> RawRecord:
    """An event of second `at`, which is its step, that came at `arrives`."""
    return RawRecord(offset, -1 if arrives is None else int(arrives * SECOND_MS), None, body(u=user, t=at))


def marker(offset: int, step: int, live_from: int | None = None) -> RawRecord:
    return RawRecord(offset, -1, None, None, live_header(step, live_from))


def tick(offset: int, step: int) -> RawRecord:
    return RawRecord(offset, -1, None, None, tick_header(step))


def next_block(machine: PartitionIngest) -> Block:
    block, _ = sealed(machine)
    machine.committed(at=0)
    return block


@given(
    pieces=st.lists(
        st.tuples(st.sampled_from(["event", "tick", "marker", "clock", "crash"]), st.integers(0, 4)), max_size=40
    )
)
def test_once_live_only_the_clock_closes_steps_whatever_crashes(pieces: list[tuple[str, int]]) -> None:
    """`clock` is the task that makes a tick of the wall clock, where it is `live`; `crash` throws the machine away."""
    spec = replace(SPEC, bounds=None)
    machine, blocks = PartitionIngest(spec, 0), list[Block]()
    ticked, live_from, joined, refused = -1, None, Counter[int](), 0
    for offset, (kind, number) in enumerate(pieces):
        if kind == "event":
            machine.take([record(offset, at=ticked + 1.5)])
            joined[ticked + 1] += 1
        elif kind == "tick":
            machine.take([tick(offset, ticked + number)])
            if live_from is None:
                ticked += number
            else:
                refused += 1
        elif kind == "marker":
            machine.take([marker(offset, ticked + number, ticked + 1)])
            if live_from is None:
                ticked, live_from = ticked + number, ticked + 1
        elif kind == "clock" and machine.live:
            machine.advance(offset + 1)
            machine.tick(ticked + number)
            ticked += number
        else:
            if machine.changed:
                blocks.append(next_block(machine))
            machine = PartitionIngest(spec, 0)
            for block in blocks:
                machine.apply(block)
        assert (machine.live, machine.live_from, machine.ticked) == (live_from is not None, live_from, ticked)
    if machine.changed:
        blocks.append(next_block(machine))
    total: Counter[int] = Counter()
    for block in blocks:
        total.update({step: folded.total for step, folded in block.steps.items()})
    assert total == joined, "every event is in its one step"
    counts = sum((Counter(dict(block.counts)) for block in blocks), Counter())
    assert counts == Counter(ACCEPTED=sum(joined.values()), BAD_TICK=refused), "a marker is no event and no bad tick"


def test_events_of_live_producers_before_the_marker_join_their_own_steps() -> None:
    """They were sent while history was replayed: far ahead of its open step, and not of the moment of their arrival."""
    spec = replace(SPEC, bounds=None)
    machine = PartitionIngest(spec, 0)
    machine.take(
        [
            record(0, at=0.5),
            record(1, at=900.5, arrives=901),
            tick(2, 0),
            record(3, at=905.5, arrives=901),  # four steps ahead of its arrival, and three are allowed
            record(4, at=902.5, arrives=902.6),
            marker(5, 900, 1),
            record(6, at=899.5, arrives=904),  # late
            record(7, at=904.5, arrives=904.5),
        ]
    )
    block = next_block(machine)
    assert {step: folded.total for step, folded in block.steps.items()} == {0: 1, 900: 1, 901: 1, 902: 1, 904: 1}
    assert dict(block.counts) == {"ACCEPTED": 5, "TOO_FAR_AHEAD": 1}
    assert (block.tick, block.live_from) == (900, 1)


@pytest.mark.parametrize("role", ["blocks", "held_out"])
@pytest.mark.parametrize("over", [-1, 4])
def test_a_partition_that_is_added_is_live_as_the_one_whose_users_it_gets(role: Role, over: int) -> None:
    """Nothing on it says so: the record is on the others. Also where no step is over yet."""
    spec = SPEC if role == "blocks" else replace(SPEC, role="held_out", bounds=None, key=None, partitioner=None)
    parent = PartitionIngest(spec, 0)
    parent.take([marker(0, over, 0)])
    child = PartitionIngest(replace(spec, partitions=2), 1)
    list(child.begin_as(parent))
    first = next_block(child)
    assert (first.live_from, first.tick) == (0, over)
    again = PartitionIngest(replace(spec, partitions=2), 1)
    again.apply(first)
    again.take([tick(0, 9)])
    assert (again.live, again.ticked) == (True, over)


def test_the_first_tick_of_a_partition_that_is_added_may_be_as_far_as_that_of_its_parent() -> None:
    """A stream that joined a replay late has seen no tick yet when the source gets partitions."""
    parent = PartitionIngest(SPEC, 0)
    parent.resume(100)
    first = PartitionIngest(replace(SPEC, partitions=2), 1)
    list(first.begin_as(parent))
    child = PartitionIngest(replace(SPEC, partitions=2), 1)
    child.apply(next_block(first))
    child.resume(0)
    for machine, begin in ((parent, 100), (child, 0)):
        machine.take([tick(begin, 3 * LARGEST_JUMP)])
        assert machine.ticked == 3 * LARGEST_JUMP


def test_states_of_fewer_partitions_know_which_of_them_are_live() -> None:
    before, after = BlockMerge("s", 1, 1), BlockMerge("s", 2, 1)
    before.fold(0, Block("s", 0, 0, 1, 5, {}, live_from=3))
    after.restore(before.progress(), before.arrays())
    assert after.live_from == [3, None]
    after.fold(1, Block("s", 1, 0, 0, 5, {}, live_from=3))
    assert after.live_from == [3, 3]


def test_the_gap_between_history_and_present_may_be_longer_than_any_tick_jumps() -> None:
    machine = PartitionIngest(SPEC, 0)
    machine.take([tick(0, 5), marker(1, 3 * LARGEST_JUMP, 6)])
    assert (machine.ticked, machine.live_from) == (3 * LARGEST_JUMP, 6)
    block, [letter] = taken(SPEC, [tick(0, 5), marker(1, 3 * LARGEST_JUMP)])  # its history alone would jump as far
    assert (block.live_from, block.tick, letter.reason) == (None, 5, Reason.TICK_TOO_FAR)


def test_the_configuration_stays_as_it_is() -> None:
    """Whether a stream has gone live is in its blocks; another clock in its configuration is another stream."""
    stored, asked = (Fingerprint("s", {"time": {"clock": clock}}, "2020-01-01") for clock in ("replay", "wall"))
    with pytest.raises(
        FingerprintError, match=r"time.clock was 'replay' and is 'wall': .*privstream replay --then-live"
    ):
        stored.check(asked)


def test_a_block_that_is_no_longer_live_is_refused_everywhere() -> None:
    stream = contract_case("spatial").stream("default")
    before, after = Block("s", 0, 0, 1, 5, {}, live_from=3), Block("s", 0, 1, 2, 6, {})
    machine = PartitionIngest(SPEC, 0)
    machine.apply(before)
    with pytest.raises(GapError, match="no longer live"):
        machine.apply(after)
    stepper = Stepper.from_stream(stream, 1)
    stepper.fold(0, replace(before, stream=stream.name))
    for wrong in (after, replace(after, live_from=4)):
        with pytest.raises(GapError, match="not live as those before"):
            stepper.fold(1, replace(wrong, stream=stream.name))


def test_a_publication_says_whether_the_clock_closed_its_step() -> None:
    """Before, a step has the time of its file and goes out at once; after, it waits for its public time. Through states
    that are stored and restored, and from the first step that ANY partition closed by the clock.
    """
    stream = contract_case("spatial").stream("default")
    stepper = Stepper.from_stream(stream, 2)
    blocks = [
        Block(stream.name, 0, 0, 1, 1, {}),
        Block(stream.name, 1, 0, 1, 2, {}),
        Block(stream.name, 0, 1, 2, 5, {}, live_from=2),
        Block(stream.name, 1, 1, 2, 5, {}, live_from=3),
    ]
    publisher, live = StreamPublisher(stream.name), []
    offsets = itertools.count()
    waiting = iter(enumerate(blocks))
    for step in range(6):
        while not stepper.closable:
            stepper.fold(*next(waiting))
        candidate = stepper.compute(bytes([step]) * 32)
        again = Stepper.from_stream(stream, 2)
        again.restore(candidate)
        stepper = again
        for chunk in split_into_chunks(candidate.encode().release, stream=stream.name, step=step):
            if (publication := publisher.on_record(next(offsets), chunk)) is not None:
                live.append(publication.live)
    assert live == [False, False, True, True, True, True]

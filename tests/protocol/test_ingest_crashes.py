"""One source partition over crashes: its bounds hold whatever is lost, fenced or trimmed, and gaps are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agents.protocol.ingest.bounds import BoundSpec
from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.snapshots import Snapshot
from schemas.blocks import Block
from schemas.errors import GapError, WireError
from tests.examples import examples
from tests.protocol.ingest_runs import SPEC, Outcome, body, live_header, run, sealed, tick_header

BUDGETS = st.sampled_from([1, 1 << 20])  # one bucket, or all of them


@st.composite
def busy_logs(draw: st.DrawFn) -> list[RawRecord]:
    """Few users, many of their events, ticks now and then: bounds fill up over many blocks. Some go live in between,
    and the ticks behind are refused.
    """
    kinds = draw(st.lists(st.sampled_from(["ann", "bob", "eve", "kim", "tick"]), min_size=40, max_size=80))
    live_at = draw(st.integers(0, 2 * len(kinds)))
    step, records = 0, []
    for offset, kind in enumerate(kinds):
        if offset == live_at:
            records.append(RawRecord(2 * offset, -1, None, b"", live_header(step + 2, step)))
            step += 2
        elif kind == "tick":
            records.append(RawRecord(2 * offset, -1, None, b"", tick_header(step)))
            step += 1
        else:
            records.append(RawRecord(2 * offset, -1, None, body(u=kind, t=step + 0.5, x=offset % 3 / 3)))
    return records


class CrashingTasks(RuleBasedStateMachine):
    """Two tasks of one partition, of which the log lets only the fenced newest commit; crashes at any moment.

    What Kafka gives is here in memory: transactions that commit whole or not at all, and fencing. Everything else, the
    table, the snapshots, the fold, the floor and the trimming below it, is the product's.
    """

    @initialize(
        records=busy_logs(),
        capped=st.booleans(),
        periodic=st.booleans(),
        beside=st.sampled_from([{}, {"surplus": 2}, {"pairs": True}]),
    )
    def start(self, records: list[RawRecord], capped: bool, periodic: bool, beside: dict[str, Any]) -> None:
        bounds = BoundSpec(
            max_contributions=3,
            max_per_step=1 if capped else None,
            period_steps=4 if periodic else None,
            **beside,
        )
        self.spec = replace(SPEC, bounds=bounds)
        self.records = records
        self.blocks: list[tuple[int, bytes]] = []  # offset in the blocks topic, record
        self.end = 0
        self.beginning = 0
        self.snapshots: dict[bytes, bytes] = {}
        self.committed = 0
        self.epoch = 0
        self.outcome = Outcome()
        self.tasks: list[tuple[int, PartitionIngest, Any]] = []
        self.assign()

    @rule(counts=st.lists(st.integers(1, 5), min_size=1, max_size=4), budget=BUDGETS)
    def run_undisturbed(self, counts: list[int], budget: int) -> None:
        """The newest task gets some transactions done."""
        if not self.tasks or self.tasks[-1][0] != self.epoch:
            self.assign()
        newest = len(self.tasks) - 1
        for count in counts:
            self.commit(newest, True)
            self.take(newest, count)
            self.seal(newest, budget)
            self.commit(newest, True)

    @rule()
    def assign(self) -> None:
        """A new task: fence, then restore."""
        self.epoch += 1
        machine = PartitionIngest(self.spec, 0)
        machine.load(list(self.snapshots.values()))
        for offset, value in self.blocks:
            machine.apply(Block.decode(value), at=offset, trimmed_to=self.beginning)
        machine.check_restored(trimmed_to=self.beginning)
        assert machine.next_offset == self.committed
        self.tasks = [*self.tasks[-1:], (self.epoch, machine, None)]

    @rule(which=st.integers(0, 1), count=st.integers(1, 7))
    def take(self, which: int, count: int) -> None:
        if which < len(self.tasks):
            epoch, machine, sealed = self.tasks[which]
            coming = [record for record in self.records if record.offset >= machine.next_offset]
            machine.take(coming[:count])
            self.tasks[which] = (epoch, machine, sealed)

    @rule(which=st.integers(0, 1), budget=BUDGETS)
    def seal(self, which: int, budget: int) -> None:
        if which < len(self.tasks) and self.tasks[which][2] is None:
            epoch, machine, _ = self.tasks[which]
            snapshots = machine.snapshots(budget)
            block, letters = machine.seal()
            if block is not None:
                self.tasks[which] = (epoch, machine, (block.encode(), letters, snapshots))

    @rule(which=st.integers(0, 1), answered=st.booleans())
    def commit(self, which: int, answered: bool) -> None:
        """Only the newest commits; the others crash. The answer may be lost: then the task crashes as well."""
        if which >= len(self.tasks) or self.tasks[which][2] is None:
            return
        epoch, machine, (value, letters, snapshots) = self.tasks[which]
        if epoch != self.epoch:
            del self.tasks[which]
            return
        offset = self.end
        self.end += 3  # the transaction's other records and marker
        self.blocks.append((offset, value))
        block = Block.decode(value)
        assert block.floor <= offset
        self.snapshots.update({snapshot.key: snapshot.value for snapshot in snapshots})
        self.committed = block.hi
        self.outcome.add(block, letters)
        if answered:
            machine.committed(at=offset)
            self.tasks[which] = (epoch, machine, None)
        else:
            del self.tasks[which]

    @rule()
    def trim(self) -> None:
        """As the engine's task does it: below the floor of the last block it has seen."""
        if self.blocks:
            self.beginning = max(self.beginning, Block.decode(self.blocks[-1][1]).floor)
            self.blocks = [(offset, value) for offset, value in self.blocks if offset >= self.beginning]
            assert self.blocks, "the last block survives"

    @rule(counts=st.lists(st.integers(1, 5), min_size=1, max_size=4), budget=BUDGETS)
    def trim_and_go_on(self, counts: list[int], budget: int) -> None:
        self.run_undisturbed(counts, budget)
        self.trim()
        self.assign()
        self.run_undisturbed(counts, budget)

    @rule(which=st.integers(0, 1))
    def crash(self, which: int) -> None:
        if which < len(self.tasks):
            del self.tasks[which]

    @invariant()
    def it_is_what_one_undisturbed_machine_says(self) -> None:
        if not hasattr(self, "records"):
            return
        done = [record for record in self.records if record.offset < self.committed]
        assert run(done, [], [], spec=self.spec) == self.outcome


CrashingTasks.TestCase.settings = settings(max_examples=examples(2), stateful_step_count=20)
test_bounds_hold_under_crashes_zombies_and_trimming = CrashingTasks.TestCase


@pytest.mark.parametrize("budget", [1, 1 << 20])
@pytest.mark.parametrize("transactions", range(1, 9))
@pytest.mark.parametrize("capped", [False, True])
@pytest.mark.parametrize("beside", [{"surplus": 2}, {"pairs": True}])
def test_trimming_below_the_floor_forgets_nobody(
    budget: int, transactions: int, capped: bool, beside: dict[str, Any]
) -> None:
    """The slow rotation through the buckets, step by step: what a random search seldom reaches."""
    world = CrashingTasks()
    users = ["ann", "bob", "eve", "kim", "lou", "mia"]
    values = [body(u=users[index % 6], t=index / 20, x=index % 7 / 7) for index in range(60)]
    world.start([RawRecord(2 * index, -1, None, value) for index, value in enumerate(values)], capped, False, beside)
    for _ in range(transactions):
        world.run_undisturbed([4], budget)
        world.trim()
    world.assign()
    world.run_undisturbed([5] * 12, budget)
    world.it_is_what_one_undisturbed_machine_says()


def test_a_gap_is_refused() -> None:
    """One between blocks is refused in `test_twins`."""
    machine = PartitionIngest(SPEC, 0)
    machine.take([RawRecord(0, -1, None, body())])
    block, _ = sealed(machine)
    with pytest.raises(GapError, match="comes next"):
        PartitionIngest(SPEC, 0).apply(replace(block, partition=1))
    for offsets in ([0], [3, 3]):
        with pytest.raises(GapError, match=f"offset {offsets[0]}"):
            machine.take([RawRecord(offset, -1, None, body()) for offset in offsets])


def test_too_much_trimming_is_refused() -> None:
    first, second = two_blocks()
    assert second.floor == 2
    restored = PartitionIngest(SPEC, 0)
    restored.apply(second, at=5, trimmed_to=5)
    with pytest.raises(GapError, match="needed to restore"):
        restored.check_restored(trimmed_to=5)
    whole = PartitionIngest(SPEC, 0)
    whole.apply(first, at=2, trimmed_to=2)
    whole.apply(second, at=5, trimmed_to=2)
    whole.check_restored(trimmed_to=2)


def test_a_stream_that_is_added_where_blocks_of_others_are_gone_is_restored_from_its_first_block() -> None:
    """It does not know its own place when it is written, so it says 0 as its floor: that of no block of this stream."""
    first, _ = two_blocks()
    assert first.floor == 0
    restored = PartitionIngest(SPEC, 0)
    restored.apply(first, at=700, trimmed_to=600)
    restored.check_restored(trimmed_to=600)
    assert (restored.next_offset, restored.users) == (1, 1)


def two_blocks() -> tuple[Block, Block]:
    """The first, committed at 2, and the one after it."""
    machine = PartitionIngest(SPEC, 0)
    machine.take([RawRecord(0, -1, None, body())])
    first, _ = sealed(machine)
    machine.committed(at=2)
    machine.take([RawRecord(1, -1, None, body())])
    return first, sealed(machine)[0]


def snapshot_and_block() -> tuple[PartitionIngest, Block, Snapshot, Block]:
    """A machine, its first block, and the snapshot and the block of its second transaction."""
    machine = PartitionIngest(SPEC, 0)
    machine.take([RawRecord(0, -1, None, body())])
    assert machine.snapshots(1 << 20) == []  # nothing committed holds the floor back yet
    first, _ = sealed(machine)
    machine.committed(at=0)
    machine.take([RawRecord(1, -1, None, body()), RawRecord(2, -1, None, body())])
    [snapshot] = machine.snapshots(1 << 20)
    return machine, first, snapshot, sealed(machine)[0]


def test_somebody_elses_snapshot_is_refused() -> None:
    _, _, snapshot, _ = snapshot_and_block()
    with pytest.raises(GapError, match="other bounds"):
        PartitionIngest(SPEC, 1).load([snapshot.value])
    with pytest.raises(GapError, match="other bounds"):
        PartitionIngest(SPEC, 0).load([snapshot.value, snapshot.value])
    with pytest.raises(WireError):
        PartitionIngest(SPEC, 0).load([b"nonsense"])
    machine = PartitionIngest(SPEC, 0)
    machine.load([snapshot.value])
    with pytest.raises(ValueError, match="loaded at once"):
        machine.load([snapshot.value])


@pytest.mark.parametrize("cut", [None, 2, 4], ids=["alone", "its block cut shorter", "its block cut longer"])
def test_a_snapshot_without_its_block_is_refused(cut: int | None) -> None:
    """No worker commits a transaction in part. Going on would charge its users twice now, and forget some of them at
    the next start; later too, where somebody went on and cut the next block otherwise.
    """
    _, first, snapshot, second = snapshot_and_block()
    machine = PartitionIngest(SPEC, 0)
    machine.load([snapshot.value])
    machine.apply(first)

    def restore() -> None:
        if cut is not None:
            machine.apply(replace(second, hi=cut), at=3)
        machine.check_restored(trimmed_to=0)

    with pytest.raises(GapError, match="without its block"):
        restore()

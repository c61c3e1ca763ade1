"""One source partition: its promises, for any records, however they are cut and whatever crashes in between.

The twin is `Slow`: the same rules one record at a time, from the raw JSON, with nothing of the machine's arrays.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agents.protocol.bounds import BoundSpec
from agents.protocol.clock import StepClock
from agents.protocol.dead_letters import DeadLetter
from agents.protocol.decode import EventFields
from agents.protocol.ingest_events import RawRecord
from agents.protocol.ingest_snapshots import Snapshot
from agents.protocol.ingest_spec import SourceSpec
from agents.protocol.partition_ingest import PartitionIngest
from agents.protocol.partitioner import partitions_of
from agents.protocol.userhash import IdBytes, hash_ids
from engines.spatial import BoxDomain
from schemas.blocks import Block
from schemas.errors import GapError, WireError
from schemas.events import TICK_HEADER, Reason, encode_tick

KEY = b"0123456789abcdef"
STEP_US = 1_000_000
SPEC = SourceSpec(
    stream="s",
    topic="raw",
    role="blocks",
    partitions=1,
    domain=BoxDomain("x", "y", (0.0, 0.0, 1.0, 1.0), depth=4),
    clock=StepClock(start_us=0, step_us=STEP_US, max_ahead=3),
    format="s",
    zone=ZoneInfo("UTC"),
    fields=EventFields(time="t", time_is_number=True, user="u", operation="op", numbers=("x", "y")),
    replay=True,
    key=KEY,
    partitioner="murmur2",
    bounds=BoundSpec(max_contributions=3),
    max_value_bytes=200,
)


def body(**changes: Any) -> bytes:
    return json.dumps({"u": "ann", "t": 0, "x": 0.5, "y": 0.5, "op": "insert", **changes}).encode()


def tick_header(step: int) -> tuple[tuple[str, bytes | None], ...]:
    return ((TICK_HEADER, encode_tick(step, row=0, source="test")),)


USER_NAMES = st.sampled_from(["ann", "bob", "eve", 7])
GOOD_BODIES = st.builds(
    lambda u, t, x, op: body(u=u, t=t, x=x, op=op),
    USER_NAMES,
    st.floats(0, 12, allow_nan=False),
    st.floats(0, 0.99),
    st.sampled_from(["insert", "delete"]),
)
ODD_BODIES = st.sampled_from(
    [
        None,
        b"",
        b"x" * 201,
        b"{",
        b"{}",
        body(x="1"),
        body(u=""),
        body(u=None),
        body(u="a\0b"),
        body(t="NaN"),
        body(t=-1),
        body(t=1e300),
        body(x=7),
        body(op="upsert"),
        body(x=math.nan),
        body().replace(b"0.5", b"1e999"),
    ]
)
HEADERS = st.one_of(
    st.just(()),
    st.just((("trace", b"1"),)),
    st.integers(-1, 12).map(tick_header),
    st.just(((TICK_HEADER, b"nonsense"),)),
    st.just(((TICK_HEADER, None),)),
)


@st.composite
def logs(draw: st.DrawFn, *, max_size: int = 30) -> list[RawRecord]:
    """Records of a partition; offsets that are missing are transaction markers or were compacted away."""
    bodies = st.one_of(GOOD_BODIES, GOOD_BODIES, GOOD_BODIES, ODD_BODIES)
    entries = draw(st.lists(st.tuples(st.integers(0, 3), bodies, HEADERS), max_size=max_size))
    offset, records = 0, []
    for gap, value, headers in entries:
        offset += gap
        records.append(RawRecord(offset, -1, None, value, headers))
        offset += 1
    return records


@dataclass
class Outcome:
    """What all blocks together say; equal for equal records however these were cut."""

    next_offset: int = 0
    tick: int = -1
    steps: dict[int, Counter[tuple[int, ...]]] = field(default_factory=dict)
    charges: Counter[tuple[int, ...]] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    letters: list[DeadLetter] = field(default_factory=list)

    def add(self, block: Block, letters: list[DeadLetter] | None = None) -> None:
        assert block.lo == self.next_offset, "blocks cover all offsets once"
        assert block.tick >= self.tick
        assert not any(step <= self.tick for step in block.steps), "a step that was closed gets no more events"
        self.next_offset, self.tick = block.hi, block.tick
        for step, folded in block.steps.items():
            cells = self.steps.setdefault(step, Counter())
            cells.update(dict(zip(map(tuple, folded.keys.tolist()), folded.counts.tolist(), strict=True)))
        for row, charge in zip(map(tuple, block.users.tolist()), block.increments.tolist(), strict=True):
            self.charges[row] += charge
        self.counts.update(block.counts)
        self.letters += letters or []

    @property
    def accepted(self) -> int:
        return sum(sum(cells.values()) for cells in self.steps.values())


def run(records: list[RawRecord], cuts: list[int], seals: list[bool], *, spec: SourceSpec = SPEC) -> Outcome:
    """Feed records cut at `cuts`; seal after those pieces for which `seals` says so."""
    machine, outcome = PartitionIngest(spec, 0), Outcome()
    edges = sorted({0, *(cut % (len(records) + 1) for cut in cuts), len(records)})
    pieces = [records[begin:end] for begin, end in itertools.pairwise(edges)]
    for index, piece in enumerate(pieces):
        machine.take(piece)
        if index == len(pieces) - 1 or (index < len(seals) and seals[index]):
            machine.snapshots(1 << 20)
            block, letters = machine.seal()
            if block is not None:
                outcome.add(Block.decode(block.encode()), letters)
                machine.committed(at=index)
    return outcome


def step_by_hand(value: Any, ticked: int) -> int:
    return max(int(round(value * 1e6) // STEP_US), ticked + 1)


@given(
    records=logs(),
    cuts=st.lists(st.integers(0, 40), max_size=8),
    seals=st.lists(st.booleans(), max_size=8),
)
def test_how_records_are_cut_changes_nothing(records: list[RawRecord], cuts: list[int], seals: list[bool]) -> None:
    assert run(records, cuts, seals) == run(records, [], [])
    assert run(records, list(range(len(records))), [True] * 40) == run(records, [], [])


@given(records=logs())
def test_every_record_is_accounted_for_and_nobody_is_above_the_bound(records: list[RawRecord]) -> None:
    outcome = run(records, [], [])
    ticks = sum(_is_good_tick(record) for record in records)
    assert sum(outcome.counts.values()) == len(records) - ticks
    assert outcome.accepted == outcome.counts["ACCEPTED"] == sum(outcome.charges.values())
    assert all(charge <= 3 for charge in outcome.charges.values())
    quiet = outcome.counts["ACCEPTED"] + outcome.counts["OVER_BOUND"]
    assert len(outcome.letters) == sum(outcome.counts.values()) - quiet
    assert {letter.offset for letter in outcome.letters} <= {record.offset for record in records}


def _is_good_tick(record: RawRecord) -> bool:
    return any(name == TICK_HEADER and value not in (b"nonsense", None) for name, value in record.headers)


@given(records=logs(), others=st.sets(st.integers(0, 40)), cuts=st.lists(st.integers(0, 40), max_size=5))
def test_other_people_never_move_an_event(records: list[RawRecord], others: set[int], cuts: list[int]) -> None:
    """Take some of bob's records away, or all: what ann's and eve's events do stays the same, record by record."""
    kept = [
        record
        for index, record in enumerate(records)
        if not (index in others and not record.headers and record.value and b'"bob"' in record.value)
    ]

    def of_ann(outcome_records: list[RawRecord]) -> list[tuple[int, str, int]]:
        return [entry for entry in _fates(outcome_records, cuts) if entry[0] in _offsets_of(records, b'"bob"', False)]

    assert of_ann(records) == of_ann(kept)


def _offsets_of(records: list[RawRecord], name: bytes, has: bool) -> set[int]:
    return {record.offset for record in records if (record.value is not None and name in record.value) == has}


def _fates(records: list[RawRecord], cuts: list[int]) -> list[tuple[int, str, int]]:
    """(offset, reason, step) of each record, from a machine that seals after every record."""
    machine, fates = PartitionIngest(SPEC, 0), []
    for record in records:
        machine.take([record])
        block, _ = machine.seal()
        assert block is not None
        machine.committed(at=0)
        fates += [(record.offset, reason, max(block.steps, default=-1)) for reason in block.counts]
    return fates


@given(records=logs())
def test_the_step_and_the_reason_of_each_event_by_hand(records: list[RawRecord]) -> None:
    ticked = -1
    used: Counter[Any] = Counter()
    expected: list[tuple[int, str, int]] = []
    for record in records:
        names = [value for name, value in record.headers if name == TICK_HEADER]
        if names:
            if _is_good_tick(record):
                ticked = max(ticked, json.loads(names[-1] or b"")["step"])
            else:
                expected.append((record.offset, "BAD_TICK", -1))
            continue
        reason, step = _by_hand(record.value, ticked, used)
        expected.append((record.offset, reason.name, step))
    assert _fates(records, []) == expected


def _by_hand(value: bytes | None, ticked: int, used: Counter[Any]) -> tuple[Reason, int]:
    if not value:
        return Reason.EMPTY, -1
    if len(value) > 200:
        return Reason.TOO_LARGE, -1
    if (b"NaN" in value and b'"NaN"' not in value) or value == b"{":
        return Reason.NOT_JSON, -1
    if b"1e999" in value:
        return Reason.NOT_FINITE, -1
    event = json.loads(value)
    if not event:
        return Reason.MISSING_FIELD, -1
    if event["x"] == "1":
        return Reason.WRONG_TYPE, -1
    if event["u"] in ("", None, "a\0b"):
        return Reason.BAD_USER, -1
    if event["t"] == "NaN" or event["t"] == 1e300:
        return Reason.BAD_TIME, -1
    if event["t"] < 0:
        return Reason.BEFORE_START, -1
    step = step_by_hand(event["t"], ticked)
    if step > ticked + 1 + 3:
        return Reason.TOO_FAR_AHEAD, -1
    if not 0 <= event["x"] < 1:
        return Reason.OUTSIDE_DOMAIN, -1
    if event["op"] == "upsert":
        return Reason.BAD_OPERATION, -1
    used[event["u"]] += 1
    return (Reason.OVER_BOUND, -1) if used[event["u"]] > 3 else (Reason.ACCEPTED, step)


BUDGETS = st.sampled_from([1, 1 << 20])  # one bucket, or all of them


@st.composite
def busy_logs(draw: st.DrawFn) -> list[RawRecord]:
    """Few users, many of their events, ticks now and then: bounds fill up over many blocks."""
    kinds = draw(st.lists(st.sampled_from(["ann", "bob", "eve", "kim", "tick"]), min_size=40, max_size=80))
    step, records = 0, []
    for offset, kind in enumerate(kinds):
        if kind == "tick":
            records.append(RawRecord(2 * offset, -1, None, b"", tick_header(step)))
            step += 1
        else:
            records.append(RawRecord(2 * offset, -1, None, body(u=kind, t=step + 0.5)))
    return records


class CrashingOwners(RuleBasedStateMachine):
    """Two owners of one partition, of which the log lets only the fenced newest commit; crashes at any moment.

    What Kafka gives is here in memory: transactions that commit whole or not at all, and fencing. Everything else, the
    table, the snapshots, the fold, the floor and the trimming below it, is the product's.
    """

    @initialize(records=busy_logs(), capped=st.booleans(), periodic=st.booleans())
    def start(self, records: list[RawRecord], capped: bool, periodic: bool) -> None:
        bounds = BoundSpec(
            max_contributions=3, max_per_step=1 if capped else None, period_steps=4 if periodic else None
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
        self.owners: list[tuple[int, PartitionIngest, Any]] = []
        self.assign()

    @rule(counts=st.lists(st.integers(1, 5), min_size=1, max_size=4), budget=BUDGETS)
    def run_undisturbed(self, counts: list[int], budget: int) -> None:
        """The newest owner gets some transactions done."""
        if not self.owners or self.owners[-1][0] != self.epoch:
            self.assign()
        newest = len(self.owners) - 1
        for count in counts:
            self.commit(newest, True)
            self.take(newest, count)
            self.seal(newest, budget)
            self.commit(newest, True)

    @rule()
    def assign(self) -> None:
        """A new owner: fence, then restore."""
        self.epoch += 1
        machine = PartitionIngest(self.spec, 0)
        for value in self.snapshots.values():
            machine.load(value)
        for offset, value in self.blocks:
            machine.apply(Block.decode(value), at=offset, trimmed_to=self.beginning)
        machine.check_restored(trimmed_to=self.beginning)
        assert machine.next_offset == self.committed
        self.owners = [*self.owners[-1:], (self.epoch, machine, None)]

    @rule(which=st.integers(0, 1), count=st.integers(1, 7))
    def take(self, which: int, count: int) -> None:
        if which < len(self.owners):
            epoch, machine, sealed = self.owners[which]
            coming = [record for record in self.records if record.offset >= machine.next_offset]
            machine.take(coming[:count])
            self.owners[which] = (epoch, machine, sealed)

    @rule(which=st.integers(0, 1), budget=BUDGETS)
    def seal(self, which: int, budget: int) -> None:
        if which < len(self.owners) and self.owners[which][2] is None:
            epoch, machine, _ = self.owners[which]
            snapshots = machine.snapshots(budget)
            block, letters = machine.seal()
            if block is not None:
                self.owners[which] = (epoch, machine, (block.encode(), letters, snapshots))

    @rule(which=st.integers(0, 1), answered=st.booleans())
    def commit(self, which: int, answered: bool) -> None:
        """Only the newest commits; the others crash. The answer may be lost: then the owner crashes as well."""
        if which >= len(self.owners) or self.owners[which][2] is None:
            return
        epoch, machine, (value, letters, snapshots) = self.owners[which]
        if epoch != self.epoch:
            del self.owners[which]
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
            self.owners[which] = (epoch, machine, None)
        else:
            del self.owners[which]

    @rule()
    def trim(self) -> None:
        """As the engine's owner does it: below the floor of the last block it has seen."""
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
        if which < len(self.owners):
            del self.owners[which]

    @invariant()
    def it_is_what_one_undisturbed_machine_says(self) -> None:
        if not hasattr(self, "records"):
            return
        done = [record for record in self.records if record.offset < self.committed]
        assert run(done, [], [], spec=self.spec) == self.outcome


CrashingOwners.TestCase.settings = settings(max_examples=100, stateful_step_count=20, deadline=None)
test_bounds_hold_under_crashes_zombies_and_trimming = CrashingOwners.TestCase


@pytest.mark.parametrize("budget", [1, 1 << 20])
@pytest.mark.parametrize("transactions", range(1, 9))
@pytest.mark.parametrize("capped", [False, True])
def test_trimming_below_the_floor_forgets_nobody(budget: int, transactions: int, capped: bool) -> None:
    """The slow rotation through the buckets, step by step: what a random search seldom reaches."""
    world = CrashingOwners()
    users = ["ann", "bob", "eve", "kim", "lou", "mia"]
    values = [body(u=users[index % 6], t=index / 20) for index in range(60)]
    world.start([RawRecord(2 * index, -1, None, value) for index, value in enumerate(values)], capped, False)
    for _ in range(transactions):
        world.run_undisturbed([4], budget)
        world.trim()
    world.assign()
    world.run_undisturbed([5] * 12, budget)
    world.it_is_what_one_undisturbed_machine_says()


def test_a_gap_is_refused() -> None:
    machine = PartitionIngest(SPEC, 0)
    machine.take([RawRecord(0, -1, None, body())])
    block, _ = machine.seal()
    assert block is not None
    later = replace(block, lo=1, hi=2)
    with pytest.raises(GapError, match="comes next"):
        PartitionIngest(SPEC, 0).apply(later)
    with pytest.raises(GapError, match="comes next"):
        PartitionIngest(SPEC, 0).apply(replace(block, partition=1))
    with pytest.raises(GapError, match="offset 0"):
        machine.take([RawRecord(0, -1, None, body())])
    with pytest.raises(GapError, match="offset 3"):
        machine.take([RawRecord(3, -1, None, body()), RawRecord(3, -1, None, body())])


def test_too_much_trimming_is_refused() -> None:
    machine = PartitionIngest(SPEC, 0)
    machine.take([RawRecord(0, -1, None, body())])
    block, _ = machine.seal()
    assert block is not None
    restored = PartitionIngest(SPEC, 0)
    restored.apply(block, at=5, trimmed_to=5)
    with pytest.raises(GapError, match="needed to restore"):
        restored.check_restored(trimmed_to=5)


def test_somebody_elses_snapshot_is_refused() -> None:
    machine = PartitionIngest(SPEC, 0)
    machine.take([RawRecord(0, -1, None, body())])
    assert machine.snapshots(1 << 20) == []  # nothing committed holds the floor back yet
    machine.seal()
    machine.committed(at=0)
    machine.take([RawRecord(1, -1, None, body())])
    [snapshot] = machine.snapshots(1 << 20)
    assert isinstance(snapshot, Snapshot)
    with pytest.raises(GapError, match="other bounds"):
        PartitionIngest(SPEC, 1).load(snapshot.value)
    with pytest.raises(WireError):
        PartitionIngest(SPEC, 0).load(b"nonsense")


def test_a_record_on_another_partition_than_its_users() -> None:
    spec = replace(SPEC, partitions=4)
    ids = IdBytes.of(["ann"])
    home = int(partitions_of(ids, partitioner="murmur2", partitions=4)[0])
    for partition in range(4):
        machine = PartitionIngest(spec, partition)
        machine.take([RawRecord(0, -1, None, body())])
        block, _ = machine.seal()
        assert block is not None
        assert dict(block.counts) == {"ACCEPTED" if partition == home else "WRONG_PARTITION": 1}


def test_a_wall_clock_takes_no_ticks_from_records() -> None:
    machine = PartitionIngest(replace(SPEC, replay=False), 0)
    machine.take([RawRecord(0, -1, None, b"", tick_header(3))])
    block, [letter] = machine.seal()
    assert block is not None
    assert (block.tick, dict(block.counts), letter.reason) == (-1, {"BAD_TICK": 1}, Reason.BAD_TICK)
    machine.tick(2)
    block, _ = machine.seal()
    assert block is not None
    assert (block.lo, block.hi, block.tick) == (1, 1, 2)
    assert machine.seal() == (None, [])


def test_the_truth_has_no_users_no_bounds_and_no_letters() -> None:
    fields = EventFields(time="t", time_is_number=True, operation="op", numbers=("x", "y"))
    truth = replace(SPEC, role="truth", fields=fields, key=None, partitioner=None, bounds=None)
    machine = PartitionIngest(truth, 0)
    machine.take([RawRecord(offset, -1, None, body(u=None)) for offset in range(9)] + [RawRecord(9, -1, None, b"{")])
    assert machine.snapshots(1 << 20) == []
    block, letters = machine.seal()
    assert block is not None
    assert (dict(block.counts), letters, len(block.users)) == ({"ACCEPTED": 9, "NOT_JSON": 1}, [], 0)


def test_a_block_holds_hashes_and_no_ids() -> None:
    machine = PartitionIngest(SPEC, 0)
    machine.take([RawRecord(0, -1, b"ann", body(u="ann-the-user"))])
    block, _ = machine.seal()
    assert block is not None
    assert b"ann" not in block.encode()
    assert block.users[:, :2].tobytes() == hash_ids(IdBytes.of(["ann-the-user"]), KEY).tobytes()
    assert len(PartitionIngest(SPEC, 0).spec.key or b"") == 16


def test_a_tick_beyond_all_reason_is_no_tick() -> None:
    machine = PartitionIngest(SPEC, 0)
    machine.take([RawRecord(0, -1, None, b"", tick_header(1 << 60))])
    assert machine.ticked == -1


def test_the_largest_block_stays_below_four_mebibytes() -> None:
    count = SPEC.max_block_records
    machine = PartitionIngest(SPEC, 0)
    users = np.random.default_rng(0).integers(0, 1 << 62, count).tolist()
    records = [RawRecord(index, -1, None, body(u=f"u{user}")) for index, user in enumerate(users)]
    for at in range(0, count, 10_000):
        machine.take(records[at : at + 10_000])
    assert machine.room == 0
    block, _ = machine.seal()
    assert block is not None
    assert len(block.encode()) < 4 << 20

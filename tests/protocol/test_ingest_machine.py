"""One source partition: its promises, for any records, however they are cut.

The twin is `_by_hand`: the same rules one record at a time, from the raw JSON, with nothing of the machine's arrays.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.ingest.bounds import SURPLUS
from agents.protocol.ingest.decode import EventFields
from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.partition import MAX_LETTERS, PartitionIngest
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.partitioner import partitions_of
from agents.protocol.release.merge import BlockMerge
from agents.protocol.userhash import IdBytes, UserHash
from schemas.events import TICK_HEADER, Reason
from tests.protocol.ingest_runs import (
    COUNTING,
    KEY,
    SPEC,
    STEP_US,
    body,
    live_header,
    run,
    sealed,
    taken,
    tick_header,
)

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
        body(x="one"),
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
    st.tuples(st.integers(-1, 12), st.integers(0, 13)).map(
        lambda pair: live_header(pair[0], min(pair[1], pair[0] + 1))
    ),
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
class TicksByHand:
    """Of one partition, record by record: what is closed, and whether it has gone live."""

    ticked: int = -1
    live: bool = False

    def take(self, record: RawRecord) -> str:
        """Whether it is an "event", a "tick" or a "bad" one."""
        values = [value for name, value in record.headers if name == TICK_HEADER]
        if not values:
            return "event"
        if values[-1] in (b"nonsense", None):
            return "bad"
        said = json.loads(values[-1] or b"")
        if self.live:
            return "tick" if "live_from" in said else "bad"
        self.ticked, self.live = max(self.ticked, said["step"]), "live_from" in said
        return "tick"


def step_by_hand(value: Any, ticked: int) -> int:
    return max(int(round(value * 1e6) // STEP_US), ticked + 1)


@given(
    records=logs(),
    cuts=st.lists(st.integers(0, 40), max_size=8),
    seals=st.lists(st.booleans(), max_size=8),
    spec=st.sampled_from([SPEC, COUNTING]),
)
def test_how_records_are_cut_changes_nothing(
    records: list[RawRecord], cuts: list[int], seals: list[bool], spec: SourceSpec
) -> None:
    assert run(records, cuts, seals, spec=spec) == run(records, [], [], spec=spec)
    assert run(records, list(range(len(records))), [True] * 40, spec=spec) == run(records, [], [], spec=spec)


@given(records=logs())
def test_what_is_refused_is_counted_up_to_a_bound_and_moves_nothing_else(records: list[RawRecord]) -> None:
    outcome, plain = run(records, [], [], spec=COUNTING), run(records, [], [])
    assert (outcome.steps, outcome.counts, outcome.letters) == (plain.steps, plain.counts, plain.letters)
    beyond = {row: charge for row, charge in outcome.charges.items() if row[2] >= SURPLUS}
    assert {row: charge for row, charge in outcome.charges.items() if row not in beyond} == plain.charges
    assert sum(outcome.surplus.values()) == sum(beyond.values()) <= outcome.counts["OVER_BOUND"]
    assert all(charge <= 2 for charge in beyond.values())
    assert bool(beyond) == bool(outcome.counts["OVER_BOUND"])


def test_a_block_ends_where_it_has_so_many_dead_letters() -> None:
    machine = PartitionIngest(SPEC, 0)
    records = [RawRecord(offset, -1, None, b"{", ()) for offset in range(MAX_LETTERS)]
    machine.take(records[:-1])
    assert machine.room > 0
    machine.take(records[-1:])
    assert machine.room == 0
    _, letters = sealed(machine)
    assert len(letters) == MAX_LETTERS
    machine.committed(at=0)
    assert machine.room > MAX_LETTERS


@given(records=logs())
def test_every_record_is_accounted_for_and_nobody_is_above_the_bound(records: list[RawRecord]) -> None:
    outcome = run(records, [], [])
    by_hand = TicksByHand()
    ticks = [by_hand.take(record) for record in records].count("tick")
    assert (outcome.tick, outcome.live_from is not None) == (by_hand.ticked, by_hand.live)
    assert sum(outcome.counts.values()) == len(records) - ticks
    assert outcome.accepted == outcome.counts["ACCEPTED"] == sum(outcome.charges.values())
    assert all(charge <= 3 for charge in outcome.charges.values())
    quiet = outcome.counts["ACCEPTED"] + outcome.counts["OVER_BOUND"]
    assert len(outcome.letters) == sum(outcome.counts.values()) - quiet
    assert {letter.offset for letter in outcome.letters} <= {record.offset for record in records}


def _fates(records: list[RawRecord]) -> list[tuple[int, str, int]]:
    """(offset, reason, step) of each record, from a machine that seals after every record."""
    machine, fates = PartitionIngest(SPEC, 0), []
    for record in records:
        machine.take([record])
        block, _ = sealed(machine)
        machine.committed(at=0)
        fates += [(record.offset, reason, max(block.steps, default=-1)) for reason in block.counts]
    return fates


@given(records=logs())
def test_the_step_and_the_reason_of_each_event_by_hand(records: list[RawRecord]) -> None:
    ticks = TicksByHand()
    used: Counter[Any] = Counter()
    expected: list[tuple[int, str, int]] = []
    for record in records:
        kind = ticks.take(record)
        if kind == "bad":
            expected.append((record.offset, "BAD_TICK", -1))
        elif kind == "event":
            reason, step = _by_hand(record.value, ticks.ticked, used)
            expected.append((record.offset, reason.name, step))
    assert _fates(records) == expected


def _by_hand(value: bytes | None, ticked: int, used: Counter[Any]) -> tuple[Reason, int]:
    if not value:
        return Reason.EMPTY, -1
    if len(value) > 200:
        return Reason.TOO_LARGE, -1
    if value == b"{":
        return Reason.NOT_JSON, -1
    if (b"NaN" in value and b'"NaN"' not in value) or b"1e999" in value:
        return Reason.NOT_FINITE, -1
    event = json.loads(value)
    if not event:
        return Reason.MISSING_FIELD, -1
    if event["x"] == "one":
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


def test_a_record_on_another_partition_than_its_users() -> None:
    spec = replace(SPEC, partitions=4)
    ids = IdBytes.from_ids(["ann"])
    home, other = (int(partitions_of(ids, partitioner=each, partitions=4)[0]) for each in ("murmur2", "crc32"))
    for partition in range(4):
        machine = PartitionIngest(spec, partition)
        machine.take([RawRecord(0, -1, None, body())])
        block, _ = sealed(machine)
        refused = {"WRONG_PARTITION": 1} | ({"PLACED_BY_CRC32": 1} if partition == other else {})
        assert dict(block.counts) == ({"ACCEPTED": 1} if partition == home else refused)


@pytest.mark.parametrize("header", [tick_header(3), live_header(3)])
def test_a_wall_clock_takes_no_ticks_from_records(header: Any) -> None:
    machine = PartitionIngest(replace(SPEC, replay=False), 0)
    machine.take([RawRecord(0, -1, None, b"", header)])
    block, [letter] = sealed(machine)
    assert (block.tick, block.live_from, dict(block.counts)) == (-1, None, {"BAD_TICK": 1})
    assert letter.reason is Reason.BAD_TICK
    machine.tick(2)
    block, _ = sealed(machine)
    assert (block.lo, block.hi, block.tick) == (1, 1, 2)
    assert machine.seal() == (None, [])


def test_stored_names_of_streams_never_change() -> None:
    """They stand beside committed offsets: a worker that looked under other names would not find where it was."""
    assert (SPEC.name, replace(SPEC, role="held_out").name) == (SPEC.stream, f"truth:{SPEC.stream}")


def test_the_truth_has_no_users_no_bounds_and_no_letters() -> None:
    fields = EventFields(time="t", time_is_number=True, operation="op", numbers=("x", "y"))
    truth = replace(SPEC, role="held_out", fields=fields, key=None, partitioner=None, bounds=None)
    machine = PartitionIngest(truth, 0)
    machine.take([RawRecord(offset, -1, None, body(u=None)) for offset in range(9)] + [RawRecord(9, -1, None, b"{")])
    machine.take([RawRecord(10, -1, None, None, live_header(3)), RawRecord(11, -1, None, None, tick_header(9))])
    assert machine.snapshots(1 << 20) == []
    block, letters = sealed(machine)
    assert (dict(block.counts), letters, len(block.users)) == ({"ACCEPTED": 9, "NOT_JSON": 1, "BAD_TICK": 1}, [], 0)
    assert (machine.live, block.tick) == (True, 3)


def test_a_block_holds_hashes_and_no_ids() -> None:
    block, _ = taken(SPEC, [RawRecord(0, -1, b"ann", body(u="ann-the-user"))])
    assert b"ann" not in block.encode()
    assert block.users[:, :2].tobytes() == UserHash(KEY).of_ids(IdBytes.from_ids(["ann-the-user"])).tobytes()
    assert len(PartitionIngest(SPEC, 0).spec.key or b"") == 16


def test_the_largest_block_stays_below_four_mebibytes() -> None:
    count = SPEC.max_block_records
    machine = PartitionIngest(SPEC, 0)
    users = np.random.default_rng(0).integers(0, 1 << 62, count).tolist()
    records = [RawRecord(index, -1, None, body(u=f"u{user}")) for index, user in enumerate(users)]
    for at in range(0, count, 10_000):
        machine.take(records[at : at + 10_000])
    assert machine.room == 0
    assert len(sealed(machine)[0].encode()) < 4 << 20


def test_a_record_that_lies_about_its_arrival_moves_its_own_event_alone() -> None:
    """Under a wall clock the Kafka timestamp says when an event came, and its producer may set it as far ahead as the
    brokers let it. Its event then waits for its own step; it closes none, counts once, and nobody else's is touched.
    """
    wall = replace(SPEC, replay=False)
    far = 10**6
    honest = [RawRecord(offset, 500, None, body(u="bob", t=0.5)) for offset in (0, 2)]
    lies = [RawRecord(offset, far * 1000 + 500, None, body(u="eve", t=far + 0.5)) for offset in (1, 3, 4, 5)]
    seen = {}
    for name, records in (("with", sorted(honest + lies)), ("without", honest)):
        machine, merge = PartitionIngest(wall, 0), BlockMerge("s", 1, wall.domain.words)
        machine.take(records)
        machine.advance(6)
        machine.tick(0)
        block, _ = sealed(machine)
        merge.fold(0, block)
        assert (block.lo, block.hi, block.tick, merge.closed_to) == (0, 6, 0, 0), "steps end by the clock alone"
        after = BlockMerge("s", 1, wall.domain.words)
        step = merge.take(0)
        after.restore(merge.progress(), merge.arrays())
        after.fold(0, block)  # read again after a restart
        users = Counter(
            {tuple(row): charge for row, charge in zip(block.users.tolist(), block.increments, strict=True)}
        )
        seen[name] = (step.counts.tolist(), users, int(after.take(far).counts.sum()))
    (counts, users, late), (alone, without, none) = seen["with"], seen["without"]
    assert counts == alone == [2]
    assert (late, none) == (3, 0), "each once, within the bound of whoever sent them"
    assert without == users & without
    assert sum(users.values()) - sum(without.values()) == 3

"""Nothing that a producer can put on the wire crashes, fills or misleads ingest, or is seen where it should not be.

Everything runs through the machine of a source partition, for every kind of domain; `tests/security` runs a worker.
"""

from __future__ import annotations

import itertools
import json
import tracemalloc
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.userhash import MAX_ID_BYTES, IdBytes
from schemas.events import TICK_HEADER, Reason
from tests.examples import examples
from tests.protocol.hostile import (
    CANARY,
    SPECS,
    START_MS,
    TICKS,
    good_event,
    hostile_records,
    records,
    written,
)
from tests.protocol.ingest_runs import Outcome, sealed, taken

LEAST_KINDS = 60
PASSED = {Reason.ACCEPTED.name, Reason.OVER_BOUND.name, Reason.REPEATED.name}
WHOLE = {Reason.NOT_JSON.name, Reason.EMPTY.name, Reason.TOO_LARGE.name}


def refused(spec: SourceSpec) -> Counter[tuple[str, str]]:
    """(reason, field) -> records, of every hostile record and tick, each of them looked at."""
    kinds = list(hostile_records(spec).items())
    feed = [RawRecord(at, START_MS, CANARY.encode(), value) for at, (_, value) in enumerate(kinds)]
    feed += [RawRecord(at, START_MS, None, b"", ((TICK_HEADER, tick),)) for at, tick in enumerate(TICKS, len(feed))]
    feed.append(RawRecord(len(feed), START_MS, None, written(good_event(spec, user="a user of its own"))))
    block, letters = taken(spec, feed)
    found = Counter({(reason, field): n for reason, fields in block.refused.items() for field, n in fields.items()})
    counted = Counter(block.counts)
    counted.pop(Reason.CLIPPED.name, 0)
    assert counted.total() == len(feed), "each record is counted once"
    assert counted.total() - sum(counted[reason] for reason in PASSED) == found.total() == len(letters)
    assert block.tick == -1, "nothing here is a tick of a replay"
    assert counted[Reason.ACCEPTED.name] >= 1
    assert letters[-1].offset < len(feed) - 1, "the good one behind them all is taken"
    for letter in letters:
        assert json.loads(letter.encode()) == {
            "stream": "s", "topic": "raw.s", "partition": 0, "offset": letter.offset, "reason": letter.reason.name,
            "field": letter.field, "version": 1,
        }  # fmt: skip
        if letter.offset < len(kinds):
            (what, field), _ = kinds[letter.offset]
            at_fault = letter.field.split(" and ")
            assert not field or field in at_fault or letter.reason.name in WHOLE, (
                f"{what} at {field}: {letter.reason.name}"
            )
            assert what != "absent" or letter.reason is Reason.MISSING_FIELD or field in spec.fields.scalars
        else:
            assert letter.reason in (Reason.BAD_TICK, Reason.TICK_TOO_FAR)
    return found


def test_at_least_sixty_kinds_are_counted_by_reason_and_field() -> None:
    found: Counter[tuple[str, str]] = Counter()
    for spec in SPECS.values():
        found += refused(spec)
    assert len(found) >= LEAST_KINDS, sorted(found)
    counted_elsewhere = {
        Reason.ACCEPTED,
        Reason.OVER_BOUND,
        Reason.REPEATED,
        Reason.CLIPPED,
        Reason.LOST,
        Reason.WRONG_PARTITION,
    }
    counted_elsewhere |= {reason for reason in Reason if reason >= Reason.UNREADABLE}  # tests/formats has these
    assert {reason for reason, _ in found} == {reason.name for reason in set(Reason) - counted_elsewhere}
    configured = {name for spec in SPECS.values() for name in spec.fields.names}
    named = {name for _, field in found for name in field.split(" and ")}
    assert named <= configured | {""}
    assert CANARY not in str(found)


@pytest.mark.parametrize("name", SPECS)
def test_the_good_event_is_good(name: str) -> None:
    block, _ = taken(SPECS[name], [RawRecord(0, START_MS, None, written(good_event(SPECS[name])))])
    assert block.counts == {"ACCEPTED": 1}


def fed(spec: SourceSpec, feed: Sequence[RawRecord], ticks: dict[int, int], cuts: Sequence[int]) -> Outcome:
    """Feed records in pieces; `ticks` are by the offset before which they stand, as the clock makes them."""
    machine, outcome = PartitionIngest(spec, 0), Outcome()
    last = max([0, *ticks, *(record.offset for record in feed)]) + 1
    for begin, end in itertools.pairwise(sorted({0, last, *ticks, *(cut for cut in cuts if cut < last)})):
        if begin in ticks:
            machine.tick(ticks[begin])
        machine.take([record for record in feed if begin <= record.offset < end])
    machine.advance(last)
    outcome.add(*sealed(machine))
    return outcome


@st.composite
def mixed(draw: st.DrawFn) -> tuple[SourceSpec, list[RawRecord], list[RawRecord], dict[int, int], list[int]]:
    """Hostile records, good ones of others at offsets between them, ticks, and where fetches end."""
    spec = SPECS[draw(st.sampled_from(sorted(SPECS)))]
    hostile = draw(records(spec))
    free = sorted(set(range(hostile[-1].offset + 4)) - {record.offset for record in hostile})
    good = []
    for offset in draw(st.lists(st.sampled_from(free), max_size=4, unique=True)):
        user = draw(st.sampled_from(["somebody good", "somebody else good"]))
        event = good_event(spec, user=user, after_s=draw(st.sampled_from([0, 60, 3_600, 7_300])))
        good.append(RawRecord(offset, START_MS, None, written(event)))
    ends = draw(st.lists(st.integers(0, free[-1]), max_size=3, unique=True))
    ticks = {at: step for step, at in enumerate(sorted(ends))}
    return spec, hostile, sorted(good), ticks, draw(st.lists(st.integers(1, free[-1]), max_size=3))


SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=examples(2), suppress_health_check=SLOW)
@given(mixed())
def test_hostile_records_add_to_what_others_send_and_change_nothing_of_it(
    case: tuple[SourceSpec, list[RawRecord], list[RawRecord], dict[int, int], list[int]],
) -> None:
    """Steps, cells, charges, counts and dead letters together are those of each alone, however fetches are cut."""
    spec, hostile, good, ticks, cuts = case
    both = fed(spec, sorted([*hostile, *good], key=lambda record: record.offset), ticks, cuts)
    theirs, ours = fed(spec, hostile, ticks, []), fed(spec, good, ticks, [])
    steps = {
        step: theirs.steps.get(step, Counter()) + ours.steps.get(step, Counter())
        for step in theirs.steps.keys() | ours.steps.keys()
    }
    assert both.steps == steps
    assert both.charges == theirs.charges + ours.charges
    assert both.counts == theirs.counts + ours.counts
    assert both.letters == theirs.letters
    assert both.tick == max([-1, *ticks.values()])
    assert ours.counts.keys() <= PASSED
    assert CANARY not in str(both.letters)


@pytest.mark.parametrize(
    "name",
    [
        "spatial-0-replay",
        "spatial-1-wall",
        "spatial-6-replay",
        "markov-1-wall",
        "tabular-0-replay",
        "trajectory-1-wall",
    ],
)
def test_refused_records_leave_nothing_behind(name: str) -> None:
    """Half a megabyte of texts at each field, no two alike: what the machine keeps of them has a bound of its own."""
    spec = SPECS[name]
    machine = PartitionIngest(spec, 0)
    event = good_event(spec)
    fields = sorted(spec.fields.names)

    def feed(length: int, times: int) -> None:
        for field, number in itertools.product(fields, range(times)):
            text = f"{field}{number}{CANARY}".ljust(length, "x")
            values = [written(event, **{field: json.dumps(text).encode()}) for _ in range(2)]
            first = machine.next_offset
            machine.take([RawRecord(first + at, START_MS, None, value) for at, value in enumerate(values)])
        machine.seal()

    feed(300, 2)  # what is made once
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        feed(128 << 10, 32)
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert kept < 3 << 20, f"{kept >> 10} KiB of {len(fields) * 32 * 128} KiB"


def test_the_work_for_an_id_has_a_bound() -> None:
    """An id that is not used has no bytes: a megabyte of it was gone over in Python, word by word, for seconds."""
    ids = IdBytes.from_ids(["ann", "x" * (1 << 20), "\0" * 5_000, 10**5_000, "y" * MAX_ID_BYTES])
    assert ids.lengths.tolist() == [3, 0, 0, 0, MAX_ID_BYTES]

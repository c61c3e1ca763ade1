"""What is refused is counted by reason and configured field: in blocks, in dead letters, and in totals that last."""

from __future__ import annotations

import dataclasses
import logging
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from aiokafka.partitioner import DefaultPartitioner

from agents.kafka.lifecycle.refusals import (
    BESIDE,
    EVERY_S,
    FEWEST,
    FIRST,
    NOT_PLACED,
    UNREFUSED,
    WHAT_TO_DO,
    RefusalAlarm,
    Seen,
    by_reason_and_field,
)
from agents.protocol.clock import StepClock
from agents.protocol.formats.values import TEXT
from agents.protocol.ingest.decode import EventFields
from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.partitioner import Hashing
from engines.tabular.domain import Category, TableDomain
from schemas.blocks import Block
from schemas.events import LARGEST_JUMP, Reason
from schemas.steps import FixedSteps
from tests.protocol.ingest_runs import SPEC, body, sealed, taken, tick_header

Place = Callable[[str, int], int]

TABLE = dataclasses.replace(
    SPEC,
    domain=TableDomain((Category(field="sex", values=("f", "m")), Category(field="job", values=("a", "b")))),
    fields=EventFields(time="t", time_is_number=True, user="u", scalars=dict.fromkeys(("sex", "job"), TEXT)),
)


def row(**changes: Any) -> bytes:
    return body(**{"sex": "f", "job": "a", **changes})


BAD: list[tuple[SourceSpec, bytes | None, Reason, str]] = [
    (SPEC, b"{", Reason.NOT_JSON, ""),
    (SPEC, b"[]", Reason.WRONG_TYPE, ""),
    (SPEC, b"{}", Reason.MISSING_FIELD, "t"),
    (SPEC, body().replace(b'"y"', b'"Y"'), Reason.MISSING_FIELD, "y"),
    (SPEC, body(x="a half"), Reason.WRONG_TYPE, "x"),
    (SPEC, body(x="-inf"), Reason.NOT_FINITE, "x"),
    (SPEC, body(op=1.5), Reason.WRONG_TYPE, "op"),
    (SPEC, body(y=0.25).replace(b"0.25", b"1e999"), Reason.NOT_FINITE, "y"),
    (SPEC, body(y=0.25).replace(b"0.25", b"9" * 400), Reason.TOO_LARGE, ""),
    (SPEC, body(u=""), Reason.BAD_USER, "u"),
    (SPEC, body(u=[]), Reason.BAD_USER, "u"),
    (dataclasses.replace(SPEC, partitions=1000), body(), Reason.WRONG_PARTITION, "u"),
    (SPEC, body(t="yesterday"), Reason.BAD_TIME, "t"),
    (SPEC, body(t=-1), Reason.BEFORE_START, "t"),
    (SPEC, body(t=9), Reason.TOO_FAR_AHEAD, "t"),
    (SPEC, body(x=7), Reason.OUTSIDE_DOMAIN, "x"),
    (SPEC, body(y=-1), Reason.OUTSIDE_DOMAIN, "y"),
    (SPEC, body(x=7, y=7), Reason.OUTSIDE_DOMAIN, "x and y"),
    (SPEC, body(op="merge"), Reason.BAD_OPERATION, "op"),
    (TABLE, row(sex=None), Reason.MISSING_FIELD, "sex"),
    (TABLE, row(job="c"), Reason.OUTSIDE_DOMAIN, "job"),
    (TABLE, row(job=1), Reason.OUTSIDE_DOMAIN, "job"),
    (TABLE, row(job=1.5), Reason.WRONG_TYPE, "job"),
    (TABLE, row(job=[]), Reason.WRONG_TYPE, "job"),
]


def fed(machine: PartitionIngest, *values: bytes | None) -> tuple[Block, list[Any]]:
    first = machine.next_offset
    machine.take([RawRecord(first + place, 0, None, value) for place, value in enumerate(values)])
    return sealed(machine)


@pytest.mark.parametrize(("spec", "value", "reason", "field"), BAD)
def test_the_field(spec: SourceSpec, value: bytes | None, reason: Reason, field: str) -> None:
    good = row() if spec is TABLE else body()
    block, letters = fed(PartitionIngest(spec, 0), good, value, good)
    assert block.refused[reason.name] == {field: 3 if reason is Reason.WRONG_PARTITION else 1}
    assert (letters[-2 if reason is Reason.WRONG_PARTITION else -1].reason, letters[-1].field) == (reason, field)


def test_every_reason_says_what_to_do() -> None:
    assert WHAT_TO_DO.keys() == {reason.name for reason in Reason} - {*UNREFUSED, *BESIDE}


def test_times_in_doubt_are_counted_of_what_is_used() -> None:
    """Beside ACCEPTED: a refused record, or one beyond the bound, is counted as that alone."""
    start_us = 1_457_827_200_000_000  # 2016-03-13 00:00 UTC
    clock = StepClock(FixedSteps(start_us=start_us, step_us=86_400_000_000), max_ahead=300)
    local = dataclasses.replace(SPEC, format="iso", zone=ZoneInfo("America/New_York"), clock=clock)
    local = dataclasses.replace(local, fields=dataclasses.replace(SPEC.fields, time_is_number=False))
    twice, never = "2016-11-06T01:30:00", "2016-03-13T02:30:00"
    good = [body(t=never), body(t=twice), body(t=f"{twice}-05:00"), body(t=twice, u="bob")]
    block, letters = fed(PartitionIngest(local, 0), *good, body(t=twice), body(t=never, x=7), body(t=twice, u=[]))
    assert block.counts == {
        "ACCEPTED": 4, "AMBIGUOUS_TIME": 2, "NONEXISTENT_TIME": 1, "OVER_BOUND": 1, "OUTSIDE_DOMAIN": 1, "BAD_USER": 1,
    }  # fmt: skip
    assert (len(letters), block.totals["AMBIGUOUS_TIME"]) == (2, {"": 2})
    seen = Seen(by_reason_and_field(block))
    assert (seen.records, seen.refused.total()) == (7, 2)
    assert [said.split(", ")[0] for said in seen.doubted] == [
        "2 at a local time that clocks showed twice",
        "1 at a local time that clocks skipped",
    ]


def test_totals_outlive_the_blocks_that_they_count() -> None:
    machine = PartitionIngest(SPEC, 0)
    fed(machine, body(), b"{", body(x=7))
    block, _ = fed(machine, *[body()] * 3, body(x=7))
    successor = PartitionIngest(SPEC, 0)
    successor.apply(block, trimmed_to=1)
    successor.lose(20)
    block, _ = fed(successor, body(y=7))
    assert block.totals == {
        "ACCEPTED": {"": 3}, "OVER_BOUND": {"": 1}, "NOT_JSON": {"": 1}, "OUTSIDE_DOMAIN": {"x": 2, "y": 1},
        "LOST": {"": 13},
    }  # fmt: skip
    assert (block.lo, block.hi, block.counts) == (7, 21, {"LOST": 13, "OUTSIDE_DOMAIN": 1})


@pytest.mark.parametrize(
    ("step", "closed"), [(LARGEST_JUMP - 1, LARGEST_JUMP - 1), (LARGEST_JUMP, -1), (1_700_000, -1)]
)
def test_a_tick_that_no_replay_writes_closes_nothing(step: int, closed: int) -> None:
    block, letters = taken(SPEC, [RawRecord(0, 0, None, b"", tick_header(step)), RawRecord(1, 0, None, body())])
    assert block.tick == closed
    assert [letter.reason for letter in letters] == ([] if closed >= 0 else [Reason.TICK_TOO_FAR])
    assert block.counts["ACCEPTED"] == 1


def test_a_jump_is_measured_from_the_tick_before_in_one_fetch_or_two() -> None:
    ticks = [RawRecord(at, 0, None, b"", tick_header(step)) for at, step in enumerate((9_000, 18_000, 40_000, 27_000))]
    for cut in range(5):
        machine = PartitionIngest(SPEC, 0)
        machine.take(ticks[:cut])
        machine.take(ticks[cut:])
        block, letters = sealed(machine)
        assert (block.tick, [letter.offset for letter in letters]) == (27_000, [2])


@pytest.mark.parametrize("restarted", [False, True])
def test_a_stream_that_joins_behind_deleted_ticks_takes_the_first_one(restarted: bool) -> None:
    machine = PartitionIngest(SPEC, 0)
    machine.resume(5)
    if restarted:
        block, _ = fed(machine, b"{")
        machine = PartitionIngest(SPEC, 0)
        machine.apply(block)
        machine.resume(block.hi)
    machine.take([RawRecord(machine.next_offset, 0, None, b"", tick_header(1_700_000))])
    assert machine.ticked == 1_700_000


# --- whose partitioner it is --------------------------------------------------------------------------------------

USERS = [f"user {n}" for n in range(40)]
NOBODY: Place = lambda user, partitions: zlib.crc32(user[::-1].encode()) % partitions  # noqa: E731
PLACES: dict[str, Place] = {
    "crc32": lambda user, partitions: zlib.crc32(user.encode()) % partitions,
    "murmur2": lambda user, partitions: DefaultPartitioner()(user.encode(), [*range(partitions)], [*range(partitions)]),
}


def produced(place: Place, *, configured: Hashing, partitions: int, users: list[str]) -> Seen:
    """What all partitions of a source count of one record of each user."""
    seen = Seen()
    spec = dataclasses.replace(SPEC, partitions=partitions, partitioner=configured)
    for partition in range(partitions):
        here = [body(u=user) for user in users if place(user, partitions) == partition]
        seen.tally.update(by_reason_and_field(fed(PartitionIngest(spec, partition), *here)[0]) if here else {})
    assert seen.records == len(users), "what is counted beside records is none of them"
    return seen


@pytest.mark.parametrize("partitions", [2, 3, 12])
@pytest.mark.parametrize("configured", ["murmur2", "crc32"])
@pytest.mark.parametrize("theirs", ["murmur2", "crc32"])
def test_the_producers_partitioner_is_found(configured: Hashing, theirs: Hashing, partitions: int) -> None:
    seen = produced(PLACES[theirs], configured=configured, partitions=partitions, users=USERS)
    if theirs == configured:
        assert (seen.producers, seen.share, seen.what_to_do()) == (None, 0, "")
        return
    wrong = seen.refused["WRONG_PARTITION", "u"]
    assert (seen.producers, seen.refused.total()) == (theirs, wrong)
    assert f"{wrong} of {wrong} are where {theirs} puts their user" in seen.what_to_do()
    assert f'partitioner = "{theirs}"' in seen.advice()[0]
    assert not any(user in seen.what_to_do() for user in USERS)


@pytest.mark.parametrize("partitions", [2, 3, 12])
@pytest.mark.parametrize("configured", ["murmur2", "crc32"])
def test_keys_that_are_not_the_users_are_told_from_a_partitioner(configured: Hashing, partitions: int) -> None:
    seen = produced(NOBODY, configured=configured, partitions=partitions, users=USERS)
    assert seen.producers is None
    assert seen.what_to_do() == NOT_PLACED


def test_one_producer_of_many_that_loses_all_of_its_records_is_said_to(caplog: pytest.LogCaptureFixture) -> None:
    """Its share of the records is below what is said to be much, and all of them are lost."""
    counts = {"ACCEPTED": 1000, "WRONG_PARTITION": FEWEST, "PLACED_BY_CRC32": FEWEST}
    one = Block("s", 0, 0, 1, -1, {}, counts=counts, refused={"WRONG_PARTITION": {"u": FEWEST}})
    RefusalAlarm(lambda: 0.0).take(one)
    assert "under 1% refused: WRONG_PARTITION of u" in caplog.messages[0]
    assert "murmur2_random" in caplog.messages[0]
    caplog.clear()
    few = {"ACCEPTED": 80, "NOT_JSON": 20, "WRONG_PARTITION": FEWEST - 1, "PLACED_BY_CRC32": FEWEST - 1}
    RefusalAlarm(lambda: 0.0).take(dataclasses.replace(one, counts=few, refused={"NOT_JSON": {"": 20}}))
    assert "murmur2" not in caplog.messages[0], "so few may be there by chance"
    caplog.clear()
    elsewhere = dataclasses.replace(one, counts={"ACCEPTED": 1000, "WRONG_PARTITION": FEWEST})
    RefusalAlarm(lambda: 0.0).take(elsewhere)
    assert caplog.messages == []


# --- the worker's log ---------------------------------------------------------------------------------------------


def block_of(accepted: int, **refused: int) -> Block:
    counts = {"ACCEPTED": accepted, **refused}
    return Block("s", 0, 0, 1, -1, {}, counts=counts, refused={reason: {"lat": n} for reason, n in refused.items()})


def test_the_alarm_comes_soon_and_then_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    alarm = RefusalAlarm(lambda: now[0])
    alarm.take(block_of(0, MISSING_FIELD=FIRST - 1))
    assert caplog.messages == []
    alarm.take(block_of(1))
    [line] = caplog.messages
    assert "MISSING_FIELD of lat 95%" in line
    assert "spelling" in line
    assert caplog.records[0].levelno == logging.WARNING
    for _ in range(100):
        alarm.take(block_of(0, MISSING_FIELD=100))
    assert len(caplog.messages) == 1
    now[0] = EVERY_S
    alarm.take(block_of(0, BAD_TIME=1))
    assert len(caplog.messages) == 2
    assert "of the last 10001 records 100% refused" in caplog.messages[1]


def test_a_few_refused_records_are_no_alarm(caplog: pytest.LogCaptureFixture) -> None:
    RefusalAlarm(lambda: 0.0).take(block_of(FIRST, NOT_JSON=FEWEST - 1))  # so few tell little
    alarm = RefusalAlarm(lambda: 0.0)
    for _ in range(100):
        alarm.take(block_of(96, NOT_JSON=4))
    alarm.take(Block("s", 0, 0, 1, -1, {}, counts=Counter(OVER_BOUND=1000, LOST=1000)))
    assert caplog.messages == []


def test_a_producer_that_changes_is_noticed_in_small_blocks_and_after_a_long_good_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slow = RefusalAlarm(lambda: 0.0)
    for _ in range(FEWEST):
        assert caplog.messages == []
        slow.take(block_of(9, MISSING_FIELD=1))
    assert "10% refused: MISSING_FIELD of lat 10%" in caplog.messages[0]
    caplog.clear()
    alarm = RefusalAlarm(lambda: 0.0)
    for _ in range(1_000):
        alarm.take(block_of(1_000))
    alarm.take(block_of(900, BAD_TIME=100))
    assert "of the last 1000 records 10% refused: BAD_TIME of lat 10%" in caplog.messages[0]

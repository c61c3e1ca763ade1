"""What a replay writes does not depend on how its rows are cut into transactions, nor on where it was interrupted."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import orjson
import pytest
from aiokafka.partitioner import DefaultPartitioner
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.clock import StepClock
from agents.protocol.ingest.times import TimeParser
from agents.protocol.replay import (
    Planned,
    Progress,
    ReplayChunk,
    ReplayError,
    ReplayPlan,
    RowTimes,
    clock_of,
    place_by_user,
    place_in_turn,
    progress_of,
    resumed,
    steps_of,
    until_of,
    without_added,
)
from schemas.events import LARGEST_JUMP, read_tick
from schemas.steps import FixedSteps
from schemas.topics import TopicAndPartition
from tests.kafka.support import job_config, stream_table

TOPICS = {"raw": 3, "audit": 2}
SOURCE = "a" * 64
Step = int | None


def place(rows: Sequence[Any], first: int, partitions: int) -> tuple[list[bytes | None], list[int]]:
    users = [row["user"] for row in rows]
    keys = [None if user is None else str(user).encode() for user in users]
    return keys, [(first + i if user is None else user) % partitions for i, user in enumerate(users)]


@dataclass
class Topics:
    """Committed records of each topic and partition, as a broker would hold them."""

    records: dict[TopicAndPartition, list[Planned]] = field(default_factory=dict)

    def commit(self, chunk: ReplayChunk) -> None:
        for tp, records in chunk.records.items():
            self.records.setdefault(tp, []).extend(records)

    def last_ticks(self) -> list[bytes | None]:
        tps = [(topic, p) for topic, count in TOPICS.items() for p in range(count)]
        return [
            next((record.tick for record in reversed(self.records.get(tp, [])) if record.tick is not None), None)
            for tp in tps
        ]

    def rows(self, topic: str) -> list[int]:
        found = [
            orjson.loads(record.value)["row"]
            for (name, _), records in self.records.items()
            for record in records
            if name == topic and record.value is not None
        ]
        return sorted(found)

    def steps(self, topic: str) -> dict[int, int]:
        """Row -> the step that it joins."""
        return dict(pair for tp in self.records if tp[0] == topic for pair in self.joined(tp))

    def joined(self, tp: TopicAndPartition) -> list[tuple[int, int]]:
        """(row, step that it joins), by the rule of the architecture: max(its step, last ticked step + 1)."""
        closed, joined = -1, []
        for record in self.records.get(tp, []):
            if record.tick is not None:
                closed = read_tick(record.tick).step
            elif record.value is not None:
                row = orjson.loads(record.value)
                joined.append((row["row"], max(-1 if row["step"] is None else row["step"], closed + 1)))
        return joined


def rows_of(steps: Sequence[Step], users: Sequence[int | None]) -> list[dict[str, Any]]:
    return [{"row": i, "step": step, "user": user} for i, (step, user) in enumerate(zip(steps, users, strict=True))]


def run(
    topics: Topics,
    rows: Sequence[Mapping[str, Any]],
    cuts: Sequence[int],
    *,
    stop_after: int | None = None,
    until: int | None = None,
) -> ReplayPlan:
    """One process: reads where to go on, writes chunks of the sizes `cuts`, and maybe dies after some of them."""
    begin = resumed(progress_of(topics.last_ticks()), source=SOURCE, append=False)
    plan = ReplayPlan(TOPICS, place, SOURCE, step=begin.step, row=begin.row, until=until)
    number, at = 0, begin.row
    while at < len(rows):
        size = max(1, cuts[number % len(cuts)] if cuts else len(rows))
        part = rows[at : at + size]
        topics.commit(plan.chunk(part, [row["step"] for row in part]))
        at += len(part)
        number += 1
        if number == stop_after:
            return plan
    if plan.last < 0:  # as the shell does it: the last row was written by a process before
        plan.last = max((row["step"] for row in rows if row["step"] is not None), default=-1)
    topics.commit(plan.finish())
    return plan


def in_time_order(stream: Sequence[tuple[Step, int | None]]) -> list[tuple[Step, int | None]]:
    """The same rows sorted by step; those that have none, or one before the start, stay where they are."""
    ordered = iter(sorted((each for each in stream if own(each[0])), key=lambda each: each[0] or 0))
    return [next(ordered) if own(each[0]) else each for each in stream]


def own(step: Step) -> bool:
    return step is not None and step >= 0


users = st.one_of(st.integers(0, 9), st.none())
rows_with_steps = st.tuples(st.one_of(st.integers(-2, 30), st.none()), users)
streams = st.lists(rows_with_steps, min_size=1, max_size=40).map(in_time_order)
sizes = st.lists(st.integers(1, 7), max_size=6)
untils = st.one_of(st.none(), st.integers(0, 35))


def split(stream: Sequence[tuple[Step, int | None]]) -> list[dict[str, Any]]:
    return rows_of([step for step, _ in stream], [user for _, user in stream])


@given(stream=streams, cuts=sizes, deaths=st.lists(st.integers(1, 3), max_size=5), until=untils)
def test_interrupted_replays_write_every_row_once_and_into_the_same_step(
    stream: list[tuple[Step, int | None]], cuts: list[int], deaths: list[int], until: int | None
) -> None:
    rows = split(stream)
    whole, broken = Topics(), Topics()
    run(whole, rows, [], until=until)
    for death in deaths:
        run(broken, rows, cuts, stop_after=death, until=until)
    run(broken, rows, cuts, until=until)
    once_more = run(broken, rows, cuts, until=until)
    beyond = [i for i, (step, _) in enumerate(stream) if step is not None and until is not None and step >= until]
    written = beyond[0] if beyond else len(rows)
    assert once_more.left_out == len(rows) - written
    for topic in TOPICS:
        assert broken.rows(topic) == whole.rows(topic) == list(range(written))
    for tp in whole.records:
        assert broken.joined(tp) == whole.joined(tp)
    last = max((step for step, _ in stream if step is not None), default=-1)
    expected = max(last, -1) if until is None else until - 1
    assert progress_of(broken.last_ticks()) == progress_of(whole.last_ticks()) == Progress(expected, written, SOURCE)


@given(stream=streams, cuts=sizes, first=st.integers(0, 35), more=st.one_of(st.none(), st.integers(0, 9)))
def test_a_later_end_goes_on_at_the_first_row_that_was_left_out(
    stream: list[tuple[Step, int | None]], cuts: list[int], first: int, more: int | None
) -> None:
    rows = split(stream)
    until = None if more is None else first + more
    whole, twice = Topics(), Topics()
    run(whole, rows, [], until=until)
    run(twice, rows, cuts, until=first)
    run(twice, rows, cuts, until=until)
    for topic in TOPICS:
        assert twice.rows(topic) == whole.rows(topic)
    for tp in whole.records:
        assert twice.joined(tp) == whole.joined(tp)


@given(stream=streams, cuts=sizes, until=untils, data=st.data())
def test_one_row_more_or_less_moves_no_other_row_to_another_step(
    stream: list[tuple[Step, int | None]], cuts: list[int], until: int | None, data: st.DataObject
) -> None:
    """What the guarantee needs of ticks. It is false for rows that are not sorted, so those are refused, see below."""
    rows = split(stream)
    gone = data.draw(st.integers(0, len(rows) - 1))
    with_row, without = Topics(), Topics()
    run(with_row, rows, cuts, until=until)
    run(without, rows[:gone] + rows[gone + 1 :], cuts, until=until)
    for topic in TOPICS:
        others = {row: step for row, step in with_row.steps(topic).items() if own(rows[row]["step"]) and row != gone}
        found = {row: step for row, step in without.steps(topic).items() if own(rows[row]["step"])}
        assert found == others
        assert all(step == rows[row]["step"] for row, step in others.items())
    if until is not None:
        ends = [progress_of(topics.last_ticks()).step for topics in (with_row, without)]
        assert ends == [until - 1, until - 1]


@given(stream=st.lists(rows_with_steps, max_size=40), cuts=sizes, until=untils)
def test_a_row_whose_step_is_closed_is_refused_before_its_chunk_is_written(
    stream: list[tuple[Step, int | None]], cuts: list[int], until: int | None
) -> None:
    steps = [step for step, _ in stream if step is not None and step >= 0]
    ends = [step if until is None else min(step, until) for step in steps]
    topics, rows = Topics(), split(stream)
    if ends == sorted(ends):
        run(topics, rows, cuts, until=until)
        return
    with pytest.raises(ReplayError, match=r"row \d+ of the file comes too late.*Fix: sort the file by time"):
        run(topics, rows, cuts, until=until)
    for tp in topics.records:
        assert all(step == rows[row]["step"] for row, step in topics.joined(tp) if own(rows[row]["step"]))


@given(stream=st.lists(rows_with_steps, max_size=40), cuts=sizes, until=untils)
def test_a_look_ahead_refuses_what_a_replay_refuses_and_comes_as_far(
    stream: list[tuple[Step, int | None]], cuts: list[int], until: int | None
) -> None:
    def passed(take: Callable[[ReplayPlan, list[Any], list[Step]], object]) -> tuple[Any, ...]:
        plan, rows, number = ReplayPlan(TOPICS, place, SOURCE, until=until), split(stream), 0
        try:
            while rows:
                size = max(1, cuts[number % len(cuts)] if cuts else len(rows))
                take(plan, rows[:size], [row["step"] for row in rows[:size]])
                rows, number = rows[size:], number + 1
        except ReplayError as error:
            return plan.step, plan.row, plan.last, plan.left_out, str(error)
        return plan.step, plan.row, plan.last, plan.left_out

    written = passed(lambda plan, rows, steps: plan.chunk(rows, steps))
    assert passed(lambda plan, rows, steps: plan.pass_over(steps)) == written


@given(stream=streams)
def test_sorted_rows_join_their_own_step_and_find_every_earlier_one_closed(
    stream: list[tuple[Step, int | None]],
) -> None:
    steps = [step for step, _ in stream if step is not None and step >= 0]
    rows = rows_of(steps, [None] * len(steps))
    topics = Topics()
    run(topics, rows, [5])
    for tp in topics.records:
        assert all(step == rows[row]["step"] for row, step in topics.joined(tp))
        closed = -1
        for record in topics.records[tp]:
            if record.tick is not None:
                closed = read_tick(record.tick).step
            else:
                assert orjson.loads(record.value or b"")["step"] == closed + 1
    if steps:
        assert progress_of(topics.last_ticks()) == Progress(steps[-1], len(steps), SOURCE)


@given(stream=streams, chunk=st.integers(1, 9))
def test_ticks_never_go_back_and_each_chunk_ends_in_one(stream: list[tuple[Step, int | None]], chunk: int) -> None:
    rows = split(stream)
    plan = ReplayPlan(TOPICS, place, SOURCE)
    last: dict[TopicAndPartition, int] = {}
    for at in range(0, len(rows), chunk):
        part = rows[at : at + chunk]
        planned = plan.chunk(part, [row["step"] for row in part])
        for tp, records in planned.records.items():
            for record in records:
                if record.tick is not None:
                    assert (record.key, record.value) == (None, None)
                    step = read_tick(record.tick).step
                    assert step >= last.get(tp, -1)
                    last[tp] = step
            assert records[-1].tick is not None
            assert read_tick(records[-1].tick)[:3] == (plan.step, plan.row, SOURCE)
        assert planned.rows == len(part)


def test_a_refused_row_is_named_by_number_and_changes_nothing() -> None:
    plan = ReplayPlan({"raw": 1}, place, SOURCE, time_field="pickup")
    plan.chunk(rows_of([0, 0], [1, 1]), [0, 0])
    with pytest.raises(ReplayError, match=r"row 5 of the file.*sort the file by pickup") as refused:
        plan.chunk(rows_of([1, 2, 1], ["secret", "secret", "secret"]), [1, 2, 1])  # type: ignore[list-item]
    assert "secret" not in str(refused.value)
    assert (plan.step, plan.row, plan.last) == (-1, 2, 0)
    records = plan.chunk(rows_of([1, 2], [1, 1]), [1, 2]).records["raw", 0]
    assert [orjson.loads(r.value)["row"] if r.value else read_tick(r.tick or b"").step for r in records] == [
        0,
        0,
        1,
        1,
        1,
    ]


def test_rows_that_ingest_refuses_by_themselves_may_stand_anywhere() -> None:
    plan = ReplayPlan({"raw": 1}, place, SOURCE)
    assert plan.chunk(rows_of([0, 5, None, -1, 5], [1] * 5), [0, 5, None, -1, 5]).rows == 5
    assert plan.finish().progress == Progress(5, 5, SOURCE)


def test_a_file_behind_another_begins_behind_its_steps() -> None:
    plan = ReplayPlan({"raw": 1}, place, SOURCE, step=4)
    with pytest.raises(ReplayError, match=r"row 1 of the file.*--append, start behind the steps that are closed"):
        plan.chunk(rows_of([4], [1]), [4])
    assert plan.chunk(rows_of([5], [1]), [5]).progress == Progress(4, 1, SOURCE)


def test_a_public_end_leaves_out_what_follows_and_closes_what_comes_before() -> None:
    plan = ReplayPlan({"raw": 1}, place, SOURCE, until=4)
    chunk = plan.chunk(rows_of([1, 4, None, 9], [1] * 4), [1, 4, None, 9])
    assert (chunk.rows, plan.row, plan.left_out) == (1, 1, 3)
    with pytest.raises(ReplayError, match="row 6 "):
        plan.chunk(rows_of([5, 2], [1, 1]), [5, 2])
    assert plan.finish().progress == Progress(3, 1, SOURCE)
    assert ReplayPlan({"raw": 1}, place, SOURCE, until=3).finish().progress.step == 2  # no row at all
    assert ReplayPlan({"raw": 1}, place, SOURCE, until=0).finish().progress.step == -1


def test_a_public_end_that_is_past_or_beyond_reason_is_refused() -> None:
    with pytest.raises(ReplayError, match="steps to 4 are closed already"):
        ReplayPlan({"raw": 1}, place, SOURCE, step=4, until=4)
    with pytest.raises(ReplayError, match="check its year"):
        ReplayPlan({"raw": 1}, place, SOURCE, until=LARGEST_JUMP + 5).finish()


def test_public_time_can_close_steps_without_rows() -> None:
    plan = ReplayPlan({"raw": 2}, place, SOURCE)
    chunk = plan.close(4)
    assert [read_tick(r.tick or b"").step for tp in chunk.records.values() for r in tp] == [4, 4]
    assert plan.close(2).progress.step == 4


def test_a_jump_beyond_reason_is_refused_and_names_the_row() -> None:
    plan = ReplayPlan({"raw": 1}, place, SOURCE)
    with pytest.raises(ReplayError, match="row 2 "):
        plan.chunk(rows_of([0, LARGEST_JUMP], [1, 1]), [0, LARGEST_JUMP + 5])


def test_another_file_is_refused_unless_appended() -> None:
    begun = Progress(step=7, row=100, source="b" * 64)
    with pytest.raises(ReplayError, match="--append"):
        resumed(begun, source=SOURCE, append=False)
    assert resumed(begun, source=SOURCE, append=True) == Progress(7, 0, SOURCE)
    assert resumed(begun, source="b" * 64, append=True) == begun


def test_partitions_that_disagree_are_refused() -> None:
    plan = ReplayPlan({"raw": 1}, place, SOURCE)
    tick = plan.chunk([], []).records["raw", 0][-1].tick
    assert progress_of([tick, tick]) == Progress(-1, 0, SOURCE)
    with pytest.raises(ReplayError, match="different ticks"):
        progress_of([tick, None])
    with pytest.raises(ReplayError, match="cannot be read"):
        progress_of([b"{}"])


def test_partitions_that_were_added_to_a_topic_are_ticked_from_then_on() -> None:
    tick = b"a tick"
    assert without_added([tick, tick, None, None, tick, None], {"raw": 4, "held-out": 2}) == [tick] * 3
    # A first one that was never ticked, and a topic of which none was: written by somebody else, or added since.
    for ticks in ([None, tick], [tick, None, tick]):
        assert without_added(ticks, {"raw": len(ticks)}) == ticks
    assert without_added([tick, None, None], {"raw": 1, "held-out": 2}) == [tick, None, None]


# --- rows: their partitions, times and steps, and the public end that is given ---


def test_rows_without_users_go_round_by_number() -> None:
    rows = [{"row": row, "user": None} for row in range(5)]
    assert place_in_turn(rows, 4, 3) == ([None] * 5, [1, 2, 0, 1, 2])


@given(users=st.lists(st.one_of(st.text(max_size=3), st.integers(), st.none(), st.booleans()), max_size=9))
def test_a_user_is_placed_as_aiokafka_does_it_whatever_the_other_rows_are(users: list[object]) -> None:
    partitions = 5
    keys, homes = place_by_user("user", "murmur2")([{"user": user} for user in users], 7, partitions)
    everywhere = set(range(partitions))
    for index, (user, key, home) in enumerate(zip(users, keys, homes, strict=True)):
        usable = (isinstance(user, str) and user and "\0" not in user) or type(user) is int
        assert key == (str(user).encode() if usable else None)
        expected = (
            DefaultPartitioner()(key, sorted(everywhere), sorted(everywhere)) if key else (7 + index) % partitions
        )
        assert home == expected
    assert place_by_user("user", "none")([{"user": user} for user in users], 7, partitions) == (keys, homes)


def test_crc32_places_as_librdkafka_does() -> None:
    keys, homes = place_by_user("user", "crc32")([{"user": "ann"}, {}], 3, 4)
    assert (keys, homes) == ([b"ann", None], [zlib.crc32(b"ann") % 4, 0])


def test_times_are_read_in_the_stream_s_zone_and_what_cannot_be_read_has_none() -> None:
    times = RowTimes("at", TimeParser("%Y-%m-%d %H:%M:%S", ZoneInfo("America/New_York")))
    rows: list[dict[str, Any]] = [
        {"at": "2016-01-01 00:00:00"},
        {"at": "yesterday"},
        {"at": 5},
        {},
        {"at": "2016-01-01 00:00:01"},
    ]
    assert times.parse(rows) == [1_451_624_400_000_000, None, None, None, 1_451_624_401_000_000]
    assert RowTimes("at", TimeParser("s", ZoneInfo("UTC"))).parse([{"at": 2}, {"at": None}, {"at": True}]) == [
        2_000_000,
        None,
        None,
    ]


def test_steps_of_times() -> None:
    clock = StepClock(FixedSteps(start_us=100, step_us=10), max_ahead=1)
    assert steps_of(clock, [99, 100, None, 125]) == [-1, 0, None, 2]


def test_a_public_end_is_a_local_time_at_which_a_step_begins() -> None:
    time = {
        "field": "at",
        "timezone": "America/New_York",
        "start": "2016-03-01T00:00:00",
        "step": "1d",
        "clock": "replay",
    }
    (stream,) = job_config("localhost:9092", Path("unused"), streams=[stream_table("one", time=time)]).streams
    clock = clock_of(stream)
    assert until_of(stream, clock, "2016-03-01") == 0
    assert until_of(stream, clock, "2016-03-05T00:00:00") == 4
    assert until_of(stream, clock, "2016-03-15T01:00") == 14  # clocks went forward, steps are 24 hours long
    for text, said in [
        ("2016-03-15T00:00:00", "begins, 2016-03-14T01:00:00, or where it ends, 2016-03-15T01:00:00"),
        ("2016-02-28T00:00:00", "before the start.*Fix: give 2016-03-01T00:00:00 or a later"),
        ("2016-03-05T00:00:00Z", "offset of its own.*America/New_York"),
        ("tomorrow", "not an ISO time. Fix: write a local time such as 2016-03-01T00:00:00"),
        ("9999-12-31T23:30:00", "where it ends, the end of the calendar"),
    ]:
        with pytest.raises(ReplayError, match=said):
            until_of(stream, clock, text)

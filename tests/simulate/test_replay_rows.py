"""How a replay reads its rows: their partitions, times and steps, and the public end that it is given."""

from __future__ import annotations

import zlib
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from aiokafka.partitioner import DefaultPartitioner
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.clock import StepClock
from agents.protocol.ingest.times import TimeParser
from agents.protocol.replay import (
    ReplayError,
    RowTimes,
    clock_of,
    place_by_user,
    place_in_turn,
    steps_of,
    until_of,
)
from schemas.config import parse_config
from schemas.steps import FixedSteps


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
    assert times.of(rows) == [1_451_624_400_000_000, None, None, None, 1_451_624_401_000_000]
    assert RowTimes("at", TimeParser("s", ZoneInfo("UTC"))).of([{"at": 2}, {"at": None}, {"at": True}]) == [
        2_000_000,
        None,
        None,
    ]


def test_steps_of_times() -> None:
    clock = StepClock(FixedSteps(start_us=100, step_us=10), max_ahead=1)
    assert steps_of(clock, [99, 100, None, 125]) == [-1, 0, None, 2]


CONFIG = """
[kafka]
bootstrap = "localhost:9092"
[[streams]]
name = "one"
engine = "spatial"
source = "raw.one"
[streams.privacy]
epsilon = 2.0
unit = "event"
[streams.time]
field = "at"
timezone = "America/New_York"
start = "2016-03-01T00:00:00"
step = "1d"
clock = "replay"
[streams.domain]
kind = "box"
x = "x"
y = "y"
bounds = [0, 0, 1, 1]
"""


def test_a_public_end_is_a_local_time_at_which_a_step_begins() -> None:
    (stream,) = parse_config(CONFIG).streams
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

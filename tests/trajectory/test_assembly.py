"""Trips under way: what closes when, and that nothing depends on arrival."""

from __future__ import annotations

import numpy as np
import pytest

from engines.core.state import stored
from engines.trajectory.domain import Assembly, Closing
from schemas.blocks import Folded
from schemas.errors import EngineInputError
from tests.couple.plants.trajectory import period_forgotten

RULES = Closing(idle=2, life=5, most=4)


def row(trip: int, time: int, place: int, *, admitted: int = 0, ends: bool = False) -> list[int]:
    return [trip, 1, admitted, time, place, int(ends)]


def fed(steps: list[list[list[int]]], rules: Closing = RULES) -> list[list[list[int]]]:
    """Places of the trips that close in each step."""
    assembly, out = Assembly.nothing(), []
    for step, rows in enumerate(steps):
        events = Folded.from_keys(np.array(rows, np.uint64).reshape(-1, 6))
        # Through a state and back: what a worker that takes over has.
        assembly, trips = Assembly.of(stored("trips", assembly)).with_step(events, step=step, rules=rules)
        out.append([trips.y[low:high].tolist() for low, high in zip(trips.offsets, trips.offsets[1:], strict=False)])
    return out


def test_points_are_ordered_by_time_whatever_the_order_and_step_of_their_arrival() -> None:
    assert fed([[row(1, 30, 3)], [row(1, 10, 1), row(1, 20, 2)], [row(1, 40, 4, ends=True)]]) == [
        [],
        [],
        [[1, 2, 3, 4]],
    ]


def test_equal_times_go_by_place_and_equal_points_are_one() -> None:
    same = [row(1, 10, 7), row(1, 10, 3)]
    assert fed([same, [*same, row(1, 11, 9, ends=True)]]) == [[], [[3, 7, 9]]]


def test_an_unfinished_trip_closes_after_idle_steps_and_what_comes_later_is_dropped() -> None:
    assert fed([[row(1, 10, 1)], [], [], [row(1, 20, 2)], [row(1, 30, 3)]]) == [[], [], [[1]], [], []]


def test_a_trip_that_never_rests_closes_in_its_last_step() -> None:
    assert fed([[row(1, step, step)] for step in range(5)]) == [[], [], [], [], [[0, 1, 2, 3]]]


def test_a_trip_closes_at_the_end_of_the_period_that_it_was_charged_in() -> None:
    rules = Closing(idle=5, life=9, period=3)
    steps = [[row(1, 1, 1, admitted=0)], [row(2, 1, 2, admitted=1)], []]
    assert fed(steps, rules) == [[], [], [[1], [2]]]
    with period_forgotten():
        assert fed(steps, rules) != [[], [], [[1], [2]]]


def test_a_record_that_could_not_have_passed_stops_the_stream() -> None:
    with pytest.raises(EngineInputError, match="not bounded"):
        fed([[], [], [], [], [], [row(1, 1, 1)]])


def test_enormous_trips_keep_their_first_points_and_their_end() -> None:
    many = [[row(1, 100 * step + at, at) for at in range(50)] for step in range(3)]
    assert fed([*many, [row(1, 999, 5, ends=True)]]) == [[], [], [], [[0, 1, 2, 3]]]


def test_a_looping_trip_of_one_name_with_another_admission_is_another_trip() -> None:
    again = [row(1, 10, 1, ends=True)]
    assert fed([again, again, [], [], [], [row(1, 60, 6, admitted=5, ends=True)]]) == [[[1]], [], [], [], [], [[6]]]

"""The step of an event, at every edge."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.clock import StepClock
from schemas.events import Reason
from schemas.releases import STEP_LIMIT
from schemas.steps import FixedSteps

CLOCK = StepClock(FixedSteps(start_us=1_000, step_us=100), max_ahead=2)


@pytest.mark.parametrize(
    ("time_us", "ticked", "expected"),
    [
        (1_000, -1, 0),
        (1_099, -1, 0),
        (1_100, -1, 1),
        (999, -1, Reason.BEFORE_START),
        (-(1 << 60), -1, Reason.BEFORE_START),
        (999, 7, Reason.BEFORE_START),
        (1_000, 3, 4),  # late: joins the open step
        (1_299, -1, 2),
        (1_300, -1, Reason.TOO_FAR_AHEAD),
        (1_300, 0, 3),
        (1 << 60, 0, Reason.TOO_FAR_AHEAD),
        (1_000 + 100 * (STEP_LIMIT - 1), STEP_LIMIT - 2, STEP_LIMIT - 1),
        (1_000 + 100 * STEP_LIMIT, STEP_LIMIT - 2, Reason.TOO_FAR_AHEAD),
        (1_000, STEP_LIMIT - 1, Reason.TOO_FAR_AHEAD),  # late, and no step is open any more
    ],
)
def test_the_step_of_an_event(time_us: int, ticked: int, expected: int | Reason) -> None:
    steps, reasons = CLOCK.assign(np.array([time_us]), ticked=ticked)
    if isinstance(expected, Reason):
        assert reasons.tolist() == [expected]
    else:
        assert (steps.tolist(), reasons.tolist()) == ([expected], [0])


def test_the_wall_clock_closes_no_step_that_there_cannot_be() -> None:
    assert CLOCK.last_over(1_000 + 100 * STEP_LIMIT, grace_us=0) == STEP_LIMIT - 1
    assert CLOCK.last_over(1 << 60, grace_us=0) == STEP_LIMIT - 1


def test_after_an_outage_events_that_arrived_in_their_step_are_not_ahead() -> None:
    times = np.array([2_000, 2_000, 2_000])
    _, reasons = CLOCK.assign(times, ticked=-1, arrivals_us=np.array([2_000, -1_000, 1_700]))
    assert reasons.tolist() == [0, Reason.TOO_FAR_AHEAD, Reason.TOO_FAR_AHEAD]


def test_a_record_that_does_not_say_when_it_came_came_at_no_time() -> None:
    """Not in 1969, which for a stream of older history would be far in the future."""
    old = StepClock(FixedSteps(start_us=-1_000_000, step_us=100), max_ahead=2)
    _, reasons = old.assign(np.array([-999_950, -500_000]), ticked=-1, arrivals_us=np.array([-1_000, -1_000]))
    assert reasons.tolist() == [0, Reason.TOO_FAR_AHEAD]


@given(st.lists(st.tuples(st.integers(0, 5_000), st.integers(-1, 50)), min_size=1))
def test_an_event_joins_its_own_step_or_the_open_one(events: list[tuple[int, int]]) -> None:
    times, ticked = (np.array(column) for column in zip(*events, strict=True))
    steps, reasons = CLOCK.assign(times, ticked=ticked)
    for time_us, tick, step, reason in zip(times, ticked, steps, reasons, strict=True):
        own = (time_us - 1_000) // 100
        if reason == 0:
            assert step == max(own, tick + 1)
            assert step > tick


@given(st.integers(-1_000, 100_000), st.integers(0, 500))
def test_the_last_step_that_is_over(now_us: int, grace_us: int) -> None:
    step = CLOCK.last_over(now_us, grace_us=grace_us)
    assert CLOCK.end_of(step) + grace_us <= now_us < CLOCK.end_of(step + 1) + grace_us
    assert CLOCK.start_of(step + 1) == CLOCK.end_of(step)

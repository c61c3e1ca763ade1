"""What scales a release up by the events that bounds refuse: its measurements, its estimate, its state."""

from __future__ import annotations

from fractions import Fraction
from math import sqrt

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.release.stepper import Stepper
from engines.checks.contract_case import contract_case
from engines.core.contract import Batch, Release
from engines.core.noise import seeded
from engines.core.registry import build_engine, uncorrected_engine
from engines.core.surplus import ACCOUNT, PARTS, CorrectedEngine, Measured
from schemas.blocks import Block, Folded
from schemas.config import ENGINES, Stream
from schemas.errors import BudgetError, EngineInputError

CASES = [(name, mode) for name, spec in ENGINES.items() for mode in sorted(spec.facts.counts_surplus)]
MANY = 10_000
"""Events of a step: far more than the noise of a surplus."""


def counting(name: str, mode: str, **changes: object) -> Stream:
    return contract_case(name).stream(mode, {"privacy": {"surplus": 2}, **changes})


def crowd(name: str, count: int) -> Folded:
    key = np.array([contract_case(name).crowd], np.uint64)
    return Folded(key, np.array([count], np.int64))


def run(stream: Stream, surplus: list[int], *, count: int = MANY) -> list[Release]:
    engine = build_engine(stream)
    return [
        engine.step(Batch(step, crowd(stream.engine, count), each), seeded(step)) for step, each in enumerate(surplus)
    ]


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_a_release_has_what_the_bounds_refused_too(name: str, mode: str) -> None:
    """As many events beyond the bound as within: twice the records."""
    last = run(counting(name, mode), [MANY] * 6)[-1]
    assert last.total == pytest.approx(2 * 6 * MANY, rel=0.05)
    assert last.notes["beyond_bound"] == pytest.approx(6 * MANY, rel=0.05)
    low, high = last.notes["beyond_bound_90"]
    assert low < last.notes["beyond_bound"] < high
    share_low, share_high = last.notes["counted_share_90"]
    assert 0.4 < share_low < share_high < 0.6


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_without_a_surplus_the_release_is_that_of_the_engine(name: str, mode: str) -> None:
    stream = counting(name, mode)
    engine = uncorrected_engine(stream)
    alone = [engine.step(Batch(step, crowd(name, MANY)), seeded(step)) for step in range(6)]
    together = run(stream, [0] * 6)
    for one, other in zip(alone, together, strict=True):
        assert other.measurements == one.measurements
        if not other.notes["beyond_bound"]:
            assert other.total == pytest.approx(one.total, rel=0.01)
    assert sum(release.notes["beyond_bound"] == 0 for release in together) >= 3


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_expired_surplus_is_gone(name: str, mode: str) -> None:
    """Events live two steps, and so does what is refused."""
    releases = run(counting(name, mode, domain={"ttl": "2h"}), [MANY] * 4 + [0] * 12)
    assert releases[3].notes["beyond_bound"] == pytest.approx(2 * MANY, rel=0.2)
    assert releases[-1].notes["beyond_bound"] < MANY / 10


def test_what_is_measured_while_events_are_gathered_is_published_and_stands_in_the_account() -> None:
    """It is paid for, and later estimates rest on it."""
    stream = counting("spatial", "default", options={"initial_steps": 3})
    releases = run(stream, [MANY] * 4)
    assert [release.gathered for release in releases] == [True, True, False, False]
    assert len(_measured(releases)) == 4
    stepper = Stepper.from_stream(stream, 1)
    stepper.fold(0, Block(stream="s", partition=0, lo=0, hi=1, tick=3, steps={}))
    spent = [orjson.loads(stepper.compute(bytes(32)).ledger)["epsilon_spent"] for _ in range(4)]
    leaves = 0.9 * 0.95
    assert spent == pytest.approx([0.1 * 2, 0.1 * 2, (0.1 + leaves) * 2, 2.0])


def _measured(releases: list[Release]) -> list[int]:
    return [release.notes[ACCOUNT]["increment"] for release in releases if ACCOUNT in release.notes]


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_states_go_on_exactly_and_others_are_refused(name: str, mode: str) -> None:
    stream = counting(name, mode)
    lived, taken_over = build_engine(stream), build_engine(stream)
    for step in range(8):
        batch = Batch(step, crowd(name, 500), 700)
        released = lived.step(batch, seeded(step))
        again = taken_over.step(batch, seeded(step))
        assert (again.notes, again.total) == (released.notes, released.total)
        taken_over = build_engine(stream)
        taken_over.restore(lived.state())
    for other in (counting(name, mode, privacy={"surplus": 3}), counting(name, mode, domain={"ttl": "2h"})):
        with pytest.raises(EngineInputError):
            build_engine(other).restore(lived.state())
    for missing in [key for key in lived.state() if key.startswith("surplus/")]:
        state = lived.state()
        del state[missing]
        with pytest.raises(EngineInputError):
            build_engine(stream).restore(state)


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_the_budget_is_split_exactly(name: str, mode: str) -> None:
    stream = counting(name, mode)
    guarantee = build_engine(stream).guarantee()
    assert guarantee.spent == guarantee.epsilon == stream.event_epsilon == stream.privacy.epsilon_fraction / 2
    *_, last = guarantee.mechanisms
    assert (last.account, last.l1_sensitivity, last.epsilon) == (ACCOUNT, 2, stream.event_epsilon / 10)
    # A user has `surplus` events beyond the bound for each one within: all of them cost a tenth of the unit's epsilon.
    assert stream.surplus / last.scale == Fraction(1, 10) * stream.privacy.epsilon_fraction


def test_more_than_the_budget_is_refused_before_noise() -> None:
    engine = build_engine(counting("spatial", "default"))
    assert isinstance(engine, CorrectedEngine)
    engine._scale /= 2
    engine._epsilon *= 2
    with pytest.raises(BudgetError):
        engine.step(Batch(0, crowd("spatial", 5)), seeded(1))


def test_steps_come_in_order() -> None:
    with pytest.raises(EngineInputError, match="not the next one"):
        build_engine(counting("spatial", "default")).step(Batch(1, crowd("spatial", 5)), seeded(1))


@given(
    values=st.lists(st.integers(-50, 5000), min_size=1, max_size=12),
    ttl=st.one_of(st.none(), st.integers(1, 12)),
    wait=st.integers(0, 3),
)
def test_the_estimate_by_hand(values: list[int], ttl: int | None, wait: int) -> None:
    """Windows of one step each, then nothing for a while."""
    measured = Measured.empty()
    for step, value in enumerate(values):
        measured = measured.with_window(step - 1, step, value, ttl=ttl)
    now, last = len(values) - 1 + wait, len(values) - 1
    alive = [step for step in range(len(values)) if ttl is None or step > now - ttl]
    span = last + 1 if ttl is None else max(last - max(now - ttl, -1), 1)
    onward = 1 + wait / span
    found, deviation = measured.alive(now, ttl=ttl, variance=4.0)
    assert found == pytest.approx(onward * sum(values[step] for step in alive))
    assert deviation == pytest.approx(onward * sqrt(4.0 * len(alive)))


def test_the_surplus_is_gathered_for_a_part_of_the_time() -> None:
    """At every step at first, then for up to a quarter of what was: few measurements, of which none is old."""
    engine, gathered = build_engine(counting("tabular", "default")), []
    for step in range(100):
        notes = engine.step(Batch(step, crowd("tabular", 1), 1), seeded(step)).notes
        gathered += [(step, step - notes[ACCOUNT]["since"])] if ACCOUNT in notes else []
    assert all(steps == max(1, (step + 1) // PARTS) for step, steps in gathered)
    assert len(gathered) < 25

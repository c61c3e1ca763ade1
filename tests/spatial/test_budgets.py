"""A release that would cost more than its budget is refused, in the engine, before any noise is drawn."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Self

import numpy as np
import pytest

from engines.core.accounting.budgets import Budgets
from engines.core.contract import Batch
from engines.core.noise import NoiseSource
from engines.spatial.domain.box import BoxDomain
from engines.spatial.held.engine import HeldConfig, HeldLeaves
from engines.spatial.papers.phdstream import PHDStream, PHDStreamConfig
from schemas.blocks import Folded
from schemas.errors import BudgetError, EngineInputError
from schemas.guarantee import Guarantee, Mechanism

BOX = BoxDomain("x", "y", (0.0, 0.0, 1.0, 1.0), depth=8)
EVENTS = Folded(np.array([[12], [14]], np.uint64), np.array([50, 30]))


class Untouched(NoiseSource):
    """Fails the test at the first draw."""

    def words(self, count: int) -> np.ndarray:
        raise AssertionError("noise was drawn")

    def child(self, *labels: str | int | bytes) -> Self:
        return self


def untouched() -> NoiseSource:
    return Untouched(b"s" * 32)


def greedy_leaves() -> HeldLeaves:
    """Measures leaves with a little more than their share."""
    engine = HeldLeaves(HeldConfig(name="t", domain=BOX, epsilon=Fraction(1)))
    counter = engine.config.counter
    vars(engine.config)["counter"] = replace(counter, epsilon=counter.epsilon + Fraction(1, 10**9))
    return engine


def greedy_partition() -> PHDStream:
    """Draws split bits with a little more than their share."""
    engine = PHDStream(PHDStreamConfig(name="t", domain=BOX, epsilon=Fraction(1)))
    engine._rule = replace(engine._rule, epsilon=engine._rule.epsilon + Fraction(1, 10**9))
    return engine


@pytest.mark.parametrize("make", [greedy_leaves, greedy_partition])
def test_an_engine_that_asks_for_more_is_refused_before_noise(make: type) -> None:
    engine = make()
    before = engine.state()
    with pytest.raises(BudgetError):
        engine.step(Batch(0, EVENTS), untouched())
    after = engine.state()
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_an_honest_engine_does_draw() -> None:
    engine = HeldLeaves(HeldConfig(name="t", domain=BOX, epsilon=Fraction(1)))
    with pytest.raises(AssertionError, match="noise was drawn"):
        engine.step(Batch(0, EVENTS), untouched())


def split(watch: Fraction, leaves: Fraction) -> Guarantee:
    """A guarantee of two mechanisms, each with an account of its own."""
    parts = {"watch": watch, "leaves": leaves}
    return Guarantee(
        epsilon=watch + leaves,
        mechanisms=tuple(
            Mechanism(name=name, distribution="d", l1_sensitivity=1, scale=1 / part, epsilon=part, account=name)
            for name, part in parts.items()
        ),
    )


STATED = split(Fraction(1, 20), Fraction(19, 20))


def test_the_same_step_twice_is_refused_also_after_a_restart() -> None:
    budgets = Budgets.from_guarantee(STATED)
    once = budgets.charged(STATED, "watch", "leaves", step=3)
    for state in (once, budgets.restored(once.arrays())):
        with pytest.raises(BudgetError):
            state.charged(split(Fraction(1, 20), Fraction(1, 100)), "leaves", step=3)
        state.charged(STATED, "leaves", step=4)


def test_a_mechanism_without_an_account_is_not_charged_for() -> None:
    with pytest.raises(KeyError):
        Budgets.from_guarantee(STATED).charged(STATED, "counts", step=0)


def test_mechanisms_that_cost_more_than_is_promised_get_no_budget() -> None:
    with pytest.raises(BudgetError, match="more than"):
        Budgets.from_guarantee(replace(STATED, epsilon=Fraction(99, 100)))


def test_a_state_of_other_budgets_is_refused() -> None:
    arrays = Budgets.from_guarantee(STATED).arrays()
    with pytest.raises(EngineInputError):
        Budgets.from_guarantee(split(Fraction(1, 10), Fraction(9, 10))).restored(arrays)
    with pytest.raises(EngineInputError):
        Budgets.from_guarantee(STATED).restored({})

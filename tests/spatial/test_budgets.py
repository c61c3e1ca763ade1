"""A release that would cost more than its budget is refused, in the engine, before any noise is drawn."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from engines.accounting.budgets import Budgets
from engines.contract import Batch
from engines.noise import NoiseSource
from engines.spatial import BoxDomain, HeldConfig, HeldLeaves
from engines.spatial.papers.config import PHDStreamConfig
from engines.spatial.papers.phdstream import PHDStream
from schemas.blocks import Folded
from schemas.errors import BudgetError, EngineInputError

BOX = BoxDomain("x", "y", (0.0, 0.0, 1.0, 1.0), depth=8)
EVENTS = Folded(np.array([[12], [14]], np.uint64), np.array([50, 30]))


class Untouched(NoiseSource):
    """Fails the test at the first draw."""

    def words(self, count: int) -> np.ndarray:
        raise AssertionError("noise was drawn")

    def child(self, *labels: str | int | bytes) -> NoiseSource:
        return self


def untouched() -> NoiseSource:
    return Untouched(b"s" * 32)


def greedy_leaves() -> HeldLeaves:
    """Measures leaves with a little more than their share."""
    engine = HeldLeaves(HeldConfig(name="t", domain=BOX, epsilon=Fraction(1)))
    rules = engine._rules
    engine._rules = replace(rules, counter=replace(rules.counter, epsilon=rules.counter.epsilon + Fraction(1, 10**9)))
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


def test_the_same_step_twice_is_refused_also_after_a_restart() -> None:
    budgets = Budgets.of(watch=Fraction(1, 20), leaves=Fraction(19, 20))
    once = budgets.charged(step=3, watch=Fraction(1, 20), leaves=Fraction(19, 20))
    for state in (once, budgets.restored(once.arrays())):
        with pytest.raises(BudgetError):
            state.charged(step=3, leaves=Fraction(1, 100))
        state.charged(step=4, leaves=Fraction(19, 20))


def test_a_state_of_other_budgets_is_refused() -> None:
    arrays = Budgets.of(watch=Fraction(1, 20), leaves=Fraction(19, 20)).arrays()
    with pytest.raises(EngineInputError):
        Budgets.of(watch=Fraction(1, 10), leaves=Fraction(9, 10)).restored(arrays)
    with pytest.raises(EngineInputError):
        Budgets.of(watch=Fraction(1, 20), leaves=Fraction(19, 20)).restored({})

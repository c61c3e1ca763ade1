"""A budget that refuses: before it is exceeded, by whatever way, and after any restart."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.accounting import Accountant, Cost, gaussian
from engines.core.accounting.accountant import Rule
from schemas.errors import BudgetError, EngineInputError
from tests.examples import examples

EPSILONS = st.fractions(Fraction(1, 50), 1, max_denominator=50)
CHARGES = st.lists(st.tuples(EPSILONS, st.none() | st.integers(0, 4)), max_size=12)


@given(CHARGES)
def test_pure_budgets_against_a_slow_twin(charges: list[tuple[Fraction, int | None]]) -> None:
    """The twin keeps every charge, and asks what the worst-off event has paid."""
    accountant = Accountant(epsilon=Fraction(2))
    accepted: list[tuple[Fraction, int | None]] = []
    last = -1
    for epsilon, step in charges:
        if step is not None and step < last:
            with pytest.raises(EngineInputError, match="before"):
                accountant.charged(Cost.pure_dp(epsilon), step=step)
            continue
        trial = [*accepted, (epsilon, step)]
        worst = max(sum(e for e, at in trial if at is None or at == s) for s in range(-1, 5))
        if worst > 2:
            with pytest.raises(BudgetError):
                accountant.charged(Cost.pure_dp(epsilon), step=step)
        else:
            accountant, accepted = accountant.charged(Cost.pure_dp(epsilon), step=step), trial
            last = last if step is None else step
            assert accountant.spent.pure == worst
        restored = Accountant(epsilon=Fraction(2)).restore(accountant.state())
        assert restored == accountant


def test_the_whole_budget_may_be_spent_and_nothing_beyond() -> None:
    accountant = Accountant(epsilon=Fraction(1, 10))
    for _ in range(10):
        accountant = accountant.charged(Cost.pure_dp(Fraction(1, 100)))
    with pytest.raises(BudgetError, match=r"epsilon .* in all, and the budget is 1/10|the budget is 0.1"):
        accountant.charged(Cost.pure_dp(Fraction(1, 10**12)))
    assert accountant.spent.pure == Fraction(1, 10)


def test_an_engine_that_measures_each_event_once_runs_for_ever() -> None:
    release = Cost.pure_dp(Fraction(1, 2)) + Cost.pure_dp(Fraction(1, 2))
    accountant = Accountant(epsilon=Fraction(1))
    for step in range(1000):
        accountant = accountant.charged(release, step=step)
    with pytest.raises(BudgetError):
        accountant.charged(Cost.pure_dp(Fraction(1, 1000)), step=999)  # the same events once more
    assert accountant.state()["accountant"].size < 200


def test_gaussian_noise_up_to_the_exact_budget() -> None:
    """100 releases at sigma 37.4 are (1, 1e-5) together, the 101st is not; [zhang2022] would stop after 58."""
    release = Cost.gaussian_dp(1 / Fraction(374, 10) ** 2)
    accountant = Accountant(epsilon=Fraction(1), delta=1e-5, rule="gaussian")
    for _ in range(100):
        accountant = accountant.charged(release)
    with pytest.raises(BudgetError, match=r"mu\*\*2"):
        accountant.charged(release)
    assert gaussian.delta(1.0, math.sqrt(accountant.spent.mu_squared)) <= 1e-5
    theirs = gaussian.corollary_5_2(epsilon=1, delta=1e-5)
    assert int((37.4 / theirs) ** 2) == 58


@settings(max_examples=examples(0.6))
@given(st.lists(st.integers(5, 60), max_size=8))
def test_what_was_accepted_keeps_the_promise(sigmas: list[int]) -> None:
    accountant = Accountant(epsilon=Fraction(1, 2), delta=1e-6, rule="gaussian")
    for sigma in sigmas:
        before = accountant
        try:
            accountant = accountant.charged(Cost.gaussian_dp(Fraction(1, sigma * sigma)))
        except BudgetError:
            assert accountant is before
    if accountant.spent.mu_squared:
        assert gaussian.delta(0.5, math.sqrt(accountant.spent.mu_squared)) <= 1e-6


@pytest.mark.parametrize(
    ("rule", "cost", "error"),
    [
        ("pure", Cost.gaussian_dp(Fraction(1, 10**9)), BudgetError),
        ("schedule", Cost.gaussian_dp(Fraction(1, 10**9)), BudgetError),
        ("schedule", Cost.pure_dp(Fraction(11, 10)), BudgetError),
        ("gaussian", Cost.pure_dp(Fraction(1, 10**9)), EngineInputError),
    ],
)
def test_costs_that_a_rule_does_not_allow(rule: Rule, cost: Cost, error: type[Exception]) -> None:
    with pytest.raises(error):
        Accountant(epsilon=Fraction(1), delta=0.0 if rule == "pure" else 1e-5, rule=rule).charged(cost)


def test_states_of_others_are_refused() -> None:
    def budget(epsilon: int = 1, delta: float = 1e-5, rule: Rule = "schedule") -> Accountant:
        return Accountant(epsilon=Fraction(epsilon), delta=delta, rule=rule)

    mine = budget().charged(Cost.pure_dp(Fraction(1, 9)), step=7)
    state = mine.state()
    assert budget().restore(state) == mine
    assert Accountant.kept({"account/accountant": state["accountant"]}) == {"account/accountant": mine}
    for other in (budget(epsilon=2), budget(delta=1e-6), budget(rule="gaussian")):
        with pytest.raises(EngineInputError, match="another budget"):
            other.restore(state)
    with pytest.raises(EngineInputError, match="lacks"):
        mine.restore({})
    text = bytes(state["accountant"]).decode()
    for broken in ("", text[:-3], text.replace("|7|", "|x|"), text.replace("1/9", "-1/9"), text + "|0 0 0", "é"):
        with pytest.raises(EngineInputError):
            mine.restore({"accountant": np.frombuffer(broken.encode("latin-1"), np.uint8)})
    assert mine.state()["accountant"].tobytes() == state["accountant"].tobytes()


@pytest.mark.parametrize(
    "arguments",
    [
        {"epsilon": Fraction(0)},
        {"epsilon": Fraction(-1)},
        {"epsilon": 1.0},
        {"epsilon": math.nan},
        {"epsilon": Fraction(1), "delta": 1e-5},
        {"epsilon": Fraction(1), "delta": math.nan},
        {"epsilon": Fraction(1), "rule": "gaussian"},
        {"epsilon": Fraction(1), "rule": "gaussian", "delta": 1.0},
        {"epsilon": Fraction(1), "rule": "gaussian", "delta": math.inf},
        {"epsilon": Fraction(1), "rule": "gaussian", "delta": -0.1},
        {"epsilon": Fraction(1), "rule": "best", "delta": 0.1},
    ],
)
def test_outside_the_contract(arguments: Any) -> None:
    with pytest.raises(EngineInputError):
        Accountant(**arguments)


COSTS = st.builds(Cost.pure_dp, EPSILONS) | st.builds(Cost.gaussian_dp, EPSILONS)


@given(COSTS, COSTS, COSTS)
def test_order_and_grouping_do_not_matter_and_nothing_comes_free(a: Cost, b: Cost, c: Cost) -> None:
    for compose in (Cost.__add__, Cost.either):
        assert compose(compose(a, b), c) == compose(compose(c, b), a)
    assert a.either(a) == a
    for name in ("pure", "pure_rho", "mu_squared"):
        alone, one, both = (getattr(each, name) for each in (a, a.either(b), a + b))
        assert alone <= one <= both


@pytest.mark.parametrize("bad", [0, -1, 1.0, math.nan, math.inf, Fraction(0), Fraction(-1), "1", None])
def test_what_is_no_cost_is_refused(bad: Any) -> None:
    with pytest.raises(EngineInputError):
        Cost.pure_dp(bad)
    if bad != 1:
        with pytest.raises(EngineInputError):
            Cost.gaussian_dp(bad)

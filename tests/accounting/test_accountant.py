"""A budget that refuses: before it is exceeded, by whatever way, and after any restart."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.accounting import (
    Accountant,
    Contributions,
    DiscreteGaussianEvent,
    Event,
    GaussianEvent,
    PureEvent,
    Sequential,
    fold,
    gaussian,
    privacy_loss,
    zcdp,
)
from schemas.errors import BudgetError, EngineInputError

EPSILONS = st.fractions(Fraction(1, 50), 1, max_denominator=50)
CHARGES = st.lists(st.tuples(EPSILONS, st.none() | st.integers(0, 4)), max_size=12)


@given(CHARGES, st.integers(1, 3))
def test_pure_budgets_against_a_slow_twin(charges: list[tuple[Fraction, int | None]], contributions: int) -> None:
    """The twin keeps every charge, and asks what the worst-off event has paid."""
    accountant = Accountant(epsilon=Fraction(2), contributions=contributions)
    accepted: list[tuple[Fraction, int | None]] = []
    last = -1
    for epsilon, step in charges:
        if step is not None and step < last:
            with pytest.raises(EngineInputError, match="before"):
                accountant.charged(PureEvent(epsilon), step=step)
            continue
        trial = [*accepted, (epsilon, step)]
        worst = max(sum(e for e, at in trial if at is None or at == s) for s in range(-1, 5))
        if worst * contributions > 2:
            with pytest.raises(BudgetError):
                accountant.charged(PureEvent(epsilon), step=step)
        else:
            accountant, accepted = accountant.charged(PureEvent(epsilon), step=step), trial
            last = last if step is None else step
            assert accountant.spent.pure == worst * contributions
        restored = Accountant(epsilon=Fraction(2), contributions=contributions).restore(accountant.state())
        assert restored == accountant


def test_the_whole_budget_may_be_spent_and_nothing_beyond() -> None:
    accountant = Accountant(epsilon=Fraction(1, 10))
    for _ in range(10):
        accountant = accountant.charged(PureEvent(Fraction(1, 100)))
    with pytest.raises(BudgetError, match=r"epsilon .* in all, and the budget is 1/10|the budget is 0.1"):
        accountant.charged(PureEvent(Fraction(1, 10**12)))
    assert accountant.spent.pure == Fraction(1, 10)


def test_an_engine_that_measures_each_event_once_runs_for_ever() -> None:
    release = Sequential((PureEvent(Fraction(1, 2)), PureEvent(Fraction(1, 2))))
    accountant = Accountant(epsilon=Fraction(1))
    for step in range(1000):
        accountant = accountant.charged(release, step=step)
    with pytest.raises(BudgetError):
        accountant.charged(PureEvent(Fraction(1, 1000)), step=999)  # the same events once more
    assert accountant.state()["accountant"].size < 200


def test_gaussian_noise_up_to_the_exact_budget() -> None:
    """100 releases at sigma 37.4 are (1, 1e-5) together, the 101st is not; [zhang2022] would stop after 58."""
    release = GaussianEvent(sigma_squared=Fraction(374, 10) ** 2)
    accountant = Accountant(epsilon=Fraction(1), delta=1e-5, rule="gaussian")
    for _ in range(100):
        accountant = accountant.charged(release)
    with pytest.raises(BudgetError, match=r"mu\*\*2"):
        accountant.charged(release)
    assert gaussian.delta(1.0, math.sqrt(accountant.spent.mu_squared)) <= 1e-5
    theirs = gaussian.corollary_5_2(epsilon=1, delta=1e-5)
    assert int((37.4 / theirs) ** 2) == 58


@pytest.mark.parametrize("rule", ["zcdp", "schedule"])
def test_discrete_noise_up_to_the_budget(rule: Any) -> None:
    accountant = Accountant(epsilon=Fraction(1), delta=1e-5, rule=rule)
    release = DiscreteGaussianEvent(sigma_squared=Fraction(100))
    done = {"zcdp": 6, "schedule": 7}[rule]
    for _ in range(done):
        accountant = accountant.charged(release)
    with pytest.raises(BudgetError, match={"zcdp": "rho", "schedule": "delta"}[rule]):
        accountant.charged(release)
    assert privacy_loss.delta(DiscreteGaussianEvent(sigma_squared=Fraction(100), count=done), 1.0) <= 1e-5


def test_a_user_pays_for_all_contributions() -> None:
    noise = GaussianEvent(sigma_squared=Fraction(4))
    event = Accountant(epsilon=Fraction(1), delta=1e-3, rule="zcdp")
    user = Accountant(epsilon=Fraction(1), delta=1e-3, rule="zcdp", contributions=3)
    with pytest.raises(BudgetError):
        user.charged(noise)
    wide = GaussianEvent(sigma_squared=Fraction(900))
    assert user.charged(wide).spent == event.charged(Contributions(wide, 3)).spent


@settings(max_examples=30)
@given(st.lists(st.integers(5, 60), max_size=8), st.sampled_from(["gaussian", "zcdp"]))
def test_what_was_accepted_keeps_the_promise(sigmas: list[int], rule: Any) -> None:
    accountant = Accountant(epsilon=Fraction(1, 2), delta=1e-6, rule=rule)
    for sigma in sigmas:
        before = accountant
        try:
            accountant = accountant.charged(GaussianEvent(sigma_squared=Fraction(sigma * sigma)))
        except BudgetError:
            assert accountant is before
    if accountant.spent.mu_squared:
        assert gaussian.delta(0.5, math.sqrt(accountant.spent.mu_squared)) <= 1e-6


@pytest.mark.parametrize(
    ("rule", "event", "error"),
    [
        ("pure", GaussianEvent(sigma_squared=Fraction(10**9)), BudgetError),
        ("pure", DiscreteGaussianEvent(sigma_squared=Fraction(10**9)), BudgetError),
        ("gaussian", PureEvent(Fraction(1, 10**9)), EngineInputError),
        ("gaussian", DiscreteGaussianEvent(sigma_squared=Fraction(10**9)), EngineInputError),
    ],
)
def test_events_that_a_rule_does_not_know(rule: Any, event: Event, error: type[Exception]) -> None:
    with pytest.raises(error):
        Accountant(epsilon=Fraction(1), delta=0.0 if rule == "pure" else 1e-5, rule=rule).charged(event)


def test_states_of_others_are_refused() -> None:
    mine = Accountant(epsilon=Fraction(1), delta=1e-5, rule="zcdp").charged(
        Sequential((PureEvent(Fraction(1, 9)), DiscreteGaussianEvent(sigma_squared=Fraction(1000, 3), count=2))), step=7
    )
    state = mine.state()
    assert Accountant(epsilon=Fraction(1), delta=1e-5, rule="zcdp").restore(state) == mine
    others: list[Accountant] = [
        Accountant(epsilon=Fraction(2), delta=1e-5, rule="zcdp"),
        Accountant(epsilon=Fraction(1), delta=1e-6, rule="zcdp"),
        Accountant(epsilon=Fraction(1), delta=1e-5, rule="schedule"),
        Accountant(epsilon=Fraction(1), delta=1e-5, rule="zcdp", contributions=2),
    ]
    for other in others:
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
        {"epsilon": Fraction(1), "rule": "zcdp"},
        {"epsilon": Fraction(1), "rule": "zcdp", "delta": 1.0},
        {"epsilon": Fraction(1), "rule": "zcdp", "delta": math.inf},
        {"epsilon": Fraction(1), "rule": "zcdp", "delta": -0.1},
        {"epsilon": Fraction(1), "rule": "best", "delta": 0.1},
        {"epsilon": Fraction(1), "contributions": 0},
    ],
)
def test_outside_the_contract(arguments: Any) -> None:
    with pytest.raises(EngineInputError):
        Accountant(**arguments)


def test_pure_mechanisms_may_join_noise_under_zcdp() -> None:
    accountant = Accountant(epsilon=Fraction(1), delta=1e-5, rule="zcdp").charged(PureEvent(Fraction(1, 10)))
    accountant = accountant.charged(DiscreteGaussianEvent(sigma_squared=Fraction(100)))
    assert accountant.spent.rho == Fraction(1, 200) + Fraction(1, 200)
    assert zcdp.of_cost(fold(PureEvent(Fraction(1))), 1.0) == 0.0

"""What a series costs: never more than mu squared, whatever is wished for and wherever a unit's events lie."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import comb, exp, expm1

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.accounting.binomial import composed, draw_epsilon
from engines.core.accounting.lattice import dominating
from engines.core.noise import seeded
from engines.series.budget import GaussianBudget, Presence, WeightSchedule
from engines.series.channels import WHOLE, AdaptiveChannel, FixedChannel
from engines.series.config import SeriesConfig
from engines.series.papers.ar1 import BinomialBudget
from schemas.errors import BudgetError, EngineInputError
from tests.examples import examples
from tests.sequence.series_support import TWO, recipe

FEW = settings(max_examples=examples(0.5))


def budget(presence: Presence, *, shifts: tuple[int, ...] = (3,), epsilon: str = "1") -> GaussianBudget:
    shares = (Fraction(1, len(shifts)),) * len(shifts)
    return GaussianBudget(epsilon=Fraction(epsilon), delta=1e-6, presence=presence, shifts=shifts, shares=shares)


def spent(one: GaussianBudget, field: int, sigma_squared: Fraction, events: int) -> Fraction:
    """mu squared of a unit that has so many events in a step."""
    moved = Fraction(events * one.shifts[field] * 2 ** one.refinement(field)) ** 2
    return moved / dominating(sigma_squared)


@pytest.mark.parametrize(
    ("schedule", "events", "per_step"),
    [
        (WeightSchedule(), 5, 2),
        (WeightSchedule(), None, 2),
        (WeightSchedule(), 1, 1),
        (WeightSchedule.of_paper(Fraction(1, 3), None), 3, 1),
        (WeightSchedule.of_paper(Fraction(1, 3), None), 5, 3),
        (WeightSchedule.of_paper(Fraction(1, 2), Fraction(9, 10)), None, 1),
        (WeightSchedule(decay=Fraction(4, 5)), 4, 2),
    ],
)
def test_the_dearest_arrangement_of_events_costs_the_budget_and_no_more(
    schedule: WeightSchedule, events: int | None, per_step: int
) -> None:
    steps = 5
    one = budget(Presence(events=events, per_step=per_step, steps=steps))
    fixed = FixedChannel(one, schedule)
    sigmas = [fixed.sigma_squared(0, step) for step in range(steps)]
    costs = [
        sum((spent(one, 0, sigma, n) for sigma, n in zip(sigmas, where, strict=True) if sigma and n), Fraction(0))
        for where in product(range(per_step + 1), repeat=steps)
        if events is None or sum(where) <= events
    ]
    assert max(costs) <= one.mu_squared
    assert max(costs) > one.mu_squared * Fraction(99, 100)


@pytest.mark.parametrize("full", [0, 2])
def test_weights_that_decay_for_ever_have_a_finite_total(full: int) -> None:
    one = budget(Presence())
    fixed = FixedChannel(one, WeightSchedule(decay=Fraction(49, 50), full=full))
    sigmas = [fixed.sigma_squared(0, step) for step in range(2000)]
    total = sum((spent(one, 0, sigma, 1) for sigma in sigmas if sigma), Fraction(0))
    assert sigmas[-1] is None
    assert one.mu_squared * Fraction(9, 10) < total <= one.mu_squared
    with pytest.raises(EngineInputError):
        FixedChannel(one, WeightSchedule())


class Greedy:
    """A bank that wishes whatever it is told, and spends no thought on it."""

    def __init__(self, wishes: list[float]) -> None:
        self.wishes = wishes

    def wanted_precision(self, *, remaining: float, left: int) -> float:
        return self.wishes.pop() * remaining if self.wishes else remaining


@FEW
@given(
    wishes=st.lists(st.floats(0, 5, allow_nan=False), min_size=12, max_size=12),
    gaps=st.lists(st.booleans(), min_size=12, max_size=12),
    shifts=st.lists(st.integers(1, 9000), min_size=1, max_size=2).map(tuple),
    epsilon=st.sampled_from(["0.1", "1", "20"]),
)
def test_whatever_is_wished_the_sum_of_what_is_drawn_stays_within_the_budget(
    wishes: list[float], gaps: list[bool], shifts: tuple[int, ...], epsilon: str
) -> None:
    one = budget(Presence(steps=12, per_step=2), shifts=shifts, epsilon=epsilon)
    channel = AdaptiveChannel(one, [Greedy(list(wishes)) for _ in shifts])  # type: ignore[misc]
    total = Fraction(0)
    for step in (step for step, missing in enumerate(gaps) if not missing):
        for field, measured in enumerate(channel.measure(step, [7] * len(shifts), seeded(1).child(step)) or ()):
            sigma_squared = Fraction(measured.variance) * 4 ** one.refinement(field)
            total += spent(one, field, sigma_squared, events=2)
    assert total <= one.mu_squared


def test_the_accountant_refuses_what_the_amounts_would_let_through() -> None:
    """The second lock: were amounts ever counted wrongly, nothing would be drawn."""
    one = budget(Presence(steps=3))
    channel = AdaptiveChannel(one, [Greedy([1.0] * 5)])  # type: ignore[list-item]
    channel.measure(0, [1], seeded(1))
    channel._spent = [0]
    with pytest.raises(BudgetError):
        channel.measure(1, [1], seeded(2))


def test_fields_share_the_budget_as_configured() -> None:
    config = recipe("default", TWO)
    assert config.shares == (Fraction(1, 4), Fraction(3, 4))
    fixed = config.fixed
    costs = [spent(fixed.budget, field, fixed.sigma_squared(field, 0) or Fraction(1), 1) for field in (0, 1)]
    assert float(costs[1] / costs[0]) == pytest.approx(3, rel=1e-4)


def test_amounts_are_for_units_that_are_everywhere() -> None:
    with pytest.raises(EngineInputError, match="every step"):
        AdaptiveChannel(budget(Presence(events=3, steps=12)), [])
    config: SeriesConfig = recipe(domain=TWO)
    assert not config.adaptive
    assert recipe(domain=TWO, presence=Presence(events=24, per_step=2, steps=12)).adaptive


def test_the_whole_is_one() -> None:
    channel = AdaptiveChannel(budget(Presence(steps=4), shifts=(1, 1, 1)), [])
    assert WHOLE - 3 <= sum(channel.whole(field) for field in range(3)) <= WHOLE


# --- binomial noise -----------------------------------------------------------------------------------------------


def binomial_delta(half: int, shift: int, epsilon: float) -> float:
    """Exact delta of one draw, both directions being alike."""

    def chance(k: int) -> float:
        return comb(2 * half, k + half) / 4**half if -half <= k <= half else 0.0

    return sum(max(0.0, chance(k) - exp(epsilon) * chance(k + shift)) for k in range(-half, half + 1))


@pytest.mark.parametrize("shift", [1, 3])
def test_a_draw_of_coins_keeps_lemma_a_2(shift: int) -> None:
    half, delta = 400, 1e-4
    epsilon = float(draw_epsilon(half, shift, delta))
    assert binomial_delta(half, shift, epsilon) <= delta
    # A fiftieth of the coins does not: the lemma is loose, not void.
    assert binomial_delta(half // 50, shift, epsilon) > delta


def test_binomial_budgets_are_solved_and_refused() -> None:
    common = {"delta": 1e-6, "shifts": (1,), "shares": (Fraction(1),), "schedule": WeightSchedule()}
    one = BinomialBudget(epsilon=Fraction(1), presence=Presence(steps=10), **common)  # type: ignore[arg-type]
    half = one.half(0, Fraction(1), one.base)

    def of_ten(half: int) -> float:
        epsilon = float(draw_epsilon(half, 1, 1e-6 / 20))
        drift = epsilon * expm1(epsilon) / (exp(epsilon) + 1)
        return composed(10 * epsilon, 10 * drift, 10 * epsilon**2, 5e-7)

    assert of_ten(half) <= 1
    assert of_ten(int(0.99 * half)) > 1
    with pytest.raises(EngineInputError, match="coins"):
        BinomialBudget(epsilon=Fraction(1, 1000), presence=Presence(steps=10_000), **common)  # type: ignore[arg-type]

"""Binomial noise: the exact delta of a unit's events, spread, bunched and mixed, on the edge of the coarse lattice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from math import exp

import numpy as np
import pytest

from engines.core.accounting.binomial import composed, draw_epsilon
from engines.series.budget import Presence, WeightSchedule
from engines.series.papers.ar1 import BinomialBudget
from schemas.errors import EngineInputError

DELTA = 1e-6
CELL = 2.0**-13
"""Of the grid of losses. Rounded up, and with all that is beyond 12 standard deviations counted as infinite loss, a
delta is above the true one; rounded down and without that, below it."""


@cache
def losses(half: int, shift: int, cell: float, *, above: bool) -> tuple[int, np.ndarray, float]:
    """Of one draw that is moved by `shift`: number of the first cell, probabilities, and that of an infinite loss."""
    reach = min(half, int(12 * (half / 2) ** 0.5) + shift)
    k = np.arange(-reach, reach + 1)
    # Ratios of neighbouring coefficients, from the middle outwards: no large logarithm loses digits.
    steps = np.cumsum(np.log((half - k[reach:-1]) / (half + k[reach:-1] + 1.0)))
    logs = np.concatenate([steps[::-1], [0.0], steps])
    chance = np.exp(logs)
    chance /= chance.sum()
    inside = k + shift <= reach
    loss = logs[inside] - logs[np.flatnonzero(inside) + shift]
    cells = (np.ceil if above else np.floor)(loss / cell).astype(np.int64)
    return (
        int(cells.min()),
        np.bincount(cells - cells.min(), chance[inside]),
        float(chance[~inside].sum()) + 1e-30 if above else 0.0,
    )


def exact_delta(draws: dict[tuple[int, int], int], epsilon: float, *, above: bool, cell: float = CELL) -> float:
    """Of independent draws, (half, shift) -> how many: a sum of losses, by Fourier transforms."""
    parts = [(losses(half, shift, cell, above=above), count) for (half, shift), count in draws.items()]
    first = sum(start * count for (start, _, _), count in parts)
    length = 1 + sum((len(chance) - 1) * count for (_, chance, _), count in parts)
    size = 1 << (length - 1).bit_length()
    transformed = np.ones(size // 2 + 1, complex)
    finite = 1.0
    for (_, chance, infinite), count in parts:
        transformed *= np.fft.rfft(chance, size) ** count
        finite *= (1 - infinite) ** count
    chance = np.fft.irfft(transformed, size)[:length]
    loss = (first + np.arange(length)) * cell
    beyond = loss > epsilon
    delta = float((chance[beyond] * -np.expm1(epsilon - loss[beyond])).sum()) + 1 - finite
    return delta + 1e-11 if above else delta - 1e-11


def test_the_exact_delta_of_one_draw_is_that_of_its_definition() -> None:
    from math import comb

    half, shift, epsilon = 60, 3, 0.4
    chances = [comb(2 * half, k) / 4**half for k in range(2 * half + 1)]
    moved = [*chances[shift:], *[0.0] * shift]
    true = sum(max(0.0, p - exp(epsilon) * q) for p, q in zip(chances, moved, strict=True))
    low, high = (exact_delta({(half, shift): 1}, epsilon, above=above) for above in (False, True))
    assert low <= true <= high
    assert high < 1.01 * true


@dataclass(frozen=True)
class Unit:
    """A stream of one `count` field, epsilon 1, and what one of its users may send."""

    events: int
    per_step: int
    weight: Fraction = Fraction(3, 10)
    steps: int | None = None

    def budget(self) -> BinomialBudget:
        return BinomialBudget(
            epsilon=Fraction(1),
            delta=DELTA,
            presence=Presence(events=self.events, per_step=self.per_step, steps=self.steps),
            shifts=(1,),
            shares=(Fraction(1),),
            schedule=WeightSchedule.of_paper(self.weight, None) if self.weight < 1 else WeightSchedule(),
        )

    def arrangements(self) -> Iterator[list[int]]:
        """Events in each step: spread, bunched, all that lies between in doubled steps, one kind after the other."""
        sizes = sorted({1, self.per_step, *(2**k for k in range(20) if 2**k < self.per_step)})
        longest = self.events if self.steps is None else self.steps
        for size in sizes:
            bunched, rest = divmod(self.events, size)
            where = [size] * bunched + [rest] * (rest > 0)
            yield where[:longest]
            yield where[::-1][:longest]
            for other in sizes:
                if other < size:
                    many = self.events // (2 * size)
                    left = self.events - many * size
                    yield ([size] * many + [other] * (left // other))[:longest]
                    yield ([other] * (left // other) + [size] * many)[:longest]
        # One large step, early or late, and all else by itself.
        yield ([self.per_step] + [1] * (self.events - self.per_step))[:longest]
        yield ([1] * (self.events - self.per_step) + [self.per_step])[-longest:]


UNITS = [
    Unit(64, 64, Fraction(1)),
    Unit(64, 8),
    Unit(64, 1),
    Unit(100, 30, Fraction(1, 2)),
    Unit(512, 512),
    Unit(512, 512, Fraction(1)),
    Unit(200, 16, steps=20),
]


def met(budget: BinomialBudget, where: list[int]) -> dict[tuple[int, int], int]:
    """Draws of a field of shift 1, where others have filled each step's total to the edge of a coarse step."""
    factor = 1 << budget.coarse(0)
    draws: dict[tuple[int, int], int] = {}
    for step, events in enumerate(where):
        moved = (factor - 1 + events) // factor
        assert moved <= budget.shift(0)
        key = (budget.half(0, budget.schedule.squared(step), budget.base), moved)
        draws[key] = draws.get(key, 0) + 1
    return draws


@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_wherever_a_units_events_lie_delta_is_kept(unit: Unit) -> None:
    budget = unit.budget()
    worst = 0.0
    for where in unit.arrangements():
        assert sum(where) <= unit.events
        assert max(where) <= unit.per_step
        worst = max(worst, exact_delta(met(budget, where), 1.0, above=True))
    assert worst <= DELTA


@pytest.mark.parametrize(
    ("events", "coarse", "half", "beyond"), [(64, 4, 993, 4.6e-4), (512, 7, 993, 0.12), (1000, 7, 3960, 0.034)]
)
def test_noise_for_the_fewest_steps_does_not_cover_the_most(events: int, coarse: int, half: int, beyond: float) -> None:
    """Noise for one step with all events, as it was; on the edge each event moves its own step's total by one."""
    assert exact_delta({(half, 1): events}, 1.0, above=False, cell=CELL / 8 if events == 64 else CELL) > beyond
    # In the one step that it was made for it does.
    assert exact_delta({(half, -(-events >> coarse)): 1}, 1.0, above=True) <= DELTA


@pytest.mark.parametrize(
    ("unit", "half"), [(Unit(1, 1, Fraction(1)), 70), (Unit(64, 1), 168_247), (Unit(10, 1), 14_579)]
)
def test_where_one_event_a_step_is_all_noise_is_what_it_was(unit: Unit, half: int) -> None:
    """There the fewest steps are the most: the accounting was right, and streams go on."""
    budget = unit.budget()
    assert budget.half(0, budget.schedule.squared(2), budget.base) == half


def test_the_accounted_epsilon_is_above_that_of_every_arrangement() -> None:
    """Two fields of unlike shifts; by brute force, with the theorem's own sums over the draws of each arrangement."""
    steps, most, per_step = 5, 6, 4
    budget = BinomialBudget(
        epsilon=Fraction(2),
        delta=DELTA,
        presence=Presence(events=most, per_step=per_step, steps=steps),
        shifts=(1, 700),
        shares=(Fraction(1, 4), Fraction(3, 4)),
        schedule=WeightSchedule.of_paper(Fraction(2, 5), None),
    )
    spent, deltas = [], []
    for where in product(range(per_step + 1), repeat=steps):
        if not 0 < sum(where) <= most:
            continue
        epsilons, paid = [], 0.0
        for field, (step, events) in product((0, 1), enumerate(where)):
            if events:
                delta = DELTA / 4 * events / most
                paid += delta
                moved = -(-events * budget.shifts[field] >> budget.coarse(field))
                half = budget.half(field, budget.schedule.squared(step), budget.base)
                epsilons.append(draw_epsilon(half, moved, delta))
        each = np.array(epsilons)
        spent.append(composed(each.sum(), (each * np.tanh(each / 2)).sum(), (each**2).sum(), DELTA / 2))
        deltas.append(paid + DELTA / 2)
    assert max(deltas) <= DELTA * (1 + 1e-12)
    assert max(spent) <= 2
    assert max(spent) > 1.5


def test_more_coins_than_can_be_tossed_are_refused() -> None:
    with pytest.raises(EngineInputError, match="coins"):
        Unit(100_000, 100_000, Fraction(1, 100)).budget()

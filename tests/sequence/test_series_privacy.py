"""Sensitivities of what is measured, and that nothing but measurements decides what is released."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.contract import Batch, Columns
from engines.counters.linear import LaplaceCounter
from engines.noise import NoiseSource, discrete_laplace, laplace_mechanism, seeded
from engines.series.engine import Series
from engines.series.fields import SeriesDomain, SeriesField
from engines.series.gaussian import GaussianBudget, NoisyTotal
from engines.series.papers.config import PaperSeriesConfig
from engines.series.papers.dft import Fourier, FourierBudget
from engines.series.papers.tree import TreeDifferences
from engines.series.papers.wevent import GRAINS, WindowBudget, WindowEvents
from engines.series.presence import Presence
from schemas.blocks import Folded
from schemas.errors import EngineInputError
from tests.sequence.series_support import READING, TWO, reading, recipe, run

FEW = settings(max_examples=40)
finite = st.floats(-1e6, 1e6, allow_nan=False)
limits = st.tuples(finite, finite).filter(lambda pair: pair[0] < pair[1]).map(tuple)


def total(domain: SeriesDomain, values: list[float]) -> int:
    keys, reasons = domain.encode(
        Columns({domain.fields[0].name: np.array(values, float)}, {}, np.ones(len(values), np.int8))
    )
    assert not reasons.any()
    return domain.totals(Folded.of(keys))[0][0]


@FEW
@given(limits=limits, values=st.lists(finite, max_size=5), extra=finite)
def test_one_event_moves_a_sum_by_its_shift_at_most(
    limits: tuple[float, float], values: list[float], extra: float
) -> None:
    field = SeriesField(name="v", of="sum", limits=limits)
    domain = SeriesDomain((field,))
    assert abs(total(domain, [*values, extra]) - total(domain, values)) <= field.shift
    assert field.shift <= 2**14


@FEW
@given(
    sensitivity=st.floats(1e-3, 1e3),
    values=st.lists(st.floats(-2e3, 2e3), min_size=1, max_size=5),
    moves=st.lists(st.floats(-1, 1), min_size=5, max_size=5),
)
def test_readings_that_differ_by_the_sensitivity_move_their_mean_by_the_shift(
    sensitivity: float, values: list[float], moves: list[float]
) -> None:
    field = SeriesField(name="v", of="value", limits=(-1e3, 1e3), sensitivity=sensitivity)
    domain = SeriesDomain((field,))
    # Neighbours are numbers as they are written; which floats they become is the domain's affair.
    exact = [
        Fraction(value) + Fraction(move) * Fraction(sensitivity) for value, move in zip(values, moves, strict=False)
    ]
    kept = [float(number) for number in exact]
    assert abs(total(domain, kept) - total(domain, values)) <= field.shift


def test_two_decimals_that_are_the_sensitivity_apart_can_become_floats_that_are_further() -> None:
    """The second one is read as 1025: on the lattice they are 1,025 steps apart, where the sensitivity is 1,024."""
    field = SeriesField(name="v", of="value", limits=(0.0, 2000.0), sensitivity=1.0)
    low, high = field.lattice(np.array([float("1023.99999999999993"), float("1024.99999999999993")])).tolist()
    assert high - low == field.shift == 1025


def test_a_reading_at_the_edge_of_a_lattice_step_needs_the_floor() -> None:
    """Rounding to the nearest even number would let a difference of one step become two."""
    field = READING.fields[0]
    low, high = field.lattice(np.array([0.5, 1.5]) * field.unit).tolist()
    assert high - low == 1
    assert np.rint(1.5) - np.rint(0.5) == 2


@FEW
@given(steps=st.integers(1, 6), kept=st.integers(1, 6), events=st.none() | st.integers(1, 5), seed=st.integers(0, 999))
def test_fourier_coefficients_move_by_no_more_than_is_declared(
    steps: int, kept: int, events: int | None, seed: int
) -> None:
    presence = Presence(events=events, per_step=2, steps=12)
    one = FourierBudget(
        epsilon=Fraction(1), presence=presence, shifts=(7,), shares=(Fraction(1),), block=steps, kept=min(kept, steps)
    )
    random = np.random.default_rng(seed)
    worst = 0
    for _ in range(30):
        # A unit's events over all steps, each of a size up to the shift, as many as it may have: bunched or spread.
        shift = np.zeros(12, np.int64)
        left = presence.most
        assert left is not None
        bunch = int(random.integers(1, 3))
        for step in [*random.permutation(12), *random.permutation(12)]:
            there = min(bunch, left, 2 - abs(int(shift[step])) // 7)
            sign = int(np.sign(shift[step])) or int(random.choice([-1, 1]))
            shift[step], left = shift[step] + 7 * sign * there, left - there
        blocks = [shift[first : first + steps] for first in range(0, 12, steps)]
        worst = max(worst, sum(int(np.abs(one.matrix[:, : len(b)] @ b).sum()) for b in blocks))
    assert worst <= one.l1_sensitivity(0)


STEPS, EVENTS, PER_STEP = 5, 4, 3
ARRANGEMENTS = [
    where for where in product(range(PER_STEP + 1), repeat=STEPS) if sum(where) <= EVENTS
]  # of one unit's events: spread, bunched and mixed


@pytest.mark.parametrize("mode", ["laplace", "fast"])
def test_laplace_noise_of_a_step_covers_every_arrangement(mode: str) -> None:
    """Exact: a total moved by s in noise of scale b costs s / b at most, and exactly that far from it (lemma L)."""
    presence = Presence(events=EVENTS, per_step=PER_STEP, steps=STEPS)
    budget = recipe(mode, TWO, presence=presence, horizon=STEPS).laplace
    costs = [
        sum(Fraction(q * shift) / budget.scale(field) for q in where for field, shift in enumerate(budget.shifts))
        for where in ARRANGEMENTS
    ]
    assert budget.epsilon * Fraction(99, 100) < max(costs) <= budget.epsilon


def test_noise_of_the_tree_covers_every_arrangement() -> None:
    """Exact: the nodes that a unit's events are in, by the counter's own strategy matrix."""
    presence = Presence(events=EVENTS, per_step=PER_STEP, steps=STEPS)
    config = recipe("tree", TWO, presence=presence, horizon=STEPS)
    mode = config.build()
    assert isinstance(mode, TreeDifferences)
    costs = [
        sum(
            int((np.abs(counter.strategy(STEPS)) @ np.array(where)).sum()) * shift / counter.scale
            for counter, shift in zip(mode.counters, config.shifts, strict=True)
            if isinstance(counter, LaplaceCounter)
        )
        for where in ARRANGEMENTS
    ]
    assert 0 < max(costs) <= config.epsilon


@pytest.mark.parametrize("events", [EVENTS, None])
def test_fourier_noise_covers_every_arrangement(events: int | None) -> None:
    """Exact, over all signs: the coefficients of all blocks of a span."""
    presence = Presence(events=events, per_step=PER_STEP, steps=STEPS)
    for block in (2, 5):
        one = FourierBudget(
            epsilon=Fraction(1), presence=presence, shifts=(7,), shares=(Fraction(1),), block=block, kept=2
        )
        signed = {
            tuple(q * s for q, s in zip(where, signs, strict=True))
            for where in (product(range(PER_STEP + 1), repeat=STEPS) if events is None else ARRANGEMENTS)
            for signs in product((-1, 1), repeat=STEPS)
        }
        moves = 7 * np.array(sorted(signed))
        worst = sum(
            np.abs(moves[:, first : first + block] @ one.matrix[:, : len(moves[0, first : first + block])].T).sum(
                axis=1
            )
            for first in range(0, STEPS, block)
        )
        assert np.max(worst) <= one.l1_sensitivity(0)


@pytest.mark.parametrize("kind", ["bd", "ba"])
def test_noise_of_a_window_covers_every_arrangement(kind: Any) -> None:
    """Exact: what each step of a run spent, and a unit with its events anywhere in any window."""
    budget = WindowBudget(
        epsilon=Fraction(2),
        presence=Presence(events=EVENTS, per_step=PER_STEP, steps=STEPS, renews=True),
        shifts=(3,),
        shares=(Fraction(1),),
    )
    mode, rates = WindowEvents(budget, kind), []
    for step in range(60):
        mode.step(step, [10_000_000 * (step % 7 in (0, 3, 4))], True, seeded(1).child(step))
        grains = int(mode._series[0].spent[step % STEPS])
        rates.append(1 / budget.dissimilarity_scale(0) + (1 / budget.scale(0, grains) if grains else 0))
    costs = [
        sum(3 * q * rate for q, rate in zip(where, rates[first:], strict=False))
        for where in ARRANGEMENTS
        for first in range(60 - STEPS)
    ]
    assert 0 < max(costs) <= budget.epsilon


@pytest.mark.parametrize("kind", ["bd", "ba"])
@pytest.mark.parametrize("window", [1, 2, 5])
def test_no_window_of_releases_costs_more_than_half(kind: Any, window: int) -> None:
    budget = WindowBudget(
        epsilon=Fraction(2),
        presence=Presence(steps=window, per_step=2, renews=True),
        shifts=(3,),
        shares=(Fraction(1),),
    )
    mode = WindowEvents(budget, kind)
    random = np.random.default_rng(1)
    grains, published = [], 0
    for step in range(120):
        jump = int(random.integers(0, 4) == 0) * 100_000
        mode.step(step, [jump * int(random.integers(1, 50))], bool(random.integers(0, 8)), seeded(1).child(step))
        grains.append(int(mode._series[0].spent[step % window]))
        published += grains[-1] > 0
    windows = [sum(grains[first : first + window]) for first in range(120)]
    assert 10 < published < 120
    assert max(windows) <= window * GRAINS
    # Scale and grains say the same: a release of g grains costs g / GRAINS even shares.
    assert budget.scale(0, GRAINS) == 6 / budget.even(0)
    assert budget.even(0) * window * 2 == budget.epsilon


class Repeats:
    """In place of `GaussianBudget.measure`: what was measured once, whatever the totals are now."""

    def __init__(self) -> None:
        self.told: list[NoisyTotal] = []
        self.repeat: list[NoisyTotal] = []
        self.measure = GaussianBudget.measure

    def __call__(
        self, budget: GaussianBudget, field: int, value: int, sigma: Fraction, noise: NoiseSource
    ) -> NoisyTotal:
        if self.repeat:
            before = self.repeat.pop(0)
            # The noise that was asked for must be the same: amounts depend on releases alone.
            assert before.variance == float(sigma) / 4 ** budget.refinement(field)
            return before
        self.told.append(self.measure(budget, field, value, sigma, noise))
        return self.told[-1]


@pytest.mark.parametrize("mode", ["default", "kalman", "paper", "gaussian"])
def test_what_is_released_is_a_function_of_measurements(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two inputs, one of them far from the other; given the same measurements they give the same releases."""
    repeats = Repeats()
    monkeypatch.setattr(GaussianBudget, "measure", lambda *arguments: repeats(*arguments))  # noqa: PLW0108 - so that it is bound
    config = recipe(mode)
    first = run(config, [100.0, 90, 110, 105, 80, 100, 130, 90, 95, 100, 105, 99])
    repeats.repeat = list(repeats.told)
    second = run(config, [-700.0 + 31 * step for step in range(12)])
    assert [r.added for r in first] == [r.added for r in second]
    assert [r.measurements for r in first] == [r.measurements for r in second]


@pytest.mark.parametrize("mode", ["default", *sorted(PaperSeriesConfig.modes - {"bd", "ba", "dft"})])
def test_one_events_shift_is_all_that_differs_in_a_measurement(mode: str) -> None:
    """Equal noise: the totals of the first step differ by the event, those of both fields."""
    measured = []
    for extra in (0, 1):
        engine = Series(recipe(mode, TWO))
        shift = TWO.fields[1].shift
        keys = np.array([[1, 5]] + [[1, shift]] * extra, np.int64).view(np.uint64)
        release = engine.step(Batch(0, Folded.of(keys)), seeded(5))
        measured.append([m["value"] for m in release.measurements])
    moved = np.array(measured[1]) - np.array(measured[0])
    units = np.array([field.unit for field in TWO.fields])
    # Coarse binomial lattices may move by one of their steps more.
    room = np.array([2.0**12, 2.0**12]) if mode == "paper-binomial" else np.zeros(2)
    assert (np.abs(moved) <= (np.array([1, shift]) + room) * units * (1 + 1e-12)).all()
    assert (moved != 0).any()


def test_held_back_blocks_are_not_released_early() -> None:
    mode = Fourier(recipe("dft").fourier)
    outcomes = [mode.step(step, [5], True, seeded(step)) for step in range(8)]
    assert [len(outcome.released) for outcome in outcomes] == [0, 0, 0, 4, 0, 0, 0, 4]
    assert [step for step, _ in outcomes[3].released] == [0, 1, 2, 3]
    assert not any(outcome.measurements for outcome in outcomes if outcome.silent)


def test_coefficients_beyond_int64_are_measured_exactly() -> None:
    """2**60 in each of four steps: a coefficient of 2**77, whose noise is its own and not what a machine word makes."""
    budget = recipe("dft", coefficients=1).fourier
    mode = Fourier(budget)
    outcome = [mode.step(step, [2**60], True, seeded(step)) for step in range(4)][-1]
    noise = int(discrete_laplace(1, budget.scale(0), seeded(3).child("series", 0))[0])
    assert outcome.measurements[0]["value"] == float(4 * 2**60 * int(budget.matrix[0, 0]) + noise) / 2**16
    with pytest.raises(EngineInputError, match="integers"):
        laplace_mechanism(np.array([0.5, 1], object), Fraction(1), seeded(1))


def test_totals_beyond_all_proportion_are_moved_to_an_end() -> None:
    """Neighbours stay neighbours, and no error tells of a size."""
    count = SeriesDomain((SeriesField(name="n"),))
    folded = Folded(np.array([[1]], np.uint64), np.array([2**62], np.int64))
    assert count.totals(folded) == ([2**60], True)
    assert reading(0, 1e9).events.keys.view(np.int64)[0, 0] == READING.fields[0].bounds[1]

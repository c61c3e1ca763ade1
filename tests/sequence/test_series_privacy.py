"""Sensitivities of what is measured, and that nothing but measurements decides what is released."""

from __future__ import annotations

from fractions import Fraction
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.checks.contract_case import Variant, contract_case
from engines.checks.coupling import Recorder
from engines.core.contract import Batch, Columns
from engines.core.noise import NoiseSource, seeded
from engines.core.noise.witness import BinomialLaw, GaussianLaw, Law, WitnessedSource
from engines.core.registry import build_engine
from engines.series.budget import GaussianBudget, NoisyTotal
from engines.series.config import SeriesConfig
from engines.series.engine import Series
from engines.series.fields import SeriesDomain, SeriesField
from engines.series.papers.ar1 import PaperSeriesConfig
from schemas.blocks import Folded
from tests.examples import examples
from tests.sequence.series_support import READING, TWO, reading, recipe, run

SEED = bytes(range(32))
FEW = settings(max_examples=examples(0.8))
finite = st.floats(-1e6, 1e6, allow_nan=False)
limits = st.tuples(finite, finite).filter(lambda pair: pair[0] < pair[1]).map(tuple)


def total(domain: SeriesDomain, values: list[float]) -> int:
    keys, reasons = domain.encode(
        Columns({domain.fields[0].name: np.array(values, float)}, {}, np.ones(len(values), np.int8))
    )
    assert not reasons.any()
    return domain.totals(Folded.from_keys(keys))[0][0]


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


@pytest.mark.parametrize("mode", ["default", "paper"])
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


@pytest.mark.parametrize("mode", ["default", *sorted(PaperSeriesConfig.modes)])
def test_one_events_shift_is_all_that_differs_in_a_measurement(mode: str) -> None:
    """Equal noise: the totals of the first step differ by the event, those of both fields."""
    measured = []
    for extra in (0, 1):
        engine = Series(recipe(mode, TWO))
        shift = TWO.fields[1].shift
        keys = np.array([[1, 5]] + [[1, shift]] * extra, np.int64).view(np.uint64)
        release = engine.step(Batch(0, Folded.from_keys(keys)), seeded(5))
        measured.append([m["value"] for m in release.measurements])
    moved = np.array(measured[1]) - np.array(measured[0])
    units = np.array([field.unit for field in TWO.fields])
    # Coarse binomial lattices may move by one of their steps more.
    room = np.array([2.0**12, 2.0**12]) if mode == "paper-binomial" else np.zeros(2)
    assert (np.abs(moved) <= (np.array([1, shift]) + room) * units * (1 + 1e-12)).all()
    assert (moved != 0).any()


def test_totals_beyond_all_proportion_are_moved_to_an_end() -> None:
    """Neighbours stay neighbours, and no error tells of a size."""
    count = SeriesDomain((SeriesField(name="n"),))
    folded = Folded(np.array([[1]], np.uint64), np.array([2**62], np.int64))
    assert count.totals(folded) == ([2**60], True)
    assert reading(0, 1e9).events.keys.view(np.int64)[0, 0] == READING.fields[0].bounds[1]


def in_declared_units(law: Law, config: SeriesConfig, index: int) -> float:
    """Scale of a draw as `guarantee` tells it, for a field."""
    unit = config.domain.fields[index].unit
    match law:
        case GaussianLaw(sigma_squared):
            return sqrt(sigma_squared) / (1 << config.gaussian.refinement(index)) * unit
        case BinomialLaw(half):
            assert isinstance(config, PaperSeriesConfig)
            return sqrt(half / 2) * (1 << config.binomial.coarse(index)) * unit
    raise AssertionError(law)


@pytest.mark.parametrize("variant", [{}, *contract_case("series").longer], ids=str)
@pytest.mark.parametrize("mode", ["paper", "paper-binomial"])
def test_noise_has_the_declared_scale(mode: str, variant: Variant) -> None:
    """Of weights that stay, from the third step on. Mode default spends what it likes: there the sum decides."""
    engine, recorder = build_engine(contract_case("series").stream(mode, variant)), Recorder()
    assert isinstance(engine, Series)
    for step in range(3):
        # A reading, or an event, at the lower end.
        key = np.array([[field.bounds[0] for field in engine.config.domain.fields]], np.int64)
        engine.step(Batch(step, Folded.from_keys(key.view(np.uint64))), WitnessedSource(recorder, SEED, step))
    laws = [used.law for used in recorder.used.values()][-len(engine.config.domain.fields) :]
    found = [in_declared_units(law, engine.config, number) for number, law in enumerate(laws)]
    assert found == pytest.approx([float(each.scale) for each in engine.guarantee().mechanisms], rel=1e-5)

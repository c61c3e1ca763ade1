"""Sensitivities of what is measured, and the declared scale of noise."""

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
from engines.core.noise.witness import BinomialLaw, GaussianLaw, Law, WitnessedSource
from engines.core.registry import build_engine
from engines.series.config import SeriesConfig
from engines.series.engine import Series
from engines.series.fields import SeriesDomain, SeriesField
from engines.series.papers.ar1 import PaperSeriesConfig
from schemas.blocks import Folded
from tests.examples import examples
from tests.sequence.series_support import READING, reading

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

"""Constants of engines that no stream of a test's size gets to: the function itself is called on both sides of each.

Every case goes over the limit in neighbouring steps and says how far what comes of two neighbours may lie apart. That
it was on both sides is not believed: the module is loaded a second time with its thresholds noted, as
`tests.couple.thresholds` does with all of them, and whatever `thresholds.json` says is `called` must be seen here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from engines.core.noise import seeded
from engines.series.budget import Presence
from engines.tabular.marginals import Marginals
from schemas.blocks import Folded
from tests.couple import thresholds

AROUND = range(-3, 4)
"""Neighbours, counted from a limit."""
ONE_FIELD: dict[str, Any] = {"epsilon": Fraction(1), "shifts": (1,), "shares": (Fraction(1),)}
RENEWS = Presence(events=2, per_step=1, steps=5, renews=True)


def sums(fields: ModuleType) -> None:
    domain = fields.SeriesDomain((fields.SeriesField(name="km", of="sum", limits=(-4.0, 4.0)),))
    for value in domain.fields[0].bounds:
        key = np.array([[value]], np.int64).view(np.uint64)
        full = fields._END // abs(value)
        told = [domain.sums(Folded(key, np.array([full + more])))[0] for more in AROUND]
        assert 0 < max(abs(y - x) for x, y in pairwise(told)) <= domain.fields[0].shift
        assert abs(told[-1]) == abs(told[-2]) == fields._END
    bins = fields.SeriesDomain((fields.SeriesField(name="km", of="histogram", edges=(0.0, 4.0)),))
    key = np.array([[1]], np.uint64)
    counts = [int(bins.sums(Folded(key, np.array([fields._FULL + more])))[0][1]) for more in AROUND]
    assert counts == [fields._FULL + min(more, 0) for more in AROUND]


def totals_at_their_end(largest: int, measure: Callable[[int], float]) -> None:
    """With noise that is the same each time."""
    for side in (-1, 1):
        told = [measure(side * (largest + more)) for more in AROUND]
        assert all(abs(y - x) <= abs(np.spacing(float(largest))) for x, y in pairwise(told))
        assert told[-1] == measure(side * 2**70)


def gaussian_totals(gaussian: ModuleType) -> None:
    budget = gaussian.GaussianBudget(delta=1e-6, presence=RENEWS, **ONE_FIELD)
    factor = 1 << budget.refinement(0)
    assert factor > 1
    totals_at_their_end(
        gaussian._LARGEST // factor, lambda total: budget.measure(0, total, Fraction(10**6), seeded(1)).value
    )


def scores_of_cells(split: ModuleType) -> None:
    rule = split.SplitRule(epsilon=Fraction(1))
    most = split.MAX_SCORE
    for prior, changes in ((most, 0), (0, most), (most, most), (most + 1, 0)):
        margins = [rule.margins(np.array([prior + changes + more]), depth=0, threshold=2 * most) for more in AROUND]
        assert all(0 <= int((x - y)[0]) <= split.UNIT for x, y in pairwise(margins))
        for threshold in (0, most + 9, 4 * most):
            bits = [
                bool(
                    split.split_bits(
                        np.array([prior]), np.array([max(0, changes + more)]), depth=1, threshold=threshold, rule=rule,
                        noise=seeded(1),
                    )[0]
                )
                for more in AROUND
            ]  # fmt: skip
            assert bits == sorted(bits), "a busier cell is split with the same noise, too"


def marginals_in_chunks(marginals: ModuleType) -> None:
    layout = marginals.Marginals((2, 3), ((0,), (0, 1)))
    rows = marginals.CHUNK // len(layout)
    rng = np.random.default_rng(1)
    for count in (rows - 1, rows, rows + 1):
        codes, weights = rng.integers(0, 2, (count, 2)), rng.integers(-5, 6, count)
        numbers = layout.cell_numbers(codes)
        expected = np.zeros(layout.cells, np.int64)
        for column in numbers.T:
            np.add.at(expected, column, weights)
        assert layout.counts(codes, weights).tolist() == expected.tolist()


def scores_of_marginals(selection: ModuleType) -> None:
    small = selection.Selection(Marginals((2,), ((0,),)), np.array([1]), Fraction(1))
    wide = selection.Selection(Marginals((2**13,), ((0,),)), np.array([1]), Fraction(1))
    assert small.largest == selection._LARGEST > wide.largest > 1
    for pick in (small, wide):
        for side in (-1, 1):
            events = [np.zeros(pick.layout.cells, np.int64) for _ in AROUND]
            for vector, more in zip(events, AROUND, strict=True):
                vector[0] = side * (pick.largest + more)
            told = [
                int(pick.scores(each, public=np.zeros(pick.layout.cells), penalties=np.zeros(1))[0]) for each in events
            ]
            quanta = pick.sensitivity * selection.QUANTUM.denominator
            assert 0 < max(abs(y - x) for x, y in pairwise(told)) <= quanta
            assert told[-1] == told[-2]


CASES: dict[str, Callable[[ModuleType], None]] = {
    "engines.series.fields": sums,
    "engines.series.budget": gaussian_totals,
    "engines.spatial.split": scores_of_cells,
    "engines.tabular.marginals": marginals_in_chunks,
    "engines.tabular.papers.rounds": scores_of_marginals,
}


def noted(name: str) -> ModuleType:
    """A copy of a module of which thresholds are noted; all others keep the one that they have."""
    path = str(import_module(name).__file__)
    spec = spec_from_file_location(name, path, loader=thresholds.Loader(name, path))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", CASES)
def test_both_sides_of_a_limit_that_no_stream_gets_to(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[thresholds.Place, set[bool]] = {}
    monkeypatch.setattr(thresholds, "SEEN", seen)
    module = noted(name)
    CASES[name](module)
    both = {told for place, told in thresholds.thresholds(module) if len(seen.get(place, ())) == 2}
    listed = json.loads(Path(__file__).with_name("thresholds.json").read_text())
    called = {told for told, kind in listed.items() if kind == "called"}
    here = {told for told in called if told.startswith(f"{name}.")}
    assert here <= both


def test_no_limit_is_called_without_a_case() -> None:
    listed = json.loads(Path(__file__).with_name("thresholds.json").read_text())
    for told, kind in listed.items():
        if kind == "called":
            assert any(told.startswith(f"{name}.") for name in CASES), told

"""Workload errors against a loop over queries, what counts as a row, and how much of the ties between attributes is
kept: Cramer's V, and how the report shows it.
"""

from __future__ import annotations

import html
from math import sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats.contingency import association

from agents.show.report import section_html
from agents.show.views.tabular import ties
from engines.tabular.domain import Category, TableDomain
from engines.tabular.evaluator import METRICS, TableEvaluator, cramers_v
from engines.tabular.marginals import Workload, every_marginal
from schemas.blocks import Folded
from tests.examples import examples
from tests.tabular.tables import folded

DOMAIN = TableDomain((Category(field="a", values=(0, 1), missing=True), Category(field="b", values=("x", "y"))))


def evaluator(workload: Workload | None = None) -> TableEvaluator:
    return TableEvaluator(DOMAIN, workload or every_marginal(2))


@settings(max_examples=examples(1.2))
@given(
    true=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=12),
    made=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=12),
)
def test_errors_are_those_of_the_definition(true: list[tuple[int, int]], made: list[tuple[int, int]]) -> None:
    raw = DOMAIN.decode_values(np.array(made, np.int64).reshape(-1, 2), np.zeros((len(made), 2)))
    found = evaluator().measure(folded(DOMAIN, np.array(true, np.int64)), {"a": raw[0], "b": raw[1]})
    cells = [(a, b) for a in range(3) for b in range(2)]
    gaps = [abs(true.count(cell) - made.count(cell)) for cell in cells]
    relative = [gap / true.count(cell) for gap, cell in zip(gaps, cells, strict=True) if cell in true]
    assert tuple(found) == METRICS
    assert np.isclose(found["avg_we"], sum(gaps) / 6 / max(len(true), 1))
    assert np.isclose(found["avg_rel_we"], sum(relative) / 6)
    assert found["max_we"] == found["avg_we"]


def test_averages_and_maxima_differ_between_marginals() -> None:
    ones = evaluator(every_marginal(2, (1,)))
    truth = folded(DOMAIN, np.array([[0, 0], [1, 0]]))
    found = ones.measure(truth, {"a": [0, 1], "b": ["y", "y"]})
    assert found == {"avg_we": 0.5, "max_we": 1.0, "avg_rel_we": 0.25, "max_rel_we": 0.5}


def test_deletes_count_negatively_and_foreign_rows_nowhere() -> None:
    truth = folded(DOMAIN, np.array([[0, 0], [0, 0], [1, 1]]), np.array([1, 1, -1]))
    assert evaluator().size(truth) == 1
    synthetic: dict[str, list[Any]] = {"a": [0, 0, "what", None], "b": ["x", "x", "x", "x"]}
    counts = evaluator().synthetic_counts(synthetic, evaluator().layout)
    assert counts.tolist() == [2, 0, 0, 0, 1, 0]
    assert evaluator().true_counts(truth, evaluator().layout).tolist() == [2, 0, 0, -1, 0, 0]


ROWS = 400
TABLE = TableDomain(tuple(Category(field=name, values=("x", "y")) for name in ("left", "right", "other")))


@given(st.lists(st.lists(st.integers(1, 500), min_size=3, max_size=3), min_size=2, max_size=5))
def test_v_is_the_librarys_less_the_bias_of_the_sample(rows: list[list[int]]) -> None:
    counts = np.array(rows)
    n, (r, k) = counts.sum(), counts.shape
    plain = float(association(counts, method="cramer")) ** 2 * (min(r, k) - 1)
    corrected = max(0.0, plain - (r - 1) * (k - 1) / (n - 1))
    least = min(r - (r - 1) ** 2 / (n - 1), k - (k - 1) ** 2 / (n - 1)) - 1
    if least > 0:
        assert cramers_v(counts) == pytest.approx(sqrt(corrected / least), abs=1e-9)


def test_values_that_no_row_has_change_nothing() -> None:
    counts = np.array([[30, 4], [3, 40]])
    wider = np.zeros((4, 3))
    wider[np.ix_([0, 2], [0, 2])] = counts
    assert cramers_v(wider) == cramers_v(counts) > 0.5
    assert cramers_v(np.array([[3, 4]])) == cramers_v(np.zeros((2, 2))) == 0.0


def shown(made: np.ndarray) -> str:
    """The section of a stream whose `left` and `right` are always equal; `other` is independent."""
    flips = np.arange(ROWS)
    codes = np.stack((flips % 2, flips % 2, flips // 2 % 2), axis=1)
    evaluator = TableEvaluator(TABLE, every_marginal(3))
    truth = Folded.from_keys(TABLE.keys.pack(codes, np.ones(ROWS, np.int8)))
    values: dict[str, list[Any]] = {
        name: ["xy"[code] for code in made[:, index]] for index, name in enumerate(TABLE.names)
    }
    (section,) = ties(evaluator, truth, values)
    return section_html(section)


def test_the_report_says_how_much_of_the_ties_is_kept() -> None:
    flips = np.arange(ROWS)
    tied = np.stack((flips % 2, flips % 2, flips // 2 % 2), axis=1)
    loose = np.stack((flips % 2, flips // 2 % 2, flips // 4 % 2), axis=1)
    page = shown(tied)
    assert "100% is kept (Cramer's V): of 1 pair that are tied, 0 are noise" in html.unescape(page)
    assert "<td>left, right</td><td>1.00</td><td>1.00</td>" in page
    assert "Less than half" not in page
    page = shown(loose)
    assert " 0% is kept" in page
    assert "Less than half is left of left and right." in page
    assert "<td>left, right</td><td>1.00</td><td>0.00</td>" in page
    assert page.count("<img ") == 1

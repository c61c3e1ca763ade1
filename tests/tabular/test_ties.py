"""Cramer's V, and how the report of a table shows what synthetic rows keep of it."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats.contingency import association

from agents.show.report import section_html
from agents.show.views.tabular import ties
from engines.tabular.domain import Category, TableDomain
from engines.tabular.evaluator import TableEvaluator, cramers_v
from engines.tabular.marginals import every_marginal
from schemas.blocks import Folded

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
    truth = Folded.of(TABLE.keys.pack(codes, np.ones(ROWS, np.int8)))
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
    assert "keep 100% of it" in page
    assert "the 1 pair whose true V is above 0.1" in page
    assert "<td>left, right</td><td>1.00</td><td>1.00</td>" in page
    page = shown(loose)
    assert "keep 0% of it" in page
    assert "<td>left, right</td><td>1.00</td><td>0.00</td>" in page
    assert page.count("<img ") == 1

"""Workload errors against a loop over queries, and what counts as a row."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.tabular.domain import Category, TableDomain
from engines.tabular.evaluator import METRICS, TableEvaluator
from engines.tabular.marginals import Workload, every_marginal
from tests.tabular.tables import folded

DOMAIN = TableDomain((Category(field="a", values=(0, 1), missing=True), Category(field="b", values=("x", "y"))))


def evaluator(workload: Workload | None = None) -> TableEvaluator:
    return TableEvaluator(DOMAIN, workload or every_marginal(2))


@settings(max_examples=60)
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

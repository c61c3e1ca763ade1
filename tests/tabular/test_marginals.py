"""Counts in all marginals at once equal counts one by one; one event moves each marginal by one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.tabular import Marginals, Workload
from engines.tabular.marginals import check_memory
from schemas.errors import EngineInputError


@st.composite
def layouts(draw: st.DrawFn) -> Marginals:
    sizes = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=5)))
    ways = draw(st.sets(st.integers(1, 3), min_size=1))
    return Marginals(sizes, Workload.all(len(sizes), ways).cliques)


@settings(max_examples=100)
@given(layout=layouts(), seed=st.integers(0, 2**32), rows=st.integers(0, 30))
def test_counts_are_those_of_a_loop(layout: Marginals, seed: int, rows: int) -> None:
    random = np.random.default_rng(seed)
    codes = np.stack([random.integers(0, size, rows) for size in layout.sizes], axis=1)
    weights = random.integers(-5, 6, rows)
    counts = layout.counts(codes, weights)
    assert counts.dtype == np.int64
    assert len(counts) == layout.cells
    for index, clique in enumerate(layout.cliques):
        expected = np.zeros(layout.shape(index), np.int64)
        for row, weight in zip(codes, weights, strict=True):
            expected[tuple(row[list(clique)])] += weight
        assert np.array_equal(layout.table(counts, index), expected)
    assert np.array_equal(layout.sums(counts), np.full(len(layout), weights.sum()))


@settings(max_examples=100)
@given(layout=layouts(), seed=st.integers(0, 2**32), sign=st.sampled_from([-1, 1]))
def test_one_event_moves_each_marginal_by_exactly_one(layout: Marginals, seed: int, sign: int) -> None:
    random = np.random.default_rng(seed)
    codes = np.stack([random.integers(0, size, 9) for size in layout.sizes], axis=1)
    weights = np.array([1] * 8 + [sign])
    moved = layout.counts(codes, weights) - layout.counts(codes[:-1], weights[:-1])
    assert np.array_equal(layout.sums(np.abs(moved)), np.ones(len(layout)))


def test_counting_in_chunks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Marginals((3, 4), ((0,), (0, 1)))
    codes = np.stack([np.arange(50) % 3, np.arange(50) % 4], axis=1)
    whole = layout.counts(codes, np.arange(50))
    monkeypatch.setattr("engines.tabular.marginals.CHUNK", 7)
    assert np.array_equal(layout.counts(codes, np.arange(50)), whole)


def test_workloads() -> None:
    assert len(Workload.all(15).cliques) == 15 + 105
    assert Workload.all(4, (3,)).cliques == ((0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3))
    assert Workload.all(1, (2,)).cliques == ((0,),)
    named = Workload.of(3, {(2, 0): Fraction(1, 2), (1,): Fraction(3)})
    assert named.cliques == ((1,), (0, 2))
    assert named.weights == (3, Fraction(1, 2))
    pairs = named.select(2)
    assert pairs is not None
    assert pairs.weights == (Fraction(1, 2),)
    assert named.select(3) is None


@pytest.mark.parametrize(
    "weights",
    [
        {},
        {(0, 0): Fraction(1)},
        {(0, 3): Fraction(1)},
        {(-1,): Fraction(1)},
        {(0,): Fraction(0)},
        {(0, 1, 2, 3): Fraction(1)},
        {(): Fraction(1)},
        {(0, 1): Fraction(1), (1, 0): Fraction(1)},
    ],
)
def test_workloads_that_make_no_sense_are_refused(weights: dict[tuple[int, ...], Fraction]) -> None:
    with pytest.raises(EngineInputError):
        Workload.of(3, weights)


def test_memory_is_checked_before_it_is_used() -> None:
    cliques = Workload.all(50).cliques
    with pytest.raises(EngineInputError, match=r"1,225,050,000 cells.*MiB.*'f48' x 'f49'.*raise max_cells"):
        check_memory((1000,) * 50, cliques, [f"f{i}" for i in range(50)], max_cells=4_000_000, bytes_per_cell=64)
    check_memory((10,) * 3, Workload.all(3).cliques, "abc", max_cells=330, bytes_per_cell=64)

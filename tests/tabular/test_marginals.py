"""Counts in all marginals at once equal counts one by one; one event moves each marginal by one."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.tabular.contrasts import Contrasts
from engines.tabular.marginals import Marginals, check_memory, every_marginal, weighted_marginals
from schemas.errors import EngineInputError
from tests.examples import examples


@st.composite
def layouts(draw: st.DrawFn) -> Marginals:
    sizes = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=5)))
    ways = draw(st.sets(st.integers(1, 3), min_size=1))
    whole = Marginals(sizes, tuple(every_marginal(len(sizes), ways)))
    return whole if draw(st.booleans()) else Contrasts(whole, tuple(size == 2 for size in sizes)).measured


@settings(max_examples=examples(2))
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
            sign = 1 if layout.signs is None else math.prod(1 - 2 * int(row[a]) for a in layout.signs[index])
            expected[tuple(row[list(clique)])] += weight * sign
        assert np.array_equal(layout.table(counts, index), expected)


@settings(max_examples=examples(2))
@given(layout=layouts(), seed=st.integers(0, 2**32), sign=st.sampled_from([-1, 1]))
def test_one_event_moves_each_marginal_by_exactly_one(layout: Marginals, seed: int, sign: int) -> None:
    random = np.random.default_rng(seed)
    codes = np.stack([random.integers(0, size, 9) for size in layout.sizes], axis=1)
    weights = np.array([1] * 8 + [sign])
    moved = layout.counts(codes, weights) - layout.counts(codes[:-1], weights[:-1])
    assert np.array_equal(layout.sums(np.abs(moved)), np.ones(len(layout)))


def test_differences_say_what_attributes_have_together_and_how_well() -> None:
    """What is left of a marginal without its sides is the same, and has the variance that `finer` says."""
    sizes = (2, 2, 3, 2, 4)
    whole = Marginals(sizes, tuple(every_marginal(len(sizes), (1, 2, 3))))
    contrasts, rng = Contrasts(whole, tuple(size == 2 for size in sizes)), np.random.default_rng(1)
    codes = np.stack([rng.integers(0, size, 60) for size in sizes], axis=1)
    weights = rng.integers(-2, 3, 60)
    told = contrasts.tables(contrasts.measured.counts(codes, weights))
    counts = whole.counts(codes, weights)
    each = [contrasts.tables(unit) for unit in np.eye(contrasts.measured.cells)]
    for index, clique in enumerate(whole.cliques):
        assert np.allclose(_centred(whole.table(told, index)), _centred(whole.table(counts, index)))
        noise = sum(_centred(whole.table(one, index)) ** 2 for one in each)
        alone = np.prod([1 - 1 / sizes[a] for a in clique])
        assert np.allclose(noise, alone * contrasts.finer[index])


@settings(max_examples=examples(2))
@given(st.lists(st.integers(2, 4), min_size=2, max_size=4), st.integers(0, 2**32), st.integers(1, 3))
def test_a_row_that_waits_while_a_value_is_found_is_one_number_of_each_marginal(
    sizes: list[int], seed: int, more: int
) -> None:
    """Of attribute 0, that has more codes then, and is not binary though it may have two."""
    rng, cliques = np.random.default_rng(seed), tuple(every_marginal(len(sizes), (1, 2)))
    binary = (False, *(size == 2 for size in sizes[1:]))
    wider = (sizes[0] + more, *sizes[1:])
    before, after = (Contrasts(Marginals(tuple(each), cliques), binary).measured for each in (sizes, wider))
    row = np.array([[rng.integers(0, size) for size in sizes]])
    moved = before.widened(before.counts(row, np.array([1])), after)
    assert np.array_equal(after.sums(np.abs(moved)), np.ones(len(after)))
    assert np.array_equal(moved, after.counts(row, np.array([1])))


def test_a_difference_that_waits_is_not_widened() -> None:
    """A fault that would count a row in each of the new cells."""
    before, after = Marginals((2, 2), ((0, 1),)), Marginals((3, 2), ((0, 1),))
    one, whole = Contrasts(before, (True, True)).measured, Contrasts(after, (False, True)).measured
    with pytest.raises(ValueError, match="counted as before"):
        one.widened(np.ones(1, np.int64), whole)
    with pytest.raises(ValueError, match="two codes"):
        Contrasts(after, (True, True))


def _centred(table: np.ndarray) -> np.ndarray:
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table


def test_counting_in_chunks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Marginals((3, 4), ((0,), (0, 1)), ((), (1,)))
    codes = np.stack([np.arange(50) % 3, np.arange(50) % 4], axis=1)
    whole = layout.counts(codes, np.arange(50))
    monkeypatch.setattr("engines.tabular.marginals.CHUNK", 7)
    assert np.array_equal(layout.counts(codes, np.arange(50)), whole)


def test_workloads() -> None:
    assert len(tuple(every_marginal(15))) == 15 + 105
    assert tuple(every_marginal(4, (3,))) == ((0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3))
    assert tuple(every_marginal(1, (2,))) == ((0,),)
    named = weighted_marginals({(2, 0): Fraction(1, 2), (1,): Fraction(3)})
    assert list(named.items()) == [((1,), 3), ((0, 2), Fraction(1, 2))]


def test_memory_is_checked_before_it_is_used() -> None:
    cliques = tuple(every_marginal(50))
    with pytest.raises(EngineInputError, match=r"1,225,050,000 cells.*MiB.*'f48' x 'f49'.*raise max_cells"):
        check_memory((1000,) * 50, cliques, [f"f{i}" for i in range(50)], max_cells=4_000_000, bytes_per_cell=64)
    check_memory((10,) * 3, tuple(every_marginal(3)), "abc", max_cells=330, bytes_per_cell=64)

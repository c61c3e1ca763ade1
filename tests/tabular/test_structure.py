"""Junction trees and their beliefs against the full joint table, which needs no tree."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.tabular.papers.model import Beliefs, JunctionTree
from schemas.errors import EngineInputError
from tests.examples import examples


@st.composite
def graphs(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    sizes = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=6)))
    possible = [c for way in (1, 2, 3) for c in combinations(range(len(sizes)), way)]
    return sizes, draw(st.lists(st.sampled_from(possible), max_size=8))


@settings(max_examples=examples(1.2))
@given(graphs())
def test_a_tree_is_a_junction_tree(graph: tuple[tuple[int, ...], list[tuple[int, ...]]]) -> None:
    sizes, marginals = graph
    tree = JunctionTree.over(sizes, marginals)
    assert {a for clique in tree.cliques for a in clique} == set(range(len(sizes)))
    assert all(tree.holds(tuple(sorted(marginal))) for marginal in marginals)
    assert not any(set(a) <= set(b) for i, a in enumerate(tree.cliques) for j, b in enumerate(tree.cliques) if i != j)
    assert sorted(child for _, child in tree.edges) == list(range(1, len(tree.cliques)))
    # Cliques with an attribute are connected: one edge fewer than there are of them.
    for attribute in range(len(sizes)):
        having = [i for i, clique in enumerate(tree.cliques) if attribute in clique]
        edges = [edge for edge in tree.edges if set(edge) <= set(having)]
        assert len(edges) == len(having) - 1


@settings(max_examples=examples(1.2))
@given(graphs(), st.integers(0, 2**32 - 1))
def test_beliefs_are_the_marginals_of_the_joint_table(
    graph: tuple[tuple[int, ...], list[tuple[int, ...]]], seed: int
) -> None:
    sizes, marginals = graph
    tree = JunctionTree.over(sizes, marginals)
    potentials = np.random.default_rng(seed).normal(size=tree.cells)
    logs = np.zeros(sizes)
    start = 0
    for index, clique in enumerate(tree.cliques):
        shape = tree.shape(index)
        stop = start + math.prod(shape)
        table = potentials[start:stop].reshape(shape)
        logs = logs + table.reshape([size if a in clique else 1 for a, size in enumerate(sizes)])
        start = stop
    joint = np.exp(logs) * (7.0 / np.exp(logs).sum())
    beliefs = Beliefs.of(tree, potentials, total=7.0)
    for way in range(1, min(3, len(sizes)) + 1):
        for wanted in combinations(range(len(sizes)), way):
            axes = tuple(a for a in range(len(sizes)) if a not in wanted)
            np.testing.assert_allclose(beliefs.marginal(wanted), joint.sum(axis=axes), rtol=1e-9, atol=1e-12)


def test_the_largest_tree_joins_everything_and_stays_within_its_cells() -> None:
    sizes = (85, 9, 16, 16, 7, 15, 6, 5, 2, 16, 5, 10, 42, 2, 11)
    pairs = list(combinations(range(len(sizes)), 2))
    small, large = (JunctionTree.largest(sizes, pairs, max_cells=cells) for cells in (2_000, 20_000))
    assert small.cells <= 2_000 < large.cells <= 20_000
    held = [sum(map(tree.holds, pairs)) for tree in (small, large)]
    assert len(sizes) - 1 <= held[0] < held[1]
    beliefs = Beliefs.of(small, np.zeros(small.cells), total=1.0)
    np.testing.assert_allclose(beliefs.marginal((0, 12)), 1 / (85 * 42))


def test_what_is_needed_comes_first_or_is_refused_with_the_numbers() -> None:
    tree = JunctionTree.largest((50, 50, 2), [(0, 2), (1, 2)], max_cells=2_550, needed=[(0, 1)])
    assert tree.holds((0, 1))
    assert not tree.holds((0, 2))
    with pytest.raises(EngineInputError, match=r"2,502 cells.*model_cells = 2,000"):
        JunctionTree.largest((50, 50, 2), [], max_cells=2_000, needed=[(0, 1)])


def test_fifty_attributes_take_no_minute() -> None:
    sizes = (20,) * 10 + (2,) * 40
    tree = JunctionTree.largest(sizes, list(combinations(range(50), 2)), max_cells=4_096)
    assert tree.cells <= 4_096
    assert Beliefs.of(tree, np.zeros(tree.cells), total=5.0).marginal((0, 9)).sum() == pytest.approx(5.0)

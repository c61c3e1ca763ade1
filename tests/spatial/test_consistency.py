"""Consistent counts add up, none is negative, and pairs are the nearest that do."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.spatial.papers import tree as consistency
from engines.spatial.papers.tree import Partition, Tree
from engines.spatial.points import TreeOrder
from tests.examples import examples


@given(
    total=st.integers(0, 40),
    left=st.integers(-600, 600),
    right=st.integers(-600, 600),
    first=st.integers(0, 1),
)
def test_pairs_are_the_nearest_non_negative_integers(total: int, left: int, right: int, first: int) -> None:
    a, b = left / 8, right / 8
    pair = consistency.project_pair(np.array([total]), np.array([a, b]), np.array([first])).tolist()
    distances = {x: (x - a) ** 2 + (total - x - b) ** 2 for x in range(total + 1)}
    nearest = [x for x, distance in distances.items() if distance == min(distances.values())]
    assert sum(pair) == total
    assert pair[0] == (nearest[-1] if first == 0 else nearest[0])


@given(totals=st.lists(st.integers(0, 10**9), min_size=1, max_size=5), data=st.data())
def test_nothing_known_below_means_halves(totals: list[int], data: st.DataObject) -> None:
    first = np.array(data.draw(st.lists(st.integers(0, 1), min_size=len(totals), max_size=len(totals))))
    counts = np.array(totals)
    even = np.repeat(counts / 2, 2)
    left = (counts + 1 - first) // 2
    halves = np.stack([left, counts - left], axis=1).reshape(-1)
    assert np.array_equal(halves, consistency.project_pair(counts, even, first))


@st.composite
def trees(draw: st.DrawFn, depth: int = 5) -> Tree:
    nodes, ahead = [1], [1]
    while ahead:
        node = ahead.pop()
        if node < 1 << depth and draw(st.booleans()):
            nodes += [2 * node, 2 * node + 1]
            ahead += [2 * node, 2 * node + 1]
    size = len(nodes)
    own = np.array(draw(st.lists(st.integers(-50, 50), min_size=size, max_size=size)), np.int64)
    seen = {1: 9}
    for node in sorted(nodes):
        seen.setdefault(node, 0)
        if 2 * node in nodes:
            seen[2 * node] = seen[2 * node + 1] = draw(st.integers(0, seen[node]))
    order = np.array(sorted(nodes), np.int64)
    values = dict(zip(order.tolist(), own.tolist(), strict=True))
    below = [sum(v for n, v in values.items() if n > u and is_below(n, u)) for u in order.tolist()]
    counts = np.array(draw(st.lists(st.integers(0, 60), min_size=size, max_size=size)), np.int64)
    ages = np.array([seen[node] for node in order.tolist()])
    return Tree(order, own, np.array(below, np.int64), counts, ages)


def is_below(node: int, ancestor: int) -> bool:
    return node >= ancestor and node >> (node.bit_length() - ancestor.bit_length()) == ancestor


def brute_estimate(tree: Tree, node: int) -> float:
    """C_a + C_n + C_d by their definition."""
    values = dict(zip(tree.nodes.tolist(), tree.own.tolist(), strict=True))
    above = sum(values[node >> up] / 2**up for up in range(1, node.bit_length()))
    return above + sum(v for n, v in values.items() if is_below(n, node))


@settings(max_examples=examples(1.2))
@given(tree=trees())
def test_extension_and_projection(tree: Tree) -> None:
    order = TreeOrder.of(tree.nodes)
    below = consistency.gathered_from_below(tree.own, tree.below, order)
    values = consistency.shared_from_above(tree.own, order) + tree.own + below
    assert values.tolist() == [brute_estimate(tree, node) for node in tree.nodes.tolist()]
    counts = consistency.project(values, np.zeros(len(values), np.int64), order)
    assert counts[0] == max(0, int(values[0]))
    assert counts.dtype == np.int64
    assert (counts >= 0).all()
    assert np.array_equal(counts[1:].reshape(-1, 2).sum(axis=1), counts[order.inner])


def test_new_nodes_start_at_zero() -> None:
    cells = Partition(np.array([1, 2, 3, 6, 7]), np.array([1, 3, 4]), np.zeros(3, np.int64))
    tree = consistency.measured(Tree.root(), cells, np.zeros(3, np.int64), step=5)
    assert tree.nodes.tolist() == [1, 2, 3, 6, 7]
    assert (tree.own.sum(), tree.counts.tolist(), tree.seen.tolist()) == (0, [0, -1, -1, -1, -1], [5] * 5)

"""Synthetic points: a function of the counts, minimal changes, ids and places that stay."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.contract import Columns
from engines.spatial.domain.box import BoxDomain
from engines.spatial.points import Counts, Placement, PointIds, PointRecords, Prefixes, difference, node_depths

PLACEMENT = Placement("points")


@st.composite
def partitions(draw: st.DrawFn, depth: int) -> Counts:
    leaves, open_nodes = [], [1]
    while open_nodes:
        node = open_nodes.pop()
        if node < 1 << depth and draw(st.integers(0, 2)):
            open_nodes += [2 * node + 1, 2 * node]
        else:
            leaves.append(node)
    nodes = np.array(leaves, np.int64)
    counts = draw(st.lists(st.integers(0, 9), min_size=len(leaves), max_size=len(leaves)))
    return Counts.of(nodes, node_depths(nodes), np.array(counts, np.int64), depth=depth)


def point(placement: Placement, node: int, index: int, depth: int) -> tuple[int, int]:
    """One point by the definition: finest cell and index there."""
    while node < 1 << depth:
        first = int(placement.first_child(np.array([node]))[0])
        node, index = 2 * node + ((index & 1) ^ first), index >> 1
    return node - (1 << depth), index


def brute(counts: Counts, depth: int) -> set[str]:
    width = -(-depth // 4)
    ids = set()
    for node, count in zip(counts.nodes.tolist(), counts.counts.tolist(), strict=True):
        for index in range(count):
            cell, k = point(PLACEMENT, node, index, depth)
            ids.add(f"{cell:0{width}x}-{k:x}")
    return ids


@settings(max_examples=60)
@given(data=st.data(), depth=st.integers(1, 6))
def test_differences_equal_brute_force(data: st.DataObject, depth: int) -> None:
    box = BoxDomain("x", "y", (0.0, 0.0, 3.0, 1.0), depth)
    before, after = data.draw(partitions(depth)), data.draw(partitions(depth))
    added, removed = difference(box, PLACEMENT, before=before, after=after)
    was, now = brute(before, depth), brute(after, depth)
    assert len(was) == before.total
    assert {record.id for record in added} == now - was
    assert set(removed) == was - now
    assert len(added) == len(now - was)
    assert len(removed) == len(was - now)


@given(node=st.integers(1, 2**12 - 1), count=st.integers(0, 40))
@settings(max_examples=100)
def test_points_of_a_cell_are_the_first_points_of_its_children(node: int, count: int) -> None:
    whole = {point(PLACEMENT, node, index, 12) for index in range(count)}
    first = int(PLACEMENT.first_child(np.array([node]))[0])
    children = {first: (count + 1) // 2, 1 - first: count // 2}
    if node < 2**11:
        parts = {point(PLACEMENT, 2 * node + side, index, 12) for side, n in children.items() for index in range(n)}
        assert whole == parts


BOXES = [(0, 0, 1, 1), (-74.05, 40.6, -73.75, 40.9), (2e6, -3e5, 2.001e6, -2e5), (0, 0, 1e-7, 1e9)]


@pytest.mark.parametrize("bounds", BOXES)
@pytest.mark.parametrize("depth", [1, 7, 18, 26])
def test_points_lie_in_their_cells_after_rounding(bounds: tuple[float, float, float, float], depth: int) -> None:
    box = BoxDomain("x", "y", bounds, depth)
    random = np.random.default_rng(depth)
    cells = np.concatenate([[0, 2**depth - 1], random.integers(0, 2**depth, 3000)])
    first = random.integers(0, 50, len(cells))
    records = PointRecords(box, Prefixes.of(PLACEMENT, cells + 2**depth, first, first + 1, depth=depth))
    x, y = records.coordinates()
    keys, reasons = box.encode(Columns({"x": x, "y": y}, {}, np.ones(len(x), np.int8)))
    assert not reasons.any()
    assert np.array_equal(keys[:, 0].astype(np.int64) >> 1, cells)


def test_points_fill_their_finest_cell_evenly() -> None:
    """A quarter of the area holds about a quarter of the points, in each of a hundred cells."""
    box = BoxDomain("x", "y", (0.0, 0.0, 1.0, 1.0), 2)
    for name in range(100):
        points = Prefixes.of(Placement(str(name)), np.array([4]), np.array([0]), np.array([400]), depth=2)
        records = PointRecords(box, points)
        x, y = records.coordinates()
        assert abs(int(((x < 0.25) & (y < 0.25)).sum()) - 100) <= 12


def test_sides_and_fractions_are_fair_and_differ_between_streams() -> None:
    """20,000 fair bits stay within 5 standard errors (chance of a false alarm 6e-7)."""
    nodes = np.arange(1, 20_001)
    for name in ("a", "b"):
        assert abs(Placement(name).first_child(nodes).mean() - 0.5) < 5 * 0.5 / np.sqrt(20_000)
        assert abs(Placement(name).fractions(nodes).mean() - 0.5) < 5 * np.sqrt(1 / 12 / 20_000)
    assert (Placement("a").first_child(nodes) != Placement("b").first_child(nodes)).mean() > 0.4


def test_points_are_made_as_they_are_read() -> None:
    """10^12 points at once: none of them is anywhere until somebody looks at it."""
    box, many = BoxDomain("x", "y", (0.0, 0.0, 1.0, 1.0), 4), 10**12
    whole = Counts(np.array([1]), np.array([0]), np.array([many]))
    added, removed = difference(box, PLACEMENT, before=Counts.nothing(), after=whole)
    assert (len(added), len(removed)) == (many, 0)
    few = list(added[many // 2 : many // 2 + 16])
    assert len({record.id.split("-")[0] for record in few}) == 16
    assert added[-1].id == "{:x}-{:x}".format(*point(PLACEMENT, 1, many - 1, 4))
    shrunk = Counts(np.array([1]), np.array([0]), np.array([many - 2]))
    _, gone = difference(box, PLACEMENT, before=whole, after=shrunk)
    assert list(gone) == [record.id for record in added[-2:]]


def test_records_are_sequences() -> None:
    box = BoxDomain("lon", "lat", (0.0, 0.0, 1.0, 1.0), 4)
    first = np.array([0, 3, 255])
    points = Prefixes.of(PLACEMENT, np.array([16, 17, 31]), first, first + 1, depth=4)
    records = PointRecords(box, points)
    assert [record.id for record in records] == ["0-0", "1-3", "f-ff"]
    assert records[1] == list(records)[1]
    assert records[-1].id == "f-ff"
    assert list(records[1:]) == list(records)[1:]
    assert set(records[0].fields) == {"lon", "lat"}
    assert records == list(records)
    ids = PointIds(points)
    assert (list(ids), ids[1], list(ids[::-2]), ids == ["0-0", "1-3", "f-ff"]) == (
        ["0-0", "1-3", "f-ff"],
        "1-3",
        ["f-ff", "0-0"],
        True,
    )
    with pytest.raises(IndexError):
        records[3]


@given(nodes=st.lists(st.integers(1, 2**33), min_size=1, max_size=9))
def test_depths_of_heap_numbers(nodes: list[int]) -> None:
    assert node_depths(np.array(nodes)).tolist() == [node.bit_length() - 1 for node in nodes]

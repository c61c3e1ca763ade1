"""Synthetic points: a function of the counts, minimal changes, ids and places that stay; by measure where it varies."""

from __future__ import annotations

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.contract import Columns
from engines.spatial.domain.base import SpatialDomain, nodes_to
from engines.spatial.domain.box import BoxDomain
from engines.spatial.domain.zones import ZoneDomain
from engines.spatial.points import (
    Counts,
    Placement,
    PointIds,
    PointRecords,
    Prefixes,
    _texts,
    change,
    difference,
    node_depths,
)
from tests.examples import examples
from tests.spatial.shapes import encoded, inside, lines, network, patchwork, polygons, square_metres

PLACEMENT = Placement("points")


BOX = BoxDomain("x", "y", (0.0, 0.0, 3.0, 1.0), 12)
SEEDS = st.integers(0, 10**6)


def domain_of(kind: str, seed: int, depth: int) -> SpatialDomain:
    if kind == "box":
        return BoxDomain("x", "y", (0.0, 0.0, 3.0, 1.0), depth)
    if kind == "zones":
        return ZoneDomain(
            "zone", [f"zone {n}" for n in range(3 * depth)], [1.0 + (seed >> n) % 4 for n in range(3 * depth)]
        )
    return lines(network(seed), depth) if kind == "roads" else polygons(patchwork(seed), depth)


@st.composite
def partitions(draw: st.DrawFn, domain: SpatialDomain) -> Counts:
    """Of any domain: never divided where it is not divisible."""
    leaves, open_nodes = [], [1]
    while open_nodes:
        node = open_nodes.pop()
        at = np.array([node])
        if domain.divisible(at, node_depths(at))[0] and draw(st.integers(0, 2)):
            open_nodes += [2 * node + 1, 2 * node]
        else:
            leaves.append(node)
    nodes = np.array(leaves, np.int64)
    counts = draw(st.lists(st.integers(0, 9), min_size=len(leaves), max_size=len(leaves)))
    return Counts.of(nodes, node_depths(nodes), np.array(counts, np.int64), depth=domain.depth)


def point(domain: SpatialDomain, node: int, index: int) -> tuple[int, int]:
    """One point by the definition: finest cell, followed by zeros, and index there."""
    for depth in range(node.bit_length() - 1, domain.depth):
        at = np.array([node])
        word = int(PLACEMENT.words(at)[0])
        if domain.halved:
            node, index = 2 * node + ((index ^ word) & 1), index >> 1
            continue
        share = int(domain.left_shares(at, np.array([depth]))[0])
        before, after = ((k * share + (word >> 44)) // 2**20 for k in (index, index + 1))
        node, index = (2 * node, before) if after > before else (2 * node + 1, index - before)
    return node - (1 << domain.depth), index


@settings(max_examples=examples(2))
@given(data=st.data(), seed=SEEDS, depth=st.integers(1, 6), kind=st.sampled_from(["box", "land", "roads"]))
def test_differences_equal_brute_force(data: st.DataObject, seed: int, depth: int, kind: str) -> None:
    domain = domain_of(kind, seed, depth)
    before, after = data.draw(partitions(domain)), data.draw(partitions(domain))
    added, removed = difference(domain, Placement("points", domain), before=before, after=after)
    ids = []
    for counts in (before, after):
        pairs = zip(counts.nodes.tolist(), counts.counts.tolist(), strict=True)
        points = [point(domain, node, index) for node, count in pairs for index in range(count)]
        ids.append({f"{cell:0{-(-depth // 4)}x}-{k:x}" for cell, k in points})
        assert len(ids[-1]) == counts.total
    assert {record.id for record in added} == ids[1] - ids[0]
    assert set(removed) == ids[0] - ids[1]
    assert (len(added), len(removed)) == (len(ids[1] - ids[0]), len(ids[0] - ids[1]))
    # Each new point lies in the leaf that it was counted in.
    codes, reasons = encoded(domain, *added.coordinates()) if len(added) else (np.zeros(0, int), np.zeros(0))
    assert not np.any(reasons)
    assert np.array_equal(codes, added.nodes - (1 << depth))


def weights_of(domain: SpatialDomain, counts: Counts) -> dict[str, int]:
    """Weights by the definition: of leaves, or of the zones in which their points lie."""
    leaves = dict(zip(counts.nodes.tolist(), counts.counts.tolist(), strict=True))
    if domain.named:
        points = [point(domain, node, index)[0] for node, count in leaves.items() for index in range(count)]
        starts = nodes_to(domain, domain.depth)
        starts = starts[~domain.divisible(starts, node_depths(starts))]
        codes = (starts << (domain.depth - node_depths(starts))) - (1 << domain.depth)
        leaves = {int(node): points.count(int(code)) for node, code in zip(starts, codes, strict=True)}
    return {f"{node:x}": count for node, count in leaves.items() if count}


@settings(max_examples=examples(1))
@given(data=st.data(), seed=SEEDS, depth=st.integers(1, 5), kind=st.sampled_from(["box", "land", "roads", "zones"]))
def test_weights_go_from_any_partition_to_any_other_in_place(
    data: st.DataObject, seed: int, depth: int, kind: str
) -> None:
    domain = domain_of(kind, seed, depth)
    placement = Placement("points", domain)
    before, after = data.draw(partitions(domain)), data.draw(partitions(domain))
    old, new = weights_of(domain, before), weights_of(domain, after)
    found = change(domain, placement, before=before, after=after, weighted=True)
    assert set(found.removed) == old.keys() - new.keys()
    assert {record.id: record.weight for record in found.added} == dict(new.items() - old.items())
    assert (found.total, found.weight) == (len(new), after.total)
    whole = change(domain, placement, before=Counts.nothing(), after=after, weighted=True)
    everywhere = {record.id: record.fields for record in whole.added}
    assert all(everywhere[record.id] == record.fields for record in found.added), "whatever was there before"
    for name, fields in everywhere.items():
        numbers = {each: np.array([fields[each]]) for each in domain.number_fields}
        texts = {each: [fields[each]] for each in domain.text_fields}
        keys, reasons = domain.encode(Columns(numbers, texts, np.ones(1, np.int8)))
        cell, node = (int(keys[0, 0]) >> 1) + (1 << domain.depth), int(name, 16)
        assert not reasons.any()
        assert cell >> (domain.depth + 1 - node.bit_length()) == node, "it lies in its cell"


@given(node=st.integers(1, 2**12 - 1), count=st.integers(0, 40))
@settings(max_examples=examples(2))
def test_points_of_a_cell_are_the_first_points_of_its_children(node: int, count: int) -> None:
    whole = {point(BOX, node, index) for index in range(count)}
    first = int(PLACEMENT.first_child(np.array([node]))[0])
    children = {first: (count + 1) // 2, 1 - first: count // 2}
    if node < 2**11:
        parts = {point(BOX, 2 * node + side, index) for side, n in children.items() for index in range(n)}
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
    assert added[-1].id == "{:x}-{:x}".format(*point(box, 1, many - 1))
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


def test_points_are_spread_by_area() -> None:
    """Of 20,000 points of the whole domain each part of the map has its share of the area (within 5 deviations)."""
    geometry = patchwork(11)
    domain = polygons(geometry, 14)
    placement = Placement("area", domain)
    whole = Counts(np.array([1]), np.array([0]), np.array([20_000]))
    added, _ = difference(domain, placement, before=Counts.nothing(), after=whole)
    x, y = added.coordinates()
    assert shapely.intersects_xy(geometry, x, y).all()
    west, south, east, north = shapely.bounds(geometry)
    for across in (0.2, 0.5, 0.7):
        for up in (0.3, 0.6, 1.0):
            box = shapely.box(west, south, west + across * (east - west), south + up * (north - south))
            share = square_metres(shapely.intersection(geometry, box)) / square_metres(geometry)
            there = shapely.intersects_xy(box, x, y).mean()
            assert abs(there - share) < 5 * np.sqrt(max(share * (1 - share), 1e-4) / 20_000)


def test_structural_zeros_never_get_points() -> None:
    """Counts on the finest cells of an archipelago: no point at sea, no cell without land."""
    geometry = shapely.union_all([shapely.box(x, y, x + 0.1, y + 0.05) for x in range(4) for y in range(3)])
    domain = polygons(geometry, 12)
    nodes = nodes_to(domain, 12)
    depths = node_depths(nodes)
    cells = [shapely.box(*each["cell"]) for each in domain.described(nodes, depths)]
    assert (shapely.area(shapely.intersection(cells, geometry)) > 0).all()
    leaf = ~domain.divisible(nodes, depths)
    counts = Counts.of(nodes[leaf], depths[leaf], np.full(int(leaf.sum()), 3), depth=12)
    added, _ = difference(domain, Placement("sea", domain), before=Counts.nothing(), after=counts)
    assert len(added) == 3 * leaf.sum()
    assert isinstance(added, PointRecords)
    assert shapely.intersects_xy(geometry, *added.coordinates()).all()
    codes, _ = encoded(domain, *inside(geometry, 1, 500).T)
    assert np.isin(codes, (nodes[leaf] << (12 - depths[leaf])) - (1 << 12)).all()


@settings(max_examples=examples(0.3))
@given(
    depth=st.integers(1, 40),
    points=st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**40) | st.integers(0, 300)), max_size=9),
)
def test_ids_are_cell_and_index_in_hexadecimal(depth: int, points: list[tuple[int, int]]) -> None:
    cells, indices = [cell % (1 << depth) for cell, _ in points], [index for _, index in points]
    ids = _texts(np.array(cells, np.int64) + (1 << depth), np.array(indices, np.int64), depth=depth)
    expected = [f"{cell:0{-(-depth // 4)}x}-{index:x}" for cell, index in zip(cells, indices, strict=True)]
    assert list(ids) == expected == [ids[at] for at in range(len(ids))]
    assert list(ids[::2]) == expected[::2]

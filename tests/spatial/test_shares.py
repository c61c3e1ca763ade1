"""Cells that share their points by measure: prefixes stay prefixes, and points are where the measure is."""

from __future__ import annotations

import numpy as np
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.spatial.domain.base import nodes_to
from engines.spatial.points import Counts, Placement, PointRecords, difference, node_depths
from tests.spatial.shapes import encoded, inside, lines, patchwork, polygons, square_metres
from tests.spatial.test_domain_lines import network

SEEDS = st.integers(0, 10**6)


@st.composite
def partitions(draw: st.DrawFn, placement: Placement) -> Counts:
    """Of any domain: never divided where it is not divisible."""
    assert placement.domain is not None
    leaves, open_nodes = [], [1]
    while open_nodes:
        node = open_nodes.pop()
        at = np.array([node])
        if placement.domain.divisible(at, node_depths(at))[0] and draw(st.integers(0, 2)):
            open_nodes += [2 * node + 1, 2 * node]
        else:
            leaves.append(node)
    nodes = np.array(leaves, np.int64)
    counts = draw(st.lists(st.integers(0, 9), min_size=len(leaves), max_size=len(leaves)))
    return Counts.of(nodes, node_depths(nodes), np.array(counts, np.int64), depth=placement.domain.depth)


def point(placement: Placement, node: int, index: int) -> tuple[int, int]:
    """One point by the definition: finest cell, followed by zeros, and index there."""
    assert placement.domain is not None
    depth = node.bit_length() - 1
    while depth < placement.domain.depth:
        at, level = np.array([node]), np.array([depth])
        share = int(placement.domain.left_shares(at, level)[0])
        turn = int(placement.words(at)[0]) >> 44
        before, after = ((k * share + turn) // 2**20 for k in (index, index + 1))
        node, index = (2 * node, before) if after > before else (2 * node + 1, index - before)
        depth += 1
    return node - (1 << depth), index


@settings(max_examples=40)
@given(data=st.data(), seed=SEEDS, depth=st.integers(1, 6), road=st.booleans())
def test_differences_equal_brute_force(data: st.DataObject, seed: int, depth: int, road: bool) -> None:
    domain = lines(network(seed), depth) if road else polygons(patchwork(seed), depth)
    placement = Placement("points", domain)
    before, after = data.draw(partitions(placement)), data.draw(partitions(placement))
    added, removed = difference(domain, placement, before=before, after=after)
    ids = []
    for counts in (before, after):
        pairs = zip(counts.nodes.tolist(), counts.counts.tolist(), strict=True)
        points = [point(placement, node, index) for node, count in pairs for index in range(count)]
        ids.append({f"{cell:0{-(-depth // 4)}x}-{k:x}" for cell, k in points})
        assert len(ids[-1]) == counts.total
    assert {record.id for record in added} == ids[1] - ids[0]
    assert set(removed) == ids[0] - ids[1]
    # Each new point lies in the leaf that it was counted in.
    codes, reasons = encoded(domain, *added.coordinates()) if len(added) else (np.zeros(0, int), np.zeros(0))
    assert not np.any(reasons)
    assert np.array_equal(codes, added.nodes - (1 << depth))


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

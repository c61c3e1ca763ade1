"""Line networks as a domain: events go to the nearest line, points lie on lines, cells weigh by length."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.spatial.domain.base import WHOLE
from engines.spatial.domain.geojson import parsed, shape_of
from engines.spatial.domain.lines import LineDomain
from engines.spatial.domain.sphere import metres_per_degree
from engines.spatial.points import Placement
from tests.spatial.shapes import XY, encoded, lines, network
from tests.spatial.test_domain_polygons import check_tiling

DATA = Path(__file__).parents[2].parent / "shared/data/geometry"
SEEDS = st.integers(0, 10**6)


@settings(max_examples=40)
@given(seed=SEEDS)
def test_events_go_to_the_nearest_line_within_reach(seed: int) -> None:
    roads, reach = network(seed), 150.0
    domain = lines(roads, 14, reach_m=reach)
    points = np.random.default_rng(seed).uniform([9.99, 49.99], [10.06, 50.06], (200, 2))
    rows, x, y, _ = domain.located(*points.T)
    # The slow twin: a plane on which a metre is a metre at this latitude.
    east, north = (float(scale[0]) for scale in metres_per_degree(np.array([50.025])))
    flat = shapely.multilinestrings([shapely.linestrings(np.array(road) * [east, north]) for road in roads])
    distances = shapely.distance(flat, shapely.points(points * [east, north]))
    near = np.zeros(len(points), bool)
    near[rows] = True
    assert near[distances < 0.999 * reach].all()
    assert not near[distances > 1.001 * reach].any()
    moved = np.hypot((x - points[rows, 0]) * east, (y - points[rows, 1]) * north)
    assert (moved < 1.001 * distances[rows] + 0.1).all()


@settings(max_examples=30)
@given(seed=SEEDS, depth=st.integers(1, 10))
def test_shares_are_lengths(seed: int, depth: int) -> None:
    roads = network(seed)
    domain = lines(roads, depth)
    tree = domain.tree
    east, north = (float(scale[0]) for scale in metres_per_degree(np.array([50.025])))
    flat = shapely.union_all([shapely.linestrings(np.array(road)) for road in roads])
    lengths = np.zeros(len(tree.start))
    for end in range(len(tree.start)):
        name = np.array([(1 << depth) + tree.start[end]])
        part = shapely.intersection(flat, shapely.box(*domain.described(name, np.array([depth]))[0]["cell"]))
        points = shapely.get_coordinates(part) * [east, north] if not shapely.is_empty(part) else np.zeros((0, 2))
        if len(points) > 1:
            lengths[end] = shapely.length(shapely.transform(part, lambda xy: xy * [east, north]))
    for node, share in zip(tree.inner.tolist(), tree.share.tolist(), strict=True):
        level = node.bit_length() - 1
        below = tree.start >> (depth - level - 1)
        left, right = (lengths[below == child - (1 << (level + 1))].sum() for child in (2 * node, 2 * node + 1))
        # Lines that run along the grid are in both boxes, and so is what two roads share.
        if left + right > 0 and shapely.length(flat) > 0 and not _upright(roads):
            assert abs(share / WHOLE - left / (left + right)) < 1e-2


def _upright(roads: list[list[tuple[float, float]]]) -> bool:
    return any((np.diff(np.array(road), axis=0) == 0).any() for road in roads)


def test_both_directions_of_a_road_are_one_and_levels_are_lines() -> None:
    road = [(10.0, 50.0), (10.01, 50.0), (10.02, 50.0)]
    assert lines([road], 8).identity == lines([road, road[::-1]], 8).identity
    domain = lines([road], 8)
    codes, reasons = encoded(domain, [10.0, 10.02, 10.01, 10.01], [50.0, 50.0, 50.0005, 50.01])
    assert reasons.tolist()[:3] == [0, 0, 0]
    assert reasons[3] > 0
    assert codes[0] == 0


@pytest.mark.skipif(not DATA.exists(), reason="the shared geometry is not there")
def test_manhattan() -> None:
    shape = shape_of(parsed((DATA / "manhattan_road_segments.geojson").read_bytes()))
    domain = LineDomain(XY, shape, 18, reach_m=50.0)
    check_tiling(domain)
    random = np.random.default_rng(2)
    ends = random.integers(0, len(domain.tree.start), 2000)
    x, y = domain.points(Placement("m"), (1 << 18) + domain.tree.start[ends], random.integers(0, 99, 2000))
    assert np.array_equal(encoded(domain, x, y)[0], domain.tree.start[ends])

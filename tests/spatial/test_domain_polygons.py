"""Polygons and lines as domains: every point has one cell, cells are what is left of the grid, points come back.

On lines events go to the nearest line, and cells weigh by length.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engines.spatial.domain.base import WHOLE
from engines.spatial.domain.cells import bounds_of
from engines.spatial.domain.geojson import parsed, shape_of
from engines.spatial.domain.lines import LineDomain
from engines.spatial.domain.mapped import MappedDomain
from engines.spatial.domain.polygons import PolygonDomain
from engines.spatial.domain.sphere import metres_per_degree
from engines.spatial.points import Placement
from schemas.events import Reason
from tests.examples import examples
from tests.spatial.shapes import XY, encoded, inside, lines, network, patchwork, polygons, square_metres

DATA = Path(__file__).parents[2].parent / "shared/data/geometry"
SEEDS = st.integers(0, 10**6)


def mapped(seed: int, depth: int, *, road: bool) -> tuple[MappedDomain, Any]:
    """A domain and its shape: land or roads."""
    if not road:
        geometry = patchwork(seed)
        return polygons(geometry, depth), geometry
    roads = network(seed)
    return lines(roads, depth), shapely.multilinestrings([shapely.linestrings(np.array(each)) for each in roads])


def check_tiling(domain: MappedDomain) -> None:
    """The ends of the tree are all codes, each once, and where it says divisible there are two children."""
    tree = domain.tree
    assert tree.start[0] == 0
    assert (np.diff(tree.first) > 0).all()
    ends = tree.start + (np.int64(1) << (tree.depth - tree.end_depth))
    assert np.array_equal(ends[:-1], tree.start[1:])
    assert ends[-1] == 1 << tree.depth
    names = ((np.int64(1) << tree.depth) + tree.start) >> (tree.depth - tree.end_depth)
    assert not domain.divisible(names, tree.end_depth)[tree.piece >= 0].any()
    inner = np.unique(np.concatenate([(names[names > 1] >> k) for k in range(1, domain.depth + 1)]))
    inner = inner[inner > 0]
    assert np.array_equal(inner, tree.inner)
    if len(inner):
        depths = np.frexp(inner.astype(float))[1].astype(np.int64) - 1
        assert domain.divisible(inner, depths).all()
        shares = domain.left_shares(inner, depths)
        assert ((shares > 0) & (shares < WHOLE)).all()


@settings(max_examples=examples(2))
@given(seed=SEEDS, depth=st.integers(1, 15), road=st.booleans())
def test_every_point_is_in_exactly_one_finest_cell(seed: int, depth: int, road: bool) -> None:
    domain, geometry = mapped(seed, depth, road=road)
    check_tiling(domain)
    points = inside(geometry, seed, 200) if not road else shapely.get_coordinates(geometry)
    if road:
        along = shapely.line_interpolate_point(geometry, np.random.default_rng(seed).random(50), normalized=True)
        points = np.concatenate([points, shapely.get_coordinates(along)])
    codes, reasons = encoded(domain, *points.T)
    assert not reasons.any()
    nodes = (np.int64(1) << depth) + codes
    # A code is a finest cell's name and zeros: nobody could be further down than that.
    end = domain.tree.end_of(nodes, np.full(len(nodes), depth))
    turns = np.where(domain.tree.piece[end] < 0, depth - domain.tree.end_level[end], 0) + domain.tree.end_depth[end]
    assert not (codes & ((np.int64(1) << (depth - turns)) - 1)).any()


@settings(max_examples=examples(0.8))
@given(seed=SEEDS, depth=st.integers(1, 12))
def test_points_outside_are_refused(seed: int, depth: int) -> None:
    geometry = patchwork(seed)
    domain = polygons(geometry, depth)
    points = np.random.default_rng(seed).uniform([4, 45], [16, 55], (300, 2))
    _, reasons = encoded(domain, *points.T)
    assert np.array_equal(reasons == 0, shapely.intersects_xy(geometry, *points.T))
    _, reasons = encoded(domain, [np.nan, np.inf, 10.0], [50.0, 50.0, -np.inf])
    assert reasons.tolist() == [Reason.NOT_FINITE] * 3


@settings(max_examples=examples(0.8))
@given(seed=SEEDS, depth=st.integers(1, 9))
def test_cells_and_shares_are_those_of_slow_intersections(seed: int, depth: int) -> None:
    geometry = patchwork(seed)
    domain = polygons(geometry, depth)
    tree, grid = domain.tree, domain.grid
    codes = np.arange(1 << depth)
    boxes = shapely.box(*bounds_of(grid, codes, depth))
    areas = np.array([square_metres(part) for part in shapely.intersection(boxes, geometry)])
    whole = np.array([square_metres(box) for box in boxes])
    _, _, there = tree.codes(codes)
    assert there[areas > 1e-7 * whole].all()
    assert not there[areas <= 0].any(), "a structural zero has become a cell"
    # Shares: of each cell with two children, by the areas of the finest cells below both.
    finest, _, _ = tree.codes(codes)
    for node, share in zip(tree.inner.tolist(), tree.share.tolist(), strict=True):
        level = node.bit_length() - 1
        below = finest[there] >> (depth - level - 1) if level < depth else finest[:0]
        left, right = (areas[there][below == child - (1 << (level + 1))].sum() for child in (2 * node, 2 * node + 1))
        assert abs(share / WHOLE - left / (left + right)) < 1e-3


@settings(max_examples=examples(2))
@given(seed=SEEDS, depth=st.integers(1, 20), road=st.booleans())
@example(seed=366, depth=4, road=True)  # the middle of a piece lies on another line, too, and is counted there
def test_points_lie_on_the_shape_and_in_their_cells(seed: int, depth: int, road: bool) -> None:
    domain, geometry = mapped(seed, depth if road else min(depth, 16), road=road)
    random = np.random.default_rng(seed)
    starts = domain.tree.start[random.integers(0, len(domain.tree.start), 200)]
    nodes = (np.int64(1) << domain.depth) + starts
    x, y = domain.points(Placement("points"), nodes, random.integers(0, 1000, 200))
    codes, reasons = encoded(domain, x, y)
    assert not reasons.any()
    assert np.array_equal(codes, starts)
    assert shapely.distance(geometry, shapely.points(x, y)).max() <= (1e-8 if road else 0)


def test_points_are_a_function_of_stream_cell_and_index() -> None:
    domain = polygons(patchwork(3), 8)
    nodes = (np.int64(1) << 8) + np.repeat(domain.tree.start, 3)
    indices = np.tile([0, 5, 9], len(domain.tree.start))
    together = np.stack(domain.points(Placement("a"), nodes, indices))
    order = np.random.default_rng(0).permutation(len(nodes))
    apart = [np.stack(domain.points(Placement("a"), nodes[i : i + 1], indices[i : i + 1])) for i in order]
    assert np.array_equal(together[:, order], np.concatenate(apart, axis=1))
    assert not np.array_equal(together, np.stack(domain.points(Placement("b"), nodes, indices)))


def test_points_fill_pieces_evenly() -> None:
    """A triangle cut from one finest cell: a half of its area holds half of 4,000 points (within 5 deviations)."""
    triangle = shapely.Polygon([(0, 0), (3, 0.1), (0.2, 2)])
    domain = polygons(triangle, 1)
    counts = []
    for end in np.flatnonzero(domain.tree.piece >= 0):
        node = np.full(4000, 2 + domain.tree.start[end])
        x, y = domain.points(Placement("even"), node, np.arange(4000))
        bounds = domain.described(node[:1], np.array([1]))[0]["cell"]
        piece = shapely.intersection(triangle, shapely.box(*bounds))
        for axis in (0, 1):
            middle = float(np.median((x, y)[axis]))
            box = shapely.box(-9, -9, middle, 9) if axis == 0 else shapely.box(-9, -9, 9, middle)
            counts.append(shapely.area(shapely.intersection(piece, box)) / shapely.area(piece))
    assert counts
    assert (np.abs(np.array(counts) - 0.5) < 5 * 0.5 / np.sqrt(4000)).all()


def test_borders_that_lie_on_lines_of_the_grid() -> None:
    """Sixteen unit squares as one polygon, in cells whose lines are its own."""
    domain = polygons(shapely.box(0, 0, 4, 4), 4)
    x, y = (grid.ravel() for grid in np.meshgrid(np.arange(9) / 2, np.arange(9) / 2))
    codes, reasons = encoded(domain, x, y)
    assert not reasons.any()
    assert set(codes.tolist()) == set(range(16))
    # Two blocks with a street between them; each corner goes to a cell that it is a corner of.
    blocks = polygons(shapely.union(shapely.box(0, 0, 1, 4), shapely.box(3, 0, 4, 2)), 6)
    x, y = np.array([1.0, 1.0, 3.0, 4.0, 1.0, 4.0]), np.array([0.0, 4.0, 2.0, 2.0, 1.0, 0.0])
    codes, reasons = encoded(blocks, x, y)
    assert not reasons.any()
    cells = blocks.described((np.int64(1) << 6) + codes, np.full(6, 6))
    west, south, east, north = np.array([cell["cell"] for cell in cells]).T
    assert ((west - 1e-4 <= x) & (x <= east + 1e-4) & (south - 1e-4 <= y) & (y <= north + 1e-4)).all()


SEA = {"type": "Polygon", "coordinates": [[[177, -20], [180, -20], [180, -15], [177, -15], [177, -20]]]}
SEA_EAST = {"type": "Polygon", "coordinates": [[[-180, -20], [-178, -20], [-178, -15], [-180, -15], [-180, -20]]]}
BEYOND = {"type": "Polygon", "coordinates": [[[177, -20], [182, -20], [182, -15], [177, -15], [177, -20]]]}


def test_across_the_antimeridian() -> None:
    cut = {"type": "GeometryCollection", "geometries": [SEA, SEA_EAST]}
    domains = [PolygonDomain(XY, shape_of(parsed(json.dumps(each))), 10) for each in (cut, BEYOND)]
    for domain in domains:
        assert domain.bounds[:2] == (177.0, -20.0)
        assert 182 < domain.bounds[2] < 182.1
        codes, reasons = encoded(domain, [179.5, -179.5, 180.0, -180.0, 176.0, 0.0, 180.5], [-17.0] * 7)
        assert reasons.tolist() == [0, 0, 0, 0, reasons[4], reasons[4], 0]
        assert reasons[4] > 0
        assert codes[2] == codes[3]
        assert codes[1] == codes[6]
        nodes = (np.int64(1) << 10) + np.arange(1024)
        x, y = domain.points(Placement("sea"), nodes, np.arange(1024))
        assert ((x >= -180) & (x <= 180)).all()
        assert (x < -178).any()
        assert np.array_equal(encoded(domain, x, y)[0], np.arange(1024))
        west, _, east, _ = domain.described(np.array([1]), np.array([0]))[0]["cell"]
        assert (west, east) == (177.0, -178.0), "west above east, as RFC 7946 has it"
    assert domains[0].identity == domains[1].identity


def test_the_whole_globe_and_its_poles() -> None:
    domain = polygons(shapely.box(-180, -90, 180, 90), 8)
    _, reasons = encoded(domain, [-180, 180, 0, 0, 179.99], [0, 0, 90, -90, 89.99])
    assert not reasons.any()
    shares = domain.left_shares(np.array([2, 4]), np.array([1, 2]))
    assert (np.abs(shares - WHOLE // 2) <= 2).all()
    # The southern half of a half: from the pole to 45 degrees there is less than from there to the equator.
    assert domain.left_shares(np.array([8]), np.array([3]))[0] < 0.3 * WHOLE


def test_the_identity_is_the_same_on_every_machine() -> None:
    """Pinned: where this fails, stored states of a deployed stream would be refused."""
    shell = [(9.1, 49.3), (11.7, 48.9), (12.3, 50.2), (10.9, 49.9), (10.2, 51.4), (9.4, 50.8)]
    hole = [(10.1, 49.7), (10.2, 50.3), (10.7, 50.1)]
    assert polygons(shapely.Polygon(shell, [hole]), 12).identity[-1] == PINNED


PINNED = "22e1681bec1f0b6b68062159628adf7fa0ea5ca37f90a9c32ace73d93c9803e3"


@pytest.mark.skipif(not DATA.exists(), reason="the shared geometry is not there")
def test_land() -> None:
    content = (DATA / "ne_110m_land.geojson").read_bytes()
    shape = shape_of(parsed(content))
    domain = PolygonDomain(XY, shape, 16)
    check_tiling(domain)
    random = np.random.default_rng(5)
    x, y = random.uniform(-180, 180, 20_000), np.degrees(np.arcsin(random.uniform(-1, 1, 20_000)))
    codes, reasons = encoded(domain, x, y)
    land = shapely.intersects_xy(shape.geometry, x, y)
    assert np.array_equal(reasons == 0, land)
    # Half of the points of the root's first child lie there, and 29 % of the globe is land (this outline has 28.9).
    assert 0.27 < land.mean() < 0.31
    share = domain.left_shares(np.array([1]), np.array([0]))[0] / WHOLE
    assert abs((codes[land] < 1 << 15).mean() - share) < 5 * 0.5 / np.sqrt(land.sum())


@settings(max_examples=examples(0.8))
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


@settings(max_examples=examples(0.6))
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

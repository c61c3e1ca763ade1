"""Named zones as a domain: each name has one cell, zones of no measure have none, records say a zone's name."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.contract import Batch, Columns
from engines.core.noise import seeded
from engines.spatial.domain.base import WHOLE, nodes_to
from engines.spatial.domain.zones import ZoneDomain
from engines.spatial.held.engine import HeldConfig, HeldLeaves
from engines.spatial.papers.phdstream import PHDStream, PHDStreamConfig
from engines.spatial.points import Placement, node_depths
from schemas.blocks import Folded
from schemas.errors import EngineInputError
from schemas.events import Reason
from tests.examples import examples
from tests.spatial.shapes import polygons


def encoded(domain: ZoneDomain, names: list[str], *, delete: bool = False) -> tuple[np.ndarray, np.ndarray]:
    signs = np.full(len(names), -1 if delete else 1, np.int8)
    keys, reasons = domain.encode(Columns({}, {domain.field: names}, signs))
    return keys[:, 0], reasons


@settings(max_examples=examples(1.2))
@given(sizes=st.lists(st.floats(0, 1e6), min_size=1, max_size=40).filter(lambda sizes: any(size > 0 for size in sizes)))
def test_each_zone_is_one_finest_cell(sizes: list[float]) -> None:
    names = [f"zone {index}" for index in range(len(sizes))]
    domain = ZoneDomain("zone", names, sizes)
    there = [name for name, size in zip(names, sizes, strict=True) if size > 0]
    assert domain.names == there
    keys, reasons = encoded(domain, names)
    assert [reason == 0 for reason in reasons] == [size > 0 for size in sizes]
    nodes = nodes_to(domain, domain.depth)
    depths = node_depths(nodes)
    leaf = ~domain.divisible(nodes, depths)
    assert leaf.sum() == len(there)
    assert sorted(cell["zones"][0] for cell in domain.described(nodes[leaf], depths[leaf])) == sorted(there)
    assert domain.described(np.array([1]), np.array([0])) == [{"zones": there}]
    codes = (nodes[leaf] << (domain.depth - depths[leaf])) - (1 << domain.depth)
    assert sorted((keys[reasons == 0] >> np.uint64(1)).astype(int)) == sorted(codes)
    measure = dict(zip(names, sizes, strict=True))
    for node, depth in zip(nodes[~leaf], depths[~leaf], strict=True):
        share = domain.left_shares(np.array([node]), np.array([depth]))[0]
        left, right = (
            sum(measure[name] for name in cell["zones"])
            for cell in domain.described(np.array([2 * node, 2 * node + 1]), np.array([depth + 1, depth + 1]))
        )
        assert abs(share / WHOLE - left / (left + right)) < 1e-5
    (names_back,) = domain.placed(Placement("z"), (1 << domain.depth) + codes, np.arange(len(codes)))
    assert sorted(names_back) == sorted(there)


def test_names_that_are_not_in_the_table() -> None:
    domain = ZoneDomain("zone", ["a", "b", "water"], [1.0, 2.0, 0.0])
    keys, reasons = encoded(domain, ["b", "c", "water", "", "A"], delete=True)
    assert reasons.tolist() == [0, *[Reason.OUTSIDE_DOMAIN] * 4]
    assert keys[0] == 3


@pytest.mark.parametrize(
    ("names", "sizes", "reason"),
    [
        ([], [], "no zone"),
        (["a"], [0.0], "no zone"),
        (["a"], [-1.0], "not negative"),
        (["a"], [float("nan")], "finite"),
    ],
)
def test_tables_that_are_none_are_refused(names: list[str], sizes: list[float], reason: str) -> None:
    with pytest.raises(EngineInputError, match=reason):
        ZoneDomain("zone", names, sizes)


@pytest.mark.parametrize("mode", ["default", "paper"])
def test_counts_of_zones(mode: str) -> None:
    names = [f"z{index}" for index in range(37)]
    domain = ZoneDomain("zone", names, [1.0] * 37)
    true = np.random.default_rng(1).integers(0, 2000, 37)
    texts = [name for name, count in zip(names, true.tolist(), strict=True) for _ in range(count)]
    keys, _ = encoded(domain, texts)
    config: dict[str, Any] = {"name": "z", "domain": domain, "epsilon": Fraction(1)}
    engine = PHDStream(PHDStreamConfig(**config)) if mode == "paper" else HeldLeaves(HeldConfig(**config))
    totals = dict.fromkeys(names, 0)
    for step in range(3):
        events = Folded.from_keys(keys.reshape(-1, 1)) if step == 0 else Folded.empty(1)
        release = engine.step(Batch(step, events), seeded(1).child(step))
        for record in release.added:
            assert set(record.fields) == {"zone"}
            totals[record.fields["zone"]] += 1
        ids = {record.id for record in release.added}
        assert len(ids) == len(release.added)
        assert all(set(measurement["zones"]) <= set(names) for measurement in release.measurements)
        if step == 0:
            released = np.array([totals[name] for name in names])
            assert np.abs(released - true).mean() < 60


def test_coordinates_inside_of_zones() -> None:
    shapes = [shapely.box(0, 0, 1, 1), shapely.Polygon([(1, 0), (3, 0), (1, 2)]), shapely.box(-1, -1, -0.9, 0)]
    maps = [polygons(shape, 8) for shape in shapes]
    domain = ZoneDomain("zone", ["square", "triangle", "strip"], [3.0, 2.0, 1.0], maps)
    assert domain.record_fields == ("zone", "x", "y")
    nodes = (1 << domain.depth) + np.repeat(domain.start, 500)
    indices = np.tile(np.arange(500), 3)
    names, x, y = domain.placed(Placement("p"), nodes, indices)
    for name, shape in zip(domain.names, shapes, strict=True):
        at = np.array([each == name for each in names])
        assert at.sum() == 500
        px, py = np.array(x)[at], np.array(y)[at]
        assert shapely.intersects_xy(shape, px, py).all()
        assert len(set(zip(px.tolist(), py.tolist(), strict=True))) == 500
        # A half of the zone's area has about half of its points: within 5 deviations of chance, and they are even.
        west, south, east, north = shapely.bounds(shape)
        half = shapely.box(west, south, west + 0.3 * (east - west), north)
        share = shapely.area(shapely.intersection(shape, half)) / shapely.area(shape)
        assert abs(shapely.intersects_xy(half, px, py).mean() - share) < 5 * 0.5 / np.sqrt(500)
    alone = domain.placed(Placement("p"), nodes[7:8], indices[7:8])
    assert [column[0] for column in alone] == [names[7], x[7], y[7]]

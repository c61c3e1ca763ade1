"""Both modes, on maps too: structural zeros are never measured, points lie on the shape."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import shapely

from engines.core.contract import Batch, Columns, Release
from engines.core.noise import seeded
from engines.spatial.domain.base import SpatialDomain
from engines.spatial.domain.lines import LineDomain
from engines.spatial.domain.polygons import PolygonDomain
from engines.spatial.evaluators import SpatialEvaluator
from engines.spatial.held.engine import HeldConfig, HeldLeaves
from engines.spatial.held.tree import HeldTree
from engines.spatial.papers.phdstream import PHDStream, PHDStreamConfig
from schemas.blocks import Folded
from tests.spatial.shapes import XY, encoded, lines, network, polygons, star
from tests.spatial.streams import BOX, city, encode

DEPTH = 9
ISLANDS = shapely.union_all(
    [
        shapely.Polygon(
            [(10, 50), (11.5, 50.1), (10.9, 50.6), (10.2, 50.9)], [[(10.4, 50.3), (10.6, 50.3), (10.5, 50.5)]]
        ),
        shapely.box(12.3, 50.8, 12.31, 50.81),
        star(np.random.default_rng(1), corners=9, at=(12.0, 50.2), radius=0.3),
    ]
)
LAND = polygons(ISLANDS, DEPTH)
ROADS = lines(network(8), DEPTH, reach_m=2000.0)


def stream(domain: PolygonDomain | LineDomain, *, steps: int, each: int, seed: int = 0) -> list[Folded]:
    """Events clustered in two places, some of them deleted later; and some outside, which are refused."""
    random = np.random.default_rng(seed)
    west, south, east, north = domain.bounds
    kept: list[np.ndarray] = []
    result = []
    for step in range(steps):
        centre = np.array([west, south]) + np.array([east - west, north - south]) * [[0.3, 0.4], [0.7, 0.3]][step % 2]
        points = random.normal(centre, [(east - west) / 6, (north - south) / 6], (each, 2))
        gone = kept.pop(0) if len(kept) > 3 else points[:0]
        both = np.concatenate([points, gone])
        signs = np.append(np.ones(len(points), np.int8), -np.ones(len(gone), np.int8))
        keys, reasons = domain.encode(Columns({"x": both[:, 0], "y": both[:, 1]}, {}, signs))
        kept.append(points[reasons[: len(points)] == 0][: each // 4])
        result.append(Folded.from_keys(keys[reasons == 0]))
    return result


def build(mode: str, domain: SpatialDomain, **changes: Any) -> HeldLeaves | PHDStream:
    if mode == "paper":
        return PHDStream(PHDStreamConfig(name="m", domain=domain, epsilon=Fraction(1), **changes))
    return HeldLeaves(HeldConfig(name="m", domain=domain, epsilon=Fraction(1), max_leaves=128, **changes))


def check_released(release: Release, domain: PolygonDomain | LineDomain, alive: dict[str, tuple[float, float]]) -> None:
    """Points come back to the domain; what is measured has something of the shape in it."""
    for name in release.removed:
        del alive[name]
    alive |= {record.id: (record.fields["x"], record.fields["y"]) for record in release.added}
    assert len(alive) == release.total
    if alive:
        _, reasons = encoded(domain, *np.array(list(alive.values())).T)
        assert not reasons.any()
    cells = [shapely.box(*measurement["cell"]) for measurement in release.measurements]
    shape = shapely.multilinestrings(domain._segments.reshape(-1, 2, 2)) if isinstance(domain, LineDomain) else ISLANDS
    assert shapely.intersects(cells, shape).all(), "a structural zero was measured"


@pytest.mark.parametrize("domain", [LAND, ROADS], ids=["land", "roads"])
@pytest.mark.parametrize("mode", ["default", "paper"])
@pytest.mark.parametrize("ttl", [None, 4])
def test_streams_on_maps(mode: str, domain: PolygonDomain | LineDomain, ttl: int | None) -> None:
    engine = build(mode, domain, ttl_steps=ttl)
    alive: dict[str, tuple[float, float]] = {}
    totals = []
    for step, events in enumerate(stream(domain, steps=12, each=800)):
        release = engine.step(Batch(step, events), seeded(1).child(step))
        check_released(release, domain, alive)
        totals.append(release.total)
        parts = sum(len(each) for each in (release.added, release.removed))
        assert parts <= totals[-1] + (totals[-2] if step else 0)
    assert totals[-1] > 200


@pytest.mark.parametrize("mode", ["default", "paper"])
def test_gathered_steps_are_one_release(mode: str) -> None:
    random = np.random.default_rng(1)
    batches = [encode(*city(random, 400)) for _ in range(4)]
    patient, prompt = build(mode, BOX, initial_steps=4), build(mode, BOX)
    for step in range(3):
        release = patient.step(Batch(step, batches[step]), seeded(step))
        assert release.gathered
        assert (len(release.added), release.total) == (0, 0)
    release = patient.step(Batch(3, batches[3]), seeded(9))
    at_once = prompt.step(Batch(0, batches[0].merge(*batches[1:])), seeded(9))
    assert not release.gathered
    assert release.total == pytest.approx(1600, abs=150)
    assert list(release.added) == list(at_once.added)
    assert patient.state()["pending/keys"].size == 0
    # How long a stream gathered is no part of what its state means.
    prompt.restore(patient.state())
    assert prompt.state().keys() == patient.state().keys()


@pytest.mark.parametrize(("mode", "most"), [("default", 0), ("paper", 500)])
def test_deletes_of_what_never_was_leave_an_empty_city(mode: str, most: int) -> None:
    random = np.random.default_rng(3)
    engine = build(mode, BOX)
    for step in range(3):
        assert engine.step(Batch(step, encode(*city(random, 5000), delete=True)), seeded(step)).total <= most


@pytest.mark.parametrize("mode", ["default", "paper"])
def test_points_are_where_the_events_are(mode: str) -> None:
    """Far below the error of the same points anywhere on the map."""
    evaluator = SpatialEvaluator.over(LAND)
    random = np.random.default_rng(4)
    x, y = random.normal([10.6, 50.2], 0.05, (20_000, 2)).T
    columns = Columns({"x": x, "y": y}, {}, np.ones(len(x), np.int8))
    keys, reasons = LAND.encode(columns)
    grid, grid_reasons = evaluator.domain.encode(columns)
    assert np.array_equal(reasons, grid_reasons)
    engine = build(mode, LAND)
    release = engine.step(Batch(0, Folded.from_keys(keys[reasons == 0])), seeded(2))
    points = np.array([(record.fields["x"], record.fields["y"]) for record in release.added])
    truth = Folded.from_keys(grid[reasons == 0])
    assert evaluator.size(truth) == (reasons == 0).sum()
    good = evaluator.measure(truth, {"x": points[:, 0].tolist(), "y": points[:, 1].tolist()})
    anywhere = random.uniform([10, 50], [12, 51], (len(points), 2))
    bad = evaluator.measure(truth, {"x": anywhere[:, 0].tolist(), "y": anywhere[:, 1].tolist()})
    assert good["error_large"] < bad["error_large"] / 5


def test_a_state_of_another_shape_is_refused() -> None:
    other = PolygonDomain(XY, _shifted(), DEPTH)
    with pytest.raises(ValueError, match="another stream, mode, domain or budget"):
        build("default", other).restore(build("default", LAND).state())


def _shifted() -> Any:
    from engines.spatial.domain.geojson import shape_of

    return shape_of(np.array([shapely.transform(ISLANDS, lambda xy: xy * np.array([1.0, 0.999]))]))


def test_the_watch_counts_in_cells_that_there_are() -> None:
    """An islet far away is one finest cell after one turn: it is watched once, not once for each place below it."""
    domain = polygons(shapely.union(ISLANDS, shapely.box(30, 50, 30.0001, 50.0001)), DEPTH)
    config = HeldConfig(name="m", domain=domain, epsilon=Fraction(1), max_leaves=128)
    assert (
        len(config.watch.missing) == 2**config.start_depth - len(HeldTree.full(domain, config.start_depth).leaves) > 0
    )
    engine = HeldLeaves(config)
    islet = np.array([domain.tree.start[-1] << 1], np.uint64).reshape(-1, 1)
    for step in range(4):
        release = engine.step(
            Batch(step, Folded.from_keys(islet, np.array([3 if step < 3 else 5000]))), seeded(3).child(step)
        )
    watched = engine.state()["watch/average"]
    assert len(watched) == 2**config.start_depth - len(config.watch.missing)
    assert release.notes["hot"] == 1
    x, y = np.array([(each.fields["x"], each.fields["y"]) for each in release.added]).T
    assert (x > 29).sum() > 4000
    assert shapely.intersects_xy(shapely.box(30, 50, 30.0001, 50.0001), x[x > 29], y[x > 29]).all()

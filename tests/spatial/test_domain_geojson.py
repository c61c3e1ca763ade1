"""GeoJSON that is not what it should be: refused with the fix, or repaired, and never a wrong domain."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import shapely

from engines.spatial.domain.geojson import parsed, shape_of
from engines.spatial.domain.lines import LineDomain, map_of
from engines.spatial.domain.polygons import PolygonDomain
from engines.spatial.domain.sphere import band, mean_band, metres_per_degree, sine
from schemas.errors import EngineInputError
from tests.spatial.shapes import XY, encoded

SQUARE = [[0, 0], [2, 0], [2, 2], [0, 2], [0, 0]]
BOWTIE = [[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]]


def polygon(*rings: Any) -> dict[str, Any]:
    return {"type": "Polygon", "coordinates": list(rings)}


def read(document: Any) -> PolygonDomain | LineDomain:
    return map_of(shape_of(parsed(json.dumps(document))), XY, 8)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"type": "FeatureCollection", "features": []}, "empty"),
        ({"type": "Polygon", "coordinates": []}, "empty"),
        ({"type": "Point", "coordinates": [1, 2]}, "polygons alone or lines alone"),
        ({"type": "Topology"}, "not GeoJSON"),
        ([1, 2], "not GeoJSON"),
        (polygon([[0, 0], [1, 1], [0, 0], [0, 0]]), "no area"),
        (polygon([[0, 0], [1, 1], [2, 2], [0, 0]]), "no area"),
        ({"type": "LineString", "coordinates": [[1, 1], [1, 1]]}, "no length"),
        (polygon([[100, 0], [100, 95], [101, 95], [100, 0]]), "transform them"),
        (polygon([[40, -74], [41, -74], [41, -120], [40, -74]]), "swap them"),
        (polygon([[5e5, 4e6], [6e5, 4e6], [6e5, 5e6], [5e5, 4e6]]), "WGS 84"),
        (polygon([[600, 0], [601, 0], [601, 1], [600, 0]]), "not longitudes"),
        (polygon([[179, 0], [-179, 0], [-179, 1], [179, 1], [179, 0]]), "antimeridian"),
        (
            {"type": "GeometryCollection", "geometries": [polygon(SQUARE), {"type": "Point", "coordinates": [1, 2]}]},
            "take the other features out",
        ),
    ],
)
def test_what_cannot_be_a_domain_is_refused(document: Any, reason: str) -> None:
    with pytest.raises(EngineInputError, match=reason):
        read(document)


@pytest.mark.parametrize("text", ["", "{", "nonsense", '{"type": "Polygon"}', "null"])
def test_what_is_no_geojson_is_refused(text: str) -> None:
    with pytest.raises(EngineInputError):
        shape_of(parsed(text))


def test_numbers_that_are_not_finite() -> None:
    bad = shapely.Polygon([(0, 0), (1, 0), (1, np.inf)])
    with pytest.raises(EngineInputError, match="finite"):
        shape_of(np.array([bad]))


def test_a_polygon_that_crosses_itself_is_cut_where_it_does() -> None:
    shape = shape_of(parsed(json.dumps(polygon(BOWTIE))))
    assert shape.repaired == 1
    domain = PolygonDomain(XY, shape, 8)
    _, reasons = encoded(domain, [0.1, 1.9, 1.0, 1.0], [1.0, 1.0, 0.5, 1.9])
    assert (reasons == 0).tolist() == [True, True, False, False] or (reasons == 0).tolist() == [
        False,
        False,
        True,
        True,
    ]
    assert shape_of(parsed(json.dumps(polygon(SQUARE)))).repaired == 0


def test_overlapping_features_are_one_domain() -> None:
    features = [
        {
            "type": "Feature",
            "properties": {},
            "geometry": polygon([[x, y] for x, y in (np.array(SQUARE) + shift).tolist()]),
        }
        for shift in (0, 1)
    ]
    domain = read({"type": "FeatureCollection", "features": features})
    one = read(
        {
            "type": "Polygon",
            "coordinates": shapely.geometry.mapping(
                shapely.union_all([shapely.Polygon(np.array(SQUARE) + shift) for shift in (0, 1)])
            )["coordinates"],
        }
    )
    assert domain.identity == one.identity


def test_the_order_of_rings_and_heights_do_not_matter() -> None:
    ccw, cw = read(polygon(SQUARE)), read(polygon(SQUARE[::-1]))
    high = read(polygon([[x, y, 7.0] for x, y in SQUARE]))
    assert ccw.identity == cw.identity == high.identity


@pytest.mark.parametrize("document", [polygon(SQUARE), {"type": "LineString", "coordinates": SQUARE}])
def test_a_depth_beyond_floating_point_is_refused_with_the_deepest(document: Any) -> None:
    small = json.loads(json.dumps(document).replace("2", "2e-6"))
    shape = shape_of(parsed(json.dumps(small)))
    far = shapely.transform(shape.geometry, lambda xy: xy + np.array([170, 80]))
    shape = shape_of(np.atleast_1d(far))

    with pytest.raises(EngineInputError, match="the deepest that works is") as refused:
        map_of(shape, XY, 30)
    deepest = int(str(refused.value).rsplit(" ", 1)[1])
    assert map_of(shape, XY, deepest).depth == deepest
    with pytest.raises(EngineInputError):
        map_of(shape, XY, deepest + 1)


def test_a_depth_of_too_many_cells_is_refused_with_the_deepest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.spatial.domain.cells.MOST_CELLS", 100)
    with pytest.raises(EngineInputError, match="is the deepest that works") as refused:
        PolygonDomain(XY, shape_of(parsed(json.dumps(polygon([[0, 0], [2, 1], [1, 2], [0, 0]])))), 20)
    deepest = int(str(refused.value).split(": ")[1].split(" ")[0])
    PolygonDomain(XY, shape_of(parsed(json.dumps(polygon([[0, 0], [2, 1], [1, 2], [0, 0]])))), deepest)


def test_too_many_vertices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.spatial.domain.geojson.MOST_VERTICES", 4)
    with pytest.raises(EngineInputError, match="simplify"):
        read(polygon(SQUARE))


def test_the_globe_is_measured() -> None:
    """Against figures of WGS 84 that stand in its definition and in tables."""
    assert abs(360 * (band(np.array([90.0])) - band(np.array([-90.0])))[0] - 510_065_621_724_089) < 1e6
    degrees = np.linspace(-90, 90, 3601)
    assert np.abs(sine(degrees) - np.sin(np.radians(degrees))).max() < 4e-16
    east, north = metres_per_degree(np.array([0.0, 45.0, 90.0]))
    assert np.abs(east - [111319.491, 78846.835, 0]).max() < 0.01
    assert np.abs(north - [110574.276, 111131.778, 111693.980]).max() < 0.01
    fine = band(np.linspace(-60, 80, 100_001))
    assert abs(mean_band(np.array([-60.0]), np.array([80.0]))[0] / fine.mean() - 1) < 1e-4

"""`kind = "geojson"` and `kind = "zones"`: what can be told of a map before any geometry is built, and zones by a table
of names in the file itself or by the features of a map.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely

from agents.local.offline.domains import check_streams
from agents.local.offline.simulate import simulate
from agents.show.view import view_of
from engines.core.registry import build_domain
from engines.spatial.domain.lines import LineDomain
from engines.spatial.domain.polygons import PolygonDomain
from engines.spatial.domain.zones import ZoneDomain
from schemas.config import Config, ConfigError, parse_config
from schemas.config.engines.spatial import GeoJsonDomainSection

STREAM = """
[kafka]
bootstrap = "localhost:9092"
[[streams]]
name = "taxi"
engine = "spatial"
source = "raw.taxi"
[streams.privacy]
epsilon = 5.0
unit = "event"
[streams.time]
field = "t"
format = "s"
start = "2016-01-01T00:00:00"
timezone = "UTC"
step = "1h"
clock = "replay"
"""
MAP = (
    STREAM
    + """[streams.domain]
kind = "geojson"
x = "lon"
y = "lat"
file = "map.geojson"
[streams.options]
depth = 10
"""
)
ZONES = (
    STREAM
    + """[streams.domain]
kind = "zones"
field = "zone"
zones = ["harbour", "market", "station"]
"""
)
SQUARE = [[0, 50], [1, 50], [1, 51], [0, 51], [0, 50]]
GOOD = {"type": "Polygon", "coordinates": [SQUARE]}
KEY = "streams[0].domain"


def read(folder: Path, content: Any, text: str = MAP) -> Config:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    (folder / "map.geojson").write_bytes(data)
    return parse_config(text, folder=folder)


def test_a_map_is_read_relative_to_the_configuration(tmp_path: Path) -> None:
    config = read(tmp_path, GOOD)
    section = config.streams[0].domain
    assert isinstance(section, GeoJsonDomainSection)
    assert section.fields == ("lon", "lat")
    domain = build_domain(config.streams[0])
    assert isinstance(domain, PolygonDomain)
    assert domain is build_domain(config.streams[0]), "a map is worked out once"
    check_streams(config)
    assert not list(view_of(config.streams[0]).warnings(config.streams[0]))


def test_another_map_is_another_fingerprint(tmp_path: Path) -> None:
    first = read(tmp_path, GOOD).streams[0].fingerprint_fields()
    same = read(tmp_path, GOOD).streams[0].fingerprint_fields()
    other = read(tmp_path, {"type": "LineString", "coordinates": SQUARE}).streams[0]
    assert first == same
    assert other.fingerprint_fields()["domain"] != first["domain"]
    assert isinstance(build_domain(other), LineDomain)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "not JSON"),
        ([], "not GeoJSON"),
        ({"type": "Point", "coordinates": [1, 2]}, "not GeoJSON of polygons"),
        ({"type": "Topology"}, "TopoJSON"),
        ({"type": "FeatureCollection", "features": []}, "no features"),
        (GOOD | {"crs": {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::3857"}}}, "WGS 84"),
    ],
)
def test_files_that_are_no_maps_are_refused(tmp_path: Path, content: Any, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, content)
    (problem,) = refused.value.problems
    assert problem.key == f"{KEY}.file"
    assert reason in problem.reason
    assert problem.fix


@pytest.mark.parametrize(
    ("old", "new", "key", "fragment"),
    [
        ('file = "map.geojson"', "", f"{KEY}.file", "missing"),
        ('file = "map.geojson"', 'file = "none.geojson"', f"{KEY}.file", "cannot be read"),
        ('file = "map.geojson"', 'file = "map.geojson"\nreach_m = 0', f"{KEY}.reach_m", "above 0"),
        ('file = "map.geojson"', 'file = "map.geojson"\nreach_m = 1e9', f"{KEY}.reach_m", "at most"),
        ('x = "lon"\ny = "lat"', 'x = "latitude"\ny = "longitude"', f"{KEY}.x", "latitude"),
        ('x = "lon"', 'x = "lat"', f"{KEY}.y", "already serves as domain.x"),
        ('file = "map.geojson"', 'file = "map.geojson"\nbounds = [0, 0, 1, 1]', f"{KEY}.bounds", "unknown"),
    ],
)
def test_keys_are_checked(tmp_path: Path, old: str, new: str, key: str, fragment: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, GOOD, MAP.replace(old, new))
    assert any(problem.key == key and fragment in problem.reason for problem in refused.value.problems)


@pytest.mark.parametrize(
    ("content", "depth", "fragment"),
    [
        ({"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [2, 2], [0, 0]]]}, 10, "no area"),
        ({"type": "Polygon", "coordinates": [[[50, 100], [51, 100], [51, 101], [50, 100]]]}, 10, "swap them"),
        (
            {"type": "Polygon", "coordinates": [[[170, 80], [170.000001, 80], [170, 80.000001], [170, 80]]]},
            30,
            "deepest",
        ),
    ],
)
def test_what_only_geometry_can_tell(tmp_path: Path, content: Any, depth: int, fragment: str) -> None:
    config = read(tmp_path, content, MAP.replace("depth = 10", f"depth = {depth}"))
    with pytest.raises(ConfigError) as refused:
        check_streams(config)
    (problem,) = refused.value.problems
    assert problem.key == KEY
    assert fragment in problem.reason


def test_a_repair_is_remarked(tmp_path: Path) -> None:
    bowtie = {"type": "Polygon", "coordinates": [[[0, 50], [1, 51], [1, 50], [0, 51], [0, 50]]]}
    (taxi,) = read(tmp_path, bowtie).streams
    (remark,) = view_of(taxi).warnings(taxi)
    assert "1 polygons of its map cross themselves" in remark


# --- zones ---

LIST = 'zones = ["harbour", "market", "station"]'
FILE = 'file = "zones.geojson"'
WHERE = {"harbour": shapely.box(0, 50, 1, 51), "market": shapely.box(1, 50, 3, 51), "7": shapely.box(0, 51, 1, 52)}


def features(folder: Path) -> None:
    rows = [
        {
            "type": "Feature",
            "properties": {"name": int(name) if name.isdigit() else name},
            "geometry": shapely.geometry.mapping(shape),
        }
        for name, shape in WHERE.items()
    ]
    rows.append({"type": "Feature", "properties": {"name": None}, "geometry": rows[0]["geometry"]})
    (folder / "zones.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": rows}))


def zones(folder: Path, old: str = "", new: str = "") -> Config:
    features(folder)
    return parse_config(ZONES.replace(old, new), folder=folder)


def test_a_table_in_the_file_itself(tmp_path: Path) -> None:
    stream = zones(tmp_path, LIST, LIST + "\nmeasures = [1, 0, 2.5]").streams[0]
    domain = build_domain(stream)
    assert isinstance(domain, ZoneDomain)
    assert domain.names == ["harbour", "station"]
    assert stream.domain.fields == ("zone",)
    assert "3 zones" in view_of(stream).domain(stream)


def test_outlines_of_zones(tmp_path: Path) -> None:
    stream = zones(tmp_path, LIST, FILE + '\nx = "lon"\ny = "lat"').streams[0]
    domain = build_domain(stream)
    assert isinstance(domain, ZoneDomain)
    assert domain.names == ["harbour", "7", "market"], "along the map, not as written"
    assert domain.record_fields == stream.domain.fields == ("zone", "lon", "lat")
    assert domain is build_domain(stream)
    # Market is twice as large as harbour and a little more than twice as large as 7, further north: about a half.
    assert abs(domain.left_shares(np.array([1]), np.array([0]))[0] / 2**20 - 0.5) < 0.01


@pytest.mark.parametrize(
    ("old", "new", "key", "fragment"),
    [
        (LIST, "", f"{KEY}.zones", "missing"),
        (LIST, LIST + "\n" + FILE, f"{KEY}.zones", "a file is named as well"),
        (LIST, "zones = []", f"{KEY}.zones", "too few"),
        (LIST, 'zones = ["a", "a"]', f"{KEY}.zones", "twice"),
        (LIST, 'zones = ["a", ""]', f"{KEY}.zones", "empty text"),
        (LIST, "zones = [1, 2]", f"{KEY}.zones[0]", "text"),
        (LIST, LIST + "\nmeasures = [1, 2]", f"{KEY}.measures", "are 2 for 3"),
        (LIST, LIST + "\nmeasures = [0, 0, 0]", f"{KEY}.measures", "all 0"),
        (LIST, LIST + "\nmeasures = [1, -1, 0]", f"{KEY}.measures[1]", "at least 0"),
        (LIST, LIST + '\nx = "lon"', f"{KEY}.y", "missing"),
        (LIST, LIST + '\nx = "lon"\ny = "lat"', f"{KEY}.x", "needs a file with the outlines"),
        (LIST, FILE + '\nx = "lon"\ny = "lon"', f"{KEY}.y", "already serves as domain.x"),
        (LIST, FILE + '\nx = "t"\ny = "lat"', f"{KEY}.x", "already serves"),
        (LIST, FILE + '\nname_property = "id"', f"{KEY}.name_property", "no feature"),
        ('field = "zone"\n', 'field = "t"\n', f"{KEY}.field", "already serves"),
    ],
)
def test_tables_that_are_none_are_refused(tmp_path: Path, old: str, new: str, key: str, fragment: str) -> None:
    with pytest.raises(ConfigError) as refused:
        zones(tmp_path, old, new)
    assert any(each.key == key and fragment in each.reason for each in refused.value.problems), str(refused.value)


@pytest.mark.parametrize("mode", ["default", "paper"])
def test_a_simulation_over_zones(tmp_path: Path, mode: str) -> None:
    """Names in, names and places out; numbers of zones are texts in both."""
    config = zones(tmp_path, LIST, FILE + '\nx = "lon"\ny = "lat"\n[streams.options]\ndepth = 4')
    stream = config.streams[0].model_copy(update={"mode": mode})
    random = np.random.default_rng(0)
    names = [*WHERE, "nowhere"]
    with (tmp_path / "events.csv").open("w") as file:
        file.write("t,zone\n")
        for at in sorted(random.integers(1451606400, 1451606400 + 5 * 3600, 3000).tolist()):
            file.write(f"{at},{names[min(int(random.exponential(1)), 3)]}\n")
    run: Any = config.model_copy(update={"streams": (stream,)})
    (done,) = simulate(run, tmp_path / "events.csv", tmp_path / "out", seed=1)
    [refused] = done.refused
    assert (refused.reason, refused.name) == ("OUTSIDE_DOMAIN", "zone")
    assert done.events + refused.rows == 3000
    with (tmp_path / "out" / "synthetic.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["t", "zone", "lon", "lat"]
    for row in rows:
        assert shapely.intersects_xy(WHERE[row["zone"]], float(row["lon"]), float(row["lat"]))
    assert done.metrics["error_small"] < 0.2
    assert "Error of zone counts" in (tmp_path / "out" / "report.html").read_text()

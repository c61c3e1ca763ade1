"""`kind = "geojson"`: what can be told of a map before any geometry is built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents.local.offline.domains import check_streams
from engines.core.registry import build_domain
from engines.spatial.domain.lines import LineDomain
from engines.spatial.domain.polygons import PolygonDomain
from schemas.config import Config, ConfigError, parse_config
from schemas.config.spatial import GeoJsonDomainSection

TEXT = """
[kafka]
bootstrap = "localhost:9092"
[[streams]]
name = "taxi"
engine = "spatial"
source = "raw.taxi"
[streams.privacy]
epsilon = 1.0
unit = "event"
[streams.time]
field = "t"
format = "s"
start = "2016-01-01T00:00:00"
step = "6h"
clock = "replay"
[streams.domain]
kind = "geojson"
x = "lon"
y = "lat"
file = "map.geojson"
[streams.options]
depth = 10
"""
SQUARE = [[0, 50], [1, 50], [1, 51], [0, 51], [0, 50]]
GOOD = {"type": "Polygon", "coordinates": [SQUARE]}
KEY = "streams[0].domain"


def read(folder: Path, content: Any, text: str = TEXT) -> Config:
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
    assert check_streams(config) == {"taxi": ()}


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
        read(tmp_path, GOOD, TEXT.replace(old, new))
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
    config = read(tmp_path, content, TEXT.replace("depth = 10", f"depth = {depth}"))
    with pytest.raises(ConfigError) as refused:
        check_streams(config)
    (problem,) = refused.value.problems
    assert problem.key == KEY
    assert fragment in problem.reason


def test_a_repair_is_remarked(tmp_path: Path) -> None:
    bowtie = {"type": "Polygon", "coordinates": [[[0, 50], [1, 51], [1, 50], [0, 51], [0, 50]]]}
    (remark,) = check_streams(read(tmp_path, bowtie))["taxi"]
    assert "1 polygons of its map cross themselves" in remark

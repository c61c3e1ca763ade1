"""Shapes for the tests of domains: random polygons and lines, and a slow twin of their measure."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import shapely

from engines.core.contract import Columns
from engines.spatial.domain.base import SpatialDomain
from engines.spatial.domain.geojson import parsed, shape_of
from engines.spatial.domain.lines import LineDomain
from engines.spatial.domain.polygons import PolygonDomain
from engines.spatial.domain.sphere import band

XY = ("x", "y")


def star(random: np.random.Generator, *, corners: int, at: tuple[float, float], radius: float) -> Any:
    """A polygon whose corners lie around a place, in order."""
    angles = np.sort(random.random(corners)) * 2 * np.pi
    reach = radius * (0.1 + 0.9 * random.random(corners))
    return shapely.Polygon(np.stack([at[0] + reach * np.cos(angles), at[1] + reach * np.sin(angles)], axis=1))


def patchwork(seed: int) -> Any:
    """Stars, boxes on round coordinates and slivers, with holes, near and far from each other; several parts."""
    random = np.random.default_rng(seed)
    parts = []
    for _ in range(random.integers(1, 5)):
        at = tuple(random.uniform(-3, 3, 2) * [1, 0.7] + [10, 50])
        kind = random.integers(3)
        if kind == 0:
            parts.append(star(random, corners=int(random.integers(3, 12)), at=at, radius=random.uniform(0.05, 2)))
        elif kind == 1:
            x, y = np.floor(np.array(at))
            parts.append(shapely.box(x, y, x + random.integers(1, 3), y + random.integers(1, 3)))
        else:
            along = random.uniform(-2, 2, 2)
            across = 1e-3 * random.random() * np.array([-along[1], along[0]])
            parts.append(shapely.Polygon([at, at + along, at + along + across, at + across]))
    whole = shapely.union_all(shapely.make_valid(np.array(parts)))
    hole = star(random, corners=5, at=tuple(shapely.get_coordinates(shapely.centroid(whole))[0]), radius=0.3)
    if random.random() < 0.5:
        whole = shapely.difference(whole, shapely.make_valid(hole))
    return whole if shapely.area(whole) > 0 else shapely.box(9, 49, 11, 51)


def network(seed: int) -> list[list[tuple[float, float]]]:
    """Streets in a few kilometres: askew, level, upright, on round coordinates, touching, alone."""
    random = np.random.default_rng(seed)
    roads = []
    for _ in range(random.integers(1, 9)):
        start = random.uniform(0, 0.05, 2) if random.random() < 0.7 else np.round(random.uniform(0, 0.05, 2), 2)
        steps = random.normal(0, 0.01, (random.integers(1, 5), 2))
        if random.random() < 0.3:
            steps[:, random.integers(2)] = 0.0
        roads.append([(10 + float(x), 50 + float(y)) for x, y in np.cumsum([start, *steps], axis=0)])
    return roads


def polygons(geometry: Any, depth: int) -> PolygonDomain:
    return PolygonDomain(XY, shape_of(np.array([geometry])), depth)


def lines(coordinates: list[list[tuple[float, float]]], depth: int, *, reach_m: float = 100.0) -> LineDomain:
    document = {"type": "MultiLineString", "coordinates": coordinates}
    return LineDomain(XY, shape_of(parsed(json.dumps(document))), depth, reach_m=reach_m)


def encoded(domain: SpatialDomain, x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Codes and reasons."""
    x, y = np.array(x, float), np.array(y, float)
    keys, reasons = domain.encode(Columns({"x": x, "y": y}, {}, np.ones(len(x), np.int8)))
    return keys[:, 0].astype(np.int64) >> 1, reasons


def square_metres(geometry: Any) -> float:
    """Of polygons, by a map that keeps areas: latitudes become `band`s, edges many short ones."""
    fine = shapely.segmentize(geometry, 0.002)
    points = shapely.get_coordinates(fine)
    points[:, 1] = band(points[:, 1])
    return float(shapely.area(shapely.set_coordinates(fine, points)))


def inside(geometry: Any, seed: int, count: int) -> np.ndarray:
    """`(points, 2)` of a geometry: all corners, points on borders, and random ones."""
    random = np.random.default_rng(seed)
    corners = shapely.get_coordinates(geometry)
    west, south, east, north = shapely.bounds(geometry)
    somewhere = random.uniform([west, south], [east, north], (count, 2))
    # Round numbers lie on lines of the grid where the geometry does.
    rounded = np.round(random.uniform([west, south], [east, north], (count, 2)), 1)
    points = np.concatenate([corners, somewhere, rounded])
    there = shapely.intersects_xy(geometry, *points.T)
    result: np.ndarray = points[there]
    return result

"""Spatial streams that engines are compared on: the papers' circles, and cities' events from ../shared/data.

A stream is a list of steps of inserted and deleted points of a public domain, an initialisation time t0 (a tenth of the
steps, at least 200 events and one ttl, or nothing), and steps at which it is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from benchmarks.data import DATA
from benchmarks.size import sized
from engines.core.contract import Columns
from engines.spatial.domain.box import BoxDomain
from engines.spatial.domain.geojson import parsed, shape_of
from engines.spatial.domain.lines import LineDomain, map_of
from engines.spatial.domain.polygons import PolygonDomain
from engines.spatial.evaluators import SpatialEvaluator
from schemas.blocks import Folded

DEPTH = sized(18, smallest=12)
EVALUATIONS = sized(12, smallest=2)
FIRST = sized(range(1, 11), smallest=range(1, 3))
"""Steps at which a stream is evaluated of which nothing is gathered: step 0 is its first release."""
EARLY = 0.1
"""Share of the steps that come before t0."""
Bounds = tuple[float, float, float, float]
Domain = BoxDomain | PolygonDomain | LineDomain
Points = np.ndarray
NOTHING: Points = np.zeros((0, 2))


@dataclass(frozen=True)
class StreamData:
    """One stream. `inserts` and `deletes` hold `(events, 2)` points for each step; `ttl` deletes are not among them."""

    domain: Domain
    inserts: list[Points]
    deletes: list[Points]
    ttl: int | None
    initial_steps: int

    @staticmethod
    def of(
        domain: Domain, inserts: list[Points], deletes: list[Points], *, ttl: int | None, early: float
    ) -> StreamData:
        """Put points where they belong in the domain; t0 is at least at this share of the steps, and 0 for 0."""
        inserts = [located(domain, points) for points in inserts]
        deletes = [located(domain, points) for points in deletes]
        sizes = np.cumsum([len(points) for points in inserts])
        start = max(int(len(inserts) * early), int(np.searchsorted(sizes, 200)), ttl or 0) if early else 0
        return StreamData(domain, inserts, deletes, ttl, start + 1)

    @property
    def spread(self) -> list[int]:
        """Some steps after t0, far apart."""
        first = self.initial_steps + 2
        return np.unique(np.linspace(first, len(self.inserts) - 1, EVALUATIONS).astype(int)).tolist()

    def batch(self, step: int) -> Folded:
        """Events of a step, as an engine gets them."""
        return encoded(self.domain, self.inserts[step], self.deletes[step])

    def alive(self, step: int, domain: Domain) -> Folded:
        """Everything inserted until `step` and neither deleted nor expired, in a domain's keys."""
        first = 0 if self.ttl is None else max(0, step - self.ttl + 1)
        return encoded(
            domain, np.concatenate(self.inserts[first : step + 1]), np.concatenate(self.deletes[first : step + 1])
        )

    @cached_property
    def evaluator(self) -> SpatialEvaluator:
        """Rectangles in the domain's bounding box."""
        bounds = self.domain.bounds
        return SpatialEvaluator.over(BoxDomain("x", "y", bounds, DEPTH))


def inside(domain: Domain, points: Points) -> np.ndarray:
    """`(points,)` True where the domain takes a point."""
    _, reasons = domain.encode(Columns({"x": points[:, 0], "y": points[:, 1]}, {}, np.ones(len(points), np.int8)))
    return np.asarray(reasons == 0)


def located(domain: Domain, points: Points) -> Points:
    """Where points are in the domain: those near a road are moved onto it. That is what is asked for."""
    if isinstance(domain, BoxDomain):
        return points[inside(domain, points)]
    _, x, y, _ = domain.located(points[:, 0], points[:, 1])
    return np.stack([x, y], axis=1)


def encoded(domain: Domain, inserts: Points, deletes: Points) -> Folded:
    points = np.concatenate([inserts, deletes])
    signs = np.repeat(np.array([1, -1], np.int8), [len(inserts), len(deletes)])
    keys, reasons = domain.encode(Columns({"x": points[:, 0], "y": points[:, 1]}, {}, signs))
    return Folded.from_keys(keys[reasons == 0])


def box(*bounds: float) -> Callable[[], Domain]:
    west, south, east, north = bounds
    return lambda: BoxDomain("x", "y", (west, south, east, north), DEPTH)


def on_map(file: str, *, reach_m: float = 50.0) -> Callable[[], Domain]:
    """Polygons of a file, or its lines and what is so near to one."""
    return lambda: map_of(shape_of(parsed((DATA / file).read_bytes())), ("x", "y"), DEPTH, reach_m=reach_m)


@dataclass(frozen=True)
class Source:
    """A stream to be made.

    Attributes:
        make: from a seed (only simulated streams differ with it) and the share of steps before t0.
        needs: files under ../shared/data. tuned: whether constants of `default` were chosen on it.
    """

    make: Callable[[int, float], StreamData]
    needs: tuple[str, ...] = ()
    tuned: bool = False

    @property
    def missing(self) -> str | None:
        """Why it must be skipped, if so."""
        gone = [str(DATA / file) for file in self.needs if not (DATA / file).exists()]
        return f"{', '.join(gone)} is not there" if gone else None

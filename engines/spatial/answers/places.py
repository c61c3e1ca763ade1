"""Measured cells against the region of a question: rectangles on a plane, or runs of named zones.

Pure geometry of public things. Shares are by area in the units of the coordinates, or by the zones' measures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise, product
from typing import Any, Protocol

import numpy as np
import shapely

from engines.core.answers.contract import Asked, CountQuestion, QueryError
from engines.core.answers.where import atoms, holds, kind
from engines.spatial.domain import SpatialDomain, ZoneDomain
from schemas.arrays import BoolArray, FloatArray

_LEAST = 1e-9
"""Share of a cell below which it is rounding."""


class Cells(Protocol):
    """All different cells that were measured."""

    @property
    def sizes(self) -> FloatArray: ...

    def shares(self, question: CountQuestion) -> FloatArray:
        """`(cells,)` what of each is in the region; 0 and 1 exactly where none or all of it is. Raises: QueryError."""
        ...

    def inside(self, cell: int) -> BoolArray:
        """`(cells,)` which lie in one, and are smaller."""
        ...

    def covered(self, question: CountQuestion, which: BoolArray) -> float:
        """Size of the region's part that lies in any of these cells."""
        ...


def _clean(shares: FloatArray) -> FloatArray:
    return np.where(shares < _LEAST, 0.0, np.where(shares > 1 - _LEAST, 1.0, shares))


class MeasuredRectangles:
    """Cells `[xmin, ymin, xmax, ymax]`; of those across the antimeridian the west is above the east."""

    def __init__(self, cells: Sequence[tuple[float, ...]], fields: tuple[str, str]) -> None:
        self._fields = fields
        self._corners = np.array(cells, np.float64).reshape(-1, 4)
        self._shapes = np.array([_shape(cell) for cell in cells], object)
        self.sizes: FloatArray = shapely.area(self._shapes)
        self._bounds = shapely.total_bounds(self._shapes) if len(cells) else np.zeros(4)
        self._region = lru_cache(maxsize=8)(self._asked)

    def _asked(self, question: CountQuestion) -> Any:
        whole = shapely.box(*self._bounds)
        shape = whole if question.region is None else shapely.from_wkb(question.region)
        if len(self._shapes) and not shape.intersects(whole):
            west, south, east, north = self._bounds.tolist()
            x, y = self._fields
            raise QueryError(
                f"the region lies outside of {x} {west:g} to {east:g} and {y} {south:g} to {north:g}, where all events "
                f"are, so the count would always be 0. Fix: a region there; {x} comes first, then {y}."
            )
        if question.where is not None:
            shape = shape.intersection(self._where(question))
        shapely.prepare(shape)
        return shape

    def _where(self, question: CountQuestion) -> Any:
        """The rectangles in which a condition on coordinates holds, as one shape."""
        assert question.where is not None
        lows, highs = self._bounds[:2].tolist(), self._bounds[2:].tolist()
        lines: list[list[float]] = []
        for field, low, high in zip(self._fields, lows, highs, strict=True):
            named = {
                float(v) for a in atoms(question.where) if a.field == field for v in a.values if kind(v) == "number"
            }
            lines.append([low, *sorted(v for v in named if low < v < high), high])
        found = []
        for (west, east), (south, north) in product(pairwise(lines[0]), pairwise(lines[1])):
            middle = dict(zip(self._fields, ((west + east) / 2, (south + north) / 2), strict=True))
            if holds(question.where, middle):
                found.append(shapely.box(west, south, east, north))
        return shapely.union_all(found)

    def shares(self, question: CountQuestion) -> FloatArray:
        region = self._region(CountQuestion(0, 0, question.where, question.region))
        return _clean(shapely.area(shapely.intersection(self._shapes, region)) / self.sizes)

    def inside(self, cell: int) -> BoolArray:
        west, south, east, north = self._corners[cell]
        x0, y0, x1, y1 = self._corners.T
        found: BoolArray = (x0 >= west) & (y0 >= south) & (x1 <= east) & (y1 <= north) & (x0 <= x1)
        found &= (self.sizes < self.sizes[cell] * (1 - _LEAST)) & bool(west <= east)
        return found

    def covered(self, question: CountQuestion, which: BoolArray) -> float:
        region = self._region(CountQuestion(0, 0, question.where, question.region))
        return float(shapely.area(shapely.intersection(shapely.union_all(self._shapes[which]), region)))


def _shape(cell: tuple[float, ...]) -> Any:
    west, south, east, north = cell
    if west <= east:
        return shapely.box(west, south, east, north)
    return shapely.MultiPolygon([shapely.box(west, south, 180.0, north), shapely.box(-180.0, south, east, north)])


class Zones:
    """Cells that are zones beside each other in the table."""

    def __init__(self, cells: Sequence[tuple[str, ...]], field: str, measures: Mapping[str, float]) -> None:
        self._field = field
        self._names = list(measures)
        place = {name: index for index, name in enumerate(self._names)}
        self._weights = np.array(list(measures.values()), np.float64)
        self._member = np.zeros((len(cells), len(place)), np.bool_)
        for row, cell in enumerate(cells):
            self._member[row, [place[name] for name in cell]] = True
        self.sizes: FloatArray = self._member @ self._weights

    def _asked(self, question: CountQuestion) -> BoolArray:
        if question.region is not None:
            raise QueryError(
                "a region is asked for, and this stream knows zones by their names. Fix: a condition on "
                f"{self._field}, "
                f"such as \"{self._field} = '{self._names[0]}'\"."
            )
        if question.where is None:
            return np.ones(len(self._names), np.bool_)
        return np.array([holds(question.where, {self._field: name}) for name in self._names], np.bool_)

    def shares(self, question: CountQuestion) -> FloatArray:
        return _clean(self._member @ (self._weights * self._asked(question)) / self.sizes)

    def inside(self, cell: int) -> BoolArray:
        found: BoolArray = ~(self._member & ~self._member[cell]).any(axis=1)
        found &= self._member.sum(axis=1) < self._member[cell].sum()
        return found

    def covered(self, question: CountQuestion, which: BoolArray) -> float:
        return float((self._member[which].any(axis=0) & self._asked(question)) @ self._weights)


def fields_of(domain: SpatialDomain) -> Mapping[str, Asked]:
    """What a condition may name."""
    if isinstance(domain, ZoneDomain):
        return {domain.field: Asked(frozenset(("text",)), tuple(domain.names))}
    return {field: Asked(frozenset(("number",))) for field in domain.number_fields}

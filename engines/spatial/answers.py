"""Counts of regions from held leaf counters: every event is in one measured cell, so cells are added up.

Each measurement is the net number of the events of some steps in one cell, once, with noise of its own: the sum of the
cells and steps that make a question is unbiased, its noise has the sum of their variances, and no other combination of
what was measured says more of these events. What the region or the steps cut is shared as finer cells say, or evenly.
Shares are by area in the units of the coordinates, or by the zones' measures.
Privacy: post-processing of measurements.
Source: ours; docs/notes/0030-held-leaf-counters.md for what is measured when.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise, product
from typing import Any

import numpy as np
import shapely

from engines.core.answers.contract import (
    Answerer,
    Asked,
    CountAnswer,
    CountQuestion,
    Measured,
    QueryError,
    Sum,
    answered,
)
from engines.core.answers.where import Where, atoms, holds, kind
from engines.core.registry import uncorrected_engine
from engines.spatial.build import domain
from engines.spatial.domain.zones import ZoneDomain
from engines.spatial.held.engine import HeldLeaves
from schemas.arrays import BoolArray, FloatArray
from schemas.config import Stream

_LEAST = 1e-9
"""Share of a cell below which it is rounding."""


def _clean(shares: FloatArray) -> FloatArray:
    return np.where(shares < _LEAST, 0.0, np.where(shares > 1 - _LEAST, 1.0, shares))


class MeasuredRectangles:
    """Measured cells `[xmin, ymin, xmax, ymax]`; where one crosses the antimeridian its west is above its east.

    Attributes:
        sizes: `(cells,)`, of all different cells that were measured.
    """

    def __init__(self, cells: Sequence[tuple[float, ...]], fields: tuple[str, str]) -> None:
        self._fields = fields
        self._corners = np.array(cells, np.float64).reshape(-1, 4)
        self._shapes = np.array([_shape(cell) for cell in cells], object)
        self.sizes: FloatArray = shapely.area(self._shapes)
        self._bounds = shapely.total_bounds(self._shapes) if len(cells) else np.zeros(4)
        self._region = lru_cache(maxsize=8)(self._asked)

    def _asked(self, where: Where | None, region: bytes | None) -> Any:
        """Return the shape that a question is of."""
        whole = shapely.box(*self._bounds)
        shape = whole if region is None else shapely.from_wkb(region)
        if len(self._shapes) and not shape.intersects(whole):
            west, south, east, north = self._bounds.tolist()
            x, y = self._fields
            raise QueryError(
                f"the region lies outside of {x} {west:g} to {east:g} and {y} {south:g} to {north:g}, where all events "
                f"are, so the count would always be 0. Fix: a region there; {x} comes first, then {y}."
            )
        if where is not None:
            shape = shape.intersection(self._holding(where))
        shapely.prepare(shape)
        return shape

    def _holding(self, where: Where) -> Any:
        """Return the rectangles in which a condition on coordinates holds, as one shape."""
        lows, highs = self._bounds[:2].tolist(), self._bounds[2:].tolist()
        lines: list[list[float]] = []
        for field, low, high in zip(self._fields, lows, highs, strict=True):
            named = {float(v) for a in atoms(where) if a.field == field for v in a.values if kind(v) == "number"}
            lines.append([low, *sorted(v for v in named if low < v < high), high])
        found = []
        for (west, east), (south, north) in product(pairwise(lines[0]), pairwise(lines[1])):
            middle = dict(zip(self._fields, ((west + east) / 2, (south + north) / 2), strict=True))
            if holds(where, middle):
                found.append(shapely.box(west, south, east, north))
        return shapely.union_all(found)

    def shares(self, question: CountQuestion) -> FloatArray:
        """Return each cell's share in the region, `(cells,)`, exactly 0 or 1 for none or all. Raises: QueryError."""
        region = self._region(question.where, question.region)
        return _clean(shapely.area(shapely.intersection(self._shapes, region)) / self.sizes)

    def inside(self, cell: int) -> BoolArray:
        """Return which cells lie in this one and are smaller, `(cells,)`."""
        west, south, east, north = self._corners[cell]
        x0, y0, x1, y1 = self._corners.T
        found: BoolArray = (x0 >= west) & (y0 >= south) & (x1 <= east) & (y1 <= north) & (x0 <= x1)
        found &= (self.sizes < self.sizes[cell] * (1 - _LEAST)) & bool(west <= east)
        return found

    def covered(self, question: CountQuestion, which: BoolArray) -> float:
        """Return the size of the region's part that lies in any of these cells."""
        region = self._region(question.where, question.region)
        return float(shapely.area(shapely.intersection(shapely.union_all(self._shapes[which]), region)))


def _shape(cell: tuple[float, ...]) -> Any:
    west, south, east, north = cell
    if west <= east:
        return shapely.box(west, south, east, north)
    return shapely.MultiPolygon([shapely.box(west, south, 180.0, north), shapely.box(-180.0, south, east, north)])


class Zones:
    """Measured cells that are zones beside each other in the table."""

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
                f"{self._field}, such as \"{self._field} = '{self._names[0]}'\"."
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


_ROUNDING = 1e-6
SMOOTHING_SD = 0.6
"""Standard deviations of what was measured below a cell by which its shares are smoothed, as in `held.estimate`."""


def answers(stream: Stream, measured: Measured, latest: int) -> Answerer:
    """Raises: QueryError in mode `paper`: its counts overlap, and hold expiries."""
    if stream.mode != "default":
        raise QueryError(
            f'mode "{stream.mode}" of engine {stream.engine} does not answer questions: its measurements hold expiries '
            'and overlap in ways that only its own estimates undo. Fix: mode = "default" for a new stream, or count '
            "the synthetic points (privstream export)."
        )
    made = domain(stream)
    places: list[Any] = [tuple(told["zones"] if "zones" in told else told["cell"]) for _, told in measured]
    order = {place: index for index, place in enumerate(dict.fromkeys(places))}
    cells: MeasuredRectangles | Zones
    fields: Mapping[str, Asked]
    if isinstance(made, ZoneDomain):
        fields = {made.field: Asked(frozenset(("text",)), tuple(made.names))}
        cells = Zones(list(order), made.field, dict(zip(made.names, made.measures, strict=True)))
    else:
        fields = {field: Asked(frozenset(("number",))) for field in made.number_fields}
        cells = MeasuredRectangles(list(order), (made.number_fields[0], made.number_fields[1]))
    engine = uncorrected_engine(stream)
    assert isinstance(engine, HeldLeaves)
    return SpatialAnswers(
        cells,
        np.array([order[place] for place in places], np.int64),
        measured,
        latest=latest,
        longest=engine.config.counter.longest,
        fields=fields,
        regions=not isinstance(made, ZoneDomain),
        deletes=stream.domain.operation_field is not None,
    )


class SpatialAnswers:
    """Implements `engines.core.answers.contract.Answerer`.

    Args:
        cells: the different ones; at: which one each measurement is of.
        latest: the last step that is public. longest: steps after which every cell is measured.
        deletes: whether events delete others, so that what waits may be negative.
    """

    series = ()

    def __init__(
        self,
        cells: MeasuredRectangles | Zones,
        at: np.ndarray,
        measured: Measured,
        *,
        latest: int,
        longest: int,
        fields: Mapping[str, Asked],
        regions: bool,
        deletes: bool,
    ) -> None:
        self._cells, self._at = cells, at
        self.fields, self.regions = fields, regions
        self._until = np.array([step for step, _ in measured], np.int64)
        since = np.array([told["since"] for _, told in measured], np.int64)
        # A later group of a burst is of the step itself.
        self._since = np.minimum(since, self._until - 1)
        self._values = np.array([told["increment"] for _, told in measured], np.float64)
        self._variances = np.array([told["variance"] for _, told in measured], np.float64)
        self._latest, self._longest, self._deletes = latest, longest, deletes
        self._nested: dict[int, BoolArray] = {}

    def answer(self, question: CountQuestion) -> CountAnswer:
        first, last = question.first, question.last
        begin, end = np.maximum(self._since, first - 1), np.minimum(self._until, last)
        time = np.clip(end - begin, 0, None) / (self._until - self._since)
        region = self._cells.shares(question)
        shared = self._shared(region, time > 0)
        whole = (region[self._at] >= 1) & (time >= 1)
        some = (region[self._at] > 0) & (time > 0)
        pending = self._pending(question)
        return answered(
            self._sum(shared[self._at] * time),
            self._sum(whole.astype(np.float64)),
            self._sum(some.astype(np.float64)),
            pending=pending,
            bounded=pending < _ROUNDING,
            signed=self._deletes,
        )

    @property
    def settled(self) -> int:
        oldest = max(self._latest - self._longest, -1)
        for step in range(self._latest, oldest, -1):
            if self._pending(CountQuestion(step, step)) < _ROUNDING:
                return step
        return oldest if len(self._until) else -1

    def _sum(self, weights: FloatArray) -> Sum:
        noise = weights * weights * self._variances
        return Sum(float(weights @ self._values), float(noise.sum()), float((noise * noise).sum()))

    def _shared(self, region: FloatArray, asked: BoolArray) -> FloatArray:
        """Return each cell's share of events in the region, `(cells,)`, as the cells inside say where it is cut."""
        mass = np.bincount(self._at[asked], np.maximum(self._values[asked], 0.0), len(region))
        noise = np.bincount(self._at[asked], self._variances[asked], len(region))
        shared = region.copy()
        cut = np.flatnonzero((region > 0) & (region < 1))
        for cell in cut[np.argsort(self._cells.sizes[cut], kind="stable")].tolist():
            below = self._nested.get(cell)
            if below is None:
                below = self._nested[cell] = self._cells.inside(cell)
            smooth = SMOOTHING_SD * np.sqrt(noise[below].sum()) + 0.5
            shared[cell] = (shared[below] @ mass[below] + smooth * region[cell]) / (mass[below].sum() + smooth)
        return shared

    def _pending(self, question: CountQuestion) -> float:
        """Return the share of the region and steps that no measurement covers yet; 0 after `longest` steps."""
        steps = question.last - question.first + 1
        open_from = max(question.first, self._latest - self._longest + 1, 0)
        beyond = max(0, question.last - self._latest)
        if open_from > question.last or not len(self._until):
            return 1.0 if not len(self._until) else 0.0
        recent = np.zeros(len(self._cells.sizes), np.bool_)
        recent[self._at[self._until > self._latest - self._longest]] = True
        size = self._cells.covered(question, recent)
        missing = float(beyond)
        for step in range(open_from, min(question.last, self._latest) + 1) if size > 0 else ():
            covering = np.zeros_like(recent)
            covering[self._at[self._until >= step]] = True
            missing += 1 - self._cells.covered(question, covering) / size
        return min(max(missing / steps, 0.0), 1.0)

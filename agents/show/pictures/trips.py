"""Trips: their points, some whole paths of each step, and how many go from where to where.

Flows are counted over all trips, between the cells of a fixed grid; paths are a sample, the same whenever it is taken.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from agents.show.pictures.contract import HISTORY
from agents.show.pictures.points import Box, PointPicture
from agents.show.pictures.sampling import place
from schemas.arrays import FloatArray

SIDE = 8
"""Cells of the flows' grid on a side."""
PATHS, FLOWS = 200, 80
"""Of a step, that are kept and shown."""


class _TripStep:
    """Trips that end in a step."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.trips = 0
        self.flows: Counter[tuple[int, int]] = Counter()
        self.paths: list[tuple[int, list[tuple[float, float]]]] = []

    def take(self, name: str, path: list[tuple[float, float]], flow: tuple[int, int]) -> None:
        self.trips += 1
        self.flows[flow] += 1
        entry = (-place(name), path)
        if len(self.paths) < PATHS:
            heapq.heappush(self.paths, entry)
        elif entry[0] > self.paths[0][0]:
            heapq.heapreplace(self.paths, entry)


class TripPicture:
    """Implements `agents.show.pictures.contract.Picture`. Records of a trip come one behind the other, in order.

    Args: trip, order: fields that hold the trip's name and the place of a point in it; see `PointPicture`.
    """

    kind = "trips"
    binary = True

    def __init__(
        self,
        trip: str,
        order: str,
        x: str,
        y: str,
        bounds: Box,
        *,
        outline: Sequence[FloatArray] = (),
        degrees: bool = False,
    ) -> None:
        self._points = PointPicture(x, y, bounds, outline=outline, degrees=degrees)
        self._trip, self._order, self._x, self._y, self._bounds = trip, order, x, y, bounds
        self._steps: deque[_TripStep] = deque(maxlen=HISTORY)
        self._open: str | None = None
        self._path: list[tuple[float, float]] = []
        self._trips = 0

    def add(self, step: int, key: str, fields: Mapping[str, Any]) -> None:
        name = str(fields[self._trip])
        x, y = float(fields[self._x]), float(fields[self._y])
        if not self._points.put(step, place(key), x, y):
            return
        if self._open != name or not self._steps or self._steps[-1].number != step:
            self._close()
            if not self._steps or self._steps[-1].number != step:
                self._steps.append(_TripStep(step))
            self._open = name
        self._path.append((x, y))

    def remove(self, step: int, key: str) -> None:
        self._points.remove(step, key)

    def end(self, step: int) -> None:
        self._close()
        self._points.end(step)

    def _close(self) -> None:
        if self._open is not None and self._path:
            self._trips += 1
            self._steps[-1].take(self._open, self._path, (self._cell(self._path[0]), self._cell(self._path[-1])))
        self._open, self._path = None, []

    def _cell(self, point: tuple[float, float]) -> int:
        xmin, ymin, xmax, ymax = self._bounds
        column = min(max(int((point[0] - xmin) / (xmax - xmin) * SIDE), 0), SIDE - 1)
        row = min(max(int((point[1] - ymin) / (ymax - ymin) * SIDE), 0), SIDE - 1)
        return row * SIDE + column

    def about(self) -> Mapping[str, Any]:
        return {**self._points.about(), "side": SIDE}

    def shown(self) -> Mapping[str, Any]:
        return {**self._points.shown(), "trips": self._trips, "what": "points of trips"}

    def body(self, query: Mapping[str, int]) -> bytes:
        """Points, as `PointPicture` has them; with `step`, JSON of that step's paths and flows."""
        if "step" not in query:
            return self._points.body(query)
        found = next((step for step in self._steps if step.number == query["step"]), None)
        if found is None:
            return orjson.dumps({"step": query["step"], "trips": 0, "paths": [], "flows": []})
        flows = found.flows.most_common(FLOWS)
        return orjson.dumps(
            {
                "step": found.number,
                "trips": found.trips,
                "paths": [path for _, path in found.paths],
                "flows": [[start, end, count] for (start, end), count in flows],
                "flows_total": len(found.flows),
            }
        )

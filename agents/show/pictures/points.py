"""Points that appear and are withdrawn: append-only arrays, of which the page asks for what is new.

Memory is bounded: beyond `capacity` points, those go that were withdrawn long ago, then every second one, by a hash of
its key. The page is told how many there are and how many it is shown.
Units: coordinates as in the records, less the lower corner of the bounds, as float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from agents.show.pictures.contract import HISTORY
from agents.show.pictures.sampling import limit, place
from schemas.arrays import FloatArray

CAPACITY = 1_000_000
_FARTHEST = float(np.finfo(np.float32).max)
Box = tuple[float, float, float, float]
"""xmin, ymin, xmax, ymax."""


def check_place(x: float, y: float) -> None:
    """Raises: ValueError if a coordinate is no number that a float32 holds."""
    if not (abs(x) <= _FARTHEST and abs(y) <= _FARTHEST):
        raise ValueError("a point that is nowhere")


class PointPicture:
    """Implements `agents.show.pictures.contract.Picture`.

    Args:
        x, y: fields of the records.
        bounds: of the map. Where they go beyond 180 degrees, longitudes below them go around the earth.
        outline: polygons or lines, `(points, 2)` each, in the records' coordinates.
        degrees: coordinates are longitude and latitude.
    """

    kind = "points"
    binary = True

    def __init__(
        self,
        x: str,
        y: str,
        bounds: Box,
        *,
        outline: Sequence[FloatArray] = (),
        degrees: bool = False,
        capacity: int = CAPACITY,
    ) -> None:
        self._fields, self._bounds, self._outline, self._degrees = (x, y), bounds, outline, degrees
        self._capacity = capacity
        self._alive: dict[int, int] = {}
        self._places = np.zeros(1024, np.uint64)
        self._xy = np.zeros((1024, 2), np.float32)
        self._born = np.zeros(1024, np.int32)
        self._died = np.full(1024, -1, np.int32)
        self._deaths: list[int] = []
        self._used = self._level = self._generation = self._total = 0
        self._newest = -1
        self._whole: tuple[Mapping[str, Any], bytes] = ({}, b"")

    def add(self, step: int, key: str, fields: Mapping[str, Any]) -> None:
        self.put(step, place(key), float(fields[self._fields[0]]), float(fields[self._fields[1]]))

    def put(self, step: int, where: int, x: float, y: float) -> bool:
        """A point whose key has this `place`. Returns whether it was not there. Raises: ValueError if it is nowhere."""
        xmin, ymin = self._bounds[:2]
        check_place(x - xmin, y - ymin)
        if self._degrees and x < xmin:
            x += 360.0
        if where in self._alive:
            return False
        self._total += 1
        self._newest = max(self._newest, step)
        if where >= limit(self._level):
            return True
        if self._used >= self._capacity:
            self._thin()
            if where >= limit(self._level):
                return True
        if self._used == len(self._born):
            self._grow()
        at = self._used
        self._alive[where] = at
        self._places[at], self._xy[at], self._born[at], self._died[at] = where, (x - xmin, y - ymin), step, -1
        self._used += 1
        return True

    def remove(self, step: int, key: str) -> None:
        self._newest = max(self._newest, step)
        where = place(key)
        at = self._alive.pop(where, None)
        if at is not None:
            self._died[at] = step
            self._deaths.append(at)
        self._total -= at is not None or where >= limit(self._level)

    def end(self, step: int) -> None:
        self._newest = max(self._newest, step)

    def about(self) -> Mapping[str, Any]:
        return {
            "fields": self._fields,
            "bounds": self._bounds,
            "degrees": self._degrees,
            "outline": [np.round(line, 6).tolist() for line in self._outline],
        }

    def shown(self) -> Mapping[str, Any]:
        return {
            "shown": len(self._alive),
            "total": max(self._total, len(self._alive)),
            "what": "points",
            "first": self._first(),
        }

    def body(self, query: Mapping[str, int]) -> bytes:
        """Points and deaths that come after those the page has, of the generation that it names; else all of them.

        A header of JSON behind its length (uint32), padded to four bytes; then x and y of each point (float32), the
        steps of birth (int32), and of each death the number of the point and its step (int32).
        """
        same = query.get("generation") == self._generation
        points = min(max(query.get("points", 0), 0), self._used) if same else 0
        deaths = min(max(query.get("deaths", 0), 0), len(self._deaths)) if same else 0
        header = {
            "generation": self._generation,
            "from_point": points,
            "points": self._used,
            "from_death": deaths,
            "deaths": len(self._deaths),
            "step": self._newest,
            **self.shown(),
        }
        if points or deaths:
            return self._packed(header)
        if self._whole[0] != header:  # all pages that ask for all of it share these bytes
            self._whole = (header, self._packed(header))
        return self._whole[1]

    def _packed(self, header: Mapping[str, Any]) -> bytes:
        points, deaths = header["from_point"], header["from_death"]
        died = np.array(self._deaths[deaths:], np.int32)
        words = orjson.dumps(header)
        words += b" " * (-len(words) % 4)
        parts = (self._xy[points : self._used], self._born[points : self._used], died, self._died[died])
        little = [np.ascontiguousarray(part, part.dtype.newbyteorder("<")).tobytes() for part in parts]
        return b"".join([len(words).to_bytes(4, "little"), words, *little])

    def _first(self) -> int:
        """The first step of which the picture is whole."""
        return max(0, self._newest - HISTORY + 1)

    def _grow(self) -> None:
        size = min(2 * len(self._born), self._capacity)
        for name in ("_places", "_xy", "_born", "_died"):
            old = getattr(self, name)
            new = np.zeros((size, *old.shape[1:]), old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)

    def _thin(self) -> None:
        """Make room: without points that were withdrawn before the slider begins, then without every second one."""
        used = slice(0, self._used)
        died = self._died[used]
        keep = (died < 0) | (died > self._first())
        while np.count_nonzero(keep) > 0.9 * self._capacity:
            self._level += 1
            keep &= self._places[used] < np.uint64(limit(self._level))
        for name in ("_places", "_xy", "_born", "_died"):
            array = getattr(self, name)
            kept = array[used][keep]
            array[: len(kept)] = kept
        self._used = int(np.count_nonzero(keep))
        died = self._died[: self._used]
        self._alive = {int(self._places[at]): at for at in np.flatnonzero(died < 0).tolist()}
        dead = np.flatnonzero(died >= 0)
        self._deaths = dead[np.argsort(died[dead], kind="stable")].tolist()
        self._generation += 1

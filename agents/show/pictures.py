"""What the live page draws of a synthetic stream, made of its public records alone: one class for each kind of picture.

Nothing private can come here: a picture sees what consumers of the public topics see, and the declared domain. Memory
is bounded, and the page is told how much of the stream it is shown. Beyond their capacity points and rows are sampled
by a hash of their keys: a record that is withdrawn is found in the sample if it was put there, and a smaller sample is
a part of a larger one.
"""

from __future__ import annotations

import bisect
import hashlib
import heapq
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from agents.show.text import value_text
from schemas.arrays import FloatArray
from schemas.config.records import WEIGHT
from schemas.releases import STEP_LIMIT

HISTORY = 400
"""Steps back to which the page's slider goes. Older ones are in the totals, and in the topics."""
MOST_POINTS, MOST_ROWS, MOST_NUMBERS = 1_000_000, 500_000, 5_000
"""Points, rows of a table, and steps of a series that are kept."""
MOST_CELLS = 4_000_000
"""Counts of a table or of states that are kept, of all steps."""
_FARTHEST = float(np.finfo(np.float32).max)
Box = tuple[float, float, float, float]
"""xmin, ymin, xmax, ymax."""


def step_of(value: Any) -> int:
    """Return a step that a record names in its fields. Raises: TypeError or ValueError if it is none."""
    step = int(value)
    if not 0 <= step < STEP_LIMIT:
        raise ValueError("no step")
    return step


def place(key: str) -> int:
    """Return 64 bits of a hash of the key."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little")


def limit(level: int) -> int:
    """Return the number below which `place` is of keys in a sample of one in 2**level."""
    return (1 << 64) >> level


def total_of(counted: int, kept: int, level: int, *, weighted: bool) -> int:
    """Return how many records there are, of which so many are in the sample of one in 2**level. Where they come again
    with another weight, those beyond the sample cannot be told from new ones, and the sample says it.
    """
    return kept << level if weighted and level else max(counted, kept)


class Picture:
    """What a stream's public records show. This one keeps nothing: the page then shows the ledger's counts alone.

    `add` and `remove` raise KeyError, TypeError or ValueError on a record that is not of the picture's kind.

    Attributes:
        kind: how the page draws it: "points", "trips", "table", "series", "states", "keys"; of any other it shows
            counts.
        binary: whether `body` is other than JSON.
    """

    kind = "counts"
    binary = False

    def add(self, step: int, key: str, fields: Mapping[str, Any]) -> None:
        """Take in a record that appears in `step`. One that is there comes again, and is passed over, or takes the
        place of the one with its key and another weight.
        """

    def remove(self, step: int, key: str) -> None:
        """Take away a record that is withdrawn in `step`; unknown ones are passed over: topics are compacted."""

    def end(self, step: int) -> None:
        """Note that all records of `step` have been taken in."""

    def about(self) -> Mapping[str, Any]:
        """Return what does not change: fields, bounds, labels. JSON-able."""
        return {}

    def shown(self) -> Mapping[str, Any]:
        """Return `shown` of `total`, and `what` these are: how much of the stream the picture holds. JSON-able."""
        return {}

    def body(self, query: Mapping[str, int]) -> bytes:
        """Return what the page draws. Raises: KeyError where there is nothing for this query."""
        return b"{}"


_POINT = np.dtype(
    [("place", np.uint64), ("xy", np.float32, 2), ("born", np.int32), ("died", np.int32), ("weight", np.int32)]
)
"""A point; `died` is -1 while it is there."""
MOST_WEIGHT = 2**31 - 1


def weight_of(fields: Mapping[str, Any], *, weighted: bool) -> int:
    """Return how many events a record stands for. Raises: KeyError, TypeError, ValueError if it does not say it."""
    if not weighted:
        return 1
    weight = fields[WEIGHT]
    if type(weight) is not int or not 1 <= weight <= MOST_WEIGHT:
        raise ValueError("no weight")
    return weight


class PointPicture(Picture):
    """Points that appear and are withdrawn: an append-only array, of which the page asks for what is new.

    Beyond `capacity` points, those go that were withdrawn long ago, then every second one, by a hash of its key.
    Coordinates are sent less the lower corner of the bounds, as float32.

    Args:
        x, y: fields of the records.
        bounds: of the map. Where they go beyond 180 degrees, longitudes below them go around the earth.
        outline: polygons or lines, `(points, 2)` each, in the records' coordinates.
        degrees: coordinates are longitude and latitude.
        weighted: records have weights. One whose weight changes is drawn as one that goes and another that comes.
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
        weighted: bool = False,
        capacity: int = MOST_POINTS,
    ) -> None:
        self._weighted = weighted
        self._fields, self._bounds, self._outline, self._degrees = (x, y), bounds, outline, degrees
        self._capacity = capacity
        self._alive: dict[int, int] = {}
        self._points = np.zeros(capacity, _POINT)  # memory is taken as it is used
        self._deaths: list[int] = []
        self._used = self._level = self._generation = self._total = 0
        self._newest = -1
        self._whole: tuple[Mapping[str, Any], bytes] = ({}, b"")

    def add(self, step: int, key: str, fields: Mapping[str, Any]) -> None:
        weight = weight_of(fields, weighted=self._weighted)
        self.put(step, place(key), float(fields[self._fields[0]]), float(fields[self._fields[1]]), weight)

    def put(self, step: int, where: int, x: float, y: float, weight: int = 1) -> bool:
        """Take in a point whose key has this `place`. Returns: whether it was not there.

        Raises: ValueError if a coordinate is no number that a float32 holds.
        """
        xmin, ymin = self._bounds[:2]
        if not (abs(x - xmin) <= _FARTHEST and abs(y - ymin) <= _FARTHEST):
            raise ValueError("a point that is nowhere")
        if self._degrees and x < xmin:
            x += 360.0
        if (at := self._alive.get(where)) is not None:
            if self._points["weight"][at] == weight:
                return False
            self._remove(step, where)
        self._total += 1
        self._newest = max(self._newest, step)
        if where >= limit(self._level):
            return True
        if self._used >= self._capacity:
            self._thin()
            if where >= limit(self._level):
                return True
        self._points[self._used] = where, (x - xmin, y - ymin), step, -1, weight
        self._alive[where] = self._used
        self._used += 1
        return True

    def remove(self, step: int, key: str) -> None:
        self._newest = max(self._newest, step)
        self._remove(step, place(key))

    def _remove(self, step: int, where: int) -> None:
        at = self._alive.pop(where, None)
        if at is not None:
            self._points["died"][at] = step
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
            "weighted": self._weighted,
        }

    def shown(self) -> Mapping[str, Any]:
        return {
            "shown": len(self._alive),
            "total": total_of(self._total, len(self._alive), self._level, weighted=self._weighted),
            "what": "places with weights" if self._weighted else "points",
            "first": self._first(),
        }

    def body(self, query: Mapping[str, int]) -> bytes:
        """Return points and deaths after those the page has of the generation that it names; else all of them.

        A header of JSON behind its length (uint32), padded to four bytes; then x and y of each point (float32), the
        steps of birth (int32), of weighted points their weights (int32), and of each death the number of the point and
        its step (int32).
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
        added = self._points[points : self._used]
        weights = (added["weight"],) if self._weighted else ()
        parts = (added["xy"], added["born"], *weights, died, self._points["died"][died])
        little = [np.ascontiguousarray(part, part.dtype.newbyteorder("<")).tobytes() for part in parts]
        return b"".join([len(words).to_bytes(4, "little"), words, *little])

    def _first(self) -> int:
        """Return the first step of which the picture is whole."""
        return max(0, self._newest - HISTORY + 1)

    def _thin(self) -> None:
        """Make room: without points that were withdrawn before the slider begins, then without every second one."""
        points = self._points[: self._used]
        keep = (points["died"] < 0) | (points["died"] > self._first())
        while np.count_nonzero(keep) > 0.9 * self._capacity:
            self._level += 1
            keep &= points["place"] < np.uint64(limit(self._level))
        kept = points[keep]
        self._used = len(kept)
        self._points[: self._used] = kept
        died = kept["died"]
        self._alive = {int(kept["place"][at]): at for at in np.flatnonzero(died < 0).tolist()}
        dead = np.flatnonzero(died >= 0)
        self._deaths = dead[np.argsort(died[dead], kind="stable")].tolist()
        self._generation += 1


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

    def put(self, name: str, path: list[tuple[float, float]], flow: tuple[int, int]) -> None:
        self.trips += 1
        self.flows[flow] += 1
        entry = (-place(name), path)
        if len(self.paths) < PATHS:
            heapq.heappush(self.paths, entry)
        elif entry[0] > self.paths[0][0]:
            heapq.heapreplace(self.paths, entry)


class TripPicture(Picture):
    """Trips: their points, some whole paths of each step, and how many go from where to where.

    Flows are counted over all trips, between the cells of a fixed grid; paths are a sample, the same whenever it is
    made. Records of a trip come one behind the other, in order.

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
            self._steps[-1].put(self._open, self._path, (self._cell(self._path[0]), self._cell(self._path[-1])))
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
        """Return points, as `PointPicture` has them; with `step`, JSON of that step's paths and flows."""
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


OTHER, MISSING = "(other)", "(missing)"


def _text(value: object) -> str:
    return orjson.dumps(value).decode()


@dataclass(frozen=True, slots=True)
class AttributeCells:
    """An attribute: listed values, or bins between `edges`, or values that are found. Two more cells are for other
    values and for null.

    Args:
        found: number of values that are found at most; their cells are in the order in which records first have them.
        other: what records have that stands for other values, where values are found.
    """

    field: str
    values: Sequence[Any] = ()
    edges: Sequence[float] = ()
    found: int = 0
    other: str = ""

    @property
    def size(self) -> int:
        """Number of cells, without those for other values and for null."""
        return self.found or (len(self.edges) - 1 if self.edges else len(self.values))

    @property
    def known(self) -> dict[str, int]:
        """Cells of values that are known from the start, by `_text`."""
        return {_text(self.other): self.size} if self.found else {_text(v): at for at, v in enumerate(self.values)}

    def labels(self, known: Mapping[str, int]) -> list[str]:
        """Return names of cells; of values that are not found yet there are none, and their cells have no name."""
        if self.edges:
            names = [f"{low:g} to {high:g}" for low, high in zip(self.edges[:-1], self.edges[1:], strict=True)]
        elif self.found:
            names = [""] * self.size
            for text, at in known.items():
                if at < self.size:
                    names[at] = orjson.loads(text)
        else:
            names = [value if isinstance(value, str) else _text(value) for value in self.values]
        return [*names, OTHER, MISSING]

    def cell(self, value: Any, known: dict[str, int]) -> int:
        """Return the cell of a value, which is noted in `known` where it was found just now."""
        size = self.size
        if value is None:
            return size + 1
        if not self.edges:
            text = _text(value)
            # One of them is that of the word for other values.
            if self.found and len(known) <= self.found and isinstance(value, str):
                return known.setdefault(text, len(known) - 1)
            return known.get(text, size)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return size
        at = bisect.bisect_right(self.edges, value) - 1
        return at if 0 <= at < size else size - 1 if value == self.edges[-1] else size


class TablePicture(Picture):
    """Rows that appear and are withdrawn, by their weights where they have some, as one marginal for each attribute.

    Beyond `capacity` rows every second one goes, by a hash of its key, and shares are those of the rest.
    """

    kind = "table"

    def __init__(
        self, marginals: Sequence[AttributeCells], *, weighted: bool = False, capacity: int = MOST_ROWS
    ) -> None:
        self._marginals, self._weighted = marginals, weighted
        self._known = [each.known for each in marginals]
        sizes = [each.size + 2 for each in marginals]
        self._starts = np.concatenate([[0], np.cumsum(sizes)])
        self._counts = np.zeros(int(self._starts[-1]), np.int64)
        self._rows: dict[int, tuple[np.ndarray, int]] = {}
        self._history: dict[int, np.ndarray] = {}
        self._keep = max(2, min(HISTORY, MOST_CELLS // max(len(self._counts), 1)))
        self._capacity, self._level, self._total = capacity, 0, 0
        self._newest, self._next = -1, 0

    def add(self, step: int, key: str, fields: Mapping[str, Any]) -> None:
        each_one = zip(self._marginals, self._known, self._starts, strict=False)
        found = [start + each.cell(fields.get(each.field), known) for each, known, start in each_one]
        cells = np.array(found, np.int32)
        weight = weight_of(fields, weighted=self._weighted)
        self._roll(step)
        where = place(key)
        if where in self._rows:
            if self._rows[where][1] == weight:
                return
            self._remove(where)
        self._total += 1
        if where >= limit(self._level):
            return
        self._rows[where] = cells, weight
        self._counts[cells] += weight
        if len(self._rows) > self._capacity:
            self._level += 1
            self._rows = {each: row for each, row in self._rows.items() if each < limit(self._level)}
            self._counts[:] = 0
            for row, many in self._rows.values():
                self._counts[row] += many

    def remove(self, step: int, key: str) -> None:
        self._roll(step)
        self._remove(place(key))

    def _remove(self, where: int) -> None:
        row = self._rows.pop(where, None)
        if row is not None:
            self._counts[row[0]] -= row[1]
        self._total -= row is not None or where >= limit(self._level)

    def end(self, step: int) -> None:
        self._newest = max(self._newest, step)
        self._roll(step + 1)

    def _roll(self, step: int) -> None:
        """Keep the counts of the steps before, which are over: records of later steps can come before a step's end."""
        for over in range(max(self._next, step - self._keep), step):
            self._history[over] = self._counts.copy()
        self._next = max(self._next, step)
        while len(self._history) > self._keep:
            del self._history[next(iter(self._history))]

    def about(self) -> Mapping[str, Any]:
        attributes = [
            {"field": each.field, "found": each.found, "labels": each.labels(known)}
            for each, known in zip(self._marginals, self._known, strict=True)
        ]
        return {"attributes": attributes}

    def shown(self) -> Mapping[str, Any]:
        return {
            "shown": len(self._rows),
            "total": total_of(self._total, len(self._rows), self._level, weighted=self._weighted),
            "what": "different rows" if self._weighted else "rows",
            "first": next(iter(self._history), 0),
        }

    def body(self, query: Mapping[str, int]) -> bytes:
        """Return counts of one step, the newest by default, and of the step before; and the values found by now."""
        step = query.get("step", self._newest)
        now = self._history.get(step)
        if now is None:
            return orjson.dumps({"step": step, "counts": None, "before": None})
        before = self._history.get(step - 1)
        each = zip(self._marginals, self._known, strict=True)
        found = {marginal.field: marginal.labels(known) for marginal, known in each if marginal.found}
        last = None if before is None else self._split(before)
        return orjson.dumps({"step": step, "counts": self._split(now), "before": last, "found": found})

    def _split(self, counts: np.ndarray) -> list[list[int]]:
        return [part.tolist() for part in np.split(counts, self._starts[1:-1])]


LOW, HIGH = "_low", "_high"
"""Suffixes of the fields that hold an interval."""


class _StepPicture(Picture):
    """A row for each step that records tell of in their field `step`, which may be earlier than the one that released
    it; the oldest rows go. Args: most: rows that are kept.
    """

    what = "steps"

    def __init__(self, most: int) -> None:
        self._most = most
        self._rows: dict[int, Any] = {}
        self._total = 0

    def _put(self, step: int, fields: Mapping[str, Any], row: Any) -> Any:
        """Return the row of the step that a record tells of, or of `step`: `row`, where there is none yet."""
        at = step_of(fields.get("step", step))
        if at not in self._rows:
            self._total += 1
            self._rows[at] = row
            if len(self._rows) > self._most:
                del self._rows[min(self._rows)]
        return self._rows.get(at, row)

    def shown(self) -> Mapping[str, Any]:
        return {"shown": len(self._rows), "total": self._total, "what": self.what}


class SeriesPicture(_StepPicture):
    """The numbers in some fields by step, each with its interval where the records have one.

    Args: by: field that holds the group that a record is of, and all groups; None: a step has one record.
    """

    kind = "series"
    what = "steps with a number"

    def __init__(self, names: Sequence[str], *, by: tuple[str, Sequence[str]] | None = None) -> None:
        self._by = None if by is None else by[0]
        groups = [""] if by is None else by[1]
        self._labels = [f"{name}, {group}" if by is not None else name for group in groups for name in names]
        super().__init__(max(2, MOST_NUMBERS // len(groups)))
        self._names = names
        self._places = {group: place * len(names) for place, group in enumerate(groups)}

    def add(self, step: int, key: str, fields: Mapping[str, Any]) -> None:
        found = [[_number(fields.get(name + part)) for part in ("", LOW, HIGH)] for name in self._names]
        place = 0 if self._by is None else self._places[fields[self._by]]
        empty = [[None, None, None] for _ in self._labels]
        self._put(step, fields, empty)[place : place + len(found)] = found

    def about(self) -> Mapping[str, Any]:
        return {"fields": self._labels, "interval": "90 % interval"}

    def body(self, query: Mapping[str, int]) -> bytes:
        """Return all of it, column by column."""
        steps = sorted(self._rows)
        parts = list(enumerate(("value", "low", "high")))
        fields = [
            {part: [self._rows[step][at][index] for step in steps] for index, part in parts}
            for at in range(len(self._labels))
        ]
        return orjson.dumps({"steps": steps, "fields": fields})


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


MOST_STATES = 9
"""That are drawn; the others are one share together."""


class StatePicture(_StepPicture):
    """How many are in each public state, step by step: shares that are stacked. A later step may revise an earlier one.
    Where the state is null, the record tells of those in none.
    """

    kind = "states"

    def __init__(self, field: str, values: Sequence[str], *, unseen: str = "unseen") -> None:
        self._field = field
        self._values = [*values, unseen]
        self._codes = {value: at for at, value in enumerate(values)}
        super().__init__(max(2, min(HISTORY, MOST_CELLS // len(self._values))))

    def add(self, step: int, key: str, fields: Mapping[str, Any]) -> None:
        state = fields.get(self._field)
        code = len(self._codes) if state is None else self._codes[state]
        count = float(fields["count"])
        self._put(step, fields, np.full(len(self._values), np.nan, np.float32))[code] = count

    def about(self) -> Mapping[str, Any]:
        return {"field": self._field, "states": len(self._codes)}

    def body(self, query: Mapping[str, int]) -> bytes:
        """Return counts of the largest states, and of all others together; what is below 0 by noise is 0."""
        steps = sorted(self._rows)
        if not steps:
            return orjson.dumps({"steps": [], "names": [], "counts": []})
        counts = np.maximum(np.nan_to_num(np.stack([self._rows[step] for step in steps])), 0.0)
        means = counts.mean(axis=0)
        largest = [int(at) for at in np.argsort(-means, kind="stable") if means[at] > 0]
        shown, rest = largest[:MOST_STATES], largest[MOST_STATES:]
        names = [self._values[at] for at in shown]
        columns = [np.round(counts[:, at], 2).tolist() for at in shown]
        if rest:
            names.append(f"{len(rest)} others")
            columns.append(np.round(counts[:, rest].sum(axis=1), 2).tolist())
        return orjson.dumps({"steps": steps, "names": names, "counts": columns})


WIDE = 1.645
"""Standard deviations on either side of a 90 % interval."""
MOST_KEYS = 40
"""Keys of a step that are drawn, those with most people."""


class _KeyStep:
    """What a step tells of keys."""

    def __init__(self) -> None:
        self.listed = self.new = 0
        self.largest: list[tuple[float, int, tuple[str, float, float, float, int]]] = []


class KeyPicture(_StepPicture):
    """Keys that nobody listed: at each step those with most people, with intervals, and how many there are.

    Args: fields: of the key. count, error, found: fields with how many people had it, the standard error of that, and
        the step in which it was found.
    """

    kind = "keys"

    def __init__(self, fields: Sequence[str], *, count: str, error: str, found: str) -> None:
        self._fields, self._count, self._error, self._found = fields, count, error, found
        self._newest = -1
        self._there: set[int] = set()
        super().__init__(HISTORY)

    def add(self, step: int, key: str, fields: Mapping[str, Any]) -> None:
        name = ", ".join(value_text(fields[each]) for each in self._fields)
        count, reach = float(fields[self._count]), WIDE * float(fields[self._error])
        found = step_of(fields[self._found])
        self.end(step)
        where = place(key)
        if step < self._newest or where in self._there:
            return
        self._there.add(where)
        at = self._rows[step]
        at.listed += 1
        at.new += found == step
        entry = (count, where, (name, count, count - reach, count + reach, found))
        if len(at.largest) < MOST_KEYS:
            heapq.heappush(at.largest, entry)
        else:
            heapq.heappushpop(at.largest, entry)

    def end(self, step: int) -> None:
        if step > self._newest:
            self._newest, self._there = step, set()
            self._put(step, {}, _KeyStep())

    def about(self) -> Mapping[str, Any]:
        return {"fields": self._fields, "interval": "90 % interval"}

    def body(self, query: Mapping[str, int]) -> bytes:
        """Return the keys of one step, the newest by default, those with most people first."""
        step, first = query.get("step", self._newest), min(self._rows, default=0)
        at = self._rows.get(step)
        if at is None:
            return orjson.dumps({"step": step, "keys": None, "first": first})
        keys = [entry for *_, entry in sorted(at.largest, key=lambda each: (-each[0], each[1]))]
        return orjson.dumps({"step": step, "listed": at.listed, "new": at.new, "keys": keys, "first": first})

"""Points of trips in a public box: records in, keys of six words out; and trips under way, until they close.

| word | holds | filled by |
|---|---|---|
| 0, 1 | keyed hash of user and trip | ingest |
| 2 | the step that admitted the trip: with the hash, the name of ONE contribution | ingest |
| 3 | time in microseconds, plus 2**63: ascending as unsigned numbers | ingest |
| 4 | column << 20 | row on the lattice | `TripDomain` |
| 5 | 1 if the record ends its trip, else 0 | `TripDomain` |

Points come in any order and over several steps, trips close once and never again. A contribution is one ADMISSION of a
trip: hash and admitting step. Ingest charges each to its user once and lets its records pass for `life` steps, to the
end of the period in which it was charged at most. A contribution closes at the end of the first step t in which
- it has an end record, or
- it has had no record for `idle` steps, or
- no later record of it can pass any more: t is its last step.
Promise: each contribution is handed out at most once, in one step, whatever arrives when. Proof: it is handed out when
it closes, and from then to its last step its name is remembered and its records are dropped; after its last step there
are none. What one contribution does never depends on another one's records.
Points of one time and place are one point. Of more than `most` points the first by time stay; ties go by place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from engines.core.contract import Columns, FilledWords, ScalarKind, State
from engines.core.coordinates import coordinates_at_fault, refused
from engines.core.noise import aggregate
from engines.core.state import reading
from engines.trajectory.trips import LATTICE, LATTICE_BITS, Trips
from schemas.arrays import FloatArray, IntArray, KeyArray, ReasonArray
from schemas.blocks import Folded
from schemas.errors import EngineInputError
from schemas.events import Reason

if TYPE_CHECKING:
    from engines.trajectory.ground import Ground

WORDS = 6
HASH, ADMITTED, TIME, PLACE, ENDS = slice(0, 2), 2, 3, 4, 5
_ROW = np.uint64(LATTICE - 1)


@dataclass(frozen=True, slots=True)
class TripDomain:
    """A half-open rectangle in which points of trips lie. Implements `engines.core.contract.Domain`.

    Args:
        x_field, y_field: coordinates, in raw and in synthetic records.
        bounds: xmin, ymin, xmax, ymax.
        end_field: field whose value `end_value` says that the record is its trip's last; None where there is none.
        end_value: a JSON scalar as text: a number or text as it is written, "true", "false".
        ground: a map in these bounds that records must lie on, and synthetic trips keep to; None for none.
    """

    written_as: ClassVar[str] = "TripDomain"
    text_fields: ClassVar[tuple[str, ...]] = ()
    words: ClassVar[int] = WORDS

    x_field: str
    y_field: str
    bounds: tuple[float, float, float, float]
    end_field: str | None = None
    end_value: str = "true"
    ground: Ground | None = field(default=None, repr=False, compare=False)

    @property
    def number_fields(self) -> tuple[str, ...]:
        return (self.x_field, self.y_field)

    @property
    def value_fields(self) -> Mapping[str, frozenset[ScalarKind]]:
        return {} if self.end_field is None else {self.end_field: frozenset(("text",))}

    @property
    def filled(self) -> FilledWords:
        return FilledWords(trip=(HASH.start, HASH.start + 1), admitted=ADMITTED, time=TIME)

    def encode(self, columns: Columns) -> tuple[KeyArray, ReasonArray]:
        """Return keys `(events, 6)`, the first four words 0, and reasons; see `engines.core.contract.Domain`.

        >>> domain = TripDomain("x", "y", (0.0, 0.0, 1.0, 1.0), end_field="last")
        >>> numbers = {"x": np.array([0.5, 2.0]), "y": np.array([0.0, 0.0])}
        >>> keys, reasons = domain.encode(Columns(numbers, {}, np.ones(2, np.int8), {"last": [True, None]}))
        >>> keys[0].tolist(), reasons.tolist()
        ([0, 0, 0, 0, 549755813888, 1], [0, 12])
        """
        x, y = columns.numbers[self.x_field], columns.numbers[self.y_field]
        xmin, ymin, xmax, ymax = self.bounds
        inside = (x >= xmin) & (x < xmax) & (y >= ymin) & (y < ymax)
        reasons = refused(x, y)
        if self.ground is not None:
            inside &= ~self.ground.outside(columns)
        reasons[inside] = Reason.ACCEPTED
        keys = np.zeros((len(x), WORDS), np.uint64)
        column = _lattice(np.where(inside, x, xmin), xmin, xmax)
        row = _lattice(np.where(inside, y, ymin), ymin, ymax)
        keys[:, PLACE] = (column << LATTICE_BITS | row).view(np.uint64)
        if self.end_field is not None:
            keys[:, ENDS] = [_text(value) == self.end_value for value in columns.values[self.end_field]]
        keys[~inside] = 0
        return keys, reasons

    def at_fault(self, columns: Columns) -> list[str]:
        return coordinates_at_fault(columns, (self.x_field, self.y_field), self.bounds)

    def coordinates(self, trips: Trips) -> tuple[FloatArray, FloatArray]:
        """See `Trips.middles`."""
        return trips.middles(self.bounds)


def _lattice(values: FloatArray, low: float, high: float) -> IntArray:
    steps: IntArray = ((values - low) * (LATTICE / (high - low))).astype(np.int64)
    # A product may round up to the upper bound.
    return np.minimum(steps, LATTICE - 1)


def _text(value: Any) -> str | None:
    return str(value).lower() if isinstance(value, bool) else None if value is None else str(value)


def places(keys: KeyArray) -> tuple[IntArray, IntArray]:
    """Return column and row of each key's point."""
    place = keys[:, PLACE]
    return (place >> np.uint64(LATTICE_BITS)).astype(np.int64), (place & _ROW).astype(np.int64)


_NAME = 3
"""Words of a key that name the contribution."""
_SEEN = WORDS
"""Column behind the key: the step in which the record came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """Public rules of when a trip closes, in steps.

    Attributes:
        idle: without a record, after which a trip is over.
        life: from the admitting step on in which records of a trip pass.
        period: of the contribution bound, or None: what was charged in a period closes in it.
        most: points of a trip.
    """

    written_as: ClassVar[str] = "Closing"

    idle: int
    life: int
    period: int | None = None
    most: int = 1024

    def last(self, admitted: IntArray) -> IntArray:
        """Return the last step in which a record of a contribution can pass."""
        last = admitted + self.life - 1
        if self.period is None:
            return last
        return np.minimum(last, (admitted // self.period + 1) * self.period - 1)

    def together(self, trips: int, per_step: int | None) -> int:
        """Return how many of a user's contributions may close in one step.

        What closes in a step was admitted in it or in the `life - 1` steps before, and in its period: so too where a
        period ends, and all that is under way closes at once. It was not admitted later: under a cap on steps, ingest
        lets no record of a trip pass that joins a step before its admission.

        Args: trips: of a user, in all or in a period. per_step: of them, admitted in one step at most; None: all.
        """
        steps = self.life if self.period is None else min(self.life, self.period)
        return trips if per_step is None else min(trips, per_step * steps)


@dataclass(frozen=True, slots=True, eq=False)
class Assembly:
    """Trips under way. A value: `with_step` returns the next one. PRIVATE, its size included.

    Attributes:
        rows: `(points, 7)` uint64 keys of trips under way and the steps in which they came.
        closed: `(trips, 3)` uint64 names of closed contributions of which records could still come.
    """

    rows: KeyArray
    closed: KeyArray

    @staticmethod
    def nothing() -> Assembly:
        return Assembly(np.zeros((0, WORDS + 1), np.uint64), np.zeros((0, _NAME), np.uint64))

    @aggregate
    def with_step(self, events: Folded, *, step: int, rules: Closing) -> tuple[Assembly, Trips]:
        """Take in a step's events, whose keys are distinct rows in any order.

        Returns: what is under way after it, and the trips that closed, in the order of their names.
        Raises: EngineInputError if keys are not of the domain, or a record could not have passed.
        """
        keys = events.keys if len(events.keys) else np.zeros((0, WORDS), np.uint64)
        if keys.shape[1] != WORDS:
            raise EngineInputError(f"keys must have {WORDS} words")
        if len(keys) and int(keys[:, PLACE].max()) >> (2 * LATTICE_BITS):
            raise EngineInputError("a key is outside the domain")
        if len(keys) and np.any(rules.last(keys[:, ADMITTED].astype(np.int64)) < step):
            raise EngineInputError("a record came after the last step of its trip: contributions are not bounded")
        came = np.full((len(keys), 1), step, np.uint64)
        rows = np.concatenate([self.rows, np.concatenate([keys, came], axis=1)])
        rows = rows[~_among(rows[:, :_NAME], self.closed)]
        # By name, then time, then place: order of arrival says nothing.
        rows = rows[np.lexsort((rows[:, PLACE], rows[:, TIME], *rows[:, :_NAME].T[::-1]))]
        begins = _changes(rows[:, :_NAME])
        if not len(begins):
            return Assembly(rows, self._remembered(self.closed, step, rules)), Trips.none()
        ends = np.maximum.reduceat(rows[:, ENDS], begins) > 0
        seen = np.maximum.reduceat(rows[:, _SEEN], begins).astype(np.int64)
        last = rules.last(rows[begins, ADMITTED].astype(np.int64))
        closing = ends | (seen + rules.idle <= step) | (last <= step)
        sizes = np.diff(np.append(begins, len(rows)))
        rows, sizes = _thinned(rows, sizes, most=rules.most)
        mine = np.repeat(closing, sizes)
        x, y = places(rows[mine])
        names = np.concatenate([self.closed, rows[np.cumsum(sizes) - sizes, :_NAME][closing]])
        trips = Trips(x, y, np.append(0, np.cumsum(sizes[closing])))
        return Assembly(rows[~mine], self._remembered(names, step, rules)), trips

    @staticmethod
    def _remembered(names: KeyArray, step: int, rules: Closing) -> KeyArray:
        """Keep the names of which records could still come."""
        return names[rules.last(names[:, ADMITTED].astype(np.int64)) > step]

    @staticmethod
    def of(state: State) -> Assembly:
        """Return the trips under way of a state. Raises: EngineInputError."""
        with reading():
            rows, closed = state["trips/rows"].copy(), state["trips/closed"].copy()
        if rows.shape[1:] != (WORDS + 1,) or closed.shape[1:] != (_NAME,):
            raise EngineInputError("state has trips of another version")
        return Assembly(rows, closed)


def _changes(rows: KeyArray) -> IntArray:
    """Return the places where a row differs from the one before."""
    new = np.ones(len(rows), bool)
    new[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    return np.flatnonzero(new)


def _among(names: KeyArray, others: KeyArray) -> np.ndarray:
    """Tell which names are among the others, `(names,)`."""
    if not len(names) or not len(others):
        return np.zeros(len(names), bool)
    form = np.dtype((np.void, names.dtype.itemsize * _NAME))
    inside: np.ndarray = np.isin(
        np.ascontiguousarray(names).view(form).ravel(), np.ascontiguousarray(others).view(form).ravel()
    )
    return inside


def _thinned(rows: KeyArray, sizes: IntArray, *, most: int) -> tuple[KeyArray, IntArray]:
    """Keep one row for each time and place of a trip, and the first `most` of those; an end record's mark stays."""
    trip = np.repeat(np.arange(len(sizes)), sizes)
    same = np.zeros(len(rows), bool)
    same[1:] = (trip[1:] == trip[:-1]) & (rows[1:, TIME] == rows[:-1, TIME]) & (rows[1:, PLACE] == rows[:-1, PLACE])
    # The last arrival of a point counts for idleness: keep the later step of equal ones.
    begins = np.flatnonzero(~same)
    if same.any():
        latest = np.maximum.reduceat(rows[:, _SEEN], begins)
        rows = rows[begins].copy()
        rows[:, _SEEN] = latest
        trip = trip[begins]
    sizes = np.bincount(trip, minlength=len(sizes))
    rank = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    keep = rank < most
    if keep.all():
        return rows, sizes
    # A trip that is only just too long goes on: its last step seen must not be lost with the points.
    seen = np.maximum.reduceat(rows[:, _SEEN], np.cumsum(sizes) - sizes)
    rows = rows.copy()
    first = np.cumsum(sizes) - sizes
    rows[first, _SEEN] = seen
    return rows[keep], np.bincount(trip[keep], minlength=len(sizes))

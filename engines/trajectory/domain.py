"""Points of trips in a public box: records in, keys of six words out. Knows no data.

| word | holds | filled by |
|---|---|---|
| 0, 1 | keyed hash of user and trip | ingest |
| 2 | the step that admitted the trip: with the hash, the name of ONE contribution | ingest |
| 3 | time in microseconds, plus 2**63: ascending as unsigned numbers | ingest |
| 4 | column << 20 | row on the lattice | this domain |
| 5 | 1 if the record ends its trip, else 0 | this domain |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from engines.core.contract import Columns, FilledWords, ScalarKind
from engines.spatial.domain.base import coordinates_at_fault
from engines.trajectory.ground import Ground
from engines.trajectory.trips import LATTICE, LATTICE_BITS, MIDDLE, Trips
from schemas.arrays import FloatArray, IntArray, KeyArray, ReasonArray
from schemas.errors import EngineInputError
from schemas.events import Reason

WORDS = 6
HASH, ADMITTED, TIME, PLACE, ENDS = slice(0, 2), 2, 3, 4, 5
_ROW = np.uint64(LATTICE - 1)


@dataclass(frozen=True, slots=True)
class TripDomain:
    """Half-open rectangle. Implements `engines.core.contract.Domain`.

    Args:
        x_field, y_field: coordinates, in raw and in synthetic records.
        bounds: xmin, ymin, xmax, ymax.
        end_field: field whose value `end_value` says that the record is its trip's last; None where there is none.
        end_value: a JSON scalar as text: a number or text as it is written, "true", "false".
        ground: a map in these bounds that records must lie on, and synthetic trips keep to; None for none.
    Raises: EngineInputError if the bounds are empty or not finite.
    """

    written_as: ClassVar[str] = "TripDomain"

    x_field: str
    y_field: str
    bounds: tuple[float, float, float, float]
    end_field: str | None = None
    end_value: str = "true"
    ground: Ground | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        xmin, ymin, xmax, ymax = self.bounds
        if not np.isfinite([*self.bounds, xmax - xmin, ymax - ymin]).all() or xmin >= xmax or ymin >= ymax:
            raise EngineInputError("bounds must be four finite numbers, xmin < xmax and ymin < ymax")

    @property
    def number_fields(self) -> tuple[str, ...]:
        return (self.x_field, self.y_field)

    @property
    def text_fields(self) -> tuple[str, ...]:
        return ()

    @property
    def value_fields(self) -> Mapping[str, frozenset[ScalarKind]]:
        return {} if self.end_field is None else {self.end_field: frozenset(("text",))}

    @property
    def words(self) -> int:
        return WORDS

    @property
    def filled(self) -> FilledWords:
        """See `engines.core.contract.FilledDomain`."""
        return FilledWords(trip=(HASH.start, HASH.start + 1), admitted=ADMITTED, time=TIME)

    def encode(self, columns: Columns) -> tuple[KeyArray, ReasonArray]:
        """Keys `(events, 6)`, the first four words 0, and reasons; see `engines.core.contract.Domain`.

        >>> domain = TripDomain("x", "y", (0.0, 0.0, 1.0, 1.0), end_field="last")
        >>> numbers = {"x": np.array([0.5, 2.0]), "y": np.array([0.0, 0.0])}
        >>> keys, reasons = domain.encode(Columns(numbers, {}, np.ones(2, np.int8), {"last": [True, None]}))
        >>> keys[0].tolist(), reasons.tolist()
        ([0, 0, 0, 0, 549755813888, 1], [0, 12])
        """
        x, y = columns.numbers[self.x_field], columns.numbers[self.y_field]
        xmin, ymin, xmax, ymax = self.bounds
        inside = (x >= xmin) & (x < xmax) & (y >= ymin) & (y < ymax)
        finite = np.isfinite(x) & np.isfinite(y)
        reasons = np.where(finite, Reason.OUTSIDE_DOMAIN, Reason.NOT_FINITE).astype(np.uint8)
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
        """See `engines.core.contract.FaultNamingDomain`."""
        return coordinates_at_fault(columns, (self.x_field, self.y_field), self.bounds)

    def coordinates(self, trips: Trips) -> tuple[FloatArray, FloatArray]:
        """The middles of lattice steps, in the coordinates' unit."""
        xmin, ymin, xmax, ymax = self.bounds
        x = xmin + (trips.x + MIDDLE) * ((xmax - xmin) / LATTICE)
        return x, ymin + (trips.y + MIDDLE) * ((ymax - ymin) / LATTICE)


def _lattice(values: FloatArray, low: float, high: float) -> IntArray:
    steps: IntArray = ((values - low) * (LATTICE / (high - low))).astype(np.int64)
    # A product may round up to the upper bound.
    return np.minimum(steps, LATTICE - 1)


def _text(value: Any) -> str | None:
    return str(value).lower() if isinstance(value, bool) else None if value is None else str(value)


def places(keys: KeyArray) -> tuple[IntArray, IntArray]:
    """Column and row of each key's point."""
    place = keys[:, PLACE]
    return (place >> np.uint64(LATTICE_BITS)).astype(np.int64), (place & _ROW).astype(np.int64)

"""Synthetic trips as records: one for each point, made when it is asked for, since there may be millions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from engines.contract import SyntheticRecord
from engines.trajectory.domain import TripDomain
from engines.trajectory.synthesis import Synthesis
from schemas.arrays import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class TripRecords(Sequence[SyntheticRecord]):
    """The points of a step's synthetic trips, trip by trip, in order.

    A record holds the raw fields' names: the trip (step and number, so it never comes again), the place of the point in
    it (from 0), and the coordinates. Its key is the trip's name and that place.
    """

    step: int
    trip_field: str
    order_field: str
    fields: tuple[str, str]
    owners: IntArray
    offsets: IntArray
    x: FloatArray
    y: FloatArray

    @staticmethod
    def of(step: int, made: Synthesis, domain: TripDomain, *, trip_field: str, order_field: str) -> TripRecords:
        trips = made.trips
        x, y = domain.coordinates(trips) if made.places is None else made.places
        fields = (domain.x_field, domain.y_field)
        return TripRecords(step, trip_field, order_field, fields, trips.owners, trips.offsets, x, y)

    def __len__(self) -> int:
        return len(self.x)

    @overload
    def __getitem__(self, index: int) -> SyntheticRecord: ...
    @overload
    def __getitem__(self, index: slice) -> list[SyntheticRecord]: ...
    def __getitem__(self, index: int | slice) -> SyntheticRecord | list[SyntheticRecord]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError("no such record")
        at = index % len(self)
        owner = int(self.owners[at])
        place, name = at - int(self.offsets[owner]), f"{self.step}-{owner}"
        values = {
            self.trip_field: name,
            self.order_field: place,
            self.fields[0]: float(self.x[at]),
            self.fields[1]: float(self.y[at]),
        }
        return SyntheticRecord(f"{name}-{place}", values, self.step)

    def __iter__(self) -> Iterator[SyntheticRecord]:
        return (self[at] for at in range(len(self)))

"""Synthetic trips as records: one for each point, made when it is asked for, since there may be millions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engines.core.many_records import ManyRecords, RecordColumns
from engines.trajectory.domain import TripDomain
from engines.trajectory.synthesis import Synthesis
from schemas.arrays import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class TripRecords(ManyRecords):
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

    def part(self, rows: range) -> RecordColumns:
        """See `ManyRecords`."""
        at = np.arange(rows.start, rows.stop, rows.step)
        owners = self.owners[at]
        places = (at - self.offsets[owners]).tolist()
        trips = [f"{self.step}-{owner}" for owner in owners.tolist()]
        fields = {
            self.trip_field: trips,
            self.order_field: places,
            self.fields[0]: self.x[at].tolist(),
            self.fields[1]: self.y[at].tolist(),
        }
        ids = [f"{trip}-{place}" for trip, place in zip(trips, places, strict=True)]
        return RecordColumns(ids, fields, [self.step] * len(at))

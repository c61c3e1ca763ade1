"""Which part of a split stream a record is of, and records decoded once for all parts that read them.

Every record is counted by exactly one part, beside `OTHER_PART` in the others: by the part that lists its value; and by
the first where no part does (`NO_PART`), or where the record cannot be read so far. So parts are disjoint, and together
with what the first one refuses they are all records, whatever these are (tests/protocol/test_parts.py).

The part depends on the record alone, and on no other: a part sees the records of others as holes in its source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress, repeat
from operator import attrgetter
from typing import Any

import numpy as np

from agents.protocol.formats.contract import SchemaRef
from agents.protocol.ingest.decode import EventDecoder
from schemas.arrays import IntArray, ReasonArray
from schemas.config.split import SplitPart
from schemas.events import Reason

NONE = -1
"""Where no part lists the value."""


class SplitReading:
    """Records of a split stream, each with its part: what is asked for the same batch again is not worked out again.

    A batch is known by being the same object, which it is where several parts take in one slice of a source.
    """

    def __init__(self, decoder: EventDecoder, split: SplitPart) -> None:
        self.decoder = decoder
        self.field = split.field
        self._value = attrgetter(decoder.fields.split_attribute)
        self._places: Mapping[object, int] = {
            value: place for place, values in enumerate(split.parts.values()) for value in values
        }
        self._numbers = split.kind == "number"
        self.forget()

    def forget(self) -> None:
        """Keep no batch: its records must be freed once all parts have taken them in."""
        self._asked: Any = None
        self._missing: tuple[int, frozenset[SchemaRef]] = (0, frozenset())
        self._records: Any = None
        self._unfolded: Sequence[Any] = ()
        self._events: Any = None
        self._read: tuple[list[Any], ReasonArray, dict[int, str], IntArray] = (
            [], np.zeros(0, np.uint8), {}, np.zeros(0, np.int64),
        )  # fmt: skip

    def missing(
        self, records: Sequence[Any], absent: frozenset[SchemaRef] | None = None
    ) -> tuple[int, frozenset[SchemaRef]]:
        """Return what `EventDecoder.missing` does."""
        if records is not self._asked:
            self._missing, self._asked = self.decoder.missing(records, absent), records
        return self._missing

    def unfold(self, records: Sequence[Any]) -> Sequence[Any]:
        """Return what `EventDecoder.unfold` does."""
        if records is not self._records:
            self._unfolded, self._records = self.decoder.unfold(records), records
        return self._unfolded

    def read(self, events: Sequence[Any]) -> tuple[list[Any], ReasonArray, dict[int, str], IntArray]:
        """Return what `EventDecoder.decode_unfolded` does, and the part of each event; do not change any of it.

        Where the value is in no part, or cannot be read, the part is the first.
        """
        if events is not self._events:
            decoded, reasons, at_fault = self.decoder.decode_unfolded(events)
            values = map(self._value, decoded)
            places = map(self.place, values) if self._numbers else map(self._places.get, values, repeat(NONE))
            found = np.fromiter(places, np.int64, len(decoded))
            parts = np.zeros(len(events), np.int64)
            rows = np.flatnonzero(reasons == 0)
            parts[rows] = np.maximum(found, 0)
            nowhere = rows[found == NONE]
            reasons[nowhere] = Reason.NO_PART
            at_fault.update(dict.fromkeys(nowhere.tolist(), self.field))
            self._read, self._events = (list(compress(decoded, found != NONE)), reasons, at_fault, parts), events
        return self._read

    def place(self, value: object) -> int:
        """Return the part that lists a value. It is looked up in one table, so there is one at most. True is not 1."""
        return NONE if value is True or value is False else self._places.get(value, NONE)


class PartDecoder:
    """The decoder of one part: of its events it gives what `EventDecoder` does, and `OTHER_PART` of all others.

    Args: reading: its own, or that of all parts of the split that read the same source.
    """

    def __init__(self, reading: SplitReading, split: SplitPart) -> None:
        self._reading = reading
        self._number = split.number
        self.fields = reading.decoder.fields
        self.weight = reading.decoder.weight
        self.most_events = reading.decoder.most_events

    def missing(
        self, records: Sequence[Any], absent: frozenset[SchemaRef] | None = None
    ) -> tuple[int, frozenset[SchemaRef]]:
        return self._reading.missing(records, absent)

    def unfold(self, records: Sequence[Any]) -> Sequence[Any]:
        return self._reading.unfold(records)

    def decode_unfolded(self, events: Sequence[Any]) -> tuple[list[Any], ReasonArray, dict[int, str]]:
        decoded, reasons, at_fault, parts = self._reading.read(events)
        own = parts == self._number
        mine = list(compress(decoded, own[reasons == 0].tolist()))
        faults = {row: field for row, field in at_fault.items() if own[row]}
        return mine, np.where(own, reasons, np.uint8(Reason.OTHER_PART)), faults

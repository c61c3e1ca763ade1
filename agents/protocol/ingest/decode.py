"""Raw records to typed events: only the fields that the configuration names, a batch at a time.

JSON objects whose fields are all top-level are read straight into events; everything else is read by
`agents.protocol.formats.reader` first, and then held to the same types.

Each record is decoded by itself and keeps its place: records are never joined into one document, because a crafted one
could then shift its neighbours. Of a key that occurs twice the last one counts.

| record                                                   | reason         |
|----------------------------------------------------------|----------------|
| no value (a tombstone), or an empty one                  | EMPTY          |
| more bytes than the public limit                         | TOO_LARGE      |
| not JSON, not UTF-8; NaN and Infinity are not JSON       | NOT_JSON       |
| an object without one of the fields                      | MISSING_FIELD  |
| not an object, or a field of another type                | WRONG_TYPE     |
| a number beyond float64                                  | NOT_FINITE     |
| a user that is neither a text nor an integer             | BAD_USER       |

A *scalar* is any JSON text, number, true, false or null; where it is absent it is read as null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from agents.protocol.formats.contract import SchemaRef
from agents.protocol.formats.reader import ReadRecord, RecordReader
from schemas.arrays import ReasonArray
from schemas.events import Reason

MAX_VALUE_BYTES = 1 << 20
_REFUSED = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError)
_VALUE = attrgetter("value")
_LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True, slots=True)
class EventFields:
    """The fields of a raw event that are read, and as what. Names are any texts; no field has two roles.

    Attributes:
        time_is_number: a number, or a number as text; else a text.
        user, trip, operation: None where events have none.
    """

    time: str
    time_is_number: bool
    user: str | None = None
    trip: str | None = None
    operation: str | None = None
    numbers: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    scalars: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(set(self.names)) != len(self.names):
            raise ValueError("a field of the raw events has two roles")

    @property
    def required(self) -> tuple[str, ...]:
        """Fields that no event may lack."""
        return tuple(name for name in self.names if name not in self.scalars)

    @property
    def names(self) -> tuple[str, ...]:
        single = (name for name in (self.user, self.trip, self.operation) if name is not None)
        return (self.time, *single, *self.numbers, *self.texts, *self.scalars)


class EventDecoder:
    """Decodes JSON objects with top-level fields.

    Its events are of a struct made from `EventFields`: attributes `time`, `user`, `trip`, `operation`, `number0`..,
    `text0`.., `scalar0`..
    """

    def __init__(self, fields: EventFields, *, max_value_bytes: int = MAX_VALUE_BYTES) -> None:
        self.fields = fields
        self.max_value_bytes = max_value_bytes
        wanted: list[tuple[str, Any, str]] = [
            ("time", int | float | str if fields.time_is_number else str, fields.time)
        ]
        if fields.user is not None:
            wanted.append(("user", str | int, fields.user))
        if fields.trip is not None:
            wanted.append(("trip", str | int, fields.trip))
        if fields.operation is not None:
            wanted.append(("operation", str, fields.operation))
        wanted += [(f"number{index}", float, name) for index, name in enumerate(fields.numbers)]
        wanted += [(f"text{index}", str, name) for index, name in enumerate(fields.texts)]
        members: list[Any] = [(attribute, kind, msgspec.field(name=name)) for attribute, kind, name in wanted]
        members += [
            (f"scalar{index}", str | int | float | bool | None, msgspec.field(name=name, default=None))
            for index, name in enumerate(self.fields.scalars)
        ]
        self._struct = msgspec.defstruct("Event", members, gc=False)
        self._decode: Callable[[Any], Any] = msgspec.json.Decoder(self._struct).decode

    weight = 1
    """About what a record costs beside one of JSON, all of ingest counted."""

    @property
    def most_events(self) -> int:
        """The most events of one record."""
        return 1

    def missing(self, records: Sequence[Any]) -> tuple[int, frozenset[SchemaRef]]:
        """Return how many of the first records can be read, and which schemas of a registry the others need."""
        return len(records), frozenset()

    def unfold(self, records: Sequence[Any]) -> Sequence[Any]:
        """Return the events of records, one for each or more; ticks stay as they are."""
        return records

    def decode_unfolded(self, events: Sequence[Any]) -> tuple[list[Any], ReasonArray, dict[int, str]]:
        """Decode what `unfold` gave, without ticks; returns what `decode` does."""
        return self.decode(list(map(_VALUE, events)))

    def decode(self, values: Sequence[bytes | None]) -> tuple[list[Any], ReasonArray, dict[int, str]]:
        """Decode records in order.

        Returns: the events of the good records, in order; `(records,)` reasons, 0 where a record is good; and of the
            others, by row, the field at fault, where it is one.
        """
        reasons = self._sizes(values)
        if reasons is None:
            reasons = np.zeros(len(values), np.uint8)
            events, failed = self._run(values)
            places = failed
        else:
            fit = np.flatnonzero(reasons == 0).tolist()
            events, failed = self._run([values[place] for place in fit])
            places = [fit[index] for index in failed]
        at_fault: dict[int, str] = {}
        for place in places:
            value = values[place]
            assert value is not None
            reasons[place], field = self._why(value)
            if field:
                at_fault[place] = field
        return events, reasons, at_fault

    def _sizes(self, values: Sequence[bytes | None]) -> ReasonArray | None:
        """Return the reasons of records that are not even tried; None where there is no such record."""
        try:
            lengths = np.fromiter(map(len, values), np.int64, len(values))  # type: ignore[arg-type]
        except TypeError:
            lengths = np.fromiter((0 if value is None else len(value) for value in values), np.int64, len(values))
        if len(lengths) == 0 or (lengths.min() > 0 and lengths.max() <= self.max_value_bytes):
            return None
        reasons = np.zeros(len(values), np.uint8)
        reasons[lengths == 0] = Reason.EMPTY
        reasons[lengths > self.max_value_bytes] = Reason.TOO_LARGE
        return reasons

    def _run(self, values: Sequence[bytes | None]) -> tuple[list[Any], list[int]]:
        events: list[Any] = []
        failed: list[int] = []
        iterator = iter(values)
        while True:
            try:
                # What `extend` has taken from the iterator before an exception stays in the list, so the two lengths
                # say which record failed, and the same iterator goes on behind it.
                events.extend(map(self._decode, iterator))
            except _REFUSED:
                failed.append(len(events) + len(failed))
            else:
                return events, failed

    def _why(self, value: bytes) -> tuple[Reason, str]:
        """Return why a record failed, and which field did: by looking at it without types, never by an error's text."""
        try:
            found = msgspec.json.decode(value)
        except msgspec.ValidationError:
            # Without a type, the only thing invalid in JSON is a number beyond float64.
            return Reason.NOT_FINITE, self._too_large_number(value)
        except _REFUSED:
            return Reason.NOT_JSON, ""
        return self._why_not(found)

    def _why_not(self, found: object) -> tuple[Reason, str]:
        if not isinstance(found, dict):
            return Reason.WRONG_TYPE, ""
        missing = next((name for name in self.fields.required if name not in found), None)
        return self._wrong_field(found) if missing is None else (Reason.MISSING_FIELD, missing)

    def _too_large_number(self, value: bytes) -> str:
        """Return the first field with such a number; "" where it is none of those that are read."""
        try:
            parts = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
        except _REFUSED:
            return ""
        for name in self.fields.names:
            if name in parts:
                try:
                    msgspec.json.decode(parts[name])
                except _REFUSED:
                    return name
        return ""

    def _wrong_field(self, found: dict[str, Any]) -> tuple[Reason, str]:
        fields = self.fields
        kinds: list[tuple[str | None, tuple[type, ...]]] = [
            (fields.time, (int, float, str) if fields.time_is_number else (str,)),
            *((name, (str,)) for name in (*fields.texts, fields.operation)),
            (fields.trip, (int, str)),
            *((name, (int, float)) for name in fields.numbers),
        ]
        for name, allowed in kinds:
            if name is not None and type(found[name]) not in allowed:
                return Reason.WRONG_TYPE, name
        for name in fields.scalars:
            if isinstance(found.get(name), (dict, list)):
                return Reason.WRONG_TYPE, name
        if fields.user is not None and type(found[fields.user]) not in (int, str):
            return Reason.BAD_USER, fields.user
        return Reason.NOT_FINITE, next((name for name in fields.numbers if abs(found[name]) > _LARGEST), "")


class FormatDecoder(EventDecoder):
    """Decodes any other format, and fields that are not at the top of the value."""

    weight = 5

    def __init__(self, fields: EventFields, reader: RecordReader, *, max_value_bytes: int = MAX_VALUE_BYTES) -> None:
        super().__init__(fields, max_value_bytes=max_value_bytes)
        self._reader = reader

    @property
    def most_events(self) -> int:
        return self._reader.most_events

    def missing(self, records: Sequence[Any]) -> tuple[int, frozenset[SchemaRef]]:
        return self._reader.missing(records)

    def unfold(self, records: Sequence[Any]) -> Sequence[ReadRecord]:
        return self._reader.unfold(records)

    def decode_unfolded(self, events: Sequence[ReadRecord]) -> tuple[list[Any], ReasonArray, dict[int, str]]:
        decoded: list[Any] = []
        reasons = np.zeros(len(events), np.uint8)
        at_fault: dict[int, str] = {}
        for row, event in enumerate(events):
            reason, name = event.reason, event.name
            if reason == Reason.ACCEPTED:
                try:
                    decoded.append(msgspec.convert(event.fields, self._struct))
                    continue
                except _REFUSED:
                    reason, name = self._why_not(event.fields)
            reasons[row] = reason
            if name:
                at_fault[row] = name
        return decoded, reasons, at_fault

"""Raw records to typed events: only the fields that the configuration names, a batch at a time.

JSON objects whose fields are all top-level are read straight into events of strict types; everything else is read by
`agents.protocol.formats.reader` first, and then held to the same types. What these refuse is read once more, each value
by `agents.protocol.formats.values`: so a record is the same event, or refused for the same reason, in every format.

Each record is decoded by itself and keeps its place: records are never joined into one document, because a crafted one
could then shift its neighbours. Of a key that occurs twice the last one counts.

`schemas.events.Reason` says why records are refused. A *scalar* is a JSON text, number, true, false or null; where it
is absent it is read as null.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from agents.protocol.formats.contract import SchemaRef, UnreadableError
from agents.protocol.formats.json_text import read_json
from agents.protocol.formats.reader import ReadRecord, RecordReader
from agents.protocol.formats.values import NOT_FINITE, NUMBER, NUMBER_OR_TEXT, TEXT, Kinds, typed
from schemas.arrays import ReasonArray
from schemas.config.timing import NUMERIC_FORMATS
from schemas.events import Reason

if TYPE_CHECKING:
    from engines.core.contract import Domain
    from schemas.config import Stream

MAX_VALUE_BYTES = 1 << 20
_REFUSED = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError)
_VALUE = attrgetter("value")
_SCALARS = (str, int, float, bool, type(None))
_LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True, slots=True)
class EventFields:
    """The fields of a raw event that are read, and as what. Names are any texts; no field has two roles.

    Attributes:
        time_is_number: a number, or a number as text; else a text.
        user, trip, operation: None where events have none.
        split: field that tells the parts of a split stream apart, which may be one of the others, too; else None.
        split_kind: what its values are, where it is none of the others.
    """

    time: str
    time_is_number: bool
    user: str | None = None
    trip: str | None = None
    operation: str | None = None
    numbers: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    scalars: Kinds = field(default_factory=dict)
    split: str | None = None
    split_kind: frozenset[str] = TEXT

    def __post_init__(self) -> None:
        if len(set(self.names)) != len(self.names):
            raise ValueError("a field of the raw events has two roles")

    @staticmethod
    def from_stream(stream: Stream, domain: Domain, *, user: str | None) -> EventFields:
        """Return the fields of a stream's events. Args: user: None where nobody asks for it, but maybe the domain."""
        return EventFields(
            time=stream.time.field,
            time_is_number=stream.time.format in NUMERIC_FORMATS,
            user=user,
            trip=stream.domain.trip_field,
            operation=stream.domain.operation_field,
            numbers=tuple(domain.number_fields),
            texts=tuple(domain.text_fields),
            scalars={name: kinds for name, kinds in domain.value_fields.items() if name != user},
            split=None if stream.part is None else stream.part.field,
            split_kind=NUMBER if stream.part is not None and stream.part.kind == "number" else TEXT,
        )

    @property
    def required(self) -> tuple[str, ...]:
        """Fields that no event may lack."""
        return tuple(name for name in self.names if name not in self.scalars)

    @property
    def names(self) -> tuple[str, ...]:
        return self._read if self.split is None or self.split in self._read else (*self._read, self.split)

    @property
    def _read(self) -> tuple[str, ...]:
        single = (name for name in (self.user, self.trip, self.operation) if name is not None)
        return (self.time, *single, *self.numbers, *self.texts, *self.scalars)

    @property
    def split_attribute(self) -> str:
        """Attribute of a decoded event that holds the value of `split`."""
        for kind, names in (("number", self.numbers), ("text", self.texts), ("scalar", tuple(self.scalars))):
            if self.split in names:
                return f"{kind}{names.index(self.split)}"
        return "split"

    @property
    def kinds(self) -> Kinds:
        """What each field can be."""
        return {
            **dict.fromkeys(self.names, TEXT),
            self.time: NUMBER_OR_TEXT if self.time_is_number else TEXT,
            **({} if self.split is None else {self.split: self.split_kind}),
            **dict.fromkeys(self.numbers, NUMBER),
            **dict.fromkeys(self.texts, TEXT),
            **self.scalars,
        }


_JSON_TYPES: Mapping[str, Any] = {"text": str, "number": int | float, "boolean": bool}


class EventDecoder:
    """Decodes JSON objects with top-level fields.

    Its events are of a struct made from `EventFields`: attributes `time`, `user`, `trip`, `operation`, `number0`..,
    `text0`.., `scalar0`.., and `split` where that is none of them.
    """

    def __init__(self, fields: EventFields, *, max_value_bytes: int = MAX_VALUE_BYTES) -> None:
        self.fields = fields
        self.max_value_bytes = max_value_bytes
        self._kinds = fields.kinds
        self._strict = self._struct({
            name: functools.reduce(operator.or_, (_JSON_TYPES[kind] for kind in kinds)) | None
            for name, kinds in fields.scalars.items()
        })  # fmt: skip
        # Of a value that its field cannot be the domain says why.
        self._any = self._struct(dict.fromkeys(fields.scalars, str | int | float | bool | None))
        self._decode: Callable[[Any], Any] = msgspec.json.Decoder(self._strict).decode

    def _struct(self, scalars: Mapping[str, Any]) -> type[msgspec.Struct]:
        fields = self.fields
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
        if fields.split is not None and fields.split_attribute == "split":
            wanted.append(("split", str if fields.split_kind == TEXT else int | float, fields.split))
        members: list[Any] = [(attribute, kind, msgspec.field(name=name)) for attribute, kind, name in wanted]
        members += [
            (f"scalar{index}", kind, msgspec.field(name=name, default=None))
            for index, (name, kind) in enumerate(scalars.items())
        ]
        return msgspec.defstruct("Event", members, gc=False)

    weight = 1
    """About what a record costs beside one of JSON, all of ingest counted."""
    most_events = 1
    """The most events of one record."""

    def missing(
        self, records: Sequence[Any], absent: frozenset[SchemaRef] | None = None
    ) -> tuple[int, frozenset[SchemaRef]]:
        """Return how many of the first records can be read, and which schemas of a registry the others need.

        Args: absent: see `agents.protocol.formats.reader.RecordReader.missing`.
        """
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
        fit: Sequence[int] = range(len(values))
        if reasons is None:
            reasons = np.zeros(len(values), np.uint8)
            events, failed = self._run(values)
        else:
            fit = np.flatnonzero(reasons == 0).tolist()
            events, failed = self._run([values[place] for place in fit])
        at_fault: dict[int, str] = {}
        for index, (reason, name) in failed.items():
            reasons[fit[index]] = reason
            if name:
                at_fault[fit[index]] = name
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

    def _run(self, values: Sequence[Any]) -> tuple[list[Any], dict[int, tuple[Reason, str]]]:
        events: list[Any] = []
        failed: dict[int, tuple[Reason, str]] = {}
        iterator = iter(values)
        while True:
            try:
                # What `extend` has taken from the iterator before an exception stays in the list, so the two lengths
                # say which record failed, and the same iterator goes on behind it.
                events.extend(map(self._decode, iterator))
            except _REFUSED:
                place = len(events) + len(failed)
                try:
                    events.append(self.event_of(read_json(values[place])))
                except UnreadableError as error:
                    # Not the error: it would keep this frame, and the records, until it is collected.
                    failed[place] = error.reason, error.name
            else:
                return events, failed

    def event_of(self, found: object) -> Any:
        """Return the event of a record that was read without types. Raises: UnreadableError, with the field."""
        if not isinstance(found, dict):
            raise UnreadableError(Reason.WRONG_TYPE)
        missing = next((name for name in self.fields.required if name not in found), None)
        if missing is not None:
            raise UnreadableError(Reason.MISSING_FIELD, missing)
        values = {name: typed(found[name], kinds) for name, kinds in self._kinds.items() if name in found}
        for name, value in values.items():
            if value is NOT_FINITE:
                raise UnreadableError(Reason.NOT_FINITE, name)
        try:
            return msgspec.convert(values, self._any)
        except _REFUSED:
            raise UnreadableError(*self._wrong_field(values)) from None

    def _wrong_field(self, found: dict[str, Any]) -> tuple[Reason, str]:
        fields = self.fields
        kinds: list[tuple[str | None, tuple[type, ...]]] = [
            (fields.time, (int, float, str) if fields.time_is_number else (str,)),
            *((name, (str,)) for name in (*fields.texts, fields.operation)),
            (fields.trip, (int, str)),
            *((name, (int, float)) for name in fields.numbers),
        ]
        if fields.split is not None and fields.split_attribute == "split":
            kinds.append((fields.split, (str,) if fields.split_kind == TEXT else (int, float)))
        for name, allowed in kinds:
            if name is not None and type(found[name]) not in allowed:
                return Reason.WRONG_TYPE, name
        for name in fields.scalars:
            if type(found.get(name)) not in _SCALARS:
                return Reason.WRONG_TYPE, name
        if fields.user is not None and type(found[fields.user]) not in (int, str):
            return Reason.BAD_USER, fields.user
        return Reason.NOT_FINITE, next((name for name in fields.numbers if abs(found[name]) > _LARGEST), "")


class FormatDecoder(EventDecoder):
    """Decodes any other format, and fields that are not at the top of the value."""

    def __init__(self, fields: EventFields, reader: RecordReader, *, max_value_bytes: int = MAX_VALUE_BYTES) -> None:
        super().__init__(fields, max_value_bytes=max_value_bytes)
        self._reader = reader
        self.weight, self.most_events = reader.weight, reader.most_events

    def missing(
        self, records: Sequence[Any], absent: frozenset[SchemaRef] | None = None
    ) -> tuple[int, frozenset[SchemaRef]]:
        return self._reader.missing(records, absent)

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
                    decoded.append(self._event(event.fields))
                    continue
                except UnreadableError as error:
                    reason, name = error.reason, error.name
            reasons[row] = reason
            if name:
                at_fault[row] = name
        return decoded, reasons, at_fault

    def _event(self, found: Mapping[str, Any]) -> Any:
        try:
            return msgspec.convert(found, self._strict)
        except _REFUSED:
            return self.event_of(found)

"""Records of a source as events: each field that is configured, under its name, from wherever in the record it is.

The name of a field is a path into a record; docs/formats.md, "Fields by path", says what each means. What a format
gives there becomes what the fields of an event can be: texts, numbers, booleans and null, as JSON has them
(`agents.protocol.formats.values`). A field of which `[streams.map]` has an expression is computed from the value.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Protocol

from agents.protocol.formats import cloudevents, debezium
from agents.protocol.formats.build import NEEDS, ROWS, InputFormat
from agents.protocol.formats.contract import (
    KEY_HEADER,
    VALUE_HEADER,
    Document,
    Headers,
    SchemaBook,
    SchemaRef,
    UnreadableError,
    header_of,
)
from agents.protocol.formats.mapping import FieldMap, as_json
from agents.protocol.formats.values import NOT_FINITE, Kinds, plain
from schemas.config.formats import ROOTS
from schemas.config.timing import NUMERIC_FORMATS
from schemas.config.values import path_parts
from schemas.events import TICK_HEADER, Reason
from schemas.steps import epoch_us

ABSENT: Final = object()
"""Where there is no such field; other than None, which is a value."""


@dataclass(frozen=True, slots=True)
class FieldPath:
    """A field's name, taken apart.

    Attributes:
        name: as it is configured.
        root: one of `$key`, `$header`, ..., or "" for the value.
        parts: from there; none for the root itself.
    """

    name: str
    root: str
    parts: tuple[str, ...]

    @staticmethod
    def parse(name: str) -> FieldPath:
        """Take a field's name apart.

        >>> FieldPath.parse('"a.b".c').parts, FieldPath.parse("$key.id").root
        (('a.b', 'c'), '$key')
        """
        root, _, rest = name.partition(".")
        if root in ("$header", "$envelope", "$key") and rest:
            # A header's name may have dots of its own.
            return FieldPath(name, root, (rest,) if root == "$header" else path_parts(rest))
        if name in ROOTS:
            return FieldPath(name, name, ())
        return FieldPath(name, "", path_parts(name))

    @property
    def plain(self) -> bool:
        """Whether it is a top-level field of the value and nothing else."""
        return self.root == "" and self.parts == (self.name,)

    def find(self, document: Any) -> Any:
        """Return what stands there in a document; `ABSENT` where nothing does.

        >>> FieldPath.parse("a.b").find({"a": {"b": 1}}), FieldPath.parse("a.b").find({"a.b": 2, "a": {"b": 1}})
        (1, 2)
        """
        if self.root == "" and isinstance(document, Mapping) and self.name in document:
            return document[self.name]
        for part in self.parts:
            if isinstance(document, Mapping):
                document = document.get(part, ABSENT)
            elif isinstance(document, list) and part.isdecimal() and len(part) < 7:
                document = document[int(part)] if int(part) < len(document) else ABSENT
            else:
                return document if document is NOT_FINITE else ABSENT
        return document


def instant(value: Any, unit: str | None) -> Any:
    """Return the time of an event. One that its format knows to be an instant is that, whatever unit it was written in.

    Args: unit: `s`, `ms`, `us`, `ns` where a number is configured; None: a text.
    """
    if unit is None or not isinstance(value, datetime.datetime):
        return plain(value)
    if value.tzinfo is None:  # a local time is no number of anything
        return value.isoformat()
    ns = epoch_us(value) * 1000
    whole, rest = divmod(ns, NUMERIC_FORMATS[unit])
    # As text where it is no whole number: floats have not enough digits.
    return whole if rest == 0 else format(decimal.Decimal(ns) / NUMERIC_FORMATS[unit], "f")


MOST_MISSING = 64
"""Schemas that are asked for at once; a registry is asked for fewer at a time."""


class SourceRecord(Protocol):
    """The parts of a Kafka record that are read: aiokafka's `ConsumerRecord` is one, and `RawRecord`."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


class ReadRecord(NamedTuple):
    """One event of a record, or why there is none. A tick is handed on with its headers.

    Attributes:
        fields: name -> value, where the record has one.
        reason, name: why it cannot be read, 0 where it can, and the field at fault.
    """

    offset: int
    timestamp: int
    headers: Headers
    fields: Mapping[str, Any]
    reason: int = 0
    name: str = ""
    value: bytes | None = None


def _unreadable(record: SourceRecord, error: UnreadableError) -> ReadRecord:
    return ReadRecord(record.offset, record.timestamp, record.headers, {}, error.reason, error.name)


def paths_of(form: InputFormat, names: Iterable[str]) -> list[FieldPath]:
    """Return where the fields are."""
    paths = [FieldPath.parse(name) for name in names]
    if form == ROWS:
        paths = [path if path.root == "" else FieldPath(path.name, "", (path.name,)) for path in paths]
    return paths


class RecordReader:
    """Reads one format. Pure: what it knows of schemas is in the book.

    Args:
        names: of the fields; `time` is one of them.
        unit: of the time: `s`, `ms`, `us`, `ns`; None where it is a text.
        user: the field with the user of an event, one of the names; None where users are not bounded.
        id_of: what two users have in common who are one; b"" of what is no user.
        deletes: whether changes of a table may take rows away.
        kinds: what each field can be, for formats that hold texts alone.
        mapping: computes some of the fields; None where all are read as they are named.
    """

    def __init__(
        self,
        form: InputFormat,
        names: Iterable[str],
        *,
        time: str,
        unit: str | None,
        user: str | None,
        id_of: Callable[[object], bytes],
        deletes: bool,
        kinds: Kinds,
        book: SchemaBook,
        max_value_bytes: int,
        mapping: FieldMap | None = None,
    ) -> None:
        self._form, self._time, self._unit, self._deletes = form, time, unit, deletes
        self._paths = paths_of(form, names)
        self._map = mapping
        self._user = next((path for path in self._paths if path.name == user), None)
        self._id_of = id_of
        self._values = form.encoding(book, kinds)
        self._keys = form.key_encoding(book) if any(path.root == "$key" for path in self._paths) else None
        self._book = book
        self._most_bytes = max_value_bytes

    @staticmethod
    def of_values(form: InputFormat, book: SchemaBook, *, max_value_bytes: int) -> RecordReader:
        """Return a reader of whole values (`values`), whatever fields a stream reads of them."""
        return RecordReader(
            form, (), time="", unit=None, user=None, id_of=lambda _: b"", deletes=True, kinds={}, book=book,
            max_value_bytes=max_value_bytes,
        )  # fmt: skip

    @property
    def weight(self) -> int:
        """About what a record costs beside one of JSON that is read as it stands, all of ingest counted."""
        return 5 if self._map is None else 10

    @property
    def most_events(self) -> int:
        """The most events of one record."""
        return 2 if self._form.envelope == "debezium" and self._deletes else 1

    def missing(
        self, records: Sequence[SourceRecord], absent: frozenset[SchemaRef] | None = None
    ) -> tuple[int, frozenset[SchemaRef]]:
        """Return how many of the first records can be read with the schemas that are known, and which of all are not.

        At most `MOST_MISSING` of them, the first: anybody who may write to a source can make ids up, and the book must
        hold all that is asked for at once. What comes behind is asked for when those are known.

        Args: absent: schemas of which the registry has said that it has none since these records were there; None: all
            of which it ever said so.
        """
        found: set[SchemaRef] = set()
        first = len(records)
        for index, record in enumerate(records):
            for ref in self._refs(record):
                if ref not in self._book or (absent is not None and self._book.lacks(ref) and ref not in absent):
                    found.add(ref)
                    first = min(first, index)
            if len(found) >= MOST_MISSING:
                break
        return first, frozenset(found)

    def _refs(self, record: SourceRecord) -> Iterator[SchemaRef]:
        """Yield the schemas that reading the record needs; more where it cannot be read at all."""
        value, headers = record.value, record.headers
        if not value or len(value) > self._most_bytes:
            return
        if (data := self._data(value, headers)) is not None:
            ref = self._values.ref(data, header_of(headers, VALUE_HEADER) if headers else None)
            if ref is not None:
                yield ref
        if self._keys is not None and record.key is not None:
            ref = self._keys.ref(record.key, header_of(headers, KEY_HEADER) if headers else None)
            if ref is not None:
                yield ref

    def _data(self, value: bytes, headers: Headers) -> bytes | None:
        """Return what of a value is in the stream's format."""
        if self._form.envelope != "cloudevents":
            return value
        if self._form.format not in NEEDS:
            return None  # no schema is asked for: spare what follows
        try:
            return cloudevents.carried(value, headers)[0]
        except UnreadableError:
            return None

    def values(self, record: SourceRecord) -> list[Any]:
        """Return the value in which fields are looked up, of each event of a record, with the types of JSON.

        Raises: UnreadableError.
        """
        try:
            return [as_json(document.value) for document in self._documents(record)]
        except RecursionError:
            raise UnreadableError(Reason.UNREADABLE) from None

    def ref(self, record: SourceRecord) -> SchemaRef | None:
        """Return the schema that a value is written with; None where none is needed to read it."""
        return next(self._refs(record), None)

    def unfold(self, records: Sequence[SourceRecord]) -> list[ReadRecord]:
        """Return the events of the records in order: one for each, or two; one as well for what cannot be read.

        Events of one record are of one user at most, whatever its format: else no bound on users would bound what goes
        with the records of one of them.
        """
        events: list[ReadRecord] = []
        for record in records:
            headers = record.headers
            if headers and any(name == TICK_HEADER for name, _ in headers):
                events.append(ReadRecord(record.offset, record.timestamp, headers, {}, value=record.value))
                continue
            try:
                documents = self._documents(record)
                self._check_user(record, documents)
            except UnreadableError as error:
                events.append(_unreadable(record, error))
                continue
            for document in documents:
                try:
                    fields = self._fields(record, document)
                except UnreadableError as error:
                    events.append(_unreadable(record, error))
                else:
                    events.append(ReadRecord(record.offset, record.timestamp, headers, fields))
        return events

    def _documents(self, record: SourceRecord) -> list[Document]:
        value, envelope = record.value, self._form.envelope
        if not value:
            raise UnreadableError(Reason.NO_EVENT if envelope == "debezium" and value is None else Reason.EMPTY)
        if len(value) > self._most_bytes:
            raise UnreadableError(Reason.TOO_LARGE)
        header = header_of(record.headers, VALUE_HEADER) if record.headers else None
        if envelope == "cloudevents":
            data, event = cloudevents.carried(value, record.headers)
            found = [event if data is None else replace(event, value=self._values.read(data, header))]
        elif envelope == "debezium":
            found = debezium.changes(self._values.read(value, header), deletes=self._deletes)
        else:
            found = [Document(self._values.read(value, header))]
        if self._map is None or self._values.json_types:
            return found
        try:
            return [replace(each, as_json=as_json(each.value)) for each in found]
        except RecursionError:
            raise UnreadableError(Reason.UNREADABLE) from None

    def _check_user(self, record: SourceRecord, documents: Sequence[Document]) -> None:
        """Raises: UnreadableError where the events would be of two users, or one does not say whose it is."""
        if self._user is None or len(documents) == 1:
            return
        found = [self._find(self._user, record, document) for document in documents]
        if ABSENT in found:
            raise UnreadableError(Reason.MISSING_FIELD, self._user.name)
        users = {self._id_of(plain(each)) for each in found}
        if len(users - {b""}) > 1:
            raise UnreadableError(Reason.TWO_USERS, self._user.name)

    def _fields(self, record: SourceRecord, document: Document) -> dict[str, Any]:
        value = document.value
        if not isinstance(value, Mapping):
            raise UnreadableError(Reason.WRONG_TYPE)
        if self._map is not None and self._map.drops(document.json):
            raise UnreadableError(Reason.DROPPED)
        found = {}
        for path in self._paths:
            name = path.name
            named = self._map is None and path.root == "" and name in value
            each = value[name] if named else self._find(path, record, document)
            if each is not ABSENT:
                found[name] = instant(each, self._unit) if name == self._time else plain(each)
        return found

    def _find(self, path: FieldPath, record: SourceRecord, document: Document) -> Any:
        """Return the value of a field; `ABSENT` where there is none."""
        if self._map is not None and path.name in self._map:
            computed = self._map.value(path.name, document.json)
            return ABSENT if computed is None else computed
        if path.root == "":
            return path.find(document.value)
        if path.root == "$envelope":
            return path.find(document.envelope)
        if path.root == "$operation":
            return ABSENT if document.operation is None else document.operation
        if path.root == "$timestamp":
            return record.timestamp if record.timestamp >= 0 else ABSENT
        try:
            if path.root == "$header":
                value = header_of(record.headers, path.parts[0])
                return ABSENT if value is None else value.decode()
            assert self._keys is not None, "a path leads into the key"
            if record.key is None:
                return ABSENT
            header = header_of(record.headers, KEY_HEADER) if record.headers else None
            key = self._keys.read(record.key, header)
        except UnicodeDecodeError:
            raise UnreadableError(Reason.UNREADABLE, path.name) from None
        except UnreadableError as error:
            raise UnreadableError(error.reason, path.name) from None
        return path.find(debezium.payload(key) if self._form.envelope == "debezium" else key)

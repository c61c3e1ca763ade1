"""Records of a source as events: each field that is configured, under its name, from wherever in the record it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from agents.protocol.formats.build import NEEDS, ROWS, InputFormat
from agents.protocol.formats.contract import Document, Headers, SchemaRef, UnreadableError
from agents.protocol.formats.encodings.csv_text import Kinds
from agents.protocol.formats.envelopes import cloudevents, debezium
from agents.protocol.formats.framing import KEY_HEADER, VALUE_HEADER, header_of
from agents.protocol.formats.paths import ABSENT, FieldPath
from agents.protocol.formats.schemas import SchemaBook
from agents.protocol.formats.values import PLAIN, instant, plain
from schemas.events import TICK_HEADER, Reason

MOST_MISSING = 64
"""Schemas that are asked for at once; a registry is asked for fewer at a time."""


class KeyedRecord(Protocol):
    """What is read of a Kafka record."""

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


def _unreadable(record: KeyedRecord, error: UnreadableError) -> ReadRecord:
    return ReadRecord(record.offset, record.timestamp, record.headers, {}, error.reason, error.name)


def paths_of(form: InputFormat, names: Iterable[str]) -> list[FieldPath]:
    """Where the fields are."""
    paths = [FieldPath.of(name) for name in names]
    if form == ROWS:
        paths = [path if path.root == "" else FieldPath(path.name, "", (path.name,)) for path in paths]
    return paths


class RecordReader:
    """Reads one format. Pure: what it knows of schemas is in the book.

    Args:
        names: of the fields; `time` is one of them.
        unit: of the time: `s`, `ms`, `us`; None where it is a text.
        user: the field with the user of an event, one of the names; None where users are not bounded.
        id_of: what two users have in common who are one; b"" of what is no user.
        deletes: whether changes of a table may take rows away.
        kinds: what each field can be, for formats that hold texts alone.
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
    ) -> None:
        self._form, self._time, self._unit, self._deletes = form, time, unit, deletes
        self._paths = paths_of(form, names)
        self._user = next((path for path in self._paths if path.name == user), None)
        self._id_of = id_of
        self._values = form.encoding(book, kinds)
        self._keys = form.key_encoding(book) if any(path.root == "$key" for path in self._paths) else None
        self._book = book
        self._most_bytes = max_value_bytes

    @property
    def most_events(self) -> int:
        """Of one record."""
        return 2 if self._form.envelope == "debezium" and self._deletes else 1

    def missing(self, records: Sequence[KeyedRecord]) -> tuple[int, frozenset[SchemaRef]]:
        """How many of the first records can be read with the schemas that are known, and which of all are not.

        At most `MOST_MISSING` of them, the first: anybody who may write to a source can make ids up, and the book must
        hold all that is asked for at once. What comes behind is asked for when those are known.
        """
        found: set[SchemaRef] = set()
        first = len(records)
        for index, record in enumerate(records):
            for ref in self._refs(record):
                if ref not in self._book:
                    found.add(ref)
                    first = min(first, index)
            if len(found) >= MOST_MISSING:
                break
        return first, frozenset(found)

    def _refs(self, record: KeyedRecord) -> Iterator[SchemaRef]:
        """Of all that reading the record needs; of more than that where it cannot be read at all."""
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
        """What of a value is in the stream's format."""
        if self._form.envelope != "cloudevents":
            return value
        if self._form.format not in NEEDS:
            return None  # no schema is asked for: spare what follows
        try:
            return cloudevents.carried(value, headers)[0]
        except UnreadableError:
            return None

    def unfold(self, records: Sequence[KeyedRecord]) -> list[ReadRecord]:
        """The events of the records in order: one for each, or two; one as well for what cannot be read.

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

    def _documents(self, record: KeyedRecord) -> list[Document]:
        value, envelope = record.value, self._form.envelope
        if not value:
            raise UnreadableError(Reason.NO_EVENT if envelope == "debezium" and value is None else Reason.EMPTY)
        if len(value) > self._most_bytes:
            raise UnreadableError(Reason.TOO_LARGE)
        header = header_of(record.headers, VALUE_HEADER) if record.headers else None
        if envelope == "cloudevents":
            return [cloudevents.unwrap(value, record.headers, lambda data: self._values.read(data, header))]
        found = self._values.read(value, header)
        return debezium.changes(found, deletes=self._deletes) if envelope == "debezium" else [Document(found)]

    def _check_user(self, record: KeyedRecord, documents: Sequence[Document]) -> None:
        """Raises: UnreadableError where the events would be of two users, or one does not say whose it is."""
        if self._user is None or len(documents) == 1:
            return
        found = [self._find(self._user, record, document) for document in documents]
        if ABSENT in found:
            raise UnreadableError(Reason.MISSING_FIELD, self._user.name)
        users = {self._id_of(self._plain(self._user, each)) for each in found}
        if len(users - {b""}) > 1:
            raise UnreadableError(Reason.TWO_USERS, self._user.name)

    def _fields(self, record: KeyedRecord, document: Document) -> dict[str, Any]:
        value = document.value
        if not isinstance(value, Mapping):
            raise UnreadableError(Reason.WRONG_TYPE)
        found = {}
        for path in self._paths:
            name = path.name
            each = value[name] if name in value and path.root == "" else self._find(path, record, document)
            if type(each) in PLAIN:
                found[name] = each
            elif each is not ABSENT:
                found[name] = self._plain(path, each)
        return found

    def _plain(self, path: FieldPath, value: Any) -> Any:
        """Raises: UnreadableError, with the field."""
        try:
            return instant(value, self._unit) if path.name == self._time else plain(value)
        except UnreadableError as error:
            raise UnreadableError(error.reason, path.name) from None

    def _find(self, path: FieldPath, record: KeyedRecord, document: Document) -> Any:
        """What stands at a path of an event, or of its record; `ABSENT` where nothing does."""
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

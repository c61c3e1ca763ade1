"""What a format is, how it says that it cannot read a record, and the schemas that records name.

Serializers of Confluent's registry say which schema a record is written with in front of it: a zero byte and the id,
four bytes, big-endian. Or in a header, `__value_schema_id` or `__key_schema_id`: the same five bytes, or a one and a
GUID of sixteen bytes; the record then begins at its first byte. Source: the "wire format" of Confluent's documentation
of its serializers. A registry never changes what an id stands for, so what is read with a schema is a function of the
record.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from schemas.errors import PrivstreamError
from schemas.events import Reason

Headers = Sequence[tuple[str, bytes | None]]


class UnreadableError(Exception):
    """A record, or a part of it, cannot be read; becomes a dead letter. Never holds what is in the record."""

    def __init__(self, reason: Reason, name: str = "") -> None:
        self.reason, self.name = reason, name
        super().__init__(reason.name)


@dataclass(frozen=True, slots=True)
class SchemaRef:
    """The name by which a record calls its schema: a number, or a GUID of 32 hexadecimal digits."""

    name: int | str

    def __str__(self) -> str:
        return f"schema {self.name}"


class Encoding(abc.ABC):
    """Reads bytes as a document: mappings, lists, texts, numbers, booleans, None, bytes, and types of times; with
    `json_types` nothing but the types of JSON.
    """

    json_types: ClassVar[bool] = False

    def ref(self, data: bytes, header: bytes | None) -> SchemaRef | None:
        """Return the schema that is needed to read a record, whose id may be in a header; None where none is."""
        return None

    @abc.abstractmethod
    def read(self, data: bytes, header: bytes | None) -> Any:
        """Raises: UnreadableError, and nothing else whatever the bytes are."""


@dataclass(frozen=True, slots=True)
class Document:
    """One event of a record, with what its fields can be named after.

    Attributes:
        value: where fields are looked up that name no other place.
        envelope: what stands around it.
        operation: of a change of a table: `insert`, `delete`, or a text that is neither.
        as_json: the value with the types of JSON, where fields are computed from it and it has others.
    """

    value: Any
    envelope: Mapping[str, Any] = field(default_factory=dict)
    operation: str | None = None
    as_json: Any = None

    @property
    def json(self) -> Any:
        """The value with the types of JSON."""
        return self.value if self.as_json is None else self.as_json


VALUE_HEADER, KEY_HEADER = "__value_schema_id", "__key_schema_id"
_ID, _GUID = 0, 1


def header_of(headers: Headers, name: str) -> bytes | None:
    """Return the last header of a name; None where there is none."""
    found = None
    for each, value in headers:
        if each == name:
            found = value
    return found


def framed(data: bytes, header: bytes | None) -> tuple[SchemaRef, int]:
    """Return the schema, and where what was written with it begins. Raises: UnreadableError.

    >>> framed(bytes([0, 0, 0, 0, 12, 99]), None)
    (SchemaRef(name=12), 5)
    """
    if header is not None:
        if len(header) == 5 and header[0] == _ID:
            return SchemaRef(int.from_bytes(header[1:], "big")), 0
        if len(header) == 17 and header[0] == _GUID:
            return SchemaRef(header[1:].hex()), 0
        raise UnreadableError(Reason.NO_SCHEMA_ID)
    if len(data) < 5 or data[0] != 0:
        raise UnreadableError(Reason.NO_SCHEMA_ID)
    return SchemaRef(int.from_bytes(data[1:5], "big")), 5


MOST = 10_000
"""Ids that are remembered: anybody who may write to a source can make up ids."""


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema as a registry holds it.

    Attributes:
        kind: `AVRO`, `PROTOBUF` or `JSON`.
        references: (name, text) of the schemas that it is made of, each behind those that it needs itself.
    """

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


class SchemaBook:
    """The schemas of one registry that are known; shared by all that reads with it.

    That there is none of an id is true of records that were written before the registry was asked: it may get one,
    and anybody who may write to a source can make up the next id.
    """

    def __init__(self) -> None:
        self._texts: dict[SchemaRef, SchemaText | None] = {}
        self._made: dict[tuple[SchemaRef, str], Any] = {}
        self._makers: dict[str, Callable[[SchemaText], Any]] = {}

    def expect(self, kind: str, make: Callable[[SchemaText], Any]) -> None:
        """Note that records are read with schemas of a kind, and what `make` makes of each."""
        self._makers[kind] = make

    def __contains__(self, ref: SchemaRef) -> bool:
        return ref in self._texts

    def lacks(self, ref: SchemaRef) -> bool:
        """Return whether the registry has said that it has no such schema."""
        return ref in self._texts and self._texts[ref] is None

    def ask_again(self, refs: Iterable[SchemaRef]) -> None:
        """Forget of which of these the registry has said that it has none."""
        for ref in refs:
            if self.lacks(ref):
                del self._texts[ref]

    def prepared(self, text: SchemaText | None) -> Any:
        """Return what a schema that was not put here yet is read with; None where nothing reads its kind, or this
        machine cannot make it now: then `reader` tries, and says so.

        To make it can take seconds. Keeps nothing, so any thread may call it.
        """
        if text is None or text.kind not in self._makers:
            return None
        try:
            return _made(text, self._makers[text.kind])
        except _OF_THIS_MACHINE:
            return None

    def put(self, ref: SchemaRef, text: SchemaText | None, prepared: Any = None) -> None:
        """Keep what the registry said; None: it has no such schema. Args: prepared: see there."""
        self._texts[ref] = text
        if text is not None and prepared is not None:
            self._made[ref, text.kind] = prepared
        if len(self._texts) > MOST:
            # One that is not there, if any: those can be made up.
            gone = next((each for each, known in self._texts.items() if known is None), next(iter(self._texts)))
            del self._texts[gone]
            self._made = {key: made for key, made in self._made.items() if key[0] != gone}

    def reader(self, ref: SchemaRef, kind: str) -> Any:
        """Return what records of a schema are read with, made once.

        Ask first whether it is here: of one that is not, `UNKNOWN_SCHEMA` is the answer too. No record stops a stream.
        Args: kind: one that was expected. Raises: UnreadableError.
        """
        if (text := self._texts.get(ref)) is None:
            raise UnreadableError(Reason.UNKNOWN_SCHEMA)
        if (ref, kind) not in self._made:
            self._made[ref, kind] = _made(text, self._makers[kind]) if text.kind == kind else Reason.UNUSABLE_SCHEMA
        made = self._made[ref, kind]
        if isinstance(made, Reason):
            raise UnreadableError(made)
        return made


_OF_THIS_MACHINE = (ImportError, MemoryError, OSError, PrivstreamError)


def _made(text: SchemaText, make: Callable[[SchemaText], Any]) -> Any:
    """Return what `make` makes of a schema, or `UNUSABLE_SCHEMA`.

    Raises: what is wrong with this machine: the schema may well be good, and its records are not given up.
    """
    try:
        return make(text)
    except _OF_THIS_MACHINE:
        raise
    except Exception:  # whatever its library finds wrong with a schema
        return Reason.UNUSABLE_SCHEMA


@dataclass(frozen=True, slots=True)
class SchemaEncoding(Encoding):
    """An encoding whose records name a schema of the registry, of one kind."""

    kind: ClassVar[str]
    book: SchemaBook

    def __post_init__(self) -> None:
        self.book.expect(self.kind, self.reader_of)

    @staticmethod
    @abc.abstractmethod
    def reader_of(text: SchemaText) -> Any:
        """Return what records of a schema are read with. Raises: anything where the schema is none."""

    def ref(self, data: bytes, header: bytes | None) -> SchemaRef | None:
        try:
            return framed(data, header)[0]
        except UnreadableError:
            return None

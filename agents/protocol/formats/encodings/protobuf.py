"""Protocol Buffers, as Confluent's serializer writes them: behind the schema's id, which message of it this is.

The number of a message is a path through nested ones: a count and so many indexes, zigzag varints; one zero byte stands
for the first message of the file. Messages become mappings with the field names of the .proto file. A field without
presence (proto3, no `optional`) that was not set has its default; one with presence is None. Timestamps are times,
wrappers what they wrap, enumerations their names.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agents.protocol.formats.contract import SchemaRef, UnreadableError
from agents.protocol.formats.framing import framed, framed_ref
from agents.protocol.formats.schemas import SchemaBook, SchemaText
from schemas.events import Reason

KIND = "PROTOBUF"
_WRAPPED = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_DEEPEST = 100
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class ProtobufEncoding:
    """See the module."""

    book: SchemaBook

    def ref(self, data: bytes, header: bytes | None) -> SchemaRef | None:
        return framed_ref(data, header)

    def read(self, data: bytes, header: bytes | None) -> Any:
        ref, begin = framed(data, header)
        message_of, unknown = self.book.reader(ref, KIND, reader_of)
        indexes, begin = message_indexes(data, begin)
        try:
            return _mapping(message_of(indexes).FromString(data[begin:]), unknown)
        except UnreadableError:
            raise
        except Exception:  # the library raises whatever the bytes lead it to
            raise UnreadableError(Reason.UNREADABLE) from None


def message_indexes(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Which message it is, and where it begins. Raises: UnreadableError.

    >>> message_indexes(bytes([0, 99]), 0), message_indexes(bytes([4, 2, 0, 99]), 0)
    (((0,), 1), ((1, 0), 3))
    """
    count, at = _varint(data, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= _DEEPEST:
        raise UnreadableError(Reason.UNREADABLE)
    indexes = []
    for _ in range(count):
        index, at = _varint(data, at)
        indexes.append(index)
    return tuple(indexes), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 35:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise UnreadableError(Reason.UNREADABLE)


def reader_of(text: SchemaText) -> tuple[Callable[[tuple[int, ...]], Any], Callable[[Any], Any]]:
    """From a message's indexes to its class, and what lists a message's unknown fields.

    Raises: whatever the library does where a schema is none.
    """
    from google.protobuf import descriptor_pool, message_factory
    from google.protobuf.unknown_fields import UnknownFieldSet

    from agents.protocol.formats.encodings.protoc import descriptors

    pool = descriptor_pool.DescriptorPool()
    *others, main = descriptors(text)
    for each in others:
        pool.Add(each)
    pool.Add(main)
    file = pool.FindFileByName(main.name)
    classes: dict[tuple[int, ...], Any] = {}

    def message_of(indexes: tuple[int, ...]) -> Any:
        if indexes not in classes:
            if any(index < 0 for index in indexes):
                raise UnreadableError(Reason.UNREADABLE)
            found = list(file.message_types_by_name.values())[indexes[0]]
            for index in indexes[1:]:
                found = found.nested_types[index]
            classes[indexes] = message_factory.GetMessageClass(found)
        return classes[indexes]

    return message_of, UnknownFieldSet


def _mapping(message: Any, unknown: Callable[[Any], Any]) -> Any:
    if len(unknown(message)):  # not written with this schema: what it misreads would be defaults
        raise UnreadableError(Reason.UNREADABLE)
    described = message.DESCRIPTOR
    name = described.full_name
    if name == "google.protobuf.Timestamp":
        return _EPOCH + datetime.timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    if name in _WRAPPED:
        return message.value
    return {field.name: _field(message, field, unknown) for field in described.fields}


def _field(message: Any, field: Any, unknown: Callable[[Any], Any]) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if not field.is_repeated:
        return _value(value, field, unknown)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        kind = field.message_type.fields_by_name["value"]
        return {str(key): _value(each, kind, unknown) for key, each in value.items()}
    return [_value(each, field, unknown) for each in value]


def _value(value: Any, field: Any, unknown: Callable[[Any], Any]) -> Any:
    if field.message_type is not None:
        return _mapping(value, unknown)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value

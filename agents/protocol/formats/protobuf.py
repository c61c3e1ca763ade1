"""Protocol Buffers, as Confluent's serializer writes them: behind the schema's id, which message of it this is.

The number of a message is a path through nested ones: a count and so many indexes, zigzag varints; one zero byte stands
for the first message of the file. Messages become mappings with the field names of the .proto file. A field without
presence (proto3, no `optional`) that was not set has its default; one with presence is None. Timestamps, dates and
times of day are such, decimals numbers, wrappers what they wrap, enumerations their names.

Registries hold schemas as .proto text, or as descriptors in base64. Text is compiled by protoc, which reads files: in a
scratch folder. Files that Confluent's serializers take for known to everybody, they register no reference for: those of
Protobuf itself, `google/type`, and two of Confluent's own.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import errno
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module, resources
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from agents.protocol.formats.contract import SchemaEncoding, SchemaText, UnreadableError, framed
from agents.protocol.formats.values import NOT_FINITE, decimal_of
from schemas.errors import StoreError
from schemas.events import Reason
from schemas.steps import EPOCH

_MAIN = "privstream_main.proto"
_WELL_KNOWN = ("google/protobuf/", "google/type/")
_CONFLUENT = {
    "confluent/meta.proto": """
        syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";
        message Meta {
          string doc = 1; map<string, string> params = 2; repeated string tags = 3; repeated Rule rules = 4;
        }
        message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }
        extend google.protobuf.FileOptions { Meta file_meta = 1088; }
        extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
        extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
        extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
        extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
    """,
    "confluent/type/decimal.proto": """
        syntax = "proto3"; package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
    """,
    "confluent/types/decimal.proto": 'syntax = "proto3"; import public "confluent/type/decimal.proto";',
}
"""What Kafka Connect describes fields and writes decimals with, under all names that it has had."""
_OF_NAMES = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ)
"""What is wrong with the name of a file and not with the disk."""


def descriptors(text: SchemaText) -> list[Any]:
    """Return the `FileDescriptorProto` of all files of a schema, each behind those that it imports.

    Raises: ValueError where it cannot be compiled; ImportError.
    """
    main = _serialized(text.text)
    return _compiled(text) if main is None else _ordered(main, text)


def _serialized(content: str) -> Any:
    """Return the descriptor that some serializers register; None where the schema is text."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        return FileDescriptorProto.FromString(base64.b64decode(content, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None


def _ordered(main: Any, text: SchemaText) -> list[Any]:
    known = {name: _serialized(content) for name, content in text.references}
    found: dict[str, Any] = {}

    def visit(file: Any) -> None:
        for name in file.dependency:
            if name not in found:
                each = known[name] if name in known else _well_known(name)
                if each is None:
                    raise ValueError("a reference of another kind than the schema")
                each.name = name  # by which it is imported
                visit(each)
        found[file.name] = file

    visit(main)
    return list(found.values())


def _well_known(name: str) -> Any:
    """Return the descriptor of a file that comes with the library, or is known to everybody. Raises: ValueError."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if name in _CONFLUENT:
        described = _compiled(SchemaText(ProtobufEncoding.kind, f'syntax = "proto3"; import "{name}";'))
        return next(each for each in described if each.name == name)
    if not name.startswith(_WELL_KNOWN) or ".." in name:
        raise ValueError("a schema imports a file that the registry does not have")
    try:
        module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    except ImportError:  # the library itself is there: the file is one that it never had
        raise ValueError("a schema imports a file that does not come with Protobuf") from None
    return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


def _compiled(text: SchemaText) -> list[Any]:
    """Raises: StoreError where this machine cannot do it now: that is no fault of the schema, which loses no record."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    if find_spec("grpc_tools") is None:
        raise ImportError("grpc_tools")
    try:
        with tempfile.TemporaryDirectory(prefix="privstream-proto-") as folder:
            for name, content in (*_known(), *text.references, (_MAIN, text.text)):
                path = PurePosixPath(name)
                if path.is_absolute() or ".." in path.parts:
                    raise ValueError("a reference leads out of its folder")
                place = Path(folder) / path
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(content, encoding="utf-8")
            found = _protoc(folder)
    except OSError as error:
        if error.errno in _OF_NAMES:
            raise ValueError("a reference whose name no file can have") from None
        reason = error.strerror or type(error).__name__
        raise StoreError(f"Protobuf schemas cannot be compiled in the folder of TMPDIR: {reason}") from None
    return list(FileDescriptorSet.FromString(found).file)


def _known() -> Iterator[tuple[str, str]]:
    """Yield name and text of the files that no reference is registered for, and protoc does not bring."""
    yield from _CONFLUENT.items()
    for file in resources.files("google.type").iterdir():
        if file.name.endswith(".proto"):
            yield f"google/type/{file.name}", file.read_text(encoding="utf-8")


def _protoc(folder: str) -> bytes:
    """Return the descriptors of what lies in a folder. Raises: ValueError; OSError.

    By a process of its own: protoc writes to the terminal what it finds wrong, and repeats the schema there; and where
    it crashes on one, the worker does not. What else ends that process says nothing of the schema: to stop a worker, a
    terminal and systemd signal all of its processes.
    """
    known = str(resources.files("grpc_tools") / "_proto")
    ended = subprocess.run(
        # -P: modules are not looked for in the working folder.
        [sys.executable, "-P", "-c", _JUDGE, f"-I{folder}", f"-I{known}", "--include_imports",
         "--descriptor_set_out=/dev/stdout", _MAIN],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    if ended.returncode == _NO_SCHEMA or -ended.returncode in _CRASHES:
        raise ValueError("not a .proto file that can be compiled")
    if ended.returncode or not ended.stdout:  # a schema's descriptors have its own file at least
        raise OSError("protoc was ended, or could not be run")
    return ended.stdout


_NO_SCHEMA = 3
_JUDGE = f"import sys; from grpc_tools.protoc import main; sys.exit(main(sys.argv) and {_NO_SCHEMA})"
_CRASHES = (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV)


_WRAPPED = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_DEEPEST = 100
MOST_VALUES = 1 << 20
"""Of a record, those among them that were not set: two bytes can be a message of a hundred fields."""
MOST_MESSAGES = 1_000
"""Types of which it is remembered what their fields are where they are not set."""
_VALUES: Mapping[str, Callable[[Any], Any]] = {
    "google.protobuf.Timestamp": lambda it: (
        EPOCH + datetime.timedelta(seconds=it.seconds, microseconds=it.nanos // 1000)
    ),
    "google.type.Date": lambda it: datetime.date(it.year, it.month, it.day),
    "google.type.TimeOfDay": lambda it: datetime.time(it.hours, it.minutes, it.seconds, it.nanos // 1000),
    "google.type.Decimal": lambda it: it.value,
    "confluent.type.Decimal": lambda it: decimal_of(it.value, it.scale),
}
"""Messages that are one value."""


class ProtobufEncoding(SchemaEncoding):
    """Protocol Buffers behind the id of their schema."""

    kind = "PROTOBUF"

    @staticmethod
    def reader_of(text: SchemaText) -> tuple[Callable[[tuple[int, ...]], Any], Callable[[Any], Any]]:
        """Return a function from a message's indexes to its class, and what lists a message's unknown fields.

        Raises: whatever the library does where a schema is none.
        """
        from google.protobuf import descriptor_pool, message_factory
        from google.protobuf.unknown_fields import UnknownFieldSet

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

    def read(self, data: bytes, header: bytes | None) -> Any:
        ref, begin = framed(data, header)
        message_of, unknown = self.book.reader(ref, self.kind)
        indexes, begin = message_indexes(data, begin)
        try:
            return _mapping(message_of(indexes).FromString(data[begin:]), _Reading(unknown))
        except UnreadableError:
            raise
        except Exception:  # the library raises whatever the bytes lead it to
            raise UnreadableError(Reason.UNREADABLE) from None


def message_indexes(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Return which message it is, and where it begins. Raises: UnreadableError.

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


@dataclass(slots=True)
class _Reading:
    """The reading of one record. Attributes: unknown: what lists a message's unknown fields. left: values to come."""

    unknown: Callable[[Any], Any]
    left: int = MOST_VALUES


def _mapping(message: Any, reading: _Reading) -> Any:
    if len(reading.unknown(message)):  # not written with this schema: what it misreads would be defaults
        raise UnreadableError(Reason.UNREADABLE)
    described = message.DESCRIPTOR
    name = described.full_name
    if name in _VALUES:
        try:
            return _VALUES[name](message)
        except (ValueError, OverflowError):  # of no calendar; the other fields are what they are
            return NOT_FINITE
    if name in _WRAPPED:
        return message.value
    unset = _unset(described)
    reading.left -= len(unset)
    if reading.left < 0:
        raise UnreadableError(Reason.UNREADABLE)
    found = unset.copy()
    for field, value in message.ListFields():
        if not field.is_extension:
            found[field.name] = _field(value, field, reading)
    return found


@lru_cache(MOST_MESSAGES)
def _unset(described: Any) -> dict[str, Any]:
    """Return what a message has of fields that were not set; do not change any of it."""
    return {
        field.name: (
            ({} if _is_map(field) else []) if field.is_repeated
            else None if field.has_presence
            else _value(field.default_value, field, _Reading(lambda _: ()))
        )
        for field in described.fields
    }  # fmt: skip


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _field(value: Any, field: Any, reading: _Reading) -> Any:
    if not field.is_repeated:
        return _value(value, field, reading)
    if _is_map(field):
        kind = field.message_type.fields_by_name["value"]
        return {str(key): _value(each, kind, reading) for key, each in value.items()}
    return [_value(each, field, reading) for each in value]


def _value(value: Any, field: Any, reading: _Reading) -> Any:
    if field.message_type is not None:
        return _mapping(value, reading)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value

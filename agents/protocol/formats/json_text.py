"""JSON, bare or behind the id of a JSON Schema; MessagePack, which is JSON in binary; and plain texts.

The JSON Schema is not asked for: what a record holds does not depend on it, and which fields are read, as what, is
configured. So a registry that is down delays nothing here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from agents.protocol.formats.contract import Encoding, UnreadableError, framed
from agents.protocol.formats.values import NOT_FINITE
from schemas.events import Reason


@dataclass(frozen=True, slots=True)
class JsonEncoding(Encoding):
    """JSON. Args: framed: whether a schema's id stands before each record, or in its headers."""

    json_types: ClassVar[bool] = True
    framed: bool = False

    def read(self, data: bytes, header: bytes | None) -> Any:
        begin = framed(data, header)[1] if self.framed else 0
        return read_json(data[begin:] if begin else data)


# Texts are passed over as a whole; possessive, so that one pass does whatever the bytes are.
_LITERALS = re.compile(rb'"(?:[^"\\]|\\.?)*+"?|-?(?:NaN|Infinity)', re.DOTALL)
NESTED = 8
"""Objects within each other in which such numbers are looked for; each costs as much as reading the record again."""
_BROKEN = (msgspec.MsgspecError, ValueError, RecursionError)


def read_json(data: bytes) -> Any:
    """Return a JSON value, with `NOT_FINITE` for what is, or is a list with, a number beyond float64; or NaN or
    Infinity, which JSON does not have and many a library writes all the same.

    Raises: UnreadableError.
    """
    try:
        return msgspec.json.decode(data)
    except _BROKEN as error:
        if b"NaN" in data or b"Infinity" in data:
            data = _LITERALS.sub(lambda found: found[0] if found[0].startswith(b'"') else bytes(NOT_FINITE), data)
        elif not isinstance(error, msgspec.ValidationError):  # without a type, of a number beyond float64 alone
            raise UnreadableError(Reason.NOT_JSON) from None
    try:
        return _with_marks(data, NESTED)
    except _BROKEN:
        raise UnreadableError(Reason.NOT_JSON) from None


def _with_marks(data: bytes | msgspec.Raw, deep: int) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.ValidationError:
        pass
    try:
        parts = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:  # the number itself, or a list
        return NOT_FINITE
    return {name: _with_marks(part, deep - 1) for name, part in parts.items()} if deep else NOT_FINITE


@dataclass(frozen=True, slots=True)
class MessagePackEncoding(Encoding):
    """MessagePack."""

    def read(self, data: bytes, header: bytes | None) -> Any:
        try:
            return msgspec.msgpack.decode(data)
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, OverflowError):
            raise UnreadableError(Reason.UNREADABLE) from None


@dataclass(frozen=True, slots=True)
class TextEncoding(Encoding):
    """A text in UTF-8. What begins with a zero byte is none: serializers of a registry put a schema's id behind it,
    and by that a user would be another one with each version of the schema; others write numbers so, of which some are
    UTF-8 by chance.
    """

    def read(self, data: bytes, header: bytes | None) -> Any:
        if data.startswith(b"\0"):
            raise UnreadableError(Reason.UNREADABLE)
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise UnreadableError(Reason.UNREADABLE) from None

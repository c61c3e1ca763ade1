"""JSON, bare or behind the id of a JSON Schema; MessagePack, which is JSON in binary; and plain texts.

The JSON Schema is not asked for: what a record holds does not depend on it, and which fields are read, as what, is
configured. So a registry that is down delays nothing here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from agents.protocol.formats.contract import Encoding, UnreadableError, framed
from schemas.events import Reason


@dataclass(frozen=True, slots=True)
class JsonEncoding(Encoding):
    """JSON. Args: framed: whether a schema's id stands before each record, or in its headers."""

    framed: bool = False

    def read(self, data: bytes, header: bytes | None) -> Any:
        begin = framed(data, header)[1] if self.framed else 0
        return read_json(data[begin:] if begin else data)


def read_json(data: bytes) -> Any:
    """Raises: UnreadableError."""
    try:
        return msgspec.json.decode(data)
    except msgspec.ValidationError:  # without a type, of a number beyond float64 alone
        raise UnreadableError(Reason.NOT_FINITE) from None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise UnreadableError(Reason.NOT_JSON) from None


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
    """A text in UTF-8."""

    def read(self, data: bytes, header: bytes | None) -> Any:
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise UnreadableError(Reason.UNREADABLE) from None

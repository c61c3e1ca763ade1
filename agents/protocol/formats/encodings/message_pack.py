"""MessagePack: as JSON, but binary. Its timestamps are times; other extensions are nothing that a field can be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from agents.protocol.formats.contract import SchemaRef, UnreadableError
from schemas.events import Reason


@dataclass(frozen=True, slots=True)
class MessagePackEncoding:
    """See the module."""

    def ref(self, data: bytes, header: bytes | None) -> SchemaRef | None:
        return None

    def read(self, data: bytes, header: bytes | None) -> Any:
        try:
            return msgspec.msgpack.decode(data)
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, OverflowError):
            raise UnreadableError(Reason.UNREADABLE) from None

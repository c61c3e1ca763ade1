"""A text: how keys are written mostly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agents.protocol.formats.contract import SchemaRef, UnreadableError
from schemas.events import Reason


@dataclass(frozen=True, slots=True)
class TextEncoding:
    """UTF-8."""

    def ref(self, data: bytes, header: bytes | None) -> SchemaRef | None:
        return None

    def read(self, data: bytes, header: bytes | None) -> Any:
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise UnreadableError(Reason.UNREADABLE) from None

"""What a format is, and how it says that it cannot read a record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from schemas.events import Reason

Headers = Sequence[tuple[str, bytes | None]]


class UnreadableError(Exception):
    """A record, or a part of it, cannot be read; becomes a dead letter. Never holds what is in the record."""

    def __init__(self, reason: Reason, name: str = "") -> None:
        self.reason, self.name = reason, name
        super().__init__(reason.name)


@dataclass(frozen=True, slots=True)
class SchemaRef:
    """What a record calls its schema: a number, or a GUID of 32 hexadecimal digits."""

    name: int | str

    def __str__(self) -> str:
        return f"schema {self.name}"


class Encoding(Protocol):
    """From bytes to a document: mappings, lists, texts, numbers, booleans, None, bytes, and Python's types of times."""

    def ref(self, data: bytes, header: bytes | None) -> SchemaRef | None:
        """The schema that is needed to read it; None where none is.

        Args: header: of the schema's id, where the record has one.
        """

    def read(self, data: bytes, header: bytes | None) -> Any:
        """Raises: UnreadableError, and nothing else whatever the bytes are."""


@dataclass(frozen=True, slots=True)
class Document:
    """One event of a record, with what its fields can be named after.

    Attributes:
        value: where fields are looked up that name no other place.
        envelope: what stands around it.
        operation: of a change of a table: `insert`, `delete`, or a text that is neither.
    """

    value: Any
    envelope: Mapping[str, Any] = field(default_factory=dict)
    operation: str | None = None

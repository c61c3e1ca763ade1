"""Avro, each record with the schema that it was written with: names, unions and logical types as that says.

No reader's schema has a part in it: a field that a writer did not know is not there, whatever default another version
has. Logical types become Python's: decimal, date, times, timestamps, uuid.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from agents.formats.contract import SchemaRef, UnreadableError
from agents.formats.framing import framed
from agents.formats.schemas import SchemaBook, SchemaText
from schemas.events import Reason

KIND = "AVRO"


@dataclass(frozen=True, slots=True)
class AvroEncoding:
    """See the module."""

    book: SchemaBook

    def ref(self, data: bytes, header: bytes | None) -> SchemaRef | None:
        try:
            return framed(data, header)[0]
        except UnreadableError:
            return None

    def read(self, data: bytes, header: bytes | None) -> Any:
        ref, begin = framed(data, header)
        read = self.book.reader(ref, KIND, reader_of)
        stream = io.BytesIO(data)
        stream.seek(begin)
        try:
            document = read(stream)
        except Exception:  # the library raises whatever the bytes lead it to
            raise UnreadableError(Reason.UNREADABLE) from None
        if stream.tell() != len(data):  # bytes that the schema does not explain
            raise UnreadableError(Reason.UNREADABLE)
        return document


def reader_of(text: SchemaText) -> Callable[[io.BytesIO], Any]:
    """Raises: whatever the library does where a schema is none."""
    import fastavro

    named: dict[str, Any] = {}
    for _, each in text.references:
        fastavro.parse_schema(msgspec.json.decode(each), named_schemas=named)
    parsed = fastavro.parse_schema(msgspec.json.decode(text.text), named_schemas=named)

    def read(stream: io.BytesIO) -> Any:
        return fastavro.schemaless_reader(stream, parsed, None)

    return read

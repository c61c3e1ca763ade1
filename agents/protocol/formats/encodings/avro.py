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

from agents.protocol.formats.contract import SchemaRef, UnreadableError
from agents.protocol.formats.encodings.avro_bounds import BOUNDED_DECIMAL, bound, too_deep
from agents.protocol.formats.framing import framed, framed_ref
from agents.protocol.formats.schemas import SchemaBook, SchemaText
from schemas.events import Reason

KIND = "AVRO"
MOST_DECIMAL_BYTES = 64
"""Of a decimal: 153 digits. To make a number of a million bytes takes a minute."""


@dataclass(frozen=True, slots=True)
class AvroEncoding:
    """See the module."""

    book: SchemaBook

    def ref(self, data: bytes, header: bytes | None) -> SchemaRef | None:
        return framed_ref(data, header)

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
    """Raises: whatever the library does where a schema is none; ValueError where reading with it has no bound."""
    import fastavro

    named: dict[str, Any] = {}
    for _, each in text.references:
        fastavro.parse_schema(msgspec.json.decode(each), named_schemas=named)
    parsed = fastavro.parse_schema(msgspec.json.decode(text.text), named_schemas=named)
    recursive = bound(parsed, named)
    for kind in ("bytes", "fixed"):  # names of our own: the library's own decimals stay what they are for others
        fastavro.read.LOGICAL_READERS[f"{kind}-{BOUNDED_DECIMAL}"] = _decimal

    if not recursive:
        return lambda stream: fastavro.schemaless_reader(stream, parsed, None)
    # A seventh as fast, and where a value is too deep it raises RecursionError, where the reader in C ends the process.
    from fastavro._read_py import schemaless_reader

    def read(stream: io.BytesIO) -> Any:
        found = schemaless_reader(stream, parsed, None)
        if too_deep(found):
            raise ValueError("values within each other, beyond what any record needs")
        return found

    return read


def _decimal(data: bytes, schema: Any = None, _: Any = None) -> Any:
    """A decimal; one that is too long stays bytes, which no field can be."""
    from fastavro.read import LOGICAL_READERS

    return data if len(data) > MOST_DECIMAL_BYTES else LOGICAL_READERS["bytes-decimal"](data, schema, None)

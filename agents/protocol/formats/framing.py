"""How serializers of Confluent's registry say which schema a record is written with.

In front of it: a zero byte and the id, four bytes, big-endian. Or in a header, `__value_schema_id` or
`__key_schema_id`: the same five bytes, or a one and a GUID of sixteen bytes; the record then begins at its first byte.
Source: the "wire format" of Confluent's documentation of its serializers.
"""

from __future__ import annotations

from agents.protocol.formats.contract import Headers, SchemaRef, UnreadableError
from schemas.events import Reason

VALUE_HEADER, KEY_HEADER = "__value_schema_id", "__key_schema_id"
_ID, _GUID = 0, 1


def header_of(headers: Headers, name: str) -> bytes | None:
    """The last header of this name."""
    found = None
    for each, value in headers:
        if each == name:
            found = value
    return found


def framed(data: bytes, header: bytes | None) -> tuple[SchemaRef, int]:
    """The schema, and where what was written with it begins. Raises: UnreadableError.

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


def framed_ref(data: bytes, header: bytes | None) -> SchemaRef | None:
    """The schema alone; None where nothing says it."""
    try:
        return framed(data, header)[0]
    except UnreadableError:
        return None

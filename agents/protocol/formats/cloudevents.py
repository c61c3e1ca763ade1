"""CloudEvents 1.0 in Kafka, structured or binary.

Structured: the value is one JSON object with attributes and `data`; its content type says so, or it has a
`specversion`. Binary: headers `ce_...` are the attributes and the value is the data, in the stream's format.
Batches are none that Kafka's binding knows, and are refused. Source: the CloudEvents specification, Kafka binding.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from agents.protocol.formats.contract import Document, Headers, UnreadableError, header_of
from agents.protocol.formats.json_text import read_json
from schemas.events import Reason

_PREFIX = "ce_"
_STRUCTURED = b"application/cloudevents"


def structured(headers: Headers) -> bool:
    """Return whether a record says that all of the event is in its value."""
    return (header_of(headers, "content-type") or b"").strip().lower().startswith(_STRUCTURED)


def binary(headers: Headers) -> bool:
    """Return whether a record says that its value is the data."""
    return not structured(headers) and any(name == f"{_PREFIX}specversion" for name, _ in headers)


def carried(data: bytes, headers: Headers) -> tuple[bytes | None, Document]:
    """Return what of an event is in the stream's format, and the event without it.

    Both what asks for schemas and what reads with them goes through here, so neither knows of data that the other
    does not. Returns: (data, or None where the document has it already; document). Raises: UnreadableError.
    """
    if binary(headers):
        return data, Document(None, _attributes(headers))
    kind = (header_of(headers, "content-type") or b"").split(b";")[0].strip().lower()
    if structured(headers) and kind != _STRUCTURED + b"+json":
        raise UnreadableError(Reason.NO_ENVELOPE)
    event = read_json(data)
    if not isinstance(event, dict) or "specversion" not in event:
        raise UnreadableError(Reason.NO_ENVELOPE)
    attributes = {name: value for name, value in event.items() if name not in ("data", "data_base64")}
    if "data_base64" not in event:
        return None, Document(event.get("data"), attributes)
    try:
        return base64.b64decode(event["data_base64"], validate=True), Document(None, attributes)
    except (binascii.Error, TypeError, ValueError):
        raise UnreadableError(Reason.UNREADABLE) from None


def _attributes(headers: Headers) -> dict[str, Any]:
    found = {}
    for name, value in headers:
        if name.startswith(_PREFIX) and value is not None:
            try:
                found[name.removeprefix(_PREFIX)] = value.decode()
            except UnicodeDecodeError:
                raise UnreadableError(Reason.UNREADABLE) from None
    return found

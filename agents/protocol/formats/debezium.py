"""Debezium's envelope: a change of a row of a database table as inserts and deletes of events, by the table of
docs/formats.md.

An update is two events of one user; `agents.protocol.formats.reader` refuses one that hands a row to another
(TWO_USERS). An update or delete without the row before is refused as a whole (NO_BEFORE): what it takes away is not
known, and half of it would leave a row in the table that is not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agents.protocol.formats.contract import Document, UnreadableError
from schemas.events import Reason


def payload(found: Any) -> Any:
    """Return a document without the schema that JSON converters put around it (schemas.enable)."""
    if isinstance(found, Mapping) and found.keys() == {"schema", "payload"}:
        return found["payload"]
    return found


def changes(found: Any, *, deletes: bool) -> list[Document]:
    """Return events of one change, at least one. Args: deletes: whether `op` is configured. Raises: UnreadableError."""
    change = payload(found)
    if change is None:  # a tombstone that a converter wrote with its schema
        raise UnreadableError(Reason.NO_EVENT)
    if not isinstance(change, Mapping) or not isinstance(change.get("op"), str):
        raise UnreadableError(Reason.NO_ENVELOPE)
    operation, before, after = change["op"], change.get("before"), change.get("after")
    envelope = {name: value for name, value in change.items() if name not in ("before", "after")}
    if operation not in (("c", "r", "u", "d") if deletes else ("c", "r")):
        raise UnreadableError(Reason.BAD_OPERATION, "$operation" if deletes else "")
    events = []
    if operation in ("u", "d"):
        if not isinstance(before, Mapping):
            raise UnreadableError(Reason.NO_BEFORE)
        events.append(Document(before, envelope, "delete"))
    if operation != "d":
        if not isinstance(after, Mapping):
            raise UnreadableError(Reason.NO_ENVELOPE)
        events.append(Document(after, envelope, "insert"))
    return events

"""The name of a field as a path into a record.

| name                 | means                                                                                  |
|----------------------|----------------------------------------------------------------------------------------|
| `lat`                | the field `lat` of the value                                                           |
| `position.lat`       | the field of that very name if the value has one, else `lat` in `position`             |
| `coordinates.0`      | the first item of a list                                                               |
| `"a.b".c`            | `c` in the field `a.b`: a part in quotes stands for itself                             |
| `"$key"`             | the field `$key` of the value                                                          |
| `$key`, `$key.id`    | the record's key, or a field of it                                                     |
| `$header.NAME`       | the last header of that name, as text                                                  |
| `$timestamp`         | Kafka's timestamp of the record, in milliseconds                                       |
| `$envelope.PATH`     | an attribute of a CloudEvent, a field of Debezium's envelope                           |
| `$operation`         | `insert` or `delete`, of a change of a table                                           |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_PART = re.compile(r'"([^"]*)"|([^."]+)')
_ROOTS = ("$key", "$header", "$timestamp", "$envelope", "$operation")


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()
"""Where there is no such field; other than None, which is a value."""


@dataclass(frozen=True, slots=True)
class FieldPath:
    """A field's name, taken apart.

    Attributes:
        name: as it is configured.
        root: one of `$key`, `$header`, ..., or "" for the value.
        parts: from there; none for the root itself.
    """

    name: str
    root: str
    parts: tuple[str, ...]

    @staticmethod
    def of(name: str) -> FieldPath:
        """
        >>> FieldPath.of('"a.b".c').parts, FieldPath.of("$key.id").root
        (('a.b', 'c'), '$key')
        """
        root, _, rest = name.partition(".")
        if root in ("$header", "$envelope", "$key") and rest:
            # A header's name may have dots of its own.
            return FieldPath(name, root, (rest,) if root == "$header" else _parts(rest))
        if name in _ROOTS:
            return FieldPath(name, name, ())
        return FieldPath(name, "", _parts(name))

    @property
    def plain(self) -> bool:
        """Whether it is a top-level field of the value and nothing else."""
        return self.root == "" and self.parts == (self.name,)

    def find(self, document: Any) -> Any:
        """What stands there in a document; `ABSENT` where nothing does.

        >>> FieldPath.of("a.b").find({"a": {"b": 1}}), FieldPath.of("a.b").find({"a.b": 2, "a": {"b": 1}})
        (1, 2)
        """
        if self.root == "" and isinstance(document, Mapping) and self.name in document:
            return document[self.name]
        for part in self.parts:
            if isinstance(document, Mapping):
                document = document.get(part, ABSENT)
            elif isinstance(document, list) and part.isdecimal() and len(part) < 7:
                document = document[int(part)] if int(part) < len(document) else ABSENT
            else:
                return ABSENT
        return document


def _parts(text: str) -> tuple[str, ...]:
    """A text that is not of parts and dots stands for itself, as a whole."""
    parts, at = [], 0
    while (found := _PART.match(text, at)) is not None:
        parts.append(found[2] if found[1] is None else found[1])
        at = found.end()
        if at == len(text):
            return tuple(parts)
        if text[at] != ".":
            break
        at += 1
    return (text,)

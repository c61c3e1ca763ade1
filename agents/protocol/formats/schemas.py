"""The schemas that are known: by the id that records carry. A registry never changes what an id stands for.

So what is read with one is a function of the record. Of an id that a registry does not have that is known, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agents.protocol.formats.contract import SchemaRef, UnreadableError
from schemas.errors import PrivstreamError
from schemas.events import Reason

MOST = 10_000
"""Ids that are remembered: anybody who may write to a source can make up ids."""


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema as a registry holds it.

    Attributes:
        kind: `AVRO`, `PROTOBUF` or `JSON`.
        references: (name, text) of the schemas that it is made of, each behind those that it needs itself.
    """

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


class SchemaBook:
    """What is known of one registry; shared by all that reads with it."""

    def __init__(self) -> None:
        self._texts: dict[SchemaRef, SchemaText | None] = {}
        self._made: dict[tuple[SchemaRef, str], Any] = {}

    def __contains__(self, ref: SchemaRef) -> bool:
        return ref in self._texts

    def put(self, ref: SchemaRef, text: SchemaText | None) -> None:
        """What the registry said; None: it has no such schema."""
        self._texts[ref] = text
        if len(self._texts) > MOST:
            # One that is not there, if any: those can be made up.
            gone = next((each for each, known in self._texts.items() if known is None), next(iter(self._texts)))
            del self._texts[gone]
            self._made = {key: made for key, made in self._made.items() if key[0] != gone}

    def reader(self, ref: SchemaRef, kind: str, make: Callable[[SchemaText], Any]) -> Any:
        """What `make` makes of the schema, once. Raises: UnreadableError.

        Ask first whether it is here: of one that is not, `UNKNOWN_SCHEMA` is the answer too. No record stops a stream.
        """
        if ref not in self._texts:
            raise UnreadableError(Reason.UNKNOWN_SCHEMA)
        if (ref, kind) not in self._made:
            text = self._texts[ref]
            made: Any = Reason.UNKNOWN_SCHEMA if text is None else Reason.UNUSABLE_SCHEMA
            if text is not None and text.kind == kind:
                try:
                    made = make(text)
                except (ImportError, MemoryError, OSError, PrivstreamError):
                    raise  # of this machine: the schema may well be good, and its records are not given up
                except Exception:  # whatever its library finds wrong with a schema
                    made = Reason.UNUSABLE_SCHEMA
            self._made[ref, kind] = made
        made = self._made[ref, kind]
        if isinstance(made, Reason):
            raise UnreadableError(made)
        return made

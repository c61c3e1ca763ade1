"""Fields of an event that `[streams.map]` computes from the record. Pure; compiled once; one record at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jmespath import compile as parse
from jmespath.visitor import Options, TreeInterpreter

from agents.protocol.formats.contract import UnreadableError
from agents.protocol.formats.values import NOT_FINITE, plain
from schemas.config import Stream
from schemas.config.mapping import MapFunctions, MapSection, table_of
from schemas.events import Reason

DROP = "drop"
_JSON: frozenset[type] = frozenset((str, int, float, bool, type(None)))


class FieldMap:
    """The expressions of one stream. `names`: of the fields of a record that they can read; None: any."""

    def __init__(self, section: MapSection) -> None:
        tables = {name: table_of(file) for name, file in section.tables.items()}
        self._compute = TreeInterpreter(Options(custom_functions=MapFunctions(tables))).visit
        self._trees = {name: parse(text).parsed for name, text in section.fields.items()}
        self._drop = None if section.drop is None else parse(section.drop).parsed
        self.names = section.names

    @staticmethod
    def of(stream: Stream) -> FieldMap | None:
        """Return the expressions of a stream; None where all fields are read as they are named."""
        return None if stream.map is None else FieldMap(stream.map)

    def __contains__(self, name: str) -> bool:
        """Return whether a field is computed."""
        return name in self._trees

    def value(self, name: str, record: Any) -> Any:
        """Return a field's value, None where its expression finds nothing.

        Raises: UnreadableError, with the field: `UNMAPPED`, or `WRONG_TYPE` of what is no value of a field.
        """
        found = self._computed(self._trees[name], name, record)
        if type(found) not in _JSON and found is not NOT_FINITE:
            raise UnreadableError(Reason.WRONG_TYPE, name)
        return found

    def drops(self, record: Any) -> bool:
        """Return whether a record is left out. Raises: UnreadableError where nobody can tell."""
        if self._drop is None:
            return False
        found = self._computed(self._drop, DROP, record)
        if type(found) not in (bool, type(None)):
            raise UnreadableError(Reason.UNMAPPED, DROP)
        return found is True

    def _computed(self, tree: Any, name: str, record: Any) -> Any:
        try:
            return self._compute(tree, record)
        except MemoryError:
            raise  # of this machine
        except Exception:  # the library raises whatever a record leads its functions to
            raise UnreadableError(Reason.UNMAPPED, name) from None


def as_json(value: Any) -> Any:
    """Return what a format has read with the types of JSON, which expressions know: numbers for decimals, ISO 8601 for
    times. Bytes stay what they are, and no field can be them.
    """
    if isinstance(value, Mapping):
        return {str(name): as_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    return plain(value)

"""The encoding of source records, and fields that are computed from them: `format`, `envelope`, `key_format`,
`[streams.csv]` and `[streams.map]` of a stream.

`agents/protocol/formats/reader.py` documents the names that fields may have.
"""

from __future__ import annotations

import codecs
import difflib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from schemas.config.domain import DomainSection
from schemas.config.mapping import MapSection, ReadPath
from schemas.config.privacy import Privacy
from schemas.config.split import SplitSection
from schemas.config.timing import Timing
from schemas.config.values import FieldName, Section, must, path_parts
from schemas.errors import ConfigProblem

SourceFormat = Literal["json", "avro", "protobuf", "json-schema", "csv", "msgpack"]
Envelope = Literal["none", "cloudevents", "debezium"]
KeyFormat = Literal["text", "json", "avro", "protobuf", "json-schema"]

BY_SCHEMA = ("avro", "protobuf")
"""Formats that cannot be read without a schema of the registry."""
ROOTS = ("$key", "$header", "$timestamp", "$envelope", "$operation")
"""Prefixes of the names of fields that are not in the value of the record."""
OPERATION = "$operation"


_ESCAPES = ("idna", "punycode", "raw-unicode-escape", "unicode-escape", "utf-7")
"""Encodings of Python that write letters as others, and can hold what is no text."""


def _is_encoding(name: str) -> bool:
    try:
        return "a;1\n".encode(name).decode(name) == "a;1\n" and codecs.lookup(name).name not in _ESCAPES
    except (LookupError, UnicodeError):
        return False


class CsvSection(Section):
    """`[streams.csv]`: layout of CSV, in records of the source with format "csv" and in the files of commands.

    Each record is one line, or a header line and one line. Files have a header line.
    """

    header: ClassVar[str] = "[streams.csv]"

    columns: tuple[FieldName, ...] | None = Field(None, min_length=1, examples=[["id", "at", "lat", "lon"]])
    """Names of the columns of a record, in order; absent: every record begins with a line that names them."""
    delimiter: Annotated[
        str,
        Field(strict=True),
        must(
            lambda text: len(text) == 1 and text.isascii() and text not in '"\r\n\0',
            "is not one character",
            'write one ASCII character, such as ";" or "\\t"',
        ),
    ] = Field(",", examples=[";"])
    decimal: Literal[".", ","] = Field(".", examples=[","])
    """Decimal separator of numbers."""
    encoding: Annotated[
        str,
        Field(strict=True),
        must(
            _is_encoding,
            "is not an encoding of text",
            'write a name such as "utf-8", "utf-16", "latin-1" or "windows-1252"',
        ),
    ] = Field("utf-8", examples=["windows-1252"])
    """Encoding of the text, by its name in Python."""

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse duplicate names, and one character with two meanings."""
        if self.columns is not None and len(set(self.columns)) < len(self.columns):
            yield ConfigProblem("columns", "two columns have the same name", "give each column a name of its own")
        if self.decimal == self.delimiter:
            yield ConfigProblem(
                "decimal", "is also the delimiter, so one number would be read as two", 'set delimiter = ";"'
            )


class Source(Section):
    """The keys of `[[streams]]` that say how its records are encoded."""

    header: ClassVar[str] = "[[streams]]"

    format: SourceFormat = Field("json", examples=["json"])
    """Encoding of the values of `source` and `audit`; avro, protobuf and json-schema are framed as registries do."""
    envelope: Envelope = Field("none", examples=["debezium"])
    """What surrounds each event: `cloudevents` (structured or binary), `debezium` (a change of a table)."""
    key_format: KeyFormat = Field("text", examples=["avro"])
    """Encoding of keys, for fields whose names begin with `$key`."""
    csv: CsvSection | None = None
    """Layout of CSV; absent: a header line in every record, commas, decimal points, UTF-8."""
    map: MapSection | None = None
    """Fields that are computed from each record; absent: all are read as they are named."""

    def input_fields(self) -> dict[str, Any]:
        """Return the values of these keys that differ from their defaults, for the fingerprint."""
        csv = None if self.csv is None or self.format != "csv" else self.csv.model_dump()
        mapped = None if self.map is None else self.map.fingerprint_fields()
        values = {
            "envelope": (self.envelope, "none"),
            "key_format": (self.key_format, "text"),
            "csv": (csv, None),
            "map": (mapped, None),
        }
        return {name: value for name, (value, default) in values.items() if value != default}


@dataclass(frozen=True, slots=True, kw_only=True)
class InputParts:
    """The keys and sections of a stream's input that could be read; None for one that is missing or unreadable."""

    format: SourceFormat | None = None
    envelope: Envelope | None = None
    key_format: KeyFormat | None = None
    partitioner: str | None = None
    csv: CsvSection | None = None
    map: MapSection | None = None
    split: SplitSection | None = None
    privacy: Privacy | None = None
    time: Timing | None = None
    domain: DomainSection | None = None

    def input_problems(self) -> Iterator[ConfigProblem]:
        """Yield contradictions between these keys and sections; keys are relative to the stream."""
        if self.csv is not None and self.csv.columns is not None and self.format not in ("csv", None):
            yield ConfigProblem(
                "csv.columns",
                f'would be ignored: format is "{self.format}", and files have a header line',
                'set format = "csv", or remove the key',
            )
        if self.envelope == "debezium" and self.format in ("csv", "msgpack"):
            yield ConfigProblem(
                "format",
                f'Debezium does not write "{self.format}"',
                'set the format of its value converter, such as "json"',
            )
        names = list(self._names())
        for key, name in names:
            yield from self._name_problems(key, name)
        yield from self._mapped(names)
        yield from self._readings()
        yield from self._timestamp()
        yield from self._changes()
        yield from self._placement(dict(names).get("privacy.user"))
        yield from self._routing()

    def _mapped(self, names: Sequence[tuple[str, str]]) -> Iterator[ConfigProblem]:
        """Refuse expressions for fields that are none. Args: names: keys, each with the field that it names."""
        if self.map is None:
            return
        whole = None not in (self.time, self.privacy, self.domain)
        fields = [name for _, name in names]
        for name in self.map.fields:
            if name.startswith("$"):
                yield ConfigProblem(
                    f"map.{name}",
                    "is read from beside the value, and expressions compute from the value",
                    "give the field a name of its own, and use that in the other sections too",
                )
            elif whole and name not in fields:
                near = difflib.get_close_matches(name, fields, n=1)
                yield ConfigProblem(
                    f"map.{name}",
                    "no other section names this field",
                    f"did you mean {near[0]}?" if near else f"fields are {', '.join(fields)}",
                )
        for key, name in names:
            if name in ("drop", "tables") and name in self.map.model_fields_set:
                yield ConfigProblem(
                    key, f'"{name}" is a key of [streams.map] with a meaning of its own', "give the field another name"
                )

    def _readings(self) -> Iterator[ConfigProblem]:
        """Refuse that the value of a reading decides whether there is one, in the stream, a step or a part: noise hides
        how far a user moves it, and not that it is gone.
        """
        if self.domain is None or self.domain.names_user:
            return
        for name in self.domain.fields:
            if self.map is not None and name in self.map.fields and self._decides_by_value(self.map, name):
                yield ConfigProblem(
                    f"map.{name}",
                    "decides by the value of a reading, which a user can move: where it finds nothing, that there is "
                    "none would tell it, and where it finds another number, the reading leaps beyond its sensitivity",
                    "decide by another field; values beyond the limits of a reading are clipped to them",
                )
        if self.map is not None and self.map.drop is not None and self._asks_a_value("drop"):
            yield ConfigProblem(
                "map.drop",
                "leaves readings out by their own value, which a user can move: whether there is one would tell it",
                "decide by another field; values beyond the limits of a reading are clipped to them",
            )
        if self.time is not None and self.time.field not in self.domain.fields and self._asks_a_value(self.time.field):
            yield ConfigProblem(
                "time.field",
                "is computed from a reading, which a user can move: in which step there is one would tell it",
                "name a field that says when the reading was taken",
            )
        if self.split is not None and self._asks_a_value(self.split.field):
            yield ConfigProblem(
                "split.field",
                "is a reading, or computed from one, which a user can move: which part has it would tell its value",
                "name a field that says whose reading it is, such as a region",
            )

    def _asks_a_value(self, key: str) -> bool:
        """Return whether a field, or an expression of `[streams.map]`, follows from the value of a reading."""
        assert self.domain is not None
        asked = self._paths(key)
        return any(path.meets(other) for value in self.domain.fields for path in self._paths(value) for other in asked)

    def _decides_by_value(self, mapping: MapSection, name: str) -> bool:
        """Return whether the expression of a reading asks for the value of one, itself or another."""
        assert self.domain is not None
        computed = {field: mapping.reads(field) for field in self.domain.fields if field in mapping.fields}
        # Of an expression that gives no number of the record, all that it asks for is the reading.
        values = [
            computed[field].numbers or computed[field].deciding if field in computed else self._paths(field)
            for field in self.domain.fields
        ]
        return any(asked.meets(value) for asked in computed[name].deciding for places in values for value in places)

    def _paths(self, key: str) -> Collection[ReadPath]:
        """Return where in a record a field is read, or what of its value it is made of."""
        if self.map is not None and key in self.map.expressions:
            return self.map.reads(key).all
        root, _, rest = key.partition(".")
        beside = root in ROOTS
        path = ReadPath(root=root if beside else "")
        for part in () if beside and not rest else path_parts(rest if beside else key):
            path = path.field(part)
        return path._replace(leaf=True), path._replace(names=(key,), leaf=True)

    def _names(self) -> Iterator[tuple[str, str]]:
        if self.time is not None:
            yield "time.field", self.time.field
        if self.privacy is not None and self.privacy.user is not None:
            yield "privacy.user", self.privacy.user
        if self.domain is not None:
            for key, field in self.domain.roles():
                yield f"domain.{key}", field
        if self.split is not None:
            yield "split.field", self.split.field

    def _name_problems(self, key: str, name: str) -> Iterator[ConfigProblem]:
        if not name.startswith("$"):
            return
        root, _, rest = name.partition(".")
        literal = f"write '\"{name}\"' for a field with exactly this name"
        if root not in ROOTS:
            yield ConfigProblem(
                key,
                f'"{name}" begins with $ but names no part of a record',
                f"use {', '.join(ROOTS)}; or {literal}",
            )
        elif root in ("$timestamp", OPERATION) and rest:
            yield ConfigProblem(key, f"{root} has no fields", f'write "{root}"; or {literal}')
        elif root == "$header" and not rest:
            yield ConfigProblem(key, "$header names no header", 'write "$header.NAME"')
        elif root == "$envelope" and (self.envelope == "none" or not rest):
            yield ConfigProblem(
                key,
                "there is no envelope" if self.envelope == "none" else "$envelope names no field of the envelope",
                'set envelope = "cloudevents" or "debezium", and name a field, such as "$envelope.time"',
            )
        elif root == "$key" and rest and self.key_format == "text":
            yield ConfigProblem(
                key, 'a key of key_format = "text" has no fields', 'set key_format = "json" or "avro", or write "$key"'
            )
        elif root == OPERATION and (self.envelope != "debezium" or key != "domain.op"):
            yield ConfigProblem(
                key, "$operation is the operation of a change of a table", 'use it as op, with envelope = "debezium"'
            )

    def _timestamp(self) -> Iterator[ConfigProblem]:
        if self.time is not None and self.time.field == "$timestamp" and self.time.format != "ms":
            yield ConfigProblem(
                "time.format", f'is "{self.time.format}", but timestamps of Kafka are in ms', 'set format = "ms"'
            )

    def _changes(self) -> Iterator[ConfigProblem]:
        """Refuse a unit that protects half of an update, which is a delete and an insert."""
        op = self.domain.operation_field if self.domain is not None else None
        if self.envelope != "debezium" or op is None:
            return
        if op != OPERATION:
            yield ConfigProblem(
                "domain.op", "a change of a table names its operation itself", f'set op = "{OPERATION}", or remove op'
            )
        if self.privacy is not None and self.privacy.unit == "event":
            yield ConfigProblem(
                "privacy.unit",
                "an update is two events, a delete and an insert, so protecting one would protect half of a change",
                'set unit = "user" and name the column of the user; or remove op, so that only new rows count',
            )

    def _routing(self) -> Iterator[ConfigProblem]:
        """Refuse routing where it has no use."""
        if self.partitioner == "any" and self.privacy is not None and not self.privacy.bounds_users:
            yield ConfigProblem(
                "partitioner",
                '"any" routes records by their user, but no user of this stream is bounded',
                "remove partitioner: records may be on any partition already",
            )

    def _placement(self, user: str | None) -> Iterator[ConfigProblem]:
        keyed = user is not None and user.startswith("$key") and self.key_format not in ("text", None)
        if keyed and self.partitioner not in ("any", "none", None):
            yield ConfigProblem(
                "partitioner",
                f'the key is "{self.key_format}": all of its bytes determine the partition, so one user may have keys '
                "with different bytes, on several partitions, and would be bounded on each of them separately",
                'set partitioner = "any"; or key the records by the user id as text; or use a source of one partition '
                'and partitioner = "none"',
            )

"""How records of a source are written: `format`, `envelope`, `key_format` and `[streams.csv]` of a stream.

And what they say against its other sections. What a field's name may be: `agents/protocol/formats/reader.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from schemas.config.domain import DomainSection
from schemas.config.privacy import Privacy
from schemas.config.timing import Timing
from schemas.config.values import FieldName, Section, must
from schemas.errors import ConfigProblem

SourceFormat = Literal["json", "avro", "protobuf", "json-schema", "csv", "msgpack"]
Envelope = Literal["none", "cloudevents", "debezium"]
KeyFormat = Literal["text", "json", "avro", "protobuf", "json-schema"]

BY_SCHEMA = ("avro", "protobuf")
"""Formats that nobody can read without the schema that a registry holds."""
ROOTS = ("$key", "$header", "$timestamp", "$envelope", "$operation")
"""What a field's name may begin with where it is none of the record's value."""
OPERATION = "$operation"


class CsvSection(Section):
    """`[streams.csv]`: each record of the source is one line, or a header and one line."""

    header: ClassVar[str] = "[streams.csv]"

    columns: tuple[FieldName, ...] | None = Field(None, min_length=1, examples=[["id", "at", "lat", "lon"]])
    """Names of the cells, in order; absent: every record begins with a line that names them."""
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
    """What separates the fraction of a number."""

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse names that clash, and one character with two meanings."""
        if self.columns is not None and len(set(self.columns)) < len(self.columns):
            yield ConfigProblem("columns", "two columns have the same name", "give each column a name of its own")
        if self.decimal == self.delimiter:
            yield ConfigProblem(
                "decimal", "is the delimiter too, so no number could be told from two", 'set delimiter = ";"'
            )


class Source(Section):
    """The keys of `[[streams]]` that say how its records are written."""

    header: ClassVar[str] = "[[streams]]"

    format: SourceFormat = Field("json", examples=["json"])
    """How values of `source` and `audit` are written; avro, protobuf and json-schema as registries frame them."""
    envelope: Envelope = Field("none", examples=["debezium"])
    """What stands around each event: `cloudevents` (structured or binary), `debezium` (a change of a table)."""
    key_format: KeyFormat = Field("text", examples=["avro"])
    """How keys are written, where a field's name begins with `$key`."""
    csv: CsvSection | None = None
    """Shape of the lines, with format "csv" alone; absent: a header in every record, commas, points."""

    def input_fields(self) -> dict[str, Any]:
        """Return those of the keys for the fingerprint that are not as they are by default."""
        csv = None if self.csv is None else self.csv.model_dump()
        named = {"envelope": (self.envelope, "none"), "key_format": (self.key_format, "text"), "csv": (csv, None)}
        return {name: value for name, (value, default) in named.items() if value != default}


@dataclass(frozen=True, slots=True, kw_only=True)
class InputParts:
    """As much of a stream's input as could be read. None: that key or section could not, or is not there."""

    format: SourceFormat | None = None
    envelope: Envelope | None = None
    key_format: KeyFormat | None = None
    partitioner: str | None = None
    csv: CsvSection | None = None
    privacy: Privacy | None = None
    time: Timing | None = None
    domain: DomainSection | None = None

    def input_problems(self) -> Iterator[ConfigProblem]:
        """Yield what these say against each other; keys are relative to the stream."""
        if self.csv is not None and self.format not in ("csv", None):
            yield ConfigProblem(
                "csv", f'would be ignored: format is "{self.format}"', 'set format = "csv", or remove [streams.csv]'
            )
        if self.envelope == "debezium" and self.format in ("csv", "msgpack"):
            yield ConfigProblem(
                "format", f'Debezium writes no "{self.format}"', 'set the format of its value converter, such as "json"'
            )
        names = dict(self._names())
        for key, name in names.items():
            yield from self._of_name(key, name)
        yield from self._timestamp()
        yield from self._changes()
        yield from self._placement(names.get("privacy.user"))
        yield from self._routing()

    def _names(self) -> Iterator[tuple[str, str]]:
        if self.time is not None:
            yield "time.field", self.time.field
        if self.privacy is not None and self.privacy.user is not None:
            yield "privacy.user", self.privacy.user
        if self.domain is not None:
            for key, field in self.domain.roles():
                yield f"domain.{key}", field

    def _of_name(self, key: str, name: str) -> Iterator[ConfigProblem]:
        if not name.startswith("$"):
            return
        root, _, rest = name.partition(".")
        literal = f"write '\"{name}\"' for a field of that very name"
        if root not in ROOTS:
            yield ConfigProblem(
                key, f'"{name}" begins with $ and names nothing of a record', f"use {', '.join(ROOTS)}; or {literal}"
            )
        elif root in ("$timestamp", OPERATION) and rest:
            yield ConfigProblem(key, f"{root} has no fields", f'write "{root}"; or {literal}')
        elif root == "$header" and not rest:
            yield ConfigProblem(key, "$header names no header", 'write "$header.NAME"')
        elif root == "$envelope" and (self.envelope == "none" or not rest):
            yield ConfigProblem(
                key,
                "there is no envelope" if self.envelope == "none" else "$envelope names no field of it",
                'set envelope = "cloudevents" or "debezium", and write such as "$envelope.time"',
            )
        elif root == "$key" and rest and self.key_format == "text":
            yield ConfigProblem(
                key, 'a key of key_format = "text" has no fields', 'set key_format = "json" or "avro", or write "$key"'
            )
        elif root == OPERATION and (self.envelope != "debezium" or key != "domain.op"):
            yield ConfigProblem(
                key, "$operation is what a change of a database table does", 'use it as op, with envelope = "debezium"'
            )

    def _timestamp(self) -> Iterator[ConfigProblem]:
        if self.time is not None and self.time.field == "$timestamp" and self.time.format != "ms":
            yield ConfigProblem(
                "time.format", f'is "{self.time.format}", and Kafka\'s timestamps are in ms', 'set format = "ms"'
            )

    def _changes(self) -> Iterator[ConfigProblem]:
        """Refuse to protect half of an update, which is a delete and an insert."""
        op = self.domain.operation_field if self.domain is not None else None
        if self.envelope != "debezium" or op is None:
            return
        if op != OPERATION:
            yield ConfigProblem(
                "domain.op", "a change of a table says itself what it does", f'set op = "{OPERATION}", or remove op'
            )
        if self.privacy is not None and self.privacy.unit == "event":
            yield ConfigProblem(
                "privacy.unit",
                "an update is two events, a delete and an insert, so protecting one would protect half of a change",
                'set unit = "user" and name the column of the user; or remove op, and only new rows count',
            )

    def _routing(self) -> Iterator[ConfigProblem]:
        """Refuse to route where nothing is gained."""
        if self.partitioner != "any":
            return
        if self.privacy is not None and not self.privacy.bounds_users:
            yield ConfigProblem(
                "partitioner",
                '"any" routes records by their user, and no user of this stream is bounded',
                "remove partitioner: records may lie on any partition as it is",
            )
        if self.time is not None and self.time.clock == "replay":
            yield ConfigProblem(
                "partitioner",
                '"any" is for producers of others: what privstream replay writes is where its users belong',
                'set partitioner = "murmur2"',
            )

    def _placement(self, user: str | None) -> Iterator[ConfigProblem]:
        keyed = user is not None and user.startswith("$key") and self.key_format not in ("text", None)
        if keyed and self.partitioner not in ("any", "none", None):
            yield ConfigProblem(
                "partitioner",
                f'the key is "{self.key_format}": its place follows from all of its bytes, and one user can have keys '
                "of different bytes, on different partitions, and a bound on each",
                'set partitioner = "any"; or key the records by the user id as text; or use a source of one partition '
                'and partitioner = "none"',
            )

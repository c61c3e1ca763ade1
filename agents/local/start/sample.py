"""The fields of private records: their names, and the types of their values. Never a value.

Names are shown and written into a public file. So a name that reads as a value is refused and not repeated, and so is a
key that some of the objects lack: keys that differ by record may be people's names, ids or number plates. The
assumption is that keys of all objects are names of fields, and may be public.
For a time, the format in which ingest can read all sampled values is shown too ("%Y-%m-%d", milliseconds), but never
the time.

A key of a nested object has a path as its name (`position.lat`), if all records have such an object with the same keys.
Other nested objects are neither read nor shown.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from agents.kafka.lifecycle.refusals import WHAT_TO_DO
from agents.kafka.schema_registry import RegistryClient, RegistryError
from agents.local.offline.files import FileError, RowFile, open_rows
from agents.local.offline.names import NO_HEADER, reads_as_value, time_forms
from agents.local.offline.seen import FIRST_ROWS, LOOKED_AT, tried
from agents.protocol.formats.build import JSON, NEEDS, InputFormat
from agents.protocol.formats.contract import SchemaBook, SchemaRef, UnreadableError
from agents.protocol.formats.reader import RecordReader
from agents.protocol.formats.values import NOT_FINITE, TEXT, number
from agents.protocol.ingest.decode import MAX_VALUE_BYTES
from agents.protocol.replay import Row
from agents.show.text import number_of
from schemas.config import Kafka, Stream
from schemas.config.domain import FieldKind
from schemas.config.formats import CsvSection
from schemas.config.timing import NUMERIC_FORMATS
from schemas.config.values import format_length
from schemas.errors import PrivstreamError
from schemas.events import LARGEST_JUMP, TICK_HEADER, Reason

MOST_ITEMS = 4
"""Largest length of a list whose items are fields, such as the coordinates of a point."""


@dataclass(frozen=True, slots=True)
class FieldSeen:
    """A field of the sample, by its name or path.

    Attributes:
        kind: type of its values; None if all sampled values are null, lists or objects.
        texts: whether its numbers are written as texts, some of them with a fraction: ids and codes have none.
        times: values of `[streams.time] format` with which ingest reads its values as times; empty if there is none,
            several if the sample does not distinguish day and month.
        days: whether its values are dates without a time of day.
    """

    name: str
    kind: FieldKind | None
    times: tuple[str, ...] = ()
    days: bool = False
    texts: bool = False

    def __str__(self) -> str:
        written = f", time as {' or '.join(self.times)}" if self.times else ""
        kind = "numbers as text" if self.texts else self.kind or "unknown"
        return f"{self.name} ({kind}{written})"


def fields_of_file(path: Path, csv: CsvSection | None = None) -> tuple[FieldSeen, ...]:
    """Return the fields of the first rows of a file.

    Args: csv: layout of CSV, where it has another than commas, points and UTF-8.
    Raises: FileError; PrivstreamError if names read as values.
    """
    file = open_rows(path, csv)
    if any(reads_as_value(name) for name in file.columns() or ()):
        raise PrivstreamError(f"{path}: has no header line: {NO_HEADER}")
    found = fields_of(_first(file), names=file.columns() or ())
    if file.kind != "csv":
        return found
    # A stream that names a column for its time reads texts there, or numbers: cells are tried as both.
    texts = replace(file, kinds=dict.fromkeys((each.name for each in found), TEXT))
    as_texts = fields_of(_first(texts), names=file.columns() or ())
    return tuple(
        replace(each, times=each.times or text.times, days=each.days or text.days)
        for each, text in zip(found, as_texts, strict=True)
    )


def _first(file: RowFile) -> list[dict[str, Any]]:
    rows = (row for batch in file.batches(batch_rows=LOOKED_AT) for row in batch if isinstance(row, dict))
    return list(islice(rows, LOOKED_AT))


def check_sample(stream: Stream, rows: Iterable[Row]) -> None:
    """Check that a stream can use the first rows of its sample, in order of their times. Nothing is written.

    Raises: FileError if fewer than half can be used; the message has shares by reason and field, never a value.
    """
    seen = tried(stream, list(islice(rows, FIRST_ROWS)))
    if seen is None:
        raise FileError(
            f"stream {stream.name}: two events of the sample that follow each other are more than {LARGEST_JUMP:,} "
            f'steps of "{format_length(stream.time.step)}" apart, and no replay or simulation goes over that. Nothing '
            "was written. Fix: --set time.step=STEP with a longer one, or a time.format that fits; or say "
            "--allow-refused."
        )
    if seen.misfit:
        # Words for rows of a file name settings of a file that is there; here they are said with --set.
        raise FileError(
            f"stream {stream.name} would refuse most of the sample. Of its first {seen.rows:,} rows "
            f"{seen.seen.sentence()}. Nothing was written. Fix: {seen.refused[0].what_to_do}, with --set KEY=VALUE; "
            "or say --allow-refused."
        )


def rows_of_topic(kafka: Kafka, topic: str, form: InputFormat = JSON) -> list[Mapping[str, Any]]:
    """Return the first events of a topic that are objects; where several schemas have written them, those of one.

    Raises: BrokerError; PrivstreamError where there is none, which says why, and where their schemas cannot be asked
        for.
    """
    if form.format in NEEDS and kafka.registry is None:
        raise PrivstreamError(
            f'format "{form.format}" needs the registry that holds the schemas of topic {topic}. '
            "Fix: --set kafka.registry.url=URL."
        )
    try:
        sample = asyncio.run(_first_records(kafka, topic, form))
    except RegistryError as error:
        raise PrivstreamError(
            f"topic {topic} cannot be read without its schemas: {error}. "
            "Fix: bring the registry back, or correct --set kafka.registry.url=URL."
        ) from None
    if sample.rows:
        return sample.rows
    if not sample.records:
        raise PrivstreamError(f"topic {topic} has no record yet. Fix: write some, or name a file with --from.")
    if sample.framed == sample.records and form.format == JSON.format:
        raise PrivstreamError(
            f"topic {topic}: records are written with schemas of a registry, and read as JSON. Fix: --set format=avro "
            "(or protobuf, json-schema) --set kafka.registry.url=URL."
        )
    [(reason, count)] = sample.refused.most_common(1)
    kind = "a JSON object" if form == JSON else f'an object in format "{form.format}", envelope "{form.envelope}"'
    raise PrivstreamError(
        f"topic {topic}: of its first {number_of(sample.records, 'record')} none is {kind}; most often it is {reason} "
        f"({count:,}): {WHAT_TO_DO[reason]}. Fix: --set format=FORMAT (avro, protobuf, json-schema, csv, msgpack), "
        "--set envelope=ENVELOPE (cloudevents, debezium); or name a file with --from."
    )


def fields_of(rows: Iterable[Mapping[str, Any]], *, names: Iterable[str] = ()) -> tuple[FieldSeen, ...]:
    """Return the fields of some rows, in order of appearance. Args: names: of the columns, if there is a header.

    Raises: PrivstreamError if a name reads as a value, or is a key that some of the rows lack.
    """
    values: dict[str, list[Any]] = {name: [] for name in names}
    count = 0
    for count, row in enumerate(rows, 1):  # noqa: B007
        for name, value in row.items():
            values.setdefault(name, []).append(value)
    if any(len(found) < count for found in values.values()):
        raise PrivstreamError(
            "the records do not all have the same keys, and a key that some lack may be a value, such as a person's "
            "name or an id; it is private and is not shown. Fix: write null where a record has no value; or name a "
            "file with --from whose records have all fields."
        )
    if any(map(reads_as_value, values)):
        raise PrivstreamError(
            "the records have a key that is a number, a time or an e-mail address, so it is a value and no name of a "
            "field; it is private and is not shown. Fix: write records whose keys are the same names in each, and such "
            "values behind them."
        )
    return tuple(_seen(name, found) for name, found in _with_paths(values).items())


def _seen(name: str, values: list[Any]) -> FieldSeen:
    times, there = time_forms(values), [each for each in values if each is not None]
    short = all(isinstance(each, (str, int)) and len(str(each)) <= 10 for each in there)
    days = bool(times) and times[0] not in NUMERIC_FORMATS and short
    numbers = set() if times else {type(number(each)) if isinstance(each, str) else None for each in values if each}
    texts = float in numbers <= {int, float}
    return FieldSeen(name, "number" if texts else _kind(values), times, days, texts)


def _with_paths(values: Mapping[str, list[Any]], prefix: str = "") -> dict[str, list[Any]]:
    """Return the values by field; fields of objects and items of short lists have paths, as `FieldPath` reads them."""
    found: dict[str, list[Any]] = {}
    for name, column in values.items():
        path = name if not prefix else f"{prefix}.{quoted(name)}"
        inner = _inner(column)
        if inner and not any(reads_as_value(each) or '"' in each for each in inner if not each.isdecimal()):
            found |= _with_paths(inner, quoted(name) if not prefix else path)
        else:
            found[path] = column
    return found


def _inner(column: list[Any]) -> dict[str, list[Any]] | None:
    """Return the values by key, if all are objects with the same keys or short lists of plain items; else None."""
    if column and all(isinstance(each, Mapping) for each in column):
        names = column[0].keys()
        return (
            {name: [each[name] for each in column] for name in names}
            if all(each.keys() == names for each in column)
            else None
        )
    lists = bool(column) and all(isinstance(each, list) and 0 < len(each) <= MOST_ITEMS for each in column)
    if not lists or len({len(each) for each in column}) > 1:
        return None
    if any(isinstance(item, (Mapping, list)) for each in column for item in each):
        return None
    return {str(at): [each[at] for each in column] for at in range(len(column[0]))}


def quoted(name: str) -> str:
    """Return a key as part of a path, in quotes if it contains a dot.

    >>> quoted("lat"), quoted("a.b")
    ('lat', '"a.b"')
    """
    return f'"{name}"' if "." in name or not name else name


_KINDS: Mapping[type, FieldKind] = {bool: "boolean", int: "number", float: "number", str: "text"}


def _kind(values: Iterable[Any]) -> FieldKind | None:
    kinds = {_KINDS[type(value)] for value in values if type(value) in _KINDS}
    return None if not kinds else kinds.pop() if len(kinds) == 1 else "text"


@dataclass(slots=True)
class _Sample:
    """The first records of a topic.

    Attributes:
        records: those with a value. framed: those of them that begin as serializers of a registry write.
        by_schema: schema, None where there is none -> events, schemas in the order in which they were last met.
    """

    records: int = 0
    framed: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    by_schema: dict[SchemaRef | None, list[Mapping[str, Any]]] = field(default_factory=dict)

    @property
    def rows(self) -> list[Mapping[str, Any]]:
        """Events of the schema that was met last: each version of a schema has fields of its own."""
        return next(reversed(self.by_schema.values()), [])[:LOOKED_AT]

    @property
    def full(self) -> bool:
        return max(self.records, sum(map(len, self.by_schema.values()))) >= LOOKED_AT

    def take(self, reader: RecordReader, record: Any) -> None:
        if record.value is None or any(name == TICK_HEADER for name, _ in record.headers):
            return
        self.records += 1
        self.framed += record.value[:1] == b"\0"
        try:
            found = [each for each in reader.values(record) if isinstance(each, Mapping)]
        except UnreadableError as error:
            self.refused[error.reason.name] += 1
            return
        if not found:
            self.refused[Reason.WRONG_TYPE.name] += 1
            return
        ref = reader.ref(record)
        self.by_schema[ref] = before = self.by_schema.pop(ref, [])  # behind all others
        before += [{name: None if value is NOT_FINITE else value for name, value in each.items()} for each in found]


async def _first_records(kafka: Kafka, topic: str, form: InputFormat) -> _Sample:
    from agents.kafka.clients import log_reader
    from agents.kafka.topics import existing_topics

    there = await existing_topics(kafka, [topic], fix="check --topic, or name a file with --from")
    sample, book = _Sample(), SchemaBook()
    reader = RecordReader.of_values(form, book, max_value_bytes=MAX_VALUE_BYTES)
    for partition in range(there[topic].partitions):
        async with log_reader(kafka, topic, partition) as log:
            async for records in log.read():
                if kafka.registry is not None and (wanted := reader.missing(records)[1]):
                    async with RegistryClient(kafka.registry) as client:
                        await client.learn(book, wanted)
                for record in records:
                    sample.take(reader, record)
                    if sample.full:
                        return sample
    return sample

"""What private records look like: the names of their fields and what kind of value each holds. Never a value.

Names are shown and written into a public file, so what reads as a value is no name: it is refused, and not repeated.
Nor is a key that some of the objects lack: keys that differ by record may be people's names, ids or number plates. That
the keys which all have are names of fields, and may be public, is the assumption.
Of a time its form is told too ("%Y-%m-%d", milliseconds): how it is written, not when it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from agents.local.offline.seen import LOOKED_AT, reads, time_form
from schemas.config.domain import FieldKind
from schemas.errors import BrokerError, PrivstreamError

if TYPE_CHECKING:
    from schemas.config import Kafka

WRITTEN_OUT = (
    *("%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y", "%d-%b-%y"),
    *("%a, %d %b %Y %H:%M:%S %z", "%a, %d %b %Y %H:%M:%S %Z", "%a %b %d %H:%M:%S %Y", "%d/%b/%Y:%H:%M:%S %z"),
    *("%d %b %Y %H:%M", "%d %b %Y %H:%M:%S", "%I:%M %p", "%I:%M:%S %p", "%m/%d/%Y %I:%M %p"),
)
"""Times that are known for values where a name should be; not offered."""
_FIGURES = re.compile(r"[^\w@]*\d[\d\W]*([eE][-+]?\d+\W*)?")
"""Numbers, dates, times, telephone numbers and such: a digit, and no letter but that of an exponent."""
_ADDRESS = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_WORDS_OF_NUMBERS = ("nan", "inf", "infinity")


@dataclass(frozen=True, slots=True)
class FieldSeen:
    """Attributes:

    kind: of its values; None where all that were looked at are null, or lists and objects.
    time: the form in which they are times, as `[streams.time] format`; empty: they do not look like times.
    """

    name: str
    kind: FieldKind | None
    time: str = ""


def fields_of_file(path: Path) -> tuple[FieldSeen, ...]:
    """Return the fields of a file's first rows. Raises: FileError; PrivstreamError where names read as values."""
    from agents.local.offline.files import open_rows

    file = open_rows(path)
    if any(reads_as_value(name) for name in file.columns() or ()):
        raise PrivstreamError(
            f"{path}: has no header line: where the names of the columns should be there is a number, a time or an "
            "e-mail address, which is private and is not shown. Fix: write the columns' names into the first line; a "
            "column whose name is a number or a date needs another name."
        )
    rows = (row for batch in file.batches(batch_rows=LOOKED_AT) for row in batch if isinstance(row, dict))
    return fields_of(islice(rows, LOOKED_AT), names=file.columns() or ())


def fields_of_topic(kafka: Kafka, topic: str) -> tuple[FieldSeen, ...]:
    """Return the fields of a topic's first records that are JSON objects.

    Raises: BrokerError; PrivstreamError if it has none, or names read as values.
    """
    records = asyncio.run(_first_records(kafka, topic))
    found = fields_of(records)
    if not found:
        raise PrivstreamError(
            f"topic {topic} has no record yet that is a JSON object. Fix: write some, or name a file with --from."
        )
    return found


def fields_of(rows: Iterable[Mapping[str, Any]], *, names: Iterable[str] = ()) -> tuple[FieldSeen, ...]:
    """Return the fields of some rows, in order of appearance.

    Args: names: of columns, where a header says them.
    Raises: PrivstreamError where a name reads as a value, or is a key that some of the rows lack.
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
    return tuple(FieldSeen(name, _kind(found), time_form(found)) for name, found in values.items())


def reads_as_value(name: str) -> bool:
    """Return whether what stands for a name is a number, a time, a date or an e-mail address.

    >>> [reads_as_value(name) for name in ("13.4", "2026-03-04T05:06:07Z", "5.3.2026", "a.b@example.org", "4 Mar 2026")]
    [True, True, True, True, True]
    >>> [reads_as_value(name) for name in ("lon", "zone_2", "2nd stop", "at", "km/h", "march")]
    [False, False, False, False, False, False]
    """
    name = name.strip()
    return bool(
        _FIGURES.fullmatch(name)
        or _ADDRESS.fullmatch(name.strip("<>"))
        or name.lstrip("+-").casefold() in _WORDS_OF_NUMBERS
        or (
            any(character.isdigit() for character in name)
            and (reads(float, name) or time_form([name]) or reads(time.fromisoformat, name) or _says_when(name))
        )
    )


def _says_when(name: str) -> bool:
    """Return whether a text is a date with the month's name, as e-mails and web servers write it."""
    return any(reads(datetime.strptime, name, form) for form in WRITTEN_OUT)


def _kind(values: Iterable[Any]) -> FieldKind | None:
    kinds: set[FieldKind] = set()
    for value in values:
        if isinstance(value, bool):
            kinds.add("boolean")
        elif isinstance(value, (int, float)):
            kinds.add("number")
        elif isinstance(value, str):
            kinds.add("text")
    return None if not kinds else kinds.pop() if len(kinds) == 1 else "text"


async def _first_records(kafka: Kafka, topic: str) -> list[Mapping[str, Any]]:
    from agents.kafka.clients import log_reader
    from agents.kafka.topics import admin_client, topic_identities

    async with admin_client(kafka) as admin:
        there = await topic_identities(admin, [topic])
    if topic not in there:
        raise BrokerError(f"topic {topic} does not exist. Fix: check --topic, or name a file with --from.")
    found: list[Mapping[str, Any]] = []
    for partition in range(there[topic].partitions):
        async with log_reader(kafka, topic, partition) as log:
            async for records in log.read():
                for record in records:
                    with contextlib.suppress(orjson.JSONDecodeError):
                        if isinstance(row := orjson.loads(record.value or b""), dict):
                            found.append(row)
                if len(found) >= LOOKED_AT:
                    return found[:LOOKED_AT]
    return found

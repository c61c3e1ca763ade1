"""Answers as a commented configuration file: what was answered, and what else could be said, commented out."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any

import tomlkit
from pydantic.fields import FieldInfo
from tomlkit.items import Item, Table

from agents.local.start.words import documented
from schemas.config import ENGINES
from schemas.config.privacy import Privacy
from schemas.config.server import JobSection, Kafka
from schemas.config.stream import Stream
from schemas.config.timing import Timing
from schemas.config.values import Section, format_duration

WIDTH = 112
LONG = 88
"""Of a list in one line."""
TITLES: Mapping[str, str] = {
    "privacy": "who is protected, and how much all releases together may tell",
    "time": "how an event's time is read, and the public steps",
    "domain": "what an event can be: PUBLIC, written down here, never taken from private data",
    "options": "of the engine; what is commented out is as it would be",
}


def document(answers: Mapping[str, Any], *, job: str, bootstrap: str, head: str) -> str:
    """The text of the file.

    Args: answers: by their key below the stream.
    """
    made = tomlkit.document()
    for line in head.splitlines():
        made.add(tomlkit.comment(line))
    made.add(tomlkit.nl())
    made["job"] = _section(JobSection, {"name": job})
    made["kafka"] = _section(Kafka, {"bootstrap": bootstrap, "partitions": 4})
    spec = ENGINES[answers["engine"]]
    models: dict[str, type[Section]] = {
        "privacy": Privacy,
        "time": Timing,
        "domain": spec.domains[answers["domain.kind"]],
        "options": spec.options,
    }
    stream = _section(Stream, {key: value for key, value in answers.items() if "." not in key}, without=tuple(models))
    for name, model in models.items():
        mine = {key.removeprefix(f"{name}."): value for key, value in answers.items() if key.startswith(f"{name}.")}
        stream[name] = _section(model, mine, title=TITLES[name])
    streams = tomlkit.aot()
    streams.append(stream)
    made["streams"] = streams
    return tomlkit.dumps(made)


def _section(model: type[Section], told: Mapping[str, Any], *, title: str = "", without: tuple[str, ...] = ()) -> Table:
    """A table: answers in the order of the model, each below what it means; then what may be said, commented out."""
    table, words = tomlkit.table(), documented(model)
    if title:
        table.comment(title)
    fields = {field.alias or name: field for name, field in model.model_fields.items() if name not in without}
    for key in [*(key for key in fields if key in told), *(key for key in told if key not in fields)]:
        for line in textwrap.wrap(words.get(key, ""), WIDTH):
            table.add(tomlkit.comment(line))
        table.add(key, _item(told[key]))
    for key, field in fields.items():
        if key not in told:
            for line in _possible(key, field, words.get(key, "")):
                table.add(tomlkit.comment(line))
    table.add(tomlkit.nl())
    return table


def _possible(key: str, field: FieldInfo, words: str) -> Iterator[str]:
    """A key that was not answered, as it is by default, or as an example."""
    value = field.get_default(call_default_factory=True) if not field.is_required() else None
    if value in (None, ()) and field.examples:
        value = field.examples[0]
    if value is None or isinstance(value, Section) or value == ():
        return
    shown = f"{key} = {_item(value).as_string()}"
    if words and len(shown) + len(words) > WIDTH:
        yield from textwrap.wrap(words, WIDTH)
        yield shown
    else:
        yield f"{shown}  # {words}" if words else shown


def _item(value: Any) -> Item:
    if isinstance(value, timedelta):
        return tomlkit.item(format_duration(value))
    if isinstance(value, Decimal):
        return tomlkit.item(float(value))
    if isinstance(value, Mapping):
        inline = tomlkit.inline_table()
        for key, inner in value.items():
            inline.add(key, _item(inner))
        return inline
    if isinstance(value, (list, tuple)):
        listed = tomlkit.array()
        for each in value:
            listed.append(_item(each))
        return listed.multiline(len(listed.as_string()) > LONG and not _flat(value))
    return tomlkit.item(value if isinstance(value, (bool, int, float)) else str(value))


def _flat(value: list[Any] | tuple[Any, ...]) -> bool:
    """Of many values of which none is a table: a line for each would be a page."""
    return not any(isinstance(each, Mapping) for each in value)

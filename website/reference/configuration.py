"""Every key of a configuration: its type, default, an example, and what it does, from the models that check it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import annotated_types
import orjson
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from schemas.config import ENGINES, format_duration
from schemas.config.mapping import MapSection
from schemas.config.privacy import Privacy
from schemas.config.server import JobSection, Kafka
from schemas.config.stream import Stream
from schemas.config.timing import Timing
from schemas.config.values import PublicFile, Section
from website.reference.source import attributes, cell, summary, table

KINDS = {
    "PositiveDuration": "duration above 0",
    "Duration": "duration",
    **dict.fromkeys(("ExactDecimal", "Epsilon", "Share", "FieldShare", "Weight", "Part"), "decimal number, exact"),
    **dict.fromkeys(("Number", "Delta", "Limits", "Sensitivity", "ReachM"), "number"),
    "NotNegative": "number from 0 on",
    "StrictInt": "whole number",
    "StrictBool": "true or false",
    "FieldName": "name of a field",
    "PlainName": "name",
    "TopicName": "topic",
    "Path": "path",
    **dict.fromkeys(("PublicFileAt", "GeoJsonFileAt", "TableAt"), "path of a public file"),
    "Expression": "expression",
    "StepLength": "duration or units of the calendar",
    "Value": "text, number or boolean",
    "Listed": "text, number or boolean",
    "Host": "IP address",
    "Witness": "folder or address",
    "str": "text",
    "int": "whole number",
    "float": "number",
    "bool": "true or false",
}
"""Types of `schemas.config.values` and their like -> what is written."""

INTRODUCTION = """# Configuration

Every key, from the models that check it. A file is TOML: one `[job]`, one `[kafka]`, and as many `[[streams]]` as there are streams, each
with `[streams.privacy]`, `[streams.time]`, `[streams.domain]` and `[streams.options]`. A key that is not listed here is refused.
`privstream validate CONFIG` says everything that is wrong with a file, by key, with the reason and the fix.

A **duration** is a number and a unit out of `us`, `ms`, `s`, `min`, `h`, `d`, `w`, in quotes: `"30s"`, `"6h"`, `"1h30min"`. A **decimal
number, exact** is read as it is written: 0.1 is one tenth. `PRIVSTREAM_BOOTSTRAP`, `PRIVSTREAM_JOB__<KEY>`, `PRIVSTREAM_KAFKA__<KEY>`
and `PRIVSTREAM_KAFKA__REGISTRY__<KEY>` in the environment win over the file; `PRIVSTREAM_USER_KEY_FILE` is used by each stream that names no `user_key_file`.
"""


FIXED: tuple[tuple[str, type[Section]], ...] = (
    ("[job]", JobSection),
    ("[kafka]", Kafka),
    ("[[streams]]", Stream),
    ("[streams.privacy]", Privacy),
    ("[streams.time]", Timing),
    ("[streams.map]", MapSection),
)


def page() -> str:
    """Return all sections."""
    parts = [INTRODUCTION]
    for title, model in FIXED:
        parts += section(f"`{title}`", model)
    shown: set[type[Section]] = set()
    for name, spec in ENGINES.items():
        parts.append(
            f"## Engine `{name}`\n\nModes: {', '.join(f'`{mode}`' for mode in spec.facts.modes)}. "
            f"Units: {', '.join(f'`{unit}`' for unit in spec.facts.units)}. "
            + (f"Modes that take a `delta`: {_modes(spec.facts.uses_delta)}. " if spec.facts.uses_delta else "")
            + (f"Modes that need one: {_modes(spec.facts.needs_delta)}. " if spec.facts.needs_delta else "")
            + "\n"
        )
        for kind, domain in spec.domains.items():
            if domain not in shown:
                shown.add(domain)
                parts += section(f'`[streams.domain]`, `kind = "{kind}"`', domain, level=3)
        parts += section(f"`[streams.options]` of engine `{name}`", spec.options, level=3)
    return "\n".join(parts)


def models() -> Iterator[type[Section]]:
    """Return every model that the page shows."""
    queue = [model for _, model in FIXED]
    queue += [model for spec in ENGINES.values() for model in (*spec.domains.values(), spec.options)]
    for model in queue:
        yield model
        yield from (inner for _, inner in _inner(model) if inner is not PublicFile)


def section(title: str, model: type[Section], *, level: int = 2) -> Iterator[str]:
    """Return a heading, a table of keys, and the tables of what stands in them."""
    yield f"{'#' * level} {title}\n\n{summary(model)}\n"
    yield table(["key", "type", "default", "what it does"], list(_rows(model)))
    for name, inner in _inner(model):
        if inner is not PublicFile:  # written as its path
            yield from section(f"Each of `{name}`", inner, level=4)


def _rows(model: type[Section]) -> Iterator[list[str]]:
    said = attributes(model)
    for name, field in model.model_fields.items():
        key = field.alias or name
        if key == "kind" and field.default is not PydanticUndefined:
            continue
        if model is Stream and name in ("privacy", "time", "map", "domain", "options"):
            continue
        default = "required" if field.is_required() else _value(field.get_default(call_default_factory=True))
        example = f" Such as {_value(field.examples[0])}." if field.examples else ""
        example = "" if default in example and default not in ("none", "required") else example
        yield [f"`{key}`", cell(kind_of(said[name].kind, field)), default, cell(said[name].doc) + example]


def kind_of(written: str, field: FieldInfo) -> str:
    """Return what is written there, in words."""
    choices = [str(choice) for choice in _choices(field.annotation)]
    if choices:
        return " or ".join(f'"{choice}"' for choice in choices)
    bare = re.sub(r"\s*\|\s*None$", "", written)
    many = re.fullmatch(r"tuple\[(.*), \.\.\.\]", bare)
    inner = many[1] if many else bare
    if inner.startswith("Annotated["):
        inner = inner.removeprefix("Annotated[").split(",")[0]
    word = KINDS.get(inner) or (_word(inner) if many or "[" in inner or not inner.isidentifier() else "table")
    limits = "".join(
        f", {said} {getattr(each, name)}"
        for each in field.metadata
        for kind, name, said in ((annotated_types.Ge, "ge", "from"), (annotated_types.Le, "le", "to"))
        if isinstance(each, kind)
    )
    return (f"list of {word}" if many else word) + limits


def _word(inner: str) -> str:
    found = [KINDS[name] for name in re.findall(r"\w+", inner) if name in KINDS]
    return " and ".join(dict.fromkeys(found)) if found else "table"


def _choices(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [choice for each in get_args(annotation) for choice in _choices(each)] if _is_optional(annotation) else []


def _is_optional(annotation: Any) -> bool:
    return type(None) in get_args(annotation)


def _inner(model: type[Section]) -> Iterator[tuple[str, type[Section]]]:
    if model is Stream:
        return
    for name, field in model.model_fields.items():
        for each in dict.fromkeys(_sections(field.annotation)):
            yield field.alias or name, each


def _sections(annotation: Any) -> Iterator[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    for each in get_args(annotation):
        yield from _sections(each)


def _value(value: Any) -> str:
    """Return a value as in a TOML file."""
    if value is None:
        return "none"
    if isinstance(value, timedelta):
        value = format_duration(value)
    elif isinstance(value, Path | Enum):
        value = str(value)
    elif isinstance(value, Decimal):
        value = float(value)
    elif isinstance(value, tuple):
        value = list(value)
    elif isinstance(value, Section):
        return "see below"
    return f"`{cell(orjson.dumps(value, default=str).decode())}`"


def _modes(modes: frozenset[str]) -> str:
    return ", ".join(f"`{mode}`" for mode in sorted(modes))

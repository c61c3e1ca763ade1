"""Which keys of a configuration streams set: the ruler for what contract tests and coupled runs get to see.

A key is a place in the models of a stream, such as `domain.table.attributes.unknown`: sections within sections, entries
of lists and every kind of domain are walked by their types, so that a new key is a place as soon as it is declared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from schemas.config import ENGINES, Stream
from schemas.config.values import PublicFile, Section, section_in, types_in
from schemas.steps import CalendarLength


def places(engine: str) -> Iterator[str]:
    """Yield every key that a stream of an engine has, as a path of its own for each kind of domain."""
    spec = ENGINES[engine]
    for key, field in Stream.model_fields.items():
        if key == "domain":
            for kind, model in spec.domains.items():
                yield from _below(f"domain.{kind}", model)
        elif key == "options":
            yield from _below("options", spec.options)
        else:
            yield from _at(key, field)


def _below(path: str, model: type[Section]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield from _at(f"{path}.{field.alias or name}", field)
    if model.model_config.get("extra") == "allow":
        yield f"{path}.*"


def _at(place: str, field: FieldInfo) -> Iterator[str]:
    choices = _choices(field)
    yield from (f"{place} = {choice}" for choice in choices) if choices else [place]
    if (inner := section_in(field.annotation)) is not None:
        yield from _below(place, inner)


def _choices(field: FieldInfo) -> list[str]:
    """Return what a key may be that has a few values, or two kinds of length; empty for any other."""
    types = list(types_in(field.annotation))
    if CalendarLength in types:
        return [timedelta.__name__, CalendarLength.__name__]
    return [str(each) for literal in types if get_origin(literal) is Literal for each in get_args(literal)]


def set_by(streams: Iterable[Stream]) -> set[str]:
    """Return the keys that some stream gives another value than their default; of those without one, any value."""
    found: set[str] = set()
    for stream in streams:
        for key in Stream.model_fields:
            value = getattr(stream, key)
            if key in ("domain", "options"):
                found |= set(_set_in(f"domain.{value.kind}" if key == "domain" else key, value))
            else:
                found |= set(_set(key, Stream.model_fields[key], value))
    return found


def _set_in(path: str, section: Section) -> Iterator[str]:
    for name, field in type(section).model_fields.items():
        yield from _set(f"{path}.{field.alias or name}", field, getattr(section, name))
    if section.__pydantic_extra__:
        yield f"{path}.*"


def _set(place: str, field: FieldInfo, value: Any) -> Iterator[str]:
    default = field.get_default(call_default_factory=True)
    if choices := _choices(field):
        yield from {f"{place} = {each}" for each in choices if each in (str(value), type(value).__name__)}
    elif default is PydanticUndefined or value != default:
        yield place
    for each in value if isinstance(value, tuple) else (value,):
        if isinstance(each, Section) and not isinstance(each, PublicFile):
            yield from _set_in(place, each)

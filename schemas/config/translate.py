"""pydantic's errors in plain words: key path, reason, fix. No value from the file is repeated, so no secret can be."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Iterator, Mapping, Sequence

import orjson
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from schemas.config.root import Config
from schemas.config.section import Section
from schemas.config.tagged import members_of
from schemas.errors import ConfigProblem

_TYPES = {
    "string_type": ("must be a text", "write it in double quotes"),
    "string_too_short": ("is empty", "write a name"),
    "string_too_long": ("is too long", "write a shorter name"),
    "int_type": ("must be a whole number", "write a whole number without quotes"),
    "bool_type": ("is not true or false", "write true or false, without quotes"),
    "path_type": ("must be the path of a file or folder", "write the path in double quotes"),
    "model_type": ("must be a table", "write it as a section in square brackets"),
    "dict_type": ("must be a table", "write it as a section in square brackets"),
    "tuple_type": ("must be a list", "write a list in square brackets"),
    "too_long": ("has too many entries", "remove some"),
}


def translate(error: ValidationError) -> list[ConfigProblem]:
    """All problems in a validation error of `Config`, in the order of the file's models."""
    errors = error.errors(include_url=False, include_input=False)
    return [_problem(details) for details in errors if not _echo(details, errors)]


def _echo(details: ErrorDetails, errors: Sequence[ErrorDetails]) -> bool:
    """pydantic calls a list too short when its entries are refused; the entries' own errors say it better."""
    location = details["loc"]
    return details["type"] == "too_short" and any(
        len(other["loc"]) > len(location) and other["loc"][: len(location)] == location for other in errors
    )


def key_path(location: Sequence[int | str]) -> str:
    """A location as a person would write it.

    >>> key_path(("streams", 0, "domain", "bounds", 2))
    'streams[0].domain.bounds[2]'
    """
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def _problem(details: ErrorDetails) -> ConfigProblem:
    location, context = details["loc"], details.get("ctx", {})
    kind, key = details["type"], key_path(without_tags(location))
    if kind == "refused":
        return ConfigProblem(f"{key}.{context['at']}" if context["at"] else key, context["reason"], context["fix"])
    if kind == "missing":
        return ConfigProblem(key, "missing", _how_to_add(location))
    if kind == "extra_forbidden":
        return ConfigProblem(key, "unknown key", _nearest(location))
    if kind in ("literal_error", "enum"):
        allowed = str(context["expected"]).replace("'", '"')
        return ConfigProblem(key, "is not one of the possible values", f"write {allowed}")
    if kind == "greater_than_equal":
        return ConfigProblem(key, f"must be at least {context['ge']}", f"write {context['ge']} or more")
    if kind == "less_than_equal":
        return ConfigProblem(key, f"must be at most {context['le']}", f"write {context['le']} or less")
    if kind == "too_short":
        if location == ("streams",):
            return ConfigProblem(key, "is empty", "describe at least one stream in a [[streams]] section")
        return ConfigProblem(key, "has too few entries", "add the missing ones")
    reason, fix = _TYPES.get(kind, ("cannot be used", _how_to_add(location)))
    if location == ("streams",) and kind == "tuple_type":
        fix = "write each stream as a section in double brackets: [[streams]]"
    return ConfigProblem(key, reason, fix)


def section_name(location: Sequence[int | str]) -> str:
    """The header of the TOML section at a location, `the file` for the top level."""
    names = [part for part in without_tags(location) if isinstance(part, str)]
    if not names:
        return "the file"
    return "[[streams]]" if names == ["streams"] else f"[{'.'.join(names)}]"


def _how_to_add(location: Sequence[int | str]) -> str:
    field = field_at(location)
    if field is None or isinstance(location[-1], int):
        return "give all the entries of the list"
    if model_of(field) is not None:
        name = section_name(location)
        many = typing.get_origin(field.annotation) is tuple and not name.startswith("[[")
        return f"add a {f'[{name}]' if many else name} section"
    example = orjson.dumps(field.examples[0]).decode() if field.examples else '"..."'
    return f"add {location[-1]} = {example} to {section_name(location[:-1])}, with your own value"


def _nearest(location: Sequence[int | str]) -> str:
    typo = str(location[-1])
    model = model_at(location[:-1])
    section = section_name(location[:-1])
    if model is None:
        return "remove it"
    elsewhere = dict.fromkeys(name for name, other in _sections() if typo in other.model_fields and name != section)
    near = difflib.get_close_matches(typo.lower(), sorted(model.model_fields), n=1, cutoff=0.7)
    if near:
        return f"did you mean {near[0]}?"
    if elsewhere:
        return f"move it to {' or '.join(elsewhere)}"
    return f"remove it; keys of {section} are {', '.join(model.model_fields)}"


def without_tags(location: Sequence[int | str]) -> tuple[int | str, ...]:
    """A location as the file has it: without the names of chosen models that pydantic adds."""
    model: type[Section] | None = Config
    members: Mapping[str, type[Section]] = {}
    kept: list[int | str] = []
    for part in location:
        if isinstance(part, str) and part in members:
            model, members = members[part], {}
            continue
        kept.append(part)
        if isinstance(part, int):
            continue
        field = _field(model, part) if model is not None else None
        members = members_of(field) if field is not None else {}
        model = model_of(field) if field is not None else None
    return tuple(kept)


def model_of(field: FieldInfo) -> type[Section] | None:
    """The section that a key opens, or None for a plain value. Of several models for one key, the first."""
    waiting = [field.annotation]
    while waiting:
        annotation = waiting.pop(0)
        if isinstance(annotation, type) and issubclass(annotation, Section):
            return annotation
        waiting.extend(typing.get_args(annotation))
    return None


def _field(model: type[Section], key: str) -> FieldInfo | None:
    """The field that a key of the file fills: of its name, or of its alias."""
    found = (field for name, field in model.model_fields.items() if key in (name, field.alias))
    return next(found, None)


def field_at(location: Sequence[int | str]) -> FieldInfo | None:
    """The declared key at a location, or None where there is none."""
    return _found(location)[0]


def model_at(location: Sequence[int | str]) -> type[Section] | None:
    """The section at a location."""
    if not location:
        return Config
    return _found(location)[1]


def _found(location: Sequence[int | str]) -> tuple[FieldInfo | None, type[Section] | None]:
    """The key at a location, and the section that it opens."""
    model: type[Section] | None = Config
    field: FieldInfo | None = None
    members: Mapping[str, type[Section]] = {}
    for part in location:
        if isinstance(part, int):
            continue
        if part in members:
            model, members = members[part], {}
            continue
        field = _field(model, part) if model is not None else None
        if field is None:
            return None, None
        model, members = model_of(field), members_of(field)
    return field, model


def _sections() -> Iterator[tuple[str, type[Section]]]:
    yield "the file", Config
    for name, field in Config.model_fields.items():
        if (model := model_of(field)) is not None:
            yield section_name((name,)), model
    stream = model_at(("streams", 0))
    for name, field in stream.model_fields.items() if stream else ():
        model = model_of(field)
        for member in members_of(field).values() or ([] if model is None else [model]):
            yield section_name(("streams", name)), member

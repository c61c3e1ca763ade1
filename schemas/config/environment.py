"""`PRIVSTREAM_*`: what differs between machines may come from the environment and wins over the file.

    PRIVSTREAM_BOOTSTRAP             bootstrap in [kafka]
    PRIVSTREAM_JOB__<KEY>            a key of [job], such as PRIVSTREAM_JOB__DATA_DIR
    PRIVSTREAM_KAFKA__<KEY>          a key of [kafka], such as PRIVSTREAM_KAFKA__SASL_PASSWORD_FILE
    PRIVSTREAM_KAFKA__REGISTRY__<KEY>  a key of [kafka.registry], such as PRIVSTREAM_KAFKA__REGISTRY__PASSWORD_FILE
    PRIVSTREAM_USER_KEY_FILE         user_key_file of each stream with unit = "user" that names none itself

Streams are described in the file only: a guarantee does not depend on the machine. Variables without a double
underscore other than these belong to somebody else and are left alone. No value is repeated in a message.
"""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from schemas.config.section import Section
from schemas.config.server import JobSection, Kafka
from schemas.errors import ConfigProblem

PREFIX = "PRIVSTREAM_"
BOOTSTRAP = "PRIVSTREAM_BOOTSTRAP"
USER_KEY_FILE = "PRIVSTREAM_USER_KEY_FILE"
SECTIONS: Mapping[str, type[Section]] = {"job": JobSection, "kafka": Kafka}


def overridden(
    document: Mapping[str, Any], environment: Mapping[str, str], problems: list[ConfigProblem]
) -> dict[str, Any]:
    """A copy of the file's content with the environment's values in it; what cannot be used goes to `problems`."""
    merged = dict(document)
    for place, value in _values(environment, problems):
        merged = _with(merged, place, value)
    if (path := environment.get(USER_KEY_FILE)) and isinstance(streams := merged.get("streams"), (list, tuple)):
        merged["streams"] = [_with_key_file(stream, path) for stream in streams]
    return merged


def _with(table: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """A copy with the value in it. What the file has in place of a table stays, to be refused with the file."""
    name, *below = path
    if not below:
        return {**table, name: value}
    inner = table.get(name, {})
    return {**table, name: _with(inner, below, value)} if isinstance(inner, Mapping) else dict(table)


def _values(environment: Mapping[str, str], problems: list[ConfigProblem]) -> Iterator[tuple[list[str], Any]]:
    """Where in the document, and what."""
    if environment.get(BOOTSTRAP):
        yield ["kafka", "bootstrap"], environment[BOOTSTRAP]
    for variable in sorted(environment):
        if not variable.startswith(PREFIX) or "__" not in variable:
            continue
        section, *path = variable.removeprefix(PREFIX).lower().split("__")
        if section not in SECTIONS:
            reason = "streams are described in the file only" if section == "streams" else "no such section"
            problems.append(
                ConfigProblem(variable, reason, "unset it; PRIVSTREAM_JOB__<KEY> and PRIVSTREAM_KAFKA__<KEY> are read")
            )
            continue
        title, model, rest = section, SECTIONS[section], path
        while len(rest) > 1 and (below := _section(model, rest[0])) is not None:
            title, model, rest = f"{title}.{rest[0]}", below, rest[1:]
        key = "__".join(rest)
        begin = f"{PREFIX}{title.upper().replace('.', '__')}__"
        if key not in model.model_fields:
            near = difflib.get_close_matches(key, list(model.model_fields), n=1, cutoff=0.6)
            fix = f"did you mean {begin}{near[0].upper()}?" if near else "unset it"
            problems.append(ConfigProblem(variable, f"[{title}] has no such key", fix))
        elif _section(model, key) is not None:
            fix = f"set {begin}{key.upper()}__<KEY>, or write the section into the file"
            problems.append(ConfigProblem(variable, f"[{title}.{key}] is a section and not one value", fix))
        else:
            yield [section, *path], _typed(model, key, environment[variable])


def _section(model: type[Section], key: str) -> type[Section] | None:
    """The section that is written as this key; None: it is a value, or there is no such key."""
    parts = _parts(model.model_fields[key].annotation) if key in model.model_fields else ()
    return next((part for part in parts if isinstance(part, type) and issubclass(part, Section)), None)


def _typed(model: type[Section], key: str, text: str) -> int | bool | str:
    annotation = model.model_fields[key].annotation
    if _holds(annotation, bool) and text.strip() in ("true", "false"):
        return text.strip() == "true"
    whole = _holds(annotation, int) and re.fullmatch(r"-?[0-9]{1,18}", text.strip(), re.ASCII)
    return int(text) if whole else text


def _holds(annotation: object, kind: type) -> bool:
    return any(part is kind for part in _parts(annotation))


def _parts(annotation: object) -> Iterator[object]:
    """An annotation, and all that it is made of."""
    yield annotation
    for part in typing.get_args(annotation):
        yield from _parts(part)


def _with_key_file(stream: Any, path: str) -> Any:
    if not isinstance(stream, Mapping):
        return stream
    privacy = stream.get("privacy")
    if not isinstance(privacy, Mapping) or privacy.get("unit", "user") != "user":
        return stream
    return {**stream, "privacy": {**privacy, "user_key_file": privacy.get("user_key_file") or path}}

"""`PRIVSTREAM_*`: what differs between machines may come from the environment and wins over the file.

    PRIVSTREAM_BOOTSTRAP             bootstrap in [kafka]
    PRIVSTREAM_JOB__<KEY>            a key of [job], such as PRIVSTREAM_JOB__DATA_DIR
    PRIVSTREAM_KAFKA__<KEY>          a key of [kafka], such as PRIVSTREAM_KAFKA__SASL_PASSWORD_FILE
    PRIVSTREAM_USER_KEY_FILE         user_key_file of each stream with unit = "user" that names none itself

Streams are described in the file only: a guarantee does not depend on the machine. Variables without a double
underscore other than these belong to somebody else and are left alone. No value is repeated in a message.
"""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Iterator, Mapping
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
    for (section, key), text in _values(environment, problems):
        table = merged.get(section, {})
        if isinstance(table, Mapping):
            merged[section] = {**table, key: _typed(SECTIONS[section], key, text)}
    if (path := environment.get(USER_KEY_FILE)) and isinstance(streams := merged.get("streams"), (list, tuple)):
        merged["streams"] = [_with_key_file(stream, path) for stream in streams]
    return merged


def _values(environment: Mapping[str, str], problems: list[ConfigProblem]) -> Iterator[tuple[tuple[str, str], str]]:
    if environment.get(BOOTSTRAP):
        yield ("kafka", "bootstrap"), environment[BOOTSTRAP]
    for variable in sorted(environment):
        if not variable.startswith(PREFIX) or "__" not in variable:
            continue
        section, _, key = variable.removeprefix(PREFIX).lower().partition("__")
        if section not in SECTIONS:
            reason = "streams are described in the file only" if section == "streams" else "no such section"
            problems.append(
                ConfigProblem(variable, reason, "unset it; PRIVSTREAM_JOB__<KEY> and PRIVSTREAM_KAFKA__<KEY> are read")
            )
        elif key not in SECTIONS[section].model_fields:
            near = difflib.get_close_matches(key, list(SECTIONS[section].model_fields), n=1, cutoff=0.6)
            fix = f"did you mean {PREFIX}{section.upper()}__{near[0].upper()}?" if near else "unset it"
            problems.append(ConfigProblem(variable, f"[{section}] has no such key", fix))
        else:
            yield (section, key), environment[variable]


def _typed(model: type[Section], key: str, text: str) -> int | bool | str:
    annotation = model.model_fields[key].annotation
    if _holds(annotation, bool) and text.strip() in ("true", "false"):
        return text.strip() == "true"
    whole = _holds(annotation, int) and re.fullmatch(r"-?[0-9]{1,18}", text.strip(), re.ASCII)
    return int(text) if whole else text


def _holds(annotation: object, kind: type) -> bool:
    return annotation is kind or any(_holds(part, kind) for part in typing.get_args(annotation))


def _with_key_file(stream: Any, path: str) -> Any:
    if not isinstance(stream, Mapping):
        return stream
    privacy = stream.get("privacy")
    if not isinstance(privacy, Mapping) or privacy.get("unit", "user") != "user":
        return stream
    return {**stream, "privacy": {**privacy, "user_key_file": privacy.get("user_key_file") or path}}

"""Reading of a configuration: one TOML file, environment variables over it, and models made of both.

Everything that is wrong is reported at once, each with its key, its place in the file and what to do.
"""

from __future__ import annotations

import difflib
import re
import tomllib
import typing
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import orjson
from pydantic import Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from schemas.config.discovery import ENGINES
from schemas.config.domain.common import DomainSection
from schemas.config.formats import CsvSection, InputParts
from schemas.config.options.common import OptionsSection
from schemas.config.privacy import Privacy
from schemas.config.server import JobSection, Kafka
from schemas.config.stream import Stream, StreamParts
from schemas.config.tagged import Domain, members_of
from schemas.config.timing import Timing
from schemas.config.values import COLLECT, FOLDER, Section, below
from schemas.errors import ConfigError, ConfigProblem
from schemas.topics import Topics

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?")
_KEY = re.compile(r"\s*([A-Za-z0-9_\-.\"]+)\s*=")


def lines_of(text: str) -> dict[str, int]:
    """Key as in a `ConfigProblem` -> line, from 1 on; headers too. A guess where texts or lists go over several lines.

    >>> lines_of('[job]\\nname = "a"\\n[[streams]]\\n[streams.privacy]\\nepsilon = 1')
    {'job': 1, 'job.name': 2, 'streams[0]': 3, 'streams[0].privacy': 4, 'streams[0].privacy.epsilon': 5}
    """
    found: dict[str, int] = {}
    tables: Counter[str] = Counter()
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            brackets, name = header.groups()
            if brackets == "[[":
                section = f"{_below(name, tables)}[{tables[name]}]"
                tables[name] += 1
            else:
                section = _below(name, tables)
            found.setdefault(section, number)
        elif key := _KEY.match(line):
            name = key[1].replace('"', "")
            found.setdefault(f"{section}.{name}" if section else name, number)
    return found


def line_of(key: str, lines: dict[str, int]) -> int | None:
    """Of the key, or of what it stands in: a key that is missing has no line of its own."""
    while key:
        if key in lines:
            return lines[key]
        key = key[: max(key.rfind("."), key.rfind("["), 0)]
    return None


def _below(name: str, tables: Counter[str]) -> str:
    """`streams.privacy` is that of the last `[[streams]]`."""
    head, dot, rest = name.partition(".")
    return f"{head}[{tables[head] - 1}]{dot}{rest}" if tables[head] and dot else name


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


class Config(Section):
    """One job. Build it with `load_config`, which explains each refusal."""

    job: JobSection = JobSection()
    kafka: Kafka
    streams: tuple[Stream, ...] = Field(min_length=1)

    def stream(self, name: str) -> Stream:
        """The stream of this name. Raises: KeyError."""
        for stream in self.streams:
            if stream.name == name:
                return stream
        raise KeyError(name)

    def problems(self) -> Iterator[ConfigProblem]:
        """Names and topics that clash."""
        named = [Named(index, s.name, s.source, s.audit) for index, s in enumerate(self.streams)]
        yield from clashes(self.job.name, named)
        for name in sorted({stream.name for stream in self.streams} & set(self.job.retired)):
            yield ConfigProblem(
                "job.retired",
                f'"{name}" is a stream of this file, and what a retired stream needs to go on may be deleted',
                "take the name from job.retired, or the stream from the file",
            )


@dataclass(frozen=True, slots=True)
class Named:
    """The names of one stream, as far as they could be read."""

    index: int
    name: str | None
    source: str | None
    audit: str | None


def _folded(topic: str) -> str:
    """Kafka takes '.' and '_' for the same in its metric names and refuses topics that differ only there."""
    return topic.replace(".", "_")


def _is_private(topic: str, job: str) -> bool:
    return topic.startswith((f"{job}.", f"{job}_")) or topic == Topics(job, 1).changelog


def clashes(job: str | None, streams: Sequence[Named]) -> Iterator[ConfigProblem]:
    """Duplicate names, and topics with two meanings. Several streams may share a source: their budgets add up."""
    first: dict[str, int] = {}
    outputs: dict[str, str] = {}
    for stream in streams:
        if stream.name is None:
            continue
        if (other := first.setdefault(_folded(stream.name), stream.index)) != stream.index:
            yield ConfigProblem(
                f"streams[{stream.index}].name",
                f'"{stream.name}" is already the name of streams[{other}]',
                "give each stream a name of its own",
            )
        if stream.name == job:
            yield ConfigProblem(
                f"streams[{stream.index}].name",
                f'"{job}" is the name of the job, whose private topics begin with it',
                "rename the stream, or set name in [job]",
            )
        outputs.update({_folded(topic): topic for topic in Topics.written(stream.name)})
    sources = {_folded(stream.source): stream for stream in reversed(streams) if stream.source is not None}
    for stream in streams:
        for key, topic in (("source", stream.source), ("audit", stream.audit)):
            if topic is None:
                continue
            where = f"streams[{stream.index}].{key}"
            if _folded(topic) in outputs:
                yield ConfigProblem(
                    where, f'"{topic}" is an output topic of this job', "read another topic, or rename the stream"
                )
            elif job is not None and _is_private(topic, job):
                yield ConfigProblem(
                    where,
                    f'"{topic}" is named like a private topic of job "{job}"',
                    "read another topic, or set another name in [job]",
                )
            if key == "audit" and (source := sources.get(_folded(topic))) is not None:
                yield ConfigProblem(
                    where,
                    f'"{topic}" is the source of streams[{source.index}]',
                    "write the held-out events to a topic of their own, or remove audit",
                )


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


LARGEST_FILE_BYTES = 1 << 20

S = TypeVar("S", bound=Section)
_DOMAIN: TypeAdapter[DomainSection] = TypeAdapter(Domain)


NO_CLUSTER = {"bootstrap": "no-cluster.invalid:9092"}
"""`[kafka]` of a configuration that has none, for what asks no cluster: nobody can have this name (RFC 2606)."""


def load_config(path: Path | str, environment: Mapping[str, str] | None = None, *, offline: bool = False) -> Config:
    """Read and check a configuration file.

    Args:
        path: the TOML file, UTF-8.
        environment: pass `os.environ`. PRIVSTREAM_BOOTSTRAP, PRIVSTREAM_JOB__<KEY>, PRIVSTREAM_KAFKA__<KEY> (such as
            PRIVSTREAM_KAFKA__SASL_PASSWORD_FILE) and PRIVSTREAM_KAFKA__REGISTRY__<KEY> win over the file;
            PRIVSTREAM_USER_KEY_FILE is used for each stream with unit = "user" that names no user_key_file.
            None: the file alone.
        offline: for what asks no cluster; the file may do without `[kafka]`.
    Raises: ConfigError with every problem: key, reason, fix.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE_BYTES + 1)
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError([ConfigProblem(str(path), "is not UTF-8 text", "save the file as UTF-8")]) from None
    except OSError as error:
        reason = f"cannot be read: {error.strerror or type(error).__name__}"
        raise ConfigError([ConfigProblem(str(path), reason, "name a TOML file that this user may read")]) from None
    if len(content) > LARGEST_FILE_BYTES:
        raise ConfigError([ConfigProblem(str(path), "is larger than 1 MiB", "name the configuration file")])
    return parse_config(text, environment, file=str(path), folder=path.parent, offline=offline)


def parse_config(
    text: str,
    environment: Mapping[str, str] | None = None,
    *,
    file: str = "the file",
    folder: Path | None = None,
    offline: bool = False,
) -> Config:
    """Check the text of a configuration file; see `load_config`.

    Args:
        file: names it in messages. folder: from which the paths of public files go; None: the working folder.
        offline: as of `load_config`.
    Raises: ConfigError.
    """
    try:
        document = tomllib.loads(text.removeprefix("\ufeff"), parse_float=Decimal)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        # tomllib names a position, and at most one character.
        reason = f"is not TOML: {error}" if isinstance(error, tomllib.TOMLDecodeError) else "is nested too deeply"
        raise ConfigError([ConfigProblem(file, reason, "write key = value, and put texts in double quotes")]) from None
    if offline:
        document.setdefault("kafka", NO_CLUSTER)
    try:
        return config_from_mapping(document, environment, folder=folder)
    except ConfigError as error:
        lines = lines_of(text)
        raise ConfigError([replace(each, line=line_of(each.key, lines)) for each in error.problems]) from None


def config_from_mapping(
    document: Mapping[str, Any], environment: Mapping[str, str] | None = None, *, folder: Path | None = None
) -> Config:
    """Check a configuration that is already a mapping, such as `config.model_dump()`. Raises: ConfigError."""
    problems: list[ConfigProblem] = []
    merged = overridden(document, environment or {}, problems)
    config: Config | None = None
    try:
        config = Config.model_validate(merged, context={COLLECT: True, FOLDER: folder})
    except ValidationError as error:
        problems += below_streams(translate(error), merged)
    problems += _taken_together(merged, folder)
    if config is None or problems:
        raise ConfigError(problems)
    return config


def with_overrides(config: Config, *, mode: str | None = None, epsilon: str | Decimal | float | None = None) -> Config:
    """The same configuration with another mode or epsilon in every stream, checked again. Raises: ConfigError."""
    document = config.model_dump()
    for stream in document["streams"]:
        if mode is not None:
            stream["mode"] = mode
        if epsilon is not None:
            stream["privacy"]["epsilon"] = epsilon
    return config_from_mapping(document)


def below_streams(problems: Iterable[ConfigProblem], document: Mapping[str, Any]) -> Iterator[ConfigProblem]:
    """The same problems with the names of their streams."""
    names = {f"streams[{index}]": _text(stream, "name") for index, stream in enumerate(_streams(document))}
    for problem in problems:
        head = problem.key.split("]")[0] + "]"
        yield from below("", [problem], stream=names.get(head))


def _taken_together(document: Mapping[str, Any], folder: Path | None) -> Iterator[ConfigProblem]:
    """What keys say against each other, in every part that could be read, whatever is wrong with the others."""
    job = _read(JobSection, document.get("job", {}))
    kafka = _read(Kafka, document.get("kafka"))
    if job is not None:
        yield from below("job", job.problems())
    if kafka is not None:
        yield from below("kafka", kafka.problems())
    streams = _streams(document)
    has_registry = not isinstance(document.get("kafka"), Mapping) or "registry" in document["kafka"]
    for index, stream in enumerate(streams):
        found = _in_stream(stream, folder, has_registry=has_registry)
        yield from below(f"streams[{index}]", found, stream=_text(stream, "name"))
    named = [
        Named(index, _text(stream, "name"), _text(stream, "source"), _text(stream, "audit"))
        for index, stream in enumerate(streams)
    ]
    yield from below_streams(clashes(job.name if job is not None else None, named), document)


def _in_stream(stream: object, folder: Path | None, *, has_registry: bool) -> Iterator[ConfigProblem]:
    if not isinstance(stream, Mapping):
        return
    engine = _text(stream, "engine")
    options = ENGINES[engine].options if engine is not None and engine in ENGINES else None
    sections = {
        "privacy": _read(Privacy, stream.get("privacy")),
        "time": _read(Timing, stream.get("time")),
        "domain": _read_domain(stream.get("domain"), folder),
        "options": _read(options, stream.get("options", {})) if options is not None else None,
        "csv": _read(CsvSection, stream["csv"]) if "csv" in stream and stream["csv"] is not None else None,
    }
    for name, section in sections.items():
        if section is not None:
            yield from below(name, section.problems())
    privacy, time, domain, read = (sections[name] for name in ("privacy", "time", "domain", "options"))
    yield from StreamParts(
        engine,
        _text(stream, "mode", "default"),
        privacy if isinstance(privacy, Privacy) else None,
        time if isinstance(time, Timing) else None,
        domain if isinstance(domain, DomainSection) else None,
        read if isinstance(read, OptionsSection) else None,
    ).problems()
    csv = sections["csv"]
    yield from InputParts(
        _text(stream, "format", "json") or "json",
        _text(stream, "envelope", "none") or "none",
        _text(stream, "key_format", "text") or "text",
        _text(stream, "partitioner", "murmur2") or "murmur2",
        csv if isinstance(csv, CsvSection) else None,
        privacy if isinstance(privacy, Privacy) else None,
        time if isinstance(time, Timing) else None,
        domain if isinstance(domain, DomainSection) else None,
        has_registry,
    ).problems()


def _read(model: type[S], table: object) -> S | None:
    try:
        return model.model_validate(table, context={COLLECT: True})
    except ValidationError:
        return None


def _read_domain(table: object, folder: Path | None) -> DomainSection | None:
    try:
        return _DOMAIN.validate_python(table, context={COLLECT: True, FOLDER: folder})
    except ValidationError:
        return None


def _streams(document: Mapping[str, Any]) -> list[Any]:
    streams = document.get("streams")
    return list(streams) if isinstance(streams, (list, tuple)) else []


def _text(table: object, key: str, default: str | None = None) -> str | None:
    value = table.get(key, default) if isinstance(table, Mapping) else None
    return value if isinstance(value, str) and 0 < len(value) <= 249 else None

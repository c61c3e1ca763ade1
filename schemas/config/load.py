"""Reading of a configuration: one TOML file, environment variables over it, and models made of both.

Everything that is wrong is reported at once, each with its key, its place in the file and what to do.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from schemas.config.formats import BY_SCHEMA
from schemas.config.server import JobSection, Kafka
from schemas.config.stream import Stream
from schemas.config.values import FOLDER, Section, below, section_in, types_in
from schemas.errors import ConfigError, ConfigProblem
from schemas.topics import Topics

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?")
_KEY = re.compile(r"\s*([A-Za-z0-9_\-.\"]+)\s*=")


def lines_of(text: str) -> dict[str, int]:
    """Return the line of each key, as a `ConfigProblem` names it, and of each header, from 1 on.

    It is a guess where texts or lists go over several lines.

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
    """Return the line of the key, or of what it stands in: a key that is missing has no line of its own."""
    while key:
        if key in lines:
            return lines[key]
        key = key[: max(key.rfind("."), key.rfind("["), 0)]
    return None


def _below(name: str, tables: Counter[str]) -> str:
    """Return the key of a section: `streams.privacy` is that of the last `[[streams]]`."""
    head, dot, rest = name.partition(".")
    return f"{head}[{tables[head] - 1}]{dot}{rest}" if tables[head] and dot else name


PREFIX = "PRIVSTREAM_"
BOOTSTRAP = "PRIVSTREAM_BOOTSTRAP"
USER_KEY_FILE = "PRIVSTREAM_USER_KEY_FILE"
SECTIONS: Mapping[str, type[Section]] = {"job": JobSection, "kafka": Kafka}


def overridden(
    document: Mapping[str, Any], environment: Mapping[str, str], problems: list[ConfigProblem]
) -> dict[str, Any]:
    """Return the file's content with the environment's values in it; what cannot be used goes to `problems`."""
    merged = dict(document)
    for place, value in _values(environment, problems):
        merged = _with(merged, place, value)
    if (path := environment.get(USER_KEY_FILE)) and isinstance(streams := merged.get("streams"), (list, tuple)):
        merged["streams"] = [_with_key_file(stream, path) for stream in streams]
    return merged


def _with(table: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """Return a copy with the value in it. What the file has in place of a table stays, to be refused with the file."""
    name, *below = path
    if not below:
        return {**table, name: value}
    inner = table.get(name, {})
    return {**table, name: _with(inner, below, value)} if isinstance(inner, Mapping) else dict(table)


def _values(environment: Mapping[str, str], problems: list[ConfigProblem]) -> Iterator[tuple[list[str], Any]]:
    """Yield each value of the environment with its place in the document."""
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
    """Return the section that is written as this key; None: it is a value, or there is no such key."""
    return section_in(model.model_fields[key].annotation) if key in model.model_fields else None


def _typed(model: type[Section], key: str, text: str) -> int | bool | str:
    kinds = list(types_in(model.model_fields[key].annotation))
    if bool in kinds and text.strip() in ("true", "false"):
        return text.strip() == "true"
    return int(text) if int in kinds and re.fullmatch(r"-?[0-9]{1,18}", text.strip(), re.ASCII) else text


def _with_key_file(stream: Any, path: str) -> Any:
    if not isinstance(stream, Mapping):
        return stream
    privacy = stream.get("privacy")
    if not isinstance(privacy, Mapping) or privacy.get("unit", "user") != "user":
        return stream
    return {**stream, "privacy": {**privacy, "user_key_file": privacy.get("user_key_file") or path}}


class Config(Section):
    """One job. Build it with `load_config`, which also compares the names of its streams."""

    header: ClassVar[str] = "the file"

    job: JobSection = JobSection()
    kafka: Kafka
    streams: tuple[Stream, ...] = Field(min_length=1)

    def stream(self, name: str) -> Stream:
        """Return the stream of this name. Raises: KeyError."""
        for stream in self.streams:
            if stream.name == name:
                return stream
        raise KeyError(name)

    def read_by(self, stream: Stream) -> str:
        """Return the topic that ingest of a stream reads: its source, or the copies of it that the job routes."""
        topics = Topics(self.job.name, self.kafka.partitions)
        return topics.routed(stream.name) if stream.routed else stream.source


def _folded(topic: str) -> str:
    """Return a topic as Kafka compares it: '.' and '_' are one character in its metric names."""
    return topic.replace(".", "_")


def _is_private(topic: str, job: str) -> bool:
    return topic.startswith((f"{job}.", f"{job}_")) or topic == Topics(job, 1).changelog


def clashes(document: Mapping[str, Any]) -> Iterator[ConfigProblem]:
    """Yield what streams say against each other and against the job, of as many keys as are texts.

    Several streams may share a source: their budgets add up.
    """
    kafka, streams, section = document.get("kafka"), _streams(document), document.get("job", {})
    job = _text(section, "name", JobSection().name)
    names = [_text(stream, "name") for stream in streams]
    first: dict[str, int] = {}
    outputs: set[str] = set()
    for index, name in enumerate(names):
        if name is None:
            continue
        where = f"streams[{index}].name"
        if (other := first.setdefault(_folded(name), index)) != index:
            reason = f'"{name}" is already the name of streams[{other}]'
            yield ConfigProblem(where, reason, "give each stream a name of its own")
        if name == job:
            reason = f'"{job}" is the name of the job, whose private topics begin with it'
            yield ConfigProblem(where, reason, "rename the stream, or set name in [job]")
        outputs.update(map(_folded, Topics.outputs(name)))
    retired = section.get("retired") if isinstance(section, Mapping) else None
    for name in dict.fromkeys(filter(None, names)):
        if isinstance(retired, (list, tuple)) and name in retired:
            reason = f'"{name}" is a stream of this file, and what a retired stream needs to go on may be deleted'
            yield ConfigProblem("job.retired", reason, "take the name from job.retired, or the stream from the file")
    sources: dict[str, int] = {}
    for index, stream in enumerate(streams):
        if (source := _text(stream, "source")) is not None:
            sources.setdefault(_folded(source), index)
    for index, stream in enumerate(streams):
        for key in ("source", "audit"):
            if (topic := _text(stream, key)) is None:
                continue
            where = f"streams[{index}].{key}"
            if _folded(topic) in outputs:
                reason = f'"{topic}" is an output topic of this job'
                yield ConfigProblem(where, reason, "read another topic, or rename the stream")
            elif job is not None and _is_private(topic, job):
                reason = f'"{topic}" is named like a private topic of job "{job}"'
                yield ConfigProblem(where, reason, "read another topic, or set another name in [job]")
            if key == "audit" and _folded(topic) in sources:
                reason = f'"{topic}" is the source of streams[{sources[_folded(topic)]}]'
                fix = "write the held-out events to a topic of their own, or remove audit"
                yield ConfigProblem(where, reason, fix)
        for key in ("format", "key_format"):
            if (written := _text(stream, key)) in BY_SCHEMA and isinstance(kafka, Mapping) and "registry" not in kafka:
                yield ConfigProblem(
                    f"streams[{index}].{key}",
                    f'"{written}" is read with schemas, and no registry is named that holds them',
                    'add [kafka.registry] with url = "https://registry.example:8081"',
                )


LARGEST_FILE_BYTES = 1 << 20

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
        offline: as in `load_config`.
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
    """Check a configuration that is already a mapping of keys, as TOML is read. Raises: ConfigError."""
    problems: list[ConfigProblem] = []
    merged = overridden(document, environment or {}, problems)
    config: Config | None = None
    try:
        config = Config.model_validate(merged, context={FOLDER: folder})
    except ConfigError as error:
        problems += error.problems
    problems += clashes(merged)
    if config is None or problems:
        raise ConfigError([_with_stream(problem, merged) for problem in problems])
    return config


def with_overrides(config: Config, *, mode: str | None = None, epsilon: str | Decimal | float | None = None) -> Config:
    """Return a configuration with another mode or epsilon in every stream, checked again. Raises: ConfigError."""
    problems: list[ConfigProblem] = []
    streams: list[Stream] = []
    for index, stream in enumerate(config.streams):
        try:
            streams.append(stream.changed(mode=mode, epsilon=epsilon))
        except ConfigError as error:
            problems += below(f"streams[{index}]", error.problems)
    if problems:
        raise ConfigError(problems)
    return config.model_copy(update={"streams": tuple(streams)})


def _with_stream(problem: ConfigProblem, document: Mapping[str, Any]) -> ConfigProblem:
    """Return the same problem with the name of the stream that it is about."""
    index = re.match(r"streams\[(\d+)\]", problem.key)
    name = _text(_streams(document)[int(index[1])], "name") if index else None
    return problem if name is None else replace(problem, reason=f'stream "{name}": {problem.reason}')


def _streams(document: Mapping[str, Any]) -> list[Any]:
    streams = document.get("streams")
    return list(streams) if isinstance(streams, (list, tuple)) else []


def _text(table: object, key: str, default: str | None = None) -> str | None:
    value = table.get(key, default) if isinstance(table, Mapping) else None
    return value if isinstance(value, str) and 0 < len(value) <= 249 else None

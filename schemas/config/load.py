"""Loading of a configuration: a TOML file, overridden by environment variables, and validated by models.

All problems are reported at once, each with its key, its line in the file and a fix.
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
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from schemas.config.formats import BY_SCHEMA
from schemas.config.server import JobSection, Kafka
from schemas.config.split import part_names
from schemas.config.stream import Stream
from schemas.config.values import FOLDER, Section, prefixed, section_in, types_in
from schemas.errors import ConfigError, ConfigProblem
from schemas.topics import Topics

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?")
_KEY = re.compile(r"\s*([A-Za-z0-9_\-.\"]+)\s*=")


def lines_of(text: str) -> dict[str, int]:
    """Return the line number, from 1, of each header and of each key, as a `ConfigProblem` names it.

    Lines may be wrong for files with texts or lists that span several lines.

    >>> lines_of('[job]\\nname = "a"\\n[[streams]]\\n[streams.privacy]\\nepsilon = 1')
    {'job': 1, 'job.name': 2, 'streams[0]': 3, 'streams[0].privacy': 4, 'streams[0].privacy.epsilon': 5}
    """
    lines: dict[str, int] = {}
    tables: Counter[str] = Counter()
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            brackets, name = header.groups()
            if brackets == "[[":
                section = f"{_section_key(name, tables)}[{tables[name]}]"
                tables[name] += 1
            else:
                section = _section_key(name, tables)
            lines.setdefault(section, number)
        elif key := _KEY.match(line):
            name = key[1].replace('"', "")
            lines.setdefault(f"{section}.{name}" if section else name, number)
    return lines


def line_of(key: str, lines: dict[str, int]) -> int | None:
    """Return the line of the key; of the section or list that should contain it, if the key itself is missing."""
    while key:
        if key in lines:
            return lines[key]
        key = key[: max(key.rfind("."), key.rfind("["), 0)]
    return None


def _section_key(name: str, tables: Counter[str]) -> str:
    """Return the key of a section; `streams.privacy` belongs to the last `[[streams]]` before it."""
    head, dot, rest = name.partition(".")
    return f"{head}[{tables[head] - 1}]{dot}{rest}" if tables[head] and dot else name


PREFIX = "PRIVSTREAM_"
BOOTSTRAP = "PRIVSTREAM_BOOTSTRAP"
USER_KEY_FILE = "PRIVSTREAM_USER_KEY_FILE"
SECTIONS: Mapping[str, type[Section]] = {"job": JobSection, "kafka": Kafka}


def with_environment(
    document: Mapping[str, Any], environment: Mapping[str, str], problems: list[ConfigProblem]
) -> dict[str, Any]:
    """Return the document overridden by environment variables; unusable variables are appended to `problems`."""
    merged = dict(document)
    for path, value in _values(environment, problems):
        merged = _with_value(merged, path, value)
    if (key_file := environment.get(USER_KEY_FILE)) and isinstance(streams := merged.get("streams"), (list, tuple)):
        merged["streams"] = [_with_key_file(stream, key_file) for stream in streams]
    return merged


def _with_value(table: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """Return a copy with the value at the path. A value in place of a table is kept, and refused with the file."""
    name, *rest = path
    if not rest:
        return {**table, name: value}
    inner = table.get(name, {})
    return {**table, name: _with_value(inner, rest, value)} if isinstance(inner, Mapping) else dict(table)


def _values(environment: Mapping[str, str], problems: list[ConfigProblem]) -> Iterator[tuple[list[str], Any]]:
    """Yield the path in the document and the value of each environment variable."""
    if environment.get(BOOTSTRAP):
        yield ["kafka", "bootstrap"], environment[BOOTSTRAP]
    for variable in sorted(environment):
        if not variable.startswith(PREFIX) or "__" not in variable:
            continue
        section, *path = variable.removeprefix(PREFIX).lower().split("__")
        if section not in SECTIONS:
            reason = "streams are described only in the file" if section == "streams" else "there is no such section"
            problems.append(
                ConfigProblem(variable, reason, "unset it; PRIVSTREAM_JOB__<KEY> and PRIVSTREAM_KAFKA__<KEY> are read")
            )
            continue
        title, model, rest = section, SECTIONS[section], path
        while len(rest) > 1 and (inner := _section(model, rest[0])) is not None:
            title, model, rest = f"{title}.{rest[0]}", inner, rest[1:]
        key = "__".join(rest)
        prefix = f"{PREFIX}{title.upper().replace('.', '__')}__"
        if key not in model.model_fields:
            near = difflib.get_close_matches(key, list(model.model_fields), n=1, cutoff=0.6)
            fix = f"did you mean {prefix}{near[0].upper()}?" if near else "unset it"
            problems.append(ConfigProblem(variable, f"[{title}] has no such key", fix))
        elif _section(model, key) is not None:
            fix = f"set {prefix}{key.upper()}__<KEY>, or write the section into the file"
            problems.append(ConfigProblem(variable, f"[{title}.{key}] is a section and not one value", fix))
        else:
            yield [section, *path], _typed(model, key, environment[variable])


def _section(model: type[Section], key: str) -> type[Section] | None:
    """Return the model of the section at this key; None if the key holds a value or does not exist."""
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


def _with_parts(streams: tuple[Stream, ...]) -> tuple[Stream, ...]:
    return tuple(part for stream in streams for part in stream.parts())


class Config(Section):
    """The configuration of one job. Build it with `load_config`, which also checks streams against each other.

    Attributes:
        streams: in the order of the file; one that is split is the streams of its parts.
    """

    header: ClassVar[str] = "the file"

    job: JobSection = JobSection()
    kafka: Kafka
    streams: Annotated[tuple[Stream, ...], AfterValidator(_with_parts)] = Field(min_length=1)

    def stream(self, name: str) -> Stream:
        """Return the stream of this name. Raises: KeyError."""
        for stream in self.streams:
            if stream.name == name:
                return stream
        raise KeyError(name)

    def read_by(self, stream: Stream) -> str:
        """Return the topic that ingest of a stream reads: its source, or the copies of it that the job routes."""
        return self.topics.routed(stream.name) if stream.routed else stream.source

    @property
    def topics(self) -> Topics:
        """Names of the job's topics."""
        return Topics(self.job.name, self.kafka.partitions)


def _folded(topic: str) -> str:
    """Return a topic name as Kafka compares it: '.' and '_' are the same character in the names of its metrics."""
    return topic.replace(".", "_")


def _is_private(topic: str, job: str) -> bool:
    return topic.startswith((f"{job}.", f"{job}_")) or topic == Topics(job, 1).changelog


def conflicts(document: Mapping[str, Any]) -> Iterator[ConfigProblem]:
    """Yield conflicts between names of streams, topics and the job, as far as they are texts.

    Several streams may share a source; their budgets add up.
    """
    kafka, streams, section = document.get("kafka"), _streams(document), document.get("job", {})
    job = _text(section, "name", JobSection().name)
    # A split stream has no topics of its name, but what is said of its parts together is said under it.
    names = [
        (index, name, bool(_part_names(stream)))
        for index, stream in enumerate(streams)
        if (name := _text(stream, "name"))
    ]
    names += [(index, part, False) for index, stream in enumerate(streams) for part in _part_names(stream)]
    first: dict[str, int] = {}
    outputs: set[str] = set()
    for index, name, is_split in names:
        where = f"streams[{index}].name"
        if (other := first.setdefault(_folded(name), index)) != index:
            reason = f'"{name}" is already the name of streams[{other}]'
            yield ConfigProblem(where, reason, "give each stream a name of its own")
        if is_split:
            continue
        if name == job:
            reason = f'"{job}" is the name of the job, with which its private topics begin'
            yield ConfigProblem(where, reason, "rename the stream, or set name in [job]")
        outputs.update(map(_folded, Topics.outputs(name)))
    retired = section.get("retired") if isinstance(section, Mapping) else None
    for name in dict.fromkeys(name for _, name, is_split in names if not is_split):
        if isinstance(retired, (list, tuple)) and name in retired:
            reason = f'"{name}" is a stream of this file, but what a retired stream needs to continue may be deleted'
            yield ConfigProblem("job.retired", reason, "remove the name from job.retired, or the stream from the file")
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
        output = stream.get("output") if isinstance(stream, Mapping) else None
        typed = _text(output, "format") if isinstance(output, Mapping) else None
        if typed in ("avro", "json-schema") and isinstance(kafka, Mapping) and "registry" not in kafka:
            yield ConfigProblem(
                f"streams[{index}].output.format",
                f'"{typed}" is written with a schema, but no schema registry is configured',
                'add [kafka.registry] with url = "https://registry.example:8081", or set format = "json"',
            )
        for key in ("format", "key_format"):
            if (written := _text(stream, key)) in BY_SCHEMA and isinstance(kafka, Mapping) and "registry" not in kafka:
                yield ConfigProblem(
                    f"streams[{index}].{key}",
                    f'"{written}" is read with schemas, but no schema registry is configured',
                    'add [kafka.registry] with url = "https://registry.example:8081"',
                )


MAX_FILE_BYTES = 1 << 20

NO_CLUSTER = {"bootstrap": "no-cluster.invalid:9092"}
"""`[kafka]` for commands that use no cluster; the name is reserved and cannot exist (RFC 2606)."""


def load_config(path: Path | str, environment: Mapping[str, str] | None = None, *, offline: bool = False) -> Config:
    """Read and check a configuration file.

    Args:
        path: the TOML file, UTF-8.
        environment: pass `os.environ`. PRIVSTREAM_BOOTSTRAP, PRIVSTREAM_JOB__<KEY>, PRIVSTREAM_KAFKA__<KEY> (such as
            PRIVSTREAM_KAFKA__SASL_PASSWORD_FILE) and PRIVSTREAM_KAFKA__REGISTRY__<KEY> override the file;
            PRIVSTREAM_USER_KEY_FILE is used for each stream with unit = "user" that names no user_key_file.
            None: only the file is read.
        offline: whether the file may lack `[kafka]`, for commands that use no cluster.
    Raises: ConfigError with every problem: key, reason, fix.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError.of(str(path), "is not UTF-8 text", "save the file as UTF-8") from None
    except OSError as error:
        reason = f"cannot be read: {error.strerror or type(error).__name__}"
        raise ConfigError.of(str(path), reason, "name a TOML file that this user may read") from None
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError.of(str(path), "is larger than 1 MiB", "name the configuration file")
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
        file: name of the file in messages.
        folder: folder to which paths of public files are relative; None for the working directory.
        offline: see `load_config`.
    Raises: ConfigError with every problem.
    """
    try:
        document = tomllib.loads(text.removeprefix("\ufeff"), parse_float=Decimal)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        # The message of tomllib holds a position and at most one character of the file.
        reason = f"is not TOML: {error}" if isinstance(error, tomllib.TOMLDecodeError) else "is nested too deeply"
        raise ConfigError.of(file, reason, "write key = value, and put texts in double quotes") from None
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
    """Check a configuration that is already a mapping, as `tomllib` reads it. Raises: ConfigError."""
    problems: list[ConfigProblem] = []
    merged = with_environment(document, environment or {}, problems)
    config: Config | None = None
    try:
        config = Config.model_validate(merged, context={FOLDER: folder})
    except ConfigError as error:
        problems += error.problems
    problems += conflicts(merged)
    if config is None or problems:
        raise ConfigError([_with_stream(problem, merged) for problem in problems])
    return config


def with_overrides(config: Config, *, mode: str | None = None, epsilon: str | Decimal | float | None = None) -> Config:
    """Return the configuration with another mode or epsilon in every stream, checked again. Raises: ConfigError."""
    problems: list[ConfigProblem] = []
    streams: list[Stream] = []
    for index, stream in enumerate(config.streams):
        try:
            streams.append(stream.with_overrides(mode=mode, epsilon=epsilon))
        except ConfigError as error:
            problems += prefixed(f"streams[{index}]", error.problems)
    if problems:
        raise ConfigError(problems)
    return config.model_copy(update={"streams": tuple(streams)})


def _with_stream(problem: ConfigProblem, document: Mapping[str, Any]) -> ConfigProblem:
    """Return the problem with the name of its stream in the reason."""
    index = re.match(r"streams\[(\d+)\]", problem.key)
    name = _text(_streams(document)[int(index[1])], "name") if index else None
    return problem if name is None else replace(problem, reason=f'stream "{name}": {problem.reason}')


def _streams(document: Mapping[str, Any]) -> list[Any]:
    streams = document.get("streams")
    return list(streams) if isinstance(streams, (list, tuple)) else []


def _part_names(stream: object) -> list[str]:
    """Return the names of the streams that a stream is split into, as far as they can be read."""
    name, split = _text(stream, "name"), stream.get("split") if isinstance(stream, Mapping) else None
    return [f"{name}-{part}" for part in part_names(split.get("parts"))] if isinstance(split, Mapping) and name else []


def _text(table: object, key: str, default: str | None = None) -> str | None:
    value = table.get(key, default) if isinstance(table, Mapping) else None
    return value if isinstance(value, str) and 0 < len(value) <= 249 else None

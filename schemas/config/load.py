"""From a TOML file to a `Config`, or to one `ConfigError` that lists everything that is wrong with it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from schemas.config.discovery import ENGINES
from schemas.config.domain.common import DomainSection
from schemas.config.environment import overridden
from schemas.config.lines import line_of, lines_of
from schemas.config.options.common import OptionsSection
from schemas.config.privacy import Privacy
from schemas.config.root import Config, Named, clashes
from schemas.config.section import COLLECT, FOLDER, Section, below
from schemas.config.server import JobSection, Kafka
from schemas.config.source.formats import CsvSection, InputParts
from schemas.config.stream import StreamParts
from schemas.config.tagged import Domain
from schemas.config.timing import Timing
from schemas.config.translate import translate
from schemas.errors import ConfigError, ConfigProblem

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

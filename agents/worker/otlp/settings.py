"""Where metrics are pushed and with what, all of it refused before anything starts. Free of OpenTelemetry itself.

The variables are those of OpenTelemetry's specification. None of them turns pushing on: metrics count private records,
so `[job] otlp_endpoint` alone says where they go.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from agents.kafka.security import read_secret
from schemas.errors import ConfigError, ConfigProblem

if TYPE_CHECKING:
    from schemas.config import Config

log = logging.getLogger(__name__)

LIBRARY = "opentelemetry.exporter.otlp.proto.http.metric_exporter"
PATH = "/v1/metrics"
EVERY_MS = 60_000
SHORTEST_MS, LONGEST_MS = 100, 86_400_000

INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"
DISABLED = "OTEL_SDK_DISABLED"
TEMPORALITY = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
HEADERS, COMPRESSION = "HEADERS", "COMPRESSION"
FILES = ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY")
"""Ends of the names of variables that there are for metrics alone, and for all signals."""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\x20-\x7e]*")
_HEADERS_FIX = "write name=value, several separated by commas, with a percent code for what is no plain ASCII"


@dataclass(frozen=True, slots=True)
class OtlpSettings:
    """Where metrics go.

    Attributes:
        url: to which they are posted. headers: SECRET, sent with them; those of the environment are not among them.
        every_s: from one push to the next.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    every_s: float = EVERY_MS / 1e3


def otlp_settings(config: Config, environment: Mapping[str, str]) -> OtlpSettings | None:
    """What `[job]` and the environment say; None: metrics are not pushed.

    Raises: ConfigError with everything that is wrong; no header and no address is repeated.
    """
    endpoint, path = config.job.otlp_endpoint, config.job.otlp_headers_file
    if endpoint is None:
        return None
    if environment.get(DISABLED, "").strip().lower() == "true":
        log.warning("metrics are not pushed: %s is true", DISABLED)
        return None
    problems = [*_library(), *_environment(environment)]
    headers: Mapping[str, str] = {}
    try:
        headers = {} if path is None else _from_file(path)
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(problems)
    every_s = int(environment.get(INTERVAL) or EVERY_MS) / 1e3
    return OtlpSettings(endpoint.rstrip("/") + PATH, headers, every_s)


def _library() -> Iterator[ConfigProblem]:
    try:
        there = find_spec(LIBRARY) is not None
    except ModuleNotFoundError:
        there = False
    if not there:
        yield ConfigProblem(
            "job.otlp_endpoint",
            "OpenTelemetry's exporter is not installed",
            "pip install 'privstream[otlp]', install a lock file of requirements/, or remove the key",
        )


def _environment(environment: Mapping[str, str]) -> Iterator[ConfigProblem]:
    """What the exporter would pass over in silence, or fail at with every push."""
    text = environment.get(INTERVAL, "").strip()
    if text and not (re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) and SHORTEST_MS <= int(text) <= LONGEST_MS):
        reason = f"is not a number of milliseconds from {SHORTEST_MS} to {LONGEST_MS}"
        yield ConfigProblem(INTERVAL, reason, f"write {EVERY_MS}, or unset it")
    if environment.get(TEMPORALITY, "cumulative").strip().lower() not in ("", "cumulative"):
        reason = "would be ignored: metrics are pushed as they stand, cumulative"
        fix = "unset it, and let the collector make deltas (its processor cumulativetodelta)"
        yield ConfigProblem(TEMPORALITY, reason, fix)
    for name, value in _both(environment, COMPRESSION):
        if value.strip().lower() not in ("none", "gzip", "deflate"):
            yield ConfigProblem(name, "is not one of none, gzip, deflate", "write gzip, or unset it")
    for name, value in _both(environment, HEADERS):
        if _headers(value) is None:
            yield ConfigProblem(name, "is not a list of headers", _HEADERS_FIX)
    for end in FILES:
        for name, value in _both(environment, end):
            try:
                Path(value).read_bytes()
            except (OSError, ValueError) as error:
                reason = f"names a file that cannot be read: {getattr(error, 'strerror', None) or 'not a path'}"
                yield ConfigProblem(name, reason, "name a PEM file that this user may read, or unset it")


def _both(environment: Mapping[str, str], end: str) -> Iterator[tuple[str, str]]:
    for name in (f"OTEL_EXPORTER_OTLP_METRICS_{end}", f"OTEL_EXPORTER_OTLP_{end}"):
        if value := environment.get(name):
            yield name, value


def _from_file(path: Path) -> Mapping[str, str]:
    key = "job.otlp_headers_file"
    found = _headers(read_secret(path, key=key).decode("utf-8", errors="replace"))
    if not found:
        raise ConfigError([ConfigProblem(key, "the file holds no list of headers", _HEADERS_FIX)])
    return found


def _headers(text: str) -> Mapping[str, str] | None:
    """Headers as OTEL_EXPORTER_OTLP_HEADERS has them; None where one of them is none."""
    found = {}
    for entry in filter(None, (each.strip() for each in text.split(","))):
        name, joint, value = (unquote(part).strip() for part in entry.partition("="))
        if not joint or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            return None
        found[name.lower()] = value
    return found

"""Domains and engines as configured, built to see whether they can be: what only geometry can tell of a map, and
whether noise can be as wide as a small epsilon asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from agents.show.view import view_of
from engines.core.registry import build_domain, build_engine
from schemas.config.values import prefixed
from schemas.errors import BudgetError, ConfigError, ConfigProblem, EngineInputError

if TYPE_CHECKING:
    from schemas.config import Config, Stream


def check_streams(config: Config) -> Mapping[str, Sequence[str]]:
    """Build every stream's domain and engine, and ask the engine for its guarantee.

    Returns: by stream, what an operator should know of it.
    Raises: ConfigError with all streams that cannot be built.
    """
    problems: list[ConfigProblem] = []
    remarks: dict[str, Sequence[str]] = {}
    for index, stream in enumerate(config.streams):
        try:
            check_stream(stream)
        except ConfigError as error:
            problems += prefixed(f"streams[{index}]", error.problems)
        else:
            remarks[stream.name] = tuple(view_of(stream).warnings(stream))
    if problems:
        raise ConfigError(problems)
    return remarks


def check_stream(stream: Stream) -> None:
    """Build one stream's domain and engine, and ask it for its guarantee.

    Raises: ConfigError; its key is relative to the stream.
    """
    name = f'stream "{stream.name}"'
    try:
        build_domain(stream)
    except EngineInputError as error:
        fix = "fix its file or bounds as it says, or choose another depth in [streams.options]"
        raise ConfigError([ConfigProblem("domain", f"{name}: {error}", fix)]) from None
    try:
        build_engine(stream).guarantee()
    except EngineInputError as error:
        fix = "raise epsilon, lower max_contributions, or fix [streams.options] as it says"
        raise ConfigError([ConfigProblem("privacy.epsilon", f"{name}: {error}", fix)]) from None
    except BudgetError as error:
        raise ConfigError([ConfigProblem("privacy", str(error), "as it says")]) from None

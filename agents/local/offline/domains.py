"""Checks of configured domains and engines by building them.

Only this shows whether the geometry of a map can be used, and whether noise can be as wide as a small epsilon requires.
"""

from __future__ import annotations

from engines.core.registry import build_domain, build_engine
from schemas.config import Config, Stream
from schemas.config.values import prefixed
from schemas.errors import BudgetError, ConfigError, ConfigProblem, EngineInputError


def check_streams(config: Config) -> None:
    """Build the domain, the engine and the guarantee of every stream.

    Raises: ConfigError with all streams that cannot be built.
    """
    problems: list[ConfigProblem] = []
    for index, stream in enumerate(config.streams):
        try:
            check_stream(stream)
        except ConfigError as error:
            problems += prefixed(f"streams[{index}]", error.problems)
    if problems:
        raise ConfigError(problems)


def check_stream(stream: Stream) -> None:
    """Build the domain, the engine and the guarantee of one stream. Raises: ConfigError, relative to the stream."""
    name = f'stream "{stream.name}"'
    try:
        build_domain(stream)
    except EngineInputError as error:
        fix = "fix its file or bounds as it says, or choose another depth in [streams.options]"
        raise ConfigError.of("domain", f"{name}: {error}", fix) from None
    try:
        build_engine(stream).guarantee()
    except EngineInputError as error:
        fix = "raise epsilon, lower max_contributions, or fix [streams.options] as it says"
        raise ConfigError.of("privacy.epsilon", f"{name}: {error}", fix) from None
    except BudgetError as error:
        raise ConfigError.of("privacy", str(error), "as it says") from None

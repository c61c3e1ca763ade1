"""Domains and engines as configured, built to see whether they can be: what only geometry can tell of a map, and
whether noise can be as wide as a small epsilon asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from agents.show.view import view_of
from engines.core.registry import build_domain, build_engine
from schemas.errors import BudgetError, ConfigError, ConfigProblem, EngineInputError

if TYPE_CHECKING:
    from schemas.config import Config


def check_streams(config: Config) -> Mapping[str, Sequence[str]]:
    """Build every stream's domain and engine, and ask the engine for its guarantee.

    Returns: by stream, what an operator should know of it.
    Raises: ConfigError with all streams that cannot be built.
    """
    problems: list[ConfigProblem] = []
    remarks: dict[str, Sequence[str]] = {}
    for index, stream in enumerate(config.streams):
        where, name = f"streams[{index}]", f'stream "{stream.name}"'
        try:
            build_domain(stream)
        except EngineInputError as error:
            fix = "fix its file or bounds as it says, or choose another depth in [streams.options]"
            problems.append(ConfigProblem(f"{where}.domain", f"{name}: {error}", fix))
            continue
        try:
            build_engine(stream).guarantee()
        except EngineInputError as error:
            fix = "raise epsilon, lower max_contributions, or fix [streams.options] as it says"
            problems.append(ConfigProblem(f"{where}.privacy.epsilon", f"{name}: {error}", fix))
        except BudgetError as error:
            problems.append(ConfigProblem(f"{where}.privacy", str(error), "as it says"))
        else:
            remarks[stream.name] = tuple(view_of(stream).warnings(stream))
    if problems:
        raise ConfigError(problems)
    return remarks

"""Domains as configured, built to see whether they can be: what only geometry can tell of a map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from engines.registry import build_domain
from engines.spatial.domain.mapped import MappedDomain
from schemas.errors import ConfigError, ConfigProblem, EngineInputError

if TYPE_CHECKING:
    from schemas.config import Config

NEARLY_ALL = 0.9
"""Share of events outside from which a domain is likely to be the wrong one."""


def check_domains(config: Config) -> Mapping[str, Sequence[str]]:
    """Build every stream's domain.

    Returns: by stream, what an operator should know of it.
    Raises: ConfigError with all domains that cannot be built.
    """
    problems, remarks = [], {}
    for index, stream in enumerate(config.streams):
        try:
            domain = build_domain(stream)
        except EngineInputError as error:
            reason = f'stream "{stream.name}": {error}'
            mend = "mend its file or bounds as it says, or choose another depth in [streams.options]"
            problems.append(ConfigProblem(f"streams[{index}].domain", reason, mend))
            continue
        if isinstance(domain, MappedDomain):
            remarks[stream.name] = tuple(domain.remarks())
    if problems:
        raise ConfigError(problems)
    return remarks


def outside_warning(fields: Sequence[str], *, outside: int, rows: int) -> str | None:
    """A sentence where nearly all events fall outside of the domain; None where they do not."""
    if rows == 0 or outside < NEARLY_ALL * rows:
        return None
    named = " and ".join(fields)
    return (
        f"{outside / rows:.0%} of the events lie outside of the domain. Look at [streams.domain]: are {named} in this "
        "order, in the units of the events, and is it the right place?"
    )

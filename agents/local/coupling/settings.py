"""The streams that are coupled: every installed engine, mode and variant of its contract case, and longer ones.

An engine's `EngineSpec` is enough to have it coupled.
"""

from __future__ import annotations

from collections.abc import Iterator

from engines.checks.contract_case import contract_case
from schemas.config import ENGINES, Stream


def settings(engine: str | None = None, mode: str | None = None) -> Iterator[tuple[str, Stream]]:
    """Yield name and stream of each setting, by engine, mode and number of the variant."""
    for name, spec in ENGINES.items():
        for each in spec.facts.modes:
            if engine in (None, name) and mode in (None, each):
                case = contract_case(name)
                for number, variant in enumerate(case.coupled(each)):
                    yield f"{name}/{each}/{number}", case.stream(each, variant)

"""The streams that are coupled: every registered engine, mode and variant of its contract case, and longer ones.

Registering an engine (`engines.registry`, `tests.contracts.cases`) is enough to have it coupled; what is added here
makes spans longer than a contract test's, and tries clocks, periods and kinds of fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engines.registry import ENGINES
from schemas.config import ENGINE_FACTS, ENGINE_MODES, Stream
from tests.contracts.cases import CONTRACTS

Variant = Mapping[str, Any]
LONGER: Mapping[str, Sequence[Variant]] = {
    "spatial": (
        {"options": {"max_leaves": 64, "initial_steps": 4}, "domain": {"op": "what"}},
        {"privacy": {"unit": "event", "user": None, "max_contributions": None}},
        {"privacy": {"max_contributions": 9, "per": "8h"}},
    ),
    "markov": (
        {"options": {"horizon": 40}, "privacy": {"max_contributions": 40}},
        {"options": {"horizon": None}, "privacy": {"per": "8h", "max_contributions": 8}},
    ),
    "series": (
        {"options": {"horizon": 40}, "privacy": {"max_contributions": 40, "max_per_step": 1}},
        {"options": {"horizon": 40}, "privacy": {"max_contributions": 6, "max_per_step": 1}},
        {
            "options": {"horizon": 40},
            "domain": {"fields": [{"name": "a", "of": "count"}, {"name": "km", "of": "sum", "limits": [-2.0, 4.0]}]},
            "privacy": {"max_contributions": 3, "max_per_step": 1},
        },
        {
            "options": {"horizon": 40},
            "domain": {"fields": [{"name": "r", "of": "value", "limits": [0.0, 50.0], "sensitivity": 1.0}]},
            "privacy": {"user": None, "max_contributions": None, "max_per_step": None},
        },
    ),
    "tabular": ({"privacy": {"max_contributions": 8}}, {"privacy": {"max_contributions": 3, "per": "8h"}}),
    "trajectory": ({"privacy": {"max_contributions": 3, "per": "8h"}, "options": {"longest": "3h"}},),
}
"""By engine; one without an entry has its contract's variants."""


def settings(engine: str | None = None, mode: str | None = None) -> Iterator[tuple[str, Stream]]:
    """Name and stream of each setting, by engine, mode and number of the variant."""
    for name in sorted(ENGINES):
        for each in ENGINE_MODES[name]:
            if engine in (None, name) and mode in (None, each):
                case = CONTRACTS[name]
                for number, variant in enumerate((*case.variants, *LONGER.get(name, ()))):
                    yield f"{name}/{each}/{number}", case.stream(name, each, variant)


def modes() -> int:
    """How many there are, of all engines together."""
    return sum(len(facts.modes) for facts in ENGINE_FACTS.values())

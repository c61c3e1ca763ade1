"""Pairs with more events in one step than any constant at which code takes another way."""

from __future__ import annotations

from collections.abc import Iterator

from agents.local.coupling.dearest import dearest_unit
from agents.local.coupling.runs import Verdict, couple
from engines.checks.contract_case import contract_case
from schemas.config import ENGINES, Stream

WIDE_STEPS, WIDE_CROWD = 6, 10_100
"""Of a pair of a wide setting: its burst has so many events in one step."""


def wide(mode: str | None = None) -> Iterator[tuple[str, Stream]]:
    """Name and stream of each wide setting: "wide" stands before its number."""
    for name, spec in ENGINES.items():
        for each in spec.facts.modes:
            if mode in (None, each):
                case = contract_case(name)
                for number, variant in enumerate(case.coupled_wide(each)):
                    yield f"{name}/{each}/wide {number}", case.stream(each, variant)


def couple_wide(name: str, stream: Stream, seed: int) -> Verdict:
    """Couple a pair in few steps with a burst in one of them; every second seed has the dearest unit."""
    unit = dearest_unit if seed % 2 else None
    return couple(name, stream, seed, steps=WIDE_STEPS, crowd=WIDE_CROWD, unit=unit)

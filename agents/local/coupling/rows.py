"""Raw fields of random events, as the contract case of an engine draws them."""

from __future__ import annotations

import random
from typing import Any

from engines.checks.contract_case import contract_case
from schemas.config import Stream

Fields = dict[str, Any]


def event(stream: Stream, chance: random.Random, *, hot: bool, place: int = 0) -> Fields:
    """Draw the fields of one event. `hot`: all such events of one `place` are alike."""
    return contract_case(stream.engine).event(stream.domain, random.Random(7 + place) if hot else chance)


def other(stream: Stream, chance: random.Random, fields: Fields) -> Fields:
    """Draw what may stand in the place of an event's fields under replacement: another event, or a reading as near as
    is declared.
    """
    domain: Any = stream.domain
    if getattr(domain, "readings", False):
        return {
            field.name: fields[field.name]
            + chance.choice([-1, 1]) * chance.choice([1.0, chance.random()]) * field.sensitivity
            for field in domain.series
        }
    return next(found for found in iter(lambda: event(stream, chance, hot=False), None) if found != fields)

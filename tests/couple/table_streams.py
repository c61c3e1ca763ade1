"""Streams of tables and neighbouring steps for the coupling tests: the contract's table, with more budget."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engines.checks.contract_case import contract_case
from engines.core.contract import Batch
from engines.tabular.keys import RowKeys
from schemas.blocks import Folded
from schemas.config import Stream

SIZES = (2, 3, 2)
"""Of attributes smokes, age and city."""
KEYS = RowKeys(SIZES)
EPSILON = 20.0
"""Of one event: blocks of every kind close within a few hundred events."""
DELETES: Mapping[str, Any] = {"domain": {"op": "what"}}

Row = tuple[int, int, int]
Event = tuple[int, Row, int]
"""Step, row, and how often it is inserted (positive) or deleted (negative)."""


def stream(mode: str, variant: Mapping[str, Any] = {}, *, epsilon: float = EPSILON) -> Stream:
    privacy = {"epsilon": epsilon * 2, "max_contributions": 2, **variant.get("privacy", {})}
    return contract_case("tabular").stream(mode, {**variant, "privacy": privacy})


def folded(events: Sequence[tuple[Row, int]]) -> Folded:
    signs = np.array([np.sign(count) for _, count in events], np.int8)
    keys = KEYS.pack(np.array([row for row, _ in events], np.int64).reshape(-1, len(SIZES)), signs)
    return Folded.of(keys, np.array([abs(count) for _, count in events], np.int64))


def batches(events: Sequence[Event], steps: int) -> list[Batch]:
    """All steps up to `steps`, with these events in them."""
    return [Batch(step, folded([(row, count) for at, row, count in events if at == step])) for step in range(steps)]


def random_row(chance: random.Random) -> Row:
    smokes, age, city = (chance.randrange(size) for size in SIZES)
    return smokes, age, city


def random_events(chance: random.Random, steps: int, *, deletes: bool = False) -> list[Event]:
    """Empty steps, steps of single rows, and crowds."""
    events: list[Event] = []
    for step in range(steps):
        for _ in range(chance.choice([0, 1, 4, 8])):
            sign = -1 if deletes and chance.random() < 0.3 else 1
            events.append((step, random_row(chance), sign * chance.choice([1, 2, 15])))
    return events


def random_user(chance: random.Random, steps: int, contributions: int, *, deletes: bool = False) -> list[Event]:
    """One user's events: all in one row and step, in one step, or anywhere."""
    step, row = chance.randrange(steps), random_row(chance)
    kind = chance.choice(["one cell", "one step", "spread"])
    events: list[Event] = []
    for _ in range(contributions):
        sign = -1 if deletes and chance.random() < 0.3 else 1
        if kind != "one cell":
            row = random_row(chance)
        if kind == "spread":
            step = chance.randrange(steps)
        events.append((step, row, sign))
    return events

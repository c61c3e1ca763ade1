"""What engine `markov` is audited on, and the streams of its contract tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from engines.auditor.cases import Case
from engines.auditor.engines import case, faintly
from engines.auditor.features import Features
from engines.auditor.fixture import DENSE, VISITED, AuditFixture, Focus
from engines.contract_case import Chance, EngineCase, Variant
from schemas.blocks import Folded
from schemas.config import Stream


def cases(mode: str) -> Iterator[Case]:
    """One for a mode."""
    made = fixture(mode, contributions=2)
    yield case(f"engine markov, mode {mode}", made, faint=faintly(made.stream))


def state_focus(value: str, known: Sequence[tuple[int, str, int]]) -> Focus:
    """What was measured in a state beyond the known events: all of a release that a user there can move.

    Args: known: step, state and number of events that both inputs have.
    """

    def focus(step: int, measurements: Sequence[Mapping[str, Any]]) -> Features:
        there = sum(count for at, state, count in known if (at, state) == (step, value))
        counted = [m["count"] for m in measurements if m["state"] == value]
        return {"residual": float(counted[-1] - there)} if counted else {}

    return focus


def fixture(mode: str, *, steps: int = VISITED, contributions: int = 1, epsilon: float = 2.0) -> AuditFixture:
    """Three states; one holds `DENSE` users in each step, one a few, one nobody; a user is counted
    in each of `contributions` steps, and then the bound renews.
    """
    content = b"0.8,0.1,0.1\n0.1,0.8,0.1\n0.1,0.1,0.8\n"
    values = ("dense", "few", "empty")
    stream = Stream.model_validate(
        {
            "name": "audit",
            "engine": "markov",
            "mode": mode,
            "source": "raw.audit",
            "privacy": {"epsilon": epsilon, "unit": "replace", "user": "u", "per": f"{contributions}h"}
            | {"max_contributions": contributions, "max_per_step": 1},
            "time": {"field": "t", "format": "s", "start": "2020-01-01T00:00:00", "step": "1h", "clock": "replay"},
            "domain": {"kind": "states", "field": "s", "values": values, "population": DENSE + 4}
            | {"transition": {"path": "chain.csv", "sha256": "", "content": content}},
            "options": {"lag": 1},
        }
    )
    crowd = (DENSE, 3)
    known = [(step, values[at], count) for step in range(steps) for at, count in enumerate(crowd)]
    places = {
        "dense cell": (0, None, state_focus(values[0], known)),
        "empty cell": (2, None, state_focus(values[2], known)),
    }
    base = Folded(np.array([[0], [1]], np.uint64), np.array(crowd, np.int64))
    return AuditFixture(stream, base, places, {"moved from a dense to an empty state": (0, 2)})


def _in_mode(mode: str, variant: Variant) -> Variant:
    """Mode `paper` rests on a declared chain."""
    given = dict(variant)
    if mode == "paper" and given.get("domain", {}).get("transition", "declared") is None:
        given["domain"] = {key: value for key, value in given["domain"].items() if key != "transition"}
    return given


def _event(domain: Any, chance: Chance) -> dict[str, Any]:
    return {domain.field: chance.choice(domain.values)}


def _wide(mode: str) -> list[Variant]:
    """More states than are worked out exactly, or learnt."""
    states = 150
    rows = [",".join("0.5" if to in (at, (at + 1) % states) else "0" for to in range(states)) for at in range(states)]
    chain = {"path": "chain.csv", "sha256": "", "content": "\n".join(rows).encode() + b"\n"}
    values = [f"state {at}" for at in range(states)]
    return [{"domain": {"values": values, "population": 50_000, "transition": chain}}]


CONTRACT = EngineCase(
    wide=_wide,
    engine="markov",
    tables={
        "domain": {
            "kind": "states",
            "field": "zone",
            "values": ["a", "b", "c"],
            "population": 100,
            "transition": {"path": "chain.csv", "sha256": "", "content": b"0.9,0.1,0\n0,0.5,0.5\n0.2,0.2,0.6\n"},
        },
        "options": {"horizon": 10},
    },
    privacy={"unit": "replace", "max_contributions": 10, "max_per_step": 1},
    keys=lambda pick: (pick(0, 2),),
    event=_event,
    crowd=(1,),
    foreign=(3,),
    measured=lambda release: {str(m["state"]): int(m["count"]) for m in release.measurements},
    variants=(
        {},
        {"options": {"lag": 1}},
        {"options": {"lag": 0, "prior": "uniform"}},
        {"domain": {"transition": None}},
        {"options": {"horizon": None}, "privacy": {"max_contributions": 4, "per": "4h"}},
    ),
    in_mode=_in_mode,
    longer=(
        {"options": {"horizon": 40}, "privacy": {"max_contributions": 40}},
        {"options": {"horizon": None}, "privacy": {"per": "8h", "max_contributions": 8}},
    ),
)

"""The streams that engine `markov` is tried on, by contract tests and coupled runs."""

from __future__ import annotations

from typing import Any

from engines.checks.contract_case import WHOLE, Chance, EngineCase, Variant
from schemas.config import Stream

_SPARSE = b"0.8,0.1,0,0.1\n0,0.5,0.5,0\n0.2,0.2,0.6,0\n0.3,0.3,0.2,0.2\n"
"""A chain of three states, and of being in none."""


def _in_mode(mode: str, variant: Variant) -> Variant:
    """Mode `paper` rests on a declared chain."""
    given = dict(variant)
    if mode == "paper" and given.get("domain", {}).get("transition", "declared") is None:
        given["domain"] = {key: value for key, value in given["domain"].items() if key != "transition"}
    return given


def _event(domain: Any, chance: Chance) -> dict[str, Any]:
    return {domain.field: chance.choice(domain.values)}


def _reach(stream: Stream) -> float:
    """Under a bounded leakage a step has the part of epsilon that leaves room for what other steps tell of it: the
    first and the last ones most, about half.
    """
    return 0.516 if getattr(stream.options, "allocation", None) == "leakage" else WHOLE


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
    reach=_reach,
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
        # Some are in no state, and a member is in fewer steps than there are.
        {
            "domain": {"unseen": True, "transition": {"path": "chain.csv", "sha256": "", "content": _SPARSE}},
            "options": {"horizon": 40},
            "privacy": {"max_contributions": 9},
        },
        {"options": {"horizon": 40, "allocation": "leakage"}, "privacy": {"max_contributions": 1, "per": "1h"}},
    ),
)

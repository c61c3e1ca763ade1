"""The streams that engine `series` is tried on, by contract tests and coupled runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engines.checks.contract_case import WHOLE, Chance, EngineCase, Variant
from schemas.config import Stream

SERIES_HIGHEST = 8192
"""Lattice steps of a summed value at its limit, 4."""


def _in_mode(mode: str, variant: Variant) -> Variant:
    """Binomial noise has no weights that could decay: there the stream ends."""
    given = dict(variant)
    if mode == "paper-binomial" and "decay" in given.get("options", {}):
        given["options"] = {"horizon": 40}
    return given


def _event(domain: Any, chance: Chance) -> dict[str, Any]:
    fields = {}
    for field in domain.series:
        if field.edges is not None:
            # In every bin, also those outside, and on edges.
            fields[field.name] = chance.choice([field.edges[0] - 1, *field.edges, 2 * field.edges[-1]])
        elif field.of != "count":
            low, high = field.limits
            # Values at a limit move most; one beyond it is clipped, and must not move more.
            fields[field.name] = chance.choice([high, high, low, low + (high - low) * chance.random(), 3 * high])
    if domain.by is not None:
        fields[domain.by] = chance.choice(domain.values)
    return fields


def _dearest(domain: Any, chance: Chance) -> list[dict[str, Any]]:
    """At the limit that is farther from zero, in every field; in a bin of its histogram; in one group."""
    read = [field for field in domain.series if field.of != "count"]
    group = {} if domain.by is None else {domain.by: domain.values[-1]}
    return [{**group, **{field.name: max(field.limits or field.edges, key=abs) for field in read}}]


def _reach(stream: Stream) -> float:
    """Binomial noise is on coarse totals, and a reading that moves a total by a power of two moves the coarse one by 4
    where 5 are paid for (`BinomialBudget.shift`).
    """
    return 0.78 if stream.mode == "paper-binomial" and getattr(stream.domain, "readings", False) else WHOLE


def _wide(mode: str) -> list[Variant]:
    """Many fields, of limits whose lower end is the larger one, and a horizon far beyond what is run; many bins."""
    fields = [{"name": f"f{at}", "of": "sum", "limits": [-40.0, 4.0]} for at in range(9)]
    many = {"max_contributions": 12, "max_per_step": 5}
    wide: list[Variant] = [{"domain": {"fields": fields}, "options": {"horizon": 20_000}, "privacy": many}]
    if mode == "default":
        edges = {"from": 1, "to": 1e6, "bins": 300, "scale": "log"}
        wide.append(_histograms([{"name": "ms", "of": "histogram", "edges": edges}], {**many, "delta": None}, groups=9))
    return wide


def _histograms(fields: Sequence[Mapping[str, Any]], privacy: Mapping[str, Any], *, groups: int = 0) -> Variant:
    """A variant with histograms, without an end."""
    return {"domain": {"fields": fields, **_by(groups)}, "options": {"horizon": None}, "privacy": privacy}


def _by(groups: int) -> Mapping[str, Any]:
    return {"by": "place", "values": [f"p{at}" for at in range(groups)]} if groups else {}


_SUMS: list[Mapping[str, Any]] = [{"name": "n", "of": "count"}, {"name": "km", "of": "sum", "limits": [-2.0, 4.0]}]
_EDGES = [0.0, 1.0, 2.5, 4.0]
_ONE: list[Mapping[str, Any]] = [{"name": "km", "of": "histogram", "edges": _EDGES}]
_TWO: list[Mapping[str, Any]] = [
    *_ONE,
    {"name": "ms", "of": "histogram", "edges": {"from": 1, "to": 100, "bins": 4, "scale": "log"}, "share": 3},
]


CONTRACT = EngineCase(
    wide=_wide,
    engine="series",
    tables={
        "domain": {"kind": "series", "fields": [{"name": "km", "of": "sum", "limits": [0.0, 4.0]}]},
        "options": {"horizon": 3},
    },
    privacy={"delta": 1e-4, "max_contributions": 4, "max_per_step": 2},
    keys=lambda pick: (pick(0, SERIES_HIGHEST),),
    event=_event,
    dearest=_dearest,
    reach=_reach,
    crowd=(SERIES_HIGHEST,),
    foreign=(SERIES_HIGHEST + 1,),
    # Each event moves every measurement of its step; tests/sequence checks by how much.
    measured=None,
    variants=(
        {},
        {"privacy": {"max_contributions": 6}},
        # A user in every step, and days of four steps.
        {"time": {"step": "6h"}, "options": {"horizon": 12}, "privacy": {"max_contributions": 24}},
        {
            "domain": {"fields": [{"name": "km", "of": "value", "limits": [0.0, 4.0], "sensitivity": 0.5}]},
            "options": {"horizon": 12},
            "privacy": {"user": None, "max_contributions": None, "max_per_step": None},
        },
    ),
    in_mode=_in_mode,
    longer=(
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
        {"options": {"horizon": None}, "privacy": {"max_contributions": 5, "per": "12h"}},
        # A user in every step of a period.
        {"options": {"horizon": None}, "privacy": {"max_contributions": 8, "per": "4h"}},
        {"options": {"horizon": None, "decay": 0.5}, "privacy": {"max_contributions": 8, "max_per_step": 1}},
        {
            "options": {"horizon": None, "decay": 0.75},
            "domain": {"fields": [{"name": "v", "of": "value", "limits": [-10.0, 30.0], "sensitivity": 0.5}]},
            "privacy": {"user": None, "max_contributions": None, "max_per_step": None},
        },
    ),
    of_default=(
        _histograms(_ONE, {"delta": None}),
        _histograms(_TWO, {"delta": None, "max_contributions": 8, "per": "12h"}),
        _histograms(
            _ONE, {"delta": None, "unit": "event", "user": None, "max_contributions": None, "max_per_step": None}
        ),
        _histograms(_TWO, {"max_contributions": 5, "max_per_step": 3}),
        # In groups: without a delta; a public schedule; and an adaptive budget, that of days of four steps.
        _histograms(_TWO, {"delta": None, "max_contributions": 5}, groups=3),
        {
            "domain": {"fields": _SUMS, **_by(3)},
            "options": {"horizon": 40},
            "privacy": {"max_contributions": 5, "max_per_step": 2},
        },
        {
            "domain": {"fields": _SUMS, **_by(2)},
            "time": {"step": "6h"},
            "options": {"horizon": 16},
            "privacy": {"max_contributions": 32},
        },
    ),
)

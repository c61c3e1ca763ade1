"""The streams that engine `tabular` is tried on, by contract tests and coupled runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from engines.checks.contract_case import WHOLE, Chance, EngineCase, Variant
from schemas.config import Stream

PAGES = ("/", "/about", "caf\u00e9", "", "other")


def _event(domain: Any, chance: Chance) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for attribute in domain.all_attributes:
        if attribute.missing and chance.random() < 0.2:
            continue
        if attribute.discovered:
            seldom = chance.random() < 0.1
            fields[attribute.field] = f"o{chance.randint(0, 10**6)}" if seldom else chance.choice(PAGES)
        elif attribute.unknown != "refuse" and chance.random() < 0.1:
            fields[attribute.field] = "elsewhere" if attribute.edges is None else 2 * attribute.edges[-1]
        elif attribute.field.startswith("seldom") and attribute.values is not None:
            fields[attribute.field] = attribute.values[int(chance.random() < 0.1)]
        elif attribute.values is not None:
            fields[attribute.field] = chance.choice(attribute.values)
        else:
            at = chance.uniform(attribute.edges[0], attribute.edges[-1])
            fields[attribute.field] = int(at) if attribute.integer else at
    return fields


def _found(**attribute: Any) -> dict[str, Any]:
    """A table in which values of one attribute are found, beside two binary ones, which are measured as differences."""
    page = {"field": "page", "values": "discover", "max_key_bytes": 8, "least_count": 1, **attribute}
    return {"attributes": [*({"field": field, "values": [False, True]} for field in ("smokes", "drives")), page]}


SELDOM: dict[str, Any] = {
    "domain": {"attributes": [{"field": f"seldom {at}", "values": [False, True]} for at in range(9)]},
    "privacy": {"epsilon": 60.0},
}
"""Most rows have the usual values, and larger blocks close within a few hundred events."""


_SCHEMA = json.dumps(
    {
        "properties": {
            "smokes": {"type": "boolean"},
            "degrees": {"type": "number", "minimum": -10, "maximum": 40},
            "floor": {"type": ["integer", "null"], "minimum": 0, "maximum": 3},
        },
        "required": ["smokes", "degrees"],
    }
).encode()
_PARTLY: dict[str, Any] = {
    "attributes": [
        {"field": "fare", "edges": [0.0, 10.0, 20.5, 90.0], "decimals": 2, "unknown": "clamp"},
        {"field": "age", "edges": [0, 18, 65, 120], "integer": True, "points": [9, 40, 75]},
        {"field": "city", "values": ["here", "there"], "unknown": "other", "other": "away", "missing": True},
    ],
    "impossible": [{"left": "age", "left_values": [5], "right": "city", "right_values": ["there"]}],
}
"""Of its rows some have values that are not listed, and some are impossible."""


def _reach(stream: Stream) -> float:
    """Of rounds, counts have half of epsilon, and every unit uses that up. A choice costs all that it is charged only
    where a row moves one marginal towards the model and another one away from it; in a first round it moves all alike.
    """
    return WHOLE if stream.mode == "default" else WHOLE / 2


def _wide(mode: str) -> list[Variant]:
    """In `default` more cells of one marginal than 2**16, once among more marginals than its early blocks hold, and
    once among so few, and with so much epsilon, that a crowd has them measured.
    """
    large = [{"field": f"large {at}", "values": list(range(260))} for at in range(2)] if mode == "default" else []
    small = [{"field": f"small {at}", "values": [0, 1]} for at in range(15 if mode == "default" else 9)]

    def table(attributes: Sequence[dict[str, Any]], **privacy: Any) -> Variant:
        return {
            "domain": {"attributes": attributes, "ttl": "2h"},
            "options": {"fit": None, "records": False},
            "privacy": {"max_contributions": 8, "max_per_step": 6, **privacy},
        }

    few = [table([*large, *small[:2]], epsilon=40.0)] if mode == "default" else []
    return [table([*large, *small]), *few]


CONTRACT = EngineCase(
    wide=_wide,
    engine="tabular",
    tables={
        "domain": {
            "kind": "table",
            "attributes": [
                {"field": "smokes", "values": [False, True]},
                {"field": "age", "edges": [0, 18, 65, 120], "integer": True},
                {"field": "city", "values": ["here"], "missing": True},
            ],
        },
        "options": {"fit": "joint"},
    },
    keys=lambda pick: (pick(0, 2 * 2 * 3 * 2 - 1),),
    event=_event,
    reach=_reach,
    crowd=(8,),
    foreign=(2 * 2 * 3 * 2,),
    variants=(
        {},
        {"domain": {"ttl": "1h"}},
        {"domain": {"ttl": "2h"}, "options": {"records": False}},
        {"domain": {"op": "what"}, "options": {"ways": [1, 2, 3]}},
        {"options": {"marginals": [{"of": ["age", "smokes"], "weight": 3}]}},
        {"privacy": {"delta": 1e-6, "epsilon": 8.0}},
        {"privacy": {"delta": 1e-3, "max_contributions": 3}, "domain": {"op": "what"}},
    ),
    of_default=(
        {"domain": _found(), "privacy": {"delta": 1e-3, "max_contributions": 3, "epsilon": 8.0}},
        {"domain": {**_found(most=2, missing=True), "ttl": "3h"}, "privacy": {"delta": 1e-2, "epsilon": 8.0}},
        {"domain": _found(), "privacy": {"delta": 1e-3, "max_contributions": 2, "per": "4h"}},
        SELDOM,
    ),
    drawn=(
        {"domain": _found(max_keys=2_000_000, unknown="other"), "privacy": {"delta": 1e-3, "epsilon": 8.0}},
        {"domain": _PARTLY},
        {"domain": {**_PARTLY, "op": "what"}},
        {"domain": {"schema_file": {"path": "row.json", "sha256": "", "content": _SCHEMA}}},
        {"domain": {"attributes": None, "schema_file": {"path": "row.json", "sha256": "", "content": _SCHEMA}}},
    ),
    longer=(
        {"privacy": {"delta": 1e-6, "epsilon": 8.0, "unit": "event", "user": None, "max_contributions": None}},
        {"privacy": {"max_contributions": 8}},
        {"privacy": {"max_contributions": 3, "per": "8h"}},
        {"privacy": {"delta": 1e-3, "max_contributions": 3, "per": "8h"}},
    ),
)

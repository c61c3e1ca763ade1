"""The streams that engine `keys` is tried on, by contract tests and coupled runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from engines.checks.contract_case import Chance, EngineCase, Key, Pick, Variant
from engines.checks.zones import named_zones
from engines.keys.domain import KeysDomain
from schemas.config.engines.keys import PUBLIC

_GRID = {"x": "lon", "y": "lat", "bounds": [0.0, 0.0, 6.0, 1.0], "columns": 50, "rows": 20}
"""So many cells that a user's keys are seldom the same."""
LISTED = 1000
"""Keys that mode `public` has beside the pages: more than a user may have."""
PAGES = ("/", "/about", "caf\u00e9", "\u65e5\u672c", "a b", "")
_DOMAIN = KeysDomain(fields=("page",), max_bytes=8)


def _keys(pick: Pick) -> Key:
    """One of a few keys."""
    return tuple(_DOMAIN.packed([PAGES[pick(0, len(PAGES) - 1)].encode()])[0].tolist())


def _event(domain: Any, chance: Chance) -> dict[str, Any]:
    """A key, and with values one between the limits, beyond them, or seldom none."""
    if domain.value is None:
        return _key(domain, chance)
    low, high = domain.value.limits
    value = "none" if chance.random() < 0.005 else chance.choice([low, high, chance.uniform(low - 1, high + 1)])
    return {**_key(domain, chance), domain.value.field: value}


def _key(domain: Any, chance: Chance) -> dict[str, Any]:
    """Texts, numbers and booleans, seldom keys that nobody else has, and keys that are refused."""
    if domain.grid is not None and chance.random() < 0.01:
        return dict(zip(domain.key_fields, (chance.choice([7.0, "no number"]), 0.5), strict=True))
    if domain.sources and chance.random() < 0.99:
        return _listed(domain, chance)
    if chance.random() < 0.005:
        return {name: chance.choice(["x" * 2000, None, "n\0ul"]) for name in domain.field}
    if chance.random() < 0.1:
        return {name: f"o{chance.randint(0, 10**6)}" for name in domain.field}
    return {name: chance.choice([*PAGES, 7, 7.5, True]) for name in domain.field}


def _listed(domain: Any, chance: Chance) -> dict[str, Any]:
    """A key of the public list, as it is written there, or a point in a cell of the grid."""
    if domain.grid is not None:
        xmin, ymin, xmax, ymax = domain.grid.bounds
        return {domain.grid.x: chance.uniform(xmin, xmax), domain.grid.y: chance.uniform(ymin, ymax)}
    return dict(zip(domain.field, chance.choice(_public(domain)), strict=True))


@lru_cache(8)
def _public(domain: Any) -> Sequence[tuple[Any, ...]]:
    return tuple(domain.public_keys)


def _dearest(domain: Any, chance: Chance) -> Sequence[dict[str, Any]]:
    """A key, with a value at a limit; every key costs the same."""
    value = {} if domain.value is None else {domain.value.field: domain.value.limits[1]}
    if domain.sources:
        return [{**_listed(domain, chance), **value}]
    return [{**{name: f"d{chance.randint(0, 10**6)}" for name in domain.field}, **value}]


def _wide(_: str) -> Sequence[Variant]:
    """More tests and contributions than the small ones have, and combinations."""
    many = {"max_contributions": 12, "max_per_step": 5}
    fields = ["page", "query"]
    return ({"privacy": many, "domain": {"field": fields, "max_key_bytes": 90}, "options": {"horizon": 40}},)


def _in_mode(mode: str, variant: Variant) -> Variant:
    """A bound that renews has no horizon; a public list or grid has no least count and no sample."""
    options, domain = dict(variant.get("options", {})), dict(variant.get("domain", {}))
    if mode != PUBLIC and domain.pop("grid", None):
        domain.pop("field", None)
    if mode != PUBLIC:
        domain |= {"file": None, "name_property": None}
    if "per" in variant.get("privacy", {}):
        options.setdefault("horizon", None)
    if mode == PUBLIC:
        options |= {"least_count": None, "sample": None, "max_keys": None}
    if mode == PUBLIC and "grid" not in domain and "file" not in domain:
        names = [*PAGES, *(f"d{number}" for number in range(LISTED))]
        many = isinstance(domain.get("field"), list)
        domain["keys"] = [[name, name] for name in names] if many else names
    return {**variant, "options": options, "domain": domain}


CONTRACT = EngineCase(
    engine="keys",
    tables={
        "domain": {"kind": "keys", "field": "page", "max_key_bytes": 8},
        "options": {"horizon": 30, "least_count": 3},
    },
    privacy={"delta": 1e-4},
    keys=_keys,
    event=_event,
    dearest=_dearest,
    crowd=tuple(_DOMAIN.packed([b"/"])[0].tolist()),
    foreign=None,
    words=_DOMAIN.words,
    wide=_wide,
    in_mode=_in_mode,
    variants=(
        {},
        {"privacy": {"per": "4h"}},
        {"options": {"least_count": 1, "horizon": 6}},
    ),
    drawn=(
        {"domain": {"file": named_zones("name")}},
        {"domain": {"file": named_zones("title"), "name_property": "title", "max_key_bytes": 40}},
    ),
    longer=(
        {"privacy": {"per": "8h", "max_contributions": 6, "max_per_step": 2, "delta": 1e-3}},
        {"domain": {"field": ["page", "query"], "max_key_bytes": 40}, "options": {"sample": "1/2"}},
        {"domain": {"value": {"field": "price", "limits": [-1.0, 5.0]}}},
        {
            "domain": {"field": None, "max_key_bytes": 32, "grid": _GRID},
            "privacy": {"per": "6h", "max_contributions": 4, "max_per_step": 3},
        },
        {"domain": {"value": {"field": "price", "limits": [0.0, 5.0]}}, "options": {"max_per_key": 3}},
    ),
)

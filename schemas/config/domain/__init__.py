"""`[streams.domain]`: the public domain, by declaration and never from data. One model and one file for each `kind`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator

from schemas.config.domain.box import BoxDomain, PlanarDomain
from schemas.config.domain.common import DeletableDomain, DomainSection
from schemas.config.domain.geojson import GeoJsonDomain
from schemas.config.domain.series import SeriesDomain
from schemas.config.domain.states import StatesDomain
from schemas.config.domain.table import TableDomain
from schemas.config.domain.trips import TripsDomain
from schemas.config.domain.zones import ZonesDomain
from schemas.config.section import refusal
from schemas.config.tagged import tagged

DOMAINS: Mapping[str, type[DomainSection]] = {
    "box": BoxDomain,
    "geojson": GeoJsonDomain,
    "states": StatesDomain,
    "series": SeriesDomain,
    "table": TableDomain,
    "trips": TripsDomain,
    "zones": ZonesDomain,
}
DOMAIN_KINDS = tuple(DOMAINS)
PLANNED_KINDS = tuple(
    kind for kind in ("geojson", "zones", "table", "series", "states", "trips") if kind not in DOMAINS
)


def _choose(value: object) -> object:
    """Refuse kinds without a model before pydantic complains about each of their keys."""
    if isinstance(value, dict):
        kind = value.get("kind")
        available = ", ".join(DOMAIN_KINDS)
        if "kind" not in value:
            raise refusal("missing", f'add kind = "{DOMAIN_KINDS[0]}" to [streams.domain]', at="kind")
        if not isinstance(kind, str) or kind not in DOMAINS:
            reason = f'"{kind}" is' if isinstance(kind, str) and kind in PLANNED_KINDS else "this kind is"
            raise refusal(
                f"{reason} not available in this version; available: {available}",
                f'set kind = "{DOMAIN_KINDS[0]}"',
                at="kind",
            )
    return value


def _kind(value: Any) -> str | None:
    # Of what is no table at all, the first model says so.
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", DOMAIN_KINDS[0])
    return kind if isinstance(kind, str) else None


if TYPE_CHECKING:
    Domain = DomainSection
else:
    Domain = Annotated[tagged(DOMAINS, _kind), BeforeValidator(_choose)]

__all__ = [
    "DOMAINS",
    "DOMAIN_KINDS",
    "PLANNED_KINDS",
    "BoxDomain",
    "DeletableDomain",
    "Domain",
    "DomainSection",
    "GeoJsonDomain",
    "PlanarDomain",
    "SeriesDomain",
    "StatesDomain",
    "TableDomain",
    "TripsDomain",
    "ZonesDomain",
]

"""How engine `spatial` is shown and tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

import numpy as np

from agents.pictures.contract import Picture
from agents.pictures.points import PointPicture
from agents.pictures.table import AttributeCells, TablePicture
from agents.presentation.contract import AuditPlan, Fields, Known, Presentation
from agents.presentation.maps import map_of
from agents.presentation.spatial import zones
from agents.presentation.spatial.error import error_model
from agents.presentation.spatial.metrics import metrics
from agents.presentation.spatial.report import frame, judged, sections
from engines.auditor.fixture import DENSE, Focus
from engines.registry import build_domain
from engines.spatial.domain import LineDomain
from engines.spatial.domain.mapped import MappedDomain
from engines.spatial.focus import spatial_focus
from engines.spatial.placement import Placement
from schemas.config import BoxDomainSection, GeoJsonDomainSection, PlanarDomainSection, Stream, ZonesDomainSection
from schemas.config.discovery import measures_expiry
from schemas.config.options.spatial import SpatialOptions

_AT = {"dense cell": (0.28, 0.28), "empty cell": (0.91, 0.91)}
_BESIDE = 3


def _domain(stream: Stream) -> str:
    domain, depth = stream.domain, SpatialOptions.of(stream).depth
    if isinstance(domain, ZonesDomainSection):
        return zones.domain_sentence(domain)
    if isinstance(domain, GeoJsonDomainSection):
        name, digest = PurePath(domain.file.path).name, domain.file.sha256[:12]
        halved = f"whose bounds are halved {depth} times, by declaration and not from the data."
        if isinstance(build_domain(stream), LineDomain):
            where = f"moved onto the nearest line of {name} (SHA-256 {digest}...) within {domain.reach_m:g} m"
        else:
            where = f"inside the polygons of {name} (SHA-256 {digest}...), borders included"
        return f"{domain.x} and {domain.y} as longitude and latitude, {where}, {halved}"
    assert isinstance(domain, BoxDomainSection)
    (xmin, ymin), (xmax, ymax) = domain.bounds[:2], domain.bounds[2:]
    return (
        f"{domain.x} in [{xmin:g}, {xmax:g}) and {domain.y} in [{ymin:g}, {ymax:g}), halved {depth} "
        "times, by declaration and not from the data."
    )


def _places_in_box(domain: BoxDomainSection) -> tuple[dict[str, Fields], Fields]:
    xmin, ymin, xmax, ymax = domain.bounds
    width, height = xmax - xmin, ymax - ymin
    places = {name: {domain.x: xmin + fx * width, domain.y: ymin + fy * height} for name, (fx, fy) in _AT.items()}
    dense = places["dense cell"]
    return dict(places), {domain.x: dense[domain.x] + width / 16, domain.y: dense[domain.y] + height / 16}


def _places_on_map(stream: Stream, domain: PlanarDomainSection) -> tuple[dict[str, Fields], Fields]:
    """Synthetic points of cells of the shape: they lie on it, whatever it is."""
    mapped = build_domain(stream)
    assert isinstance(mapped, MappedDomain)
    starts = mapped.tree.start
    shares = [_AT["dense cell"][0], _AT["dense cell"][0] + 1 / 16, _AT["empty cell"][0]]
    nodes = starts[[int(share * len(starts)) for share in shares]] + (1 << mapped.depth)
    x, y = mapped.points(Placement("audit plan"), nodes, np.zeros(3, np.int64))
    dense, beside, empty = ({domain.x: px, domain.y: py} for px, py in zip(x.tolist(), y.tolist(), strict=True))
    return {"dense cell": dense, "empty cell": empty}, beside


def _audit_plan(stream: Stream) -> AuditPlan:
    """`DENSE` events in one place and a few beside it, each step; the audited unit joins them or is alone."""
    domain = stream.domain
    if isinstance(domain, ZonesDomainSection):
        places, beside = zones.places(stream, domain)
    else:
        assert isinstance(domain, PlanarDomainSection)
        places, beside = (
            _places_in_box(domain) if isinstance(domain, BoxDomainSection) else _places_on_map(stream, domain)
        )
    dense = places["dense cell"]

    def focuses(places: Mapping[str, Fields], known: Sequence[Known]) -> Mapping[str, Focus]:
        if isinstance(domain, ZonesDomainSection):
            return zones.focuses(domain, places, known)
        assert isinstance(domain, PlanarDomainSection)
        located = [(step, fields[domain.x], fields[domain.y], count) for step, fields, count in known]
        return {name: spatial_focus(at[domain.x], at[domain.y], located) for name, at in places.items()}

    return AuditPlan(
        places=places,
        crowd=((dense, DENSE), (beside, _BESIDE)),
        late=SpatialOptions.of(stream).initial_steps + 1,
        held=3,
        expiries_known=measures_expiry(stream.engine, stream.mode),
        focuses=focuses,
    )


def _warnings(stream: Stream) -> Iterator[str]:
    domain = build_domain(stream)
    if isinstance(domain, MappedDomain):
        yield from domain.remarks()


def _picture(stream: Stream) -> Picture:
    """A map; of zones without a place in them, how many are in each."""
    domain = stream.domain
    if isinstance(domain, BoxDomainSection):
        return PointPicture(domain.x, domain.y, domain.bounds, degrees=domain.in_degrees)
    if isinstance(domain, ZonesDomainSection):
        if domain.x is None or domain.y is None or domain.file is None:
            return TablePicture([AttributeCells(domain.field, values=domain.names)])
        fields, mapped = (domain.x, domain.y), map_of(domain.file.content, (domain.x, domain.y))
    else:
        built = build_domain(stream)
        assert isinstance(built, MappedDomain)
        assert isinstance(domain, GeoJsonDomainSection)
        fields, mapped = (domain.x, domain.y), built
    return PointPicture(*fields, mapped.bounds, outline=mapped.outline(), degrees=True)


PRESENTATION = Presentation(
    domain=_domain,
    error_model=error_model,
    sections=sections,
    audit_plan=_audit_plan,
    metrics=metrics,
    judged=judged,
    frame=frame,
    records=lambda stream: "synthetic points",
    error_unit="%",
    warnings=_warnings,
    picture=_picture,
)

"""How engine `spatial` is shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from agents.show.pictures.contract import Picture
from agents.show.pictures.points import PointPicture
from agents.show.pictures.table import AttributeCells, TablePicture
from agents.show.presentation.contract import Presentation
from agents.show.presentation.maps import map_of
from agents.show.presentation.spatial import zones
from agents.show.presentation.spatial.error import error_model
from agents.show.presentation.spatial.metrics import metrics
from agents.show.presentation.spatial.report import frame, judged, sections
from engines.core.registry import build_domain
from engines.spatial.domain.lines import LineDomain
from engines.spatial.domain.mapped import MappedDomain
from schemas.config import BoxDomainSection, GeoJsonDomainSection, Stream, ZonesDomainSection
from schemas.config.options.spatial import SpatialOptions


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
    metrics=metrics,
    judged=judged,
    frame=frame,
    records=lambda stream: "synthetic points",
    error_unit="%",
    warnings=_warnings,
    picture=_picture,
)

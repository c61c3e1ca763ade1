"""Engine `spatial`: from a stream to its domain, its engine and its evaluator."""

from __future__ import annotations

from functools import lru_cache
from math import ceil

from engines.core.contract import Engine, Evaluator
from engines.spatial.domain import BoxDomain, LineDomain, PolygonDomain, ZoneDomain, parsed, shape_of
from engines.spatial.held.config import HeldConfig
from engines.spatial.held.engine import HeldLeaves
from engines.spatial.queries import SpatialEvaluator
from engines.spatial.zones import ZoneEvaluator, outlined
from schemas.config import BoxDomainSection, GeoJsonDomainSection, Stream, ZonesDomainSection
from schemas.config.domain.geojson import named_features
from schemas.config.options.spatial import SpatialOptions


def domain(stream: Stream) -> BoxDomain | PolygonDomain | LineDomain | ZoneDomain:
    section = stream.domain
    if isinstance(section, ZonesDomainSection):
        return _zones(section)
    if isinstance(section, GeoJsonDomainSection):
        return _mapped(section.file.content, (section.x, section.y), SpatialOptions.of(stream).depth, section.reach_m)
    assert isinstance(section, BoxDomainSection)
    return BoxDomain(section.x, section.y, section.bounds, SpatialOptions.of(stream).depth)


def _zones(section: ZonesDomainSection) -> ZoneDomain:
    if section.file is None:
        names = section.names
        return ZoneDomain(section.field, names, section.measures or (1.0,) * len(names))
    coordinates = None if section.x is None or section.y is None else (section.x, section.y)
    return _outlined(section.field, tuple(named_features(section.file, section.name_property)), coordinates)


_outlined = lru_cache(maxsize=8)(outlined)


@lru_cache(maxsize=8)
def _mapped(content: bytes, fields: tuple[str, str], depth: int, reach_m: float) -> PolygonDomain | LineDomain:
    """Worked out once for each content: a large map takes seconds."""
    shape = shape_of(parsed(content))
    return LineDomain(fields, shape, depth, reach_m=reach_m) if shape.lines else PolygonDomain(fields, shape, depth)


def build(stream: Stream) -> Engine:
    if stream.mode == "paper":
        return _paper(stream)
    options = SpatialOptions.of(stream)
    return HeldLeaves(
        HeldConfig(
            name=stream.name,
            domain=domain(stream),
            epsilon=stream.engine_epsilon,
            initial_steps=options.initial_steps,
            max_leaves=options.max_leaves,
            ttl_steps=stream.ttl_steps,
        )
    )


def _paper(stream: Stream) -> Engine:
    from engines.core.counters import COUNTERS
    from engines.spatial.papers.config import PHDStreamConfig
    from engines.spatial.papers.phdstream import PHDStream

    options = SpatialOptions.of(stream)
    return PHDStream(
        PHDStreamConfig(
            name=stream.name,
            domain=domain(stream),
            epsilon=stream.event_epsilon,
            split=options.split_fraction,
            initial_steps=options.initial_steps,
            threshold=ceil(options.threshold),
            ttl_steps=stream.ttl_steps,
            counter=COUNTERS[options.counter](options.horizon or 1),
        )
    )


def evaluator(stream: Stream) -> Evaluator:
    made = domain(stream)
    return ZoneEvaluator(made) if isinstance(made, ZoneDomain) else SpatialEvaluator.over(made)

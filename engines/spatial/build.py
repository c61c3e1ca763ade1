"""Engine `spatial`: from a stream to its domain, its engine and its evaluator.

A worker loads what its configuration asks for: maps, zones, evaluators and the paper's mode are imported where needed.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache, partial
from math import ceil

from engines.core.contract import Engine, Evaluator
from engines.spatial.domain.base import SpatialDomain
from engines.spatial.domain.box import BoxDomain
from engines.spatial.held.engine import HeldConfig, HeldLeaves
from schemas.config import Stream
from schemas.config.engines.spatial import (
    BoxDomainSection,
    GeoJsonDomainSection,
    SpatialOptions,
    ZonesDomainSection,
    named_features,
)


def domain(stream: Stream) -> SpatialDomain:
    section, depth = stream.domain, SpatialOptions.from_stream(stream).depth
    if isinstance(section, ZonesDomainSection):
        return _zones(section)
    if isinstance(section, GeoJsonDomainSection):
        return _mapped(section.file.content, (section.x, section.y), depth, section.reach_m)
    assert isinstance(section, BoxDomainSection)
    return BoxDomain(section.x, section.y, section.bounds, depth)


def _zones(section: ZonesDomainSection) -> SpatialDomain:
    if section.file is not None:
        return _outlined(section.field, tuple(named_features(section.file, section.name_property)), section.coordinates)
    from engines.spatial.domain.zones import ZoneDomain

    return ZoneDomain(section.field, section.names, section.measures or (1.0,) * len(section.names))


@lru_cache(maxsize=8)
def _outlined(
    field: str, features: tuple[tuple[str, bytes], ...], coordinates: tuple[str, str] | None
) -> SpatialDomain:
    from engines.spatial.domain.zones import outlined

    return outlined(field, features, coordinates)


@lru_cache(maxsize=8)
def _mapped(content: bytes, fields: tuple[str, str], depth: int, reach_m: float) -> SpatialDomain:
    """Make the domain of a map, once for each content: a large one takes seconds."""
    from engines.spatial.domain.geojson import parsed, shape_of
    from engines.spatial.domain.lines import map_of

    return map_of(shape_of(parsed(content)), fields, depth, reach_m=reach_m)


def build(stream: Stream) -> Engine:
    if stream.mode == "paper":
        return _paper(stream)
    options = SpatialOptions.from_stream(stream)
    return HeldLeaves(
        HeldConfig(
            name=stream.name,
            domain=domain(stream),
            epsilon=stream.engine_epsilon,
            initial_steps=options.initial_steps,
            max_leaves=options.max_leaves,
            ttl_steps=stream.ttl_steps,
            weighted=stream.weighted,
        )
    )


def _paper(stream: Stream) -> Engine:
    from engines.core.counters.by_name import COUNTERS
    from engines.spatial.papers.phdstream import PHDStream, PHDStreamConfig

    options = SpatialOptions.from_stream(stream)
    return PHDStream(
        PHDStreamConfig(
            name=stream.name,
            domain=domain(stream),
            epsilon=stream.event_epsilon,
            split=Fraction(options.split),
            initial_steps=options.initial_steps,
            threshold=ceil(options.threshold),
            ttl_steps=stream.ttl_steps,
            weighted=stream.weighted,
            counter=partial(COUNTERS[options.counter], options.horizon or 1),
        )
    )


def evaluator(stream: Stream) -> Evaluator:
    from engines.spatial.domain.zones import ZoneDomain
    from engines.spatial.evaluators import SpatialEvaluator, ZoneEvaluator

    made = domain(stream)
    return ZoneEvaluator(made) if isinstance(made, ZoneDomain) else SpatialEvaluator.over(made)

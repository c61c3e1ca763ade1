"""Every engine under its configured name. Registering one gets it tested and offered."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from engines.contract import Domain, Engine, EngineSpec, Evaluator
from engines.spatial import (
    MODES,
    BoxDomain,
    HeldConfig,
    HeldLeaves,
    PHDStream,
    PHDStreamConfig,
    SpatialEvaluator,
)
from schemas.config import Stream


def _box(stream: Stream) -> BoxDomain:
    domain = stream.domain
    return BoxDomain(domain.x, domain.y, domain.bounds, stream.options.depth)


def _spatial(stream: Stream) -> Engine:
    options = stream.options
    ttl_us = stream.domain.ttl_us
    ttl_steps = None if ttl_us is None else ttl_us // stream.time.step_us
    if stream.mode == "paper":
        return PHDStream(
            PHDStreamConfig(
                name=stream.name,
                domain=_box(stream),
                epsilon=stream.event_epsilon,
                split=options.split_fraction,
                initial_steps=options.initial_steps,
                threshold=ceil(options.threshold),
                ttl_steps=ttl_steps,
            )
        )
    return HeldLeaves(
        HeldConfig(
            name=stream.name,
            domain=_box(stream),
            epsilon=stream.event_epsilon,
            initial_steps=options.initial_steps,
            max_leaves=options.max_leaves,
            ttl_steps=ttl_steps,
        )
    )


ENGINES: Mapping[str, EngineSpec] = {
    "spatial": EngineSpec(
        name="spatial",
        modes=MODES,
        domain=_box,
        build=_spatial,
        evaluator=lambda stream: SpatialEvaluator.over(_box(stream)),
    ),
}


def build_domain(stream: Stream) -> Domain:
    """The domain that encodes a configured stream's events. Raises: EngineInputError."""
    return ENGINES[stream.engine].domain(stream)


def build_engine(stream: Stream) -> Engine:
    """A configured stream's engine before its first step. Raises: EngineInputError."""
    return ENGINES[stream.engine].build(stream)


def build_evaluator(stream: Stream) -> Evaluator:
    """What measures a configured stream's utility. Raises: EngineInputError."""
    return ENGINES[stream.engine].evaluator(stream)

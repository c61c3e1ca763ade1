"""The parts of every installed engine, each loaded when it is asked for.

A worker that has just been started again waits for its own engines only. Which engines there are is said by
`schemas.config.ENGINES`; nothing here, or elsewhere, lists them.
"""

from __future__ import annotations

import pkgutil
from typing import Any

from engines.contract import Domain, Engine, Evaluator
from engines.surplus import CorrectedEngine
from schemas.config import ENGINES, Stream
from schemas.errors import PrivstreamError


def part(engine: str, name: str) -> Any:
    """A part of an engine that its `EngineSpec` refers to, such as "build".

    Raises: PrivstreamError if it cannot be loaded.
    """
    reference = ENGINES[engine].references[name]
    try:
        return pkgutil.resolve_name(reference)
    except (ImportError, AttributeError, ValueError) as error:
        raise PrivstreamError(
            f'engine "{engine}" has no {name}: {reference}: {type(error).__name__}: {error}. '
            "Fix: reinstall the distribution that the engine comes from, with what it requires."
        ) from error


def build_domain(stream: Stream) -> Domain:
    """The domain that encodes a configured stream's events. Raises: EngineInputError."""
    domain: Domain = part(stream.engine, "domain")(stream)
    return domain


def build_engine(stream: Stream) -> Engine:
    """What runs a configured stream, before its first step. Raises: EngineInputError."""
    engine = uncorrected_engine(stream)
    if not stream.surplus:
        return engine
    assert stream.privacy.surplus is not None
    return CorrectedEngine(
        engine,
        epsilon=stream.event_epsilon,
        reach=stream.privacy.surplus,
        ttl_steps=stream.ttl_steps,
    )


def uncorrected_engine(stream: Stream) -> Engine:
    """The engine itself, without the correction for what bounds drop. Raises: EngineInputError."""
    engine: Engine = part(stream.engine, "build")(stream)
    return engine


def build_evaluator(stream: Stream) -> Evaluator:
    """What measures a configured stream's utility. Raises: EngineInputError."""
    evaluator: Evaluator = part(stream.engine, "evaluator")(stream)
    return evaluator

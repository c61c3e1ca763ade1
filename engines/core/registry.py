"""The parts of every installed engine, each loaded when it is asked for.

A worker that has just been started again waits for its own engines only. Which engines there are is said by
`schemas.config.ENGINES`; nothing here, or elsewhere, lists them.
"""

from __future__ import annotations

import pkgutil
from typing import Any

from engines.core.accounting.accountant import Accountant
from engines.core.accounting.promise import check_promise
from engines.core.contract import Domain, Engine, Evaluator
from engines.core.surplus import CorrectedEngine
from schemas.config import ENGINES, Stream
from schemas.errors import BudgetError, PrivstreamError


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
    """What runs a configured stream, before its first step.

    Raises: EngineInputError; BudgetError if it would cost the configured unit more than is configured.
    """
    try:
        engine = uncorrected_engine(stream)
        if stream.surplus:
            assert stream.privacy.surplus is not None
            engine = CorrectedEngine(
                engine,
                epsilon=stream.event_epsilon,
                reach=stream.privacy.surplus,
                ttl_steps=stream.ttl_steps,
            )
        check_promise(stream, engine.guarantee(), Accountant.kept(engine.state()))
    except BudgetError as error:
        raise BudgetError(
            f'stream "{stream.name}": engine "{stream.engine}", mode "{stream.mode}" breaks the promise: {error}. '
            "Nothing was started. Fix: do not run it so, and report your [streams.privacy]."
        ) from error
    return engine


def uncorrected_engine(stream: Stream) -> Engine:
    """The engine itself, without the correction for what bounds drop. Raises: EngineInputError."""
    engine: Engine = part(stream.engine, "build")(stream)
    return engine


def build_evaluator(stream: Stream) -> Evaluator:
    """What measures a configured stream's utility. Raises: EngineInputError."""
    evaluator: Evaluator = part(stream.engine, "evaluator")(stream)
    return evaluator

"""The parts of every installed engine, each loaded when it is first used.

So a restarted worker loads only its own engines. `schemas.config.ENGINES` is the only list of engines.
"""

from __future__ import annotations

import pkgutil
from typing import Any

from engines.core.accounting.accountant import Accountant
from engines.core.accounting.promise import check_promise
from engines.core.contract import Domain, Engine, Evaluator
from schemas.config import ENGINES, Stream
from schemas.errors import BudgetError, PrivstreamError


def part(engine: str, name: str) -> Any:
    """Return a part of an engine that its `EngineSpec` names, such as "build".

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
    """Return the domain that encodes a stream's events. Raises: EngineInputError."""
    domain: Domain = part(stream.engine, "domain")(stream)
    return domain


def build_engine(stream: Stream) -> Engine:
    """Return the engine of a stream, before its first step.

    Raises: EngineInputError; BudgetError if a unit would pay more than the configured budget.
    """
    try:
        engine = uncorrected_engine(stream)
        if stream.surplus:
            from engines.core.surplus import CorrectedEngine  # here: an option that most streams do not set

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
    """Return the engine without the correction for the surplus. Raises: EngineInputError."""
    engine: Engine = part(stream.engine, "build")(stream)
    return engine


def build_evaluator(stream: Stream) -> Evaluator:
    """Return the evaluator of a stream's utility. Raises: EngineInputError."""
    evaluator: Evaluator = part(stream.engine, "evaluator")(stream)
    return evaluator

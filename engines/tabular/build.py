"""Engine `tabular`: from a stream to its domain, its engine and its evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from engines.core.contract import Engine, Evaluator
from engines.core.shares import GaussianShares
from engines.tabular.domain import Attribute, Category, Discovered, Impossible, Numeric, Scalar, TableDomain
from engines.tabular.growing.config import GrowingConfig, finding_of, noise_delta
from engines.tabular.growing.engine import GrowingBlocks
from engines.tabular.growing.finding import FindingRule
from engines.tabular.marginals import Workload, every_marginal, weighted_marginals
from schemas.config import Stream
from schemas.config.engines.tabular import AttributeSection, TableDomainSection, TabularOptions
from schemas.errors import EngineInputError


def domain(stream: Stream) -> TableDomain:
    """Raises: EngineInputError if attributes or structural zeros do not fit together."""
    section = TableDomainSection.from_stream(stream)
    attributes = tuple(_kind(each).model_validate(dict(each)) for each in section.all_attributes)
    places = {attribute.name: index for index, attribute in enumerate(attributes)}
    zeros = []
    for pair in section.impossible:
        sides = [(places[pair.left], pair.left_values), (places[pair.right], pair.right_values)]
        (left, left_values), (right, right_values) = sorted(sides, key=lambda side: side[0])
        left_codes, right_codes = _codes(attributes[left], left_values), _codes(attributes[right], right_values)
        zeros.append(Impossible(left=left, left_codes=left_codes, right=right, right_codes=right_codes))
    return TableDomain(attributes, tuple(zeros))


def _kind(section: AttributeSection) -> type[Attribute]:
    if section.discovered:
        return Discovered
    return Numeric if section.values is None else Category


def _finding(stream: Stream, domain: TableDomain) -> FindingRule | None:
    if domain.discovered is None:
        return None
    delta = float(stream.privacy.delta)
    shares = GaussianShares(stream.engine_epsilon, noise_delta(delta), stream.changes)
    _, attribute = domain.discovered
    return finding_of(attribute, shares, delta, period=stream.period_steps, longest=stream.ttl_steps)


def _codes(attribute: Attribute, values: Sequence[Scalar]) -> tuple[int, ...]:
    codes, reasons = attribute.encode(values)
    if reasons.any():
        raise EngineInputError(f"a structural zero names a value that {attribute.name!r} lacks: list it, or remove it")
    return tuple(np.unique(codes).tolist())


def _workload(stream: Stream, domain: TableDomain) -> Workload:
    options = TabularOptions.from_stream(stream)
    if not options.marginals:
        return every_marginal(len(domain.names), options.ways)
    places = {name: index for index, name in enumerate(domain.names)}
    return weighted_marginals(
        {tuple(places[name] for name in marginal.of): Fraction(marginal.weight) for marginal in options.marginals}
    )


def build(stream: Stream) -> Engine:
    options, table = TabularOptions.from_stream(stream), domain(stream)
    shared: dict[str, Any] = {
        "name": stream.name,
        "domain": table,
        "workload": _workload(stream, table),
        "deletable": stream.domain.operation_field is not None,
        "ttl_steps": stream.ttl_steps,
        "max_cells": options.max_cells,
        "records": options.records,
        "weighted": stream.weighted,
        "churn": Fraction(options.churn),
    }
    if stream.mode == "default":
        changes = stream.changes if stream.privacy.delta else 1
        epsilon, delta = stream.engine_epsilon, stream.privacy.delta
        finding = _finding(stream, table)
        return GrowingBlocks(GrowingConfig(epsilon=epsilon, delta=delta, changes=changes, finding=finding, **shared))
    from engines.tabular.papers.config import RoundsConfig
    from engines.tabular.papers.paper_table import PaperTable

    return PaperTable(
        RoundsConfig(
            epsilon=stream.event_epsilon,
            rounds=options.rounds,
            counter=options.counter,
            horizon=options.horizon,
            fit=options.fit,
            model_cells=options.model_cells,
            **shared,
        )
    )


def evaluator(stream: Stream) -> Evaluator:
    from engines.tabular.evaluator import TableEvaluator  # here: a worker measures no utility

    table = domain(stream)
    return TableEvaluator(table, _workload(stream, table))

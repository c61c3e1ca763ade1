"""Engine `tabular`: from a stream to its domain, its engine and its evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from engines.core.contract import Engine
from engines.tabular.attributes import Attribute, Category, Numeric, Scalar
from engines.tabular.domain import Impossible, TableDomain
from engines.tabular.evaluator import TableEvaluator
from engines.tabular.growing.config import GrowingConfig
from engines.tabular.growing.engine import GrowingBlocks
from engines.tabular.workload import Workload
from schemas.config import Stream
from schemas.config.domain.table import AttributeSection, TableDomainSection
from schemas.config.options.tabular import TabularOptions
from schemas.errors import EngineInputError


def _attribute(section: AttributeSection) -> Attribute:
    if section.values is not None:
        other = section.unknown == "other"
        return Category(
            name=section.field,
            values=section.values,
            missing=section.missing,
            unknown="other" if other else "refuse",
            other_value=section.other,
        )
    assert section.edges is not None
    return Numeric(
        name=section.field,
        edges=section.edges,
        integer=section.integer,
        points=section.points,
        missing=section.missing,
        unknown=section.unknown,
        other_value=section.other,
    )


def domain(stream: Stream) -> TableDomain:
    """Raises: EngineInputError if attributes or structural zeros do not fit together."""
    section = stream.domain
    assert isinstance(section, TableDomainSection)
    attributes = tuple(_attribute(attribute) for attribute in section.all_attributes)
    places = {attribute.name: index for index, attribute in enumerate(attributes)}
    zeros = []
    for pair in section.impossible:
        sides = [(places[pair.left], pair.left_values), (places[pair.right], pair.right_values)]
        (left, left_values), (right, right_values) = sorted(sides, key=lambda side: side[0])
        zeros.append(
            Impossible(
                left=left,
                left_codes=_codes(attributes[left], left_values),
                right=right,
                right_codes=_codes(attributes[right], right_values),
            )
        )
    return TableDomain(attributes, tuple(zeros))


def _codes(attribute: Attribute, values: Sequence[Scalar]) -> tuple[int, ...]:
    codes, reasons = attribute.encode(values)
    if reasons.any():
        raise EngineInputError(f"a structural zero names a value that {attribute.name!r} lacks: list it, or remove it")
    return tuple(np.unique(codes).tolist())


def _workload(stream: Stream, domain: TableDomain) -> Workload:
    options = TabularOptions.of(stream)
    if not options.marginals:
        return Workload.all(len(domain.names), options.ways)
    places = {name: index for index, name in enumerate(domain.names)}
    return Workload.of(
        len(domain.names),
        {tuple(places[name] for name in marginal.of): Fraction(marginal.weight) for marginal in options.marginals},
    )


def build(stream: Stream) -> Engine:
    if stream.mode != "default":
        return _of_paper(stream)
    options, table = TabularOptions.of(stream), domain(stream)
    return GrowingBlocks(
        GrowingConfig(
            name=stream.name,
            domain=table,
            epsilon=stream.engine_epsilon,
            delta=stream.privacy.delta,
            changes=stream.changes if stream.privacy.delta else 1,
            workload=_workload(stream, table),
            deletable=stream.domain.operation_field is not None,
            ttl_steps=stream.ttl_steps,
            max_cells=options.max_cells,
            records=options.records,
            churn=options.churn_fraction,
        )
    )


def _of_paper(stream: Stream) -> Engine:
    from engines.tabular.papers.config import RoundsConfig
    from engines.tabular.papers.paper_table import PaperTable

    options, table = TabularOptions.of(stream), domain(stream)
    return PaperTable(
        RoundsConfig(
            name=stream.name,
            domain=table,
            epsilon=stream.event_epsilon,
            workload=_workload(stream, table),
            rounds=options.rounds,
            counter=options.counter,
            horizon=options.horizon,
            fit=options.fit,
            model_cells=options.model_cells,
            deletable=stream.domain.operation_field is not None,
            ttl_steps=stream.ttl_steps,
            max_cells=options.max_cells,
            records=options.records,
            churn=options.churn_fraction,
        )
    )


def evaluator(stream: Stream) -> TableEvaluator:
    table = domain(stream)
    return TableEvaluator(table, _workload(stream, table))

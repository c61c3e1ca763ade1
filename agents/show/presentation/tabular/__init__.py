"""How engine `tabular` is shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from agents.show.pictures.contract import Picture
from agents.show.pictures.table import AttributeCells, TablePicture
from agents.show.presentation.contract import Presentation
from agents.show.presentation.error import Answer, ErrorModel
from agents.show.presentation.laws import noise_facts
from agents.show.presentation.tabular.metrics import TERMS, metrics
from agents.show.presentation.tabular.report import judged, sections
from engines.core.registry import build_domain, uncorrected_engine
from engines.tabular.domain import TableDomain
from engines.tabular.growing.engine import GrowingBlocks
from engines.tabular.growing.measure import variances
from schemas.config import Stream
from schemas.config.domain.table import TableDomainSection
from schemas.config.options.tabular import TabularOptions
from schemas.guarantee import Guarantee

_SHOWN = 8


def _table(stream: Stream) -> TableDomain:
    domain = build_domain(stream)
    assert isinstance(domain, TableDomain)
    return domain


def _domain(stream: Stream) -> str:
    domain = _table(stream)
    listed = [f"{name} ({size})" for name, size in zip(domain.names, domain.sizes, strict=True)]
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    zeros = " Some combinations of values cannot be." if domain.impossible else ""
    return (
        f"rows of {len(listed)} attributes, with their numbers of values: {', '.join(listed[:_SHOWN])}{more}, "
        f"by declaration and not from the data.{zeros}"
    )


def _error_model(stream: Stream, guarantee: Guarantee) -> ErrorModel:
    engine = uncorrected_engine(stream)
    if isinstance(engine, GrowingBlocks):
        return _of_blocks(engine)
    counts = [mechanism for mechanism in guarantee if mechanism.name.startswith("counts")]
    deviation = noise_facts(counts[0]).deviation

    def answer(name: str, size: int, what: str) -> Answer:
        return Answer.of(name, size, what, lambda t: math.sqrt(size * t) * deviation)

    return ErrorModel(
        (
            answer("one cell", 1, "of a marginal that is chosen in every step"),
            answer("ten cells", 10, "their sum, in one such marginal"),
        ),
        sizes="cells",
        growth="The error grows with the square root of the number of steps that measured the marginal",
        formula="sd(L, t) = sqrt(L · t · V),  V = variance of the noise in one cell",
        conditions="It is the noise alone, of a marginal that is chosen in each of t releases. Marginals that are not "
        "chosen are what the model says, whose error depends on the data. privstream simulate measures the error as a "
        "whole on your own data.",
    )


def _of_blocks(engine: GrowingBlocks) -> ErrorModel:
    parts = engine.config.parts
    answers = []
    counter = parts.totals_counter
    answers.append(
        Answer.of("all rows", 1, "the number of rows that were inserted", lambda t: math.sqrt(counter.variance(t)))
    )
    lines = [("one-way", parts.ones, parts.ones_share, np.sqrt(np.array(parts.ones.sizes, np.float64)))]
    if len(parts.larger):
        lengths = parts.larger.lengths.astype(np.float64)
        lines.append(("larger", parts.larger, parts.larger_share, parts.weights * lengths**-0.2))
    for name, layout, share, costs in lines:
        if len(layout):
            deviation = math.sqrt(float(variances(parts.laws(share, parts.recipe.best(costs))).max()))
            answers.append(Answer.of(f"{name} cell", 1, f"one cell of a {name} marginal", _blocks(deviation)))
    return ErrorModel(
        tuple(answers),
        sizes="draws of noise",
        growth="A cell's error grows with the root of the number of blocks, about the logarithm of the rows where rows "
        "only come",
        formula="sd(blocks) = sqrt(blocks · V),  V = variance of the noise in one cell of the noisiest marginal",
        conditions="t releases are taken for 1 + log2(t) blocks, in which all marginals have their share; early, and "
        "where a larger marginal is not worth its noise, it has a part of that, and more noise. It is the noise alone, "
        "before the fit, which makes it several times smaller by what marginals say of each other; what an open block "
        "holds is not known yet, a further error. privstream simulate measures the error as a whole on your own data.",
    )


def _blocks(deviation: float) -> Callable[[int], float]:
    return lambda releases: deviation * math.sqrt(1 + math.log2(releases))


def _remarks(stream: Stream) -> Iterator[str]:
    if stream.mode == "default":
        yield (
            "Rows are private while a block is open. A block closes when enough events have come, by the noisy totals; "
            "its counts are then published with noise, once, and forgotten."
        )
    if TabularOptions.of(stream).records:
        yield (
            "Synthetic rows are made from what was published and cost nothing. Each is an invention: none stands for a "
            "person."
        )


def _picture(stream: Stream) -> Picture:
    domain = stream.domain
    assert isinstance(domain, TableDomainSection)
    return TablePicture(
        [AttributeCells(each.field, values=each.values or (), edges=each.edges or ()) for each in domain.all_attributes]
    )


PRESENTATION = Presentation(
    domain=_domain,
    error_model=_error_model,
    sections=sections,
    metrics=metrics,
    judged=judged,
    events=lambda stream: "rows",
    records=lambda stream: "synthetic rows",
    terms=TERMS,
    error_unit="%",
    remarks=_remarks,
    picture=_picture,
)

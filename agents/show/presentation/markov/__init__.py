"""How engine `markov` is shown."""

from __future__ import annotations

import math
from collections.abc import Iterator

from agents.show.pictures.contract import Picture
from agents.show.pictures.states import StatePicture
from agents.show.presentation.contract import Presentation
from agents.show.presentation.error import NORMAL_95, Answer, ErrorModel
from agents.show.presentation.laws import noise_facts
from agents.show.presentation.markov.leakage import leakage_lines
from agents.show.presentation.markov.report import TERMS, built, judged, metrics, sections
from engines.markov.engine import UNSEEN
from schemas.config import Stream
from schemas.config.domain.states import StatesDomainSection
from schemas.guarantee import Guarantee


def _section(stream: Stream) -> StatesDomainSection:
    section = stream.domain
    assert isinstance(section, StatesDomainSection)
    return section


def _domain(stream: Stream) -> str:
    section = _section(stream)
    chain = "learnt from released counts" if section.transition is None else f"declared in {section.transition.path}"
    unseen = ", or in none" if section.unseen else ""
    return (
        f"each of {section.population:,} users is in one of {len(section.values):,} states of {section.field}{unseen}, "
        f"by declaration and not from the data; how they move is {chain}."
    )


def _error_model(stream: Stream, guarantee: Guarantee) -> ErrorModel:
    noise = noise_facts(next(iter(guarantee)))
    states = len(_section(stream).values)

    def answer(name: str, size: int, what: str) -> Answer:
        deviation = math.sqrt(size) * noise.deviation
        interval = noise.interval if size == 1 else NORMAL_95 * deviation
        return Answer.of(name, size, what, lambda t: deviation, lambda t: interval)

    answers = [answer("one state", 1, "the count of one state in one step")]
    if states > 3:
        answers.append(answer("half of the states", states // 2, "the sum over so many states"))
    conditions = (
        "Every step has noise of its own, in every state, and this is that noise alone, as measurements have it. "
        "Released counts add up to the population, and use that users move as the chain says; their error is smaller "
        "where the chain is strong, and each released record holds its own standard error and 90 % interval."
    )
    return ErrorModel(
        tuple(answers),
        sizes="states",
        growth="The error does not grow: every step is counted anew, which is why a horizon or a period must end it",
        formula="sd(L) = sqrt(L · V),  V = variance of discrete Laplace noise of scale 2/ε_step",
        conditions=conditions,
    )


def _remarks(stream: Stream) -> Iterator[str]:
    yield (
        "What the estimates make of the noisy counts costs nothing. They rest on the declared population of "
        f"{_section(stream).population:,}; privacy does not: the noise hides any one user's records whoever else sends."
    )
    yield from leakage_lines(built(stream))


def _picture(stream: Stream) -> Picture:
    domain = _section(stream)
    return StatePicture(domain.field, domain.values, unseen=UNSEEN)


PRESENTATION = Presentation(
    domain=_domain,
    error_model=_error_model,
    sections=sections,
    metrics=metrics,
    judged=judged,
    events=lambda stream: "records of users",
    records=lambda stream: "released counts",
    terms=TERMS,
    error_unit="users",
    remarks=_remarks,
    picture=_picture,
)

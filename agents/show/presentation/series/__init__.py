"""How engine `series` is shown."""

from __future__ import annotations

from collections.abc import Iterator

from agents.show.pictures.contract import Picture
from agents.show.pictures.series import SeriesPicture
from agents.show.presentation.contract import Presentation
from agents.show.presentation.error import Answer, ErrorModel
from agents.show.presentation.laws import noise_facts
from agents.show.presentation.series.report import judged, metrics, sections
from engines.core.accounting import gaussian
from engines.series.build import config
from engines.series.config import SeriesConfig
from schemas.config import Stream
from schemas.config.domain.series import SeriesDomainSection
from schemas.guarantee import Guarantee


def _domain(stream: Stream) -> str:
    parts = []
    for field in config(stream).domain.fields:
        of = {"sum": f"the sum of {field.name}", "count": "the number of events", "value": f"the reading {field.name}"}
        text = f"{of[field.of]} in each step"
        if field.limits is not None:
            text += f", values clipped to [{field.limits[0]:g}, {field.limits[1]:g}]"
        if field.sensitivity is not None:
            text += f", of which one user moves {field.sensitivity:g} at most"
        parts.append(f"{text}, on a lattice of {field.unit:g}")
    return "; ".join(parts) + "; by declaration and not from the data."


def error_model(stream: Stream, guarantee: Guarantee) -> ErrorModel:
    """The noise of one step's measurement; filters make less of it, by how much depends on the series."""
    recipe = config(stream)
    answers = []
    for field, mechanism in zip(recipe.domain.fields, guarantee, strict=True):
        deviation = noise_facts(mechanism).deviation
        answers.append(
            Answer.of(f"{field.name}, one step", 1, "noise of one measurement", lambda t, d=deviation: d)  # type: ignore[misc]
        )
    return ErrorModel(
        tuple(answers),
        sizes="draws",
        growth="The error of a step does not grow with the number of releases within a span",
        formula="sd of the noise of one step's measurement at an even share of the budget",
        conditions="It is the noise alone. Every mode filters it: where a series moves little against the noise, the "
        "released value is much closer; each release carries its own standard error. Where the noise is far below what "
        "the series moves by, no filter helps. Events beyond the bounds, and what clipping takes away, are not in it. "
        "privstream simulate measures the error on your own data.",
        unit="units of the field",
    )


def remarks(stream: Stream) -> Iterator[str]:
    """The accounting, the paper's beside it; what the length of the stream costs."""
    recipe = config(stream)
    if recipe.mode == "paper-binomial":
        yield (
            "Binomial noise is accounted by lemma A.2 and theorem A.3 of the paper (Zhang, Khalili, Liu 2022), which "
            "need several times the standard deviation of Gaussian noise for the same promise."
        )
    else:
        yield from _accounting(recipe)
    yield (
        f"delta = {recipe.delta:g} must be far below one in your users: among N of them, N times delta may be "
        "unprotected."
    )
    yield from _length(recipe)


def _accounting(recipe: SeriesConfig) -> Iterator[str]:
    exact = gaussian.sigma_for(epsilon=recipe.epsilon, delta=recipe.delta)
    paper = gaussian.corollary_5_2(epsilon=recipe.epsilon, delta=recipe.delta)
    yield (
        f"Exact Gaussian accounting: sigma = {exact:.4g} for each unit of total L2 shift. Corollary 5.2 of the paper "
        f"(Zhang, Khalili, Liu 2022) asks for {paper:.4g}, {(paper / exact) ** 2:.2f} times the variance, for the same "
        "promise."
    )


def _length(recipe: SeriesConfig) -> Iterator[str]:
    presence = recipe.presence
    if recipe.horizon is not None:
        yield (
            f"After {recipe.horizon:,} steps the stream goes on with empty releases that say so. A new stream over the "
            "same users adds its epsilon to this one's."
        )
    if presence.renews:
        yield f"The budget renews every {presence.steps:,} steps; what was learnt of the series is kept."
    if presence.most_steps is None:
        yield (
            "One user may be in every step for ever, so weights decay: the noise grows without end. Against a stream "
            "that knows its horizon the mean squared error is 1.07 (a lucky guess of decay) to 10 times as large; "
            "bounds that renew (per) are the better offer."
        )
    elif presence.everywhere and presence.steps is not None and recipe.mode == "default":
        share = 1 / presence.steps
        yield (
            f"One user may be in all {presence.steps:,} steps, so that an even step gets {share:.2g} of mu squared: "
            "twice the horizon is twice the variance."
        )
    elif presence.steps is None or presence.most_steps < presence.steps:
        told = f"One user is in at most {presence.most_steps:,} steps. "
        told += "The noise does not depend on the length of the stream."
        yield f"{told} A lower max_per_step makes it smaller." if presence.per_step > 1 else told


def _events(stream: Stream) -> str:
    return "readings" if config(stream).domain.readings else "events"


def _picture(stream: Stream) -> Picture:
    domain = stream.domain
    assert isinstance(domain, SeriesDomainSection)
    return SeriesPicture([field.name for field in domain.series])


PRESENTATION = Presentation(
    domain=_domain,
    error_model=error_model,
    sections=sections,
    metrics=metrics,
    judged=judged,
    events=_events,
    records=lambda stream: "released values",
    remarks=remarks,
    picture=_picture,
)

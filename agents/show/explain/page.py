"""An explanation as one self-contained page: no script, nothing loaded, readable on a phone, in light and dark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agents.show.explain.parts import (
    Budget,
    Explanation,
    Share,
    StreamExplanation,
    decimal,
    exact,
)
from agents.show.explain.plot import error_plot
from agents.show.explain.text import noise_words
from agents.show.explain.words import spent
from agents.show.pages.templates import render
from agents.show.presentation.error import RELEASES, ErrorModel, rounded
from schemas.guarantee import chance, surest


def render_page(explanation: Explanation) -> str:
    """The page, as text of a file of its own."""
    return render(
        "explain.html",
        filters={"exact": exact, "spent": spent},
        explanation=explanation,
        releases=RELEASES,
        plot=error_plot,
        tiles_of=_tiles,
        facts_of=_facts,
        errors_head=lambda model: ["answer", model.sizes, *(f"{t:,}" for t in RELEASES)],
        errors_rows=_errors,
        notches_head=_notches_head,
        notches_rows=_notches,
        marked=lambda stream: [index for index, notch in enumerate(stream.notches) if notch.factor == 1],
    )


def _tiles(stream: StreamExplanation) -> Sequence[tuple[str, str]]:
    budget = stream.budget
    middle = stream.errors.answers[len(stream.errors.answers) // 2]
    return (
        (decimal(float(budget.unit_epsilon)), "epsilon of the unit"),
        (decimal(float(budget.event_epsilon)), f"epsilon of one {budget.contribution}"),
        (chance(surest(float(budget.unit_epsilon))), "sure at most, from an even chance"),
        (f"±{rounded(middle.first)}", f"error of a {middle.name}, one release"),
    )


def _facts(share: Share, budget: Budget) -> Iterator[tuple[str, str]]:
    mechanism = share.mechanism
    yield "share", spent(share.part)
    if mechanism.uses != 1:
        yield "uses", f"{mechanism.uses}, of {exact(mechanism.epsilon)} each"
    yield f"epsilon of one {budget.contribution}", exact(share.event_epsilon)
    yield "epsilon of the unit", exact(share.unit_epsilon)
    yield (
        "L1 sensitivity",
        f"{mechanism.l1_sensitivity} by one {budget.contribution}, "
        f"{mechanism.l1_sensitivity * budget.contributions} by the unit",
    )
    yield "noise", noise_words(share, budget.contribution)


def _errors(model: ErrorModel) -> Iterator[Sequence[str]]:
    for answer in model.answers:
        yield [answer.name, f"{answer.size:,}", *(f"±{rounded(interval)}" for interval in answer.intervals)]


def _notches_head(stream: StreamExplanation) -> Sequence[str]:
    return ["epsilon", stream.budget.one, "from even to", *(answer.name for answer in stream.errors.answers)]


def _notches(stream: StreamExplanation) -> Iterator[Sequence[str]]:
    for notch in stream.notches:
        yield [
            decimal(float(notch.epsilon)),
            decimal(float(notch.budget.event_epsilon)),
            chance(surest(float(notch.epsilon))),
            *(f"±{rounded(answer.first)}" for answer in notch.errors.answers),
        ]

"""An explanation as plain text, and as a page."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from agents.show.charts import AMBER, BLUE, RED, SYNTHETIC, Curve, LineChart, Panel, draw
from agents.show.explain.parts import (
    PARTS,
    SPLIT_HEADS,
    Budget,
    Explanation,
    Point,
    Share,
    StreamExplanation,
    decimal,
    exact,
)
from agents.show.explain.words import spent
from agents.show.noise import RELEASES, ErrorModel, rounded
from agents.show.report import render_template
from agents.show.text import WIDTH, table, wrapped
from schemas.guarantee import format_percent, max_posterior

VIOLET = "#8a6fb0"
LEAST = 0.01
"""Errors below this are drawn here."""


def render_text(explanation: Explanation) -> str:
    """Return an explanation as plain text for a terminal, one stream below the other."""
    blocks = ["\n".join(_stream(stream)) for stream in explanation.streams]
    if explanation.shared:
        lines = [_head("STREAMS THAT ADD UP")]
        for shared in explanation.shared:
            lines += wrapped(shared.sentence)
            for told, rows in shared.tables():
                lines += ["", *wrapped(told), *textwrap.indent(table(PARTS, rows), "  ").splitlines()]
        blocks.append("\n".join(lines))
    return "\n\n\n".join(blocks)


def _stream(stream: StreamExplanation) -> Iterator[str]:
    yield f"{stream.name}: {stream.source}, engine {stream.engine} ({stream.mode})"
    yield "=" * WIDTH
    if stream.split is not None:
        yield from textwrap.indent(table(SPLIT_HEADS, stream.split.rows()), "  ").splitlines()
        if (crowded := stream.split.crowded()) is not None:
            yield from wrapped(crowded)
    for alert in stream.alerts:
        yield from wrapped(alert, first="!! ", rest="   ")
    yield _head("THE GUARANTEE")
    for line in stream.plain:
        yield from wrapped(line)
    yield ""
    yield from wrapped(f"unit of privacy:  {stream.unit}", rest=" " * 20)
    yield from wrapped(f"neighbouring:     {stream.neighbouring}", rest=" " * 20)
    yield _head("IN SYMBOLS")
    for line in stream.symbols:
        yield from wrapped(line, rest="    ")
    yield _head("WHERE THE BUDGET GOES")
    yield from _budget(stream.budget)
    yield _head(f"EXPECTED ERROR, in {stream.errors.unit}: 95 % of errors are within plus or minus")
    yield from _errors(stream)
    yield _head("ONE NOTCH MORE OR LESS: the same stream with another epsilon, after one release")
    yield from _notches(stream)
    yield _head("PUBLIC BY ASSUMPTION")
    yield from _points(stream.public)
    yield _head("NOT PROTECTED")
    yield from _points(stream.unprotected)


def _budget(budget: Budget) -> Iterator[str]:
    yield f"epsilon of the unit     {exact(budget.unit_epsilon)}" + (
        f", delta {budget.delta:g}" if budget.delta else ""
    )
    if budget.split:
        yield from wrapped(f"of delta              {budget.split}", rest=" " * 24)
    if budget.mu_squared is None:
        yield f"  / {budget.contributions} contributions     each {budget.contribution} {exact(budget.event_epsilon)}"
    for share in budget.shares:
        yield ""
        yield from wrapped(share.mechanism.name, rest="    ")
        for name, told in _facts(share, budget):
            yield from wrapped(f"{name}: {told}", first="      ", rest="        ")
    yield ""
    yield from wrapped(f"sum: {budget.sum}", first="  ", rest="  ")


def _moved(share: Share, budget: Budget) -> str:
    """Return how far the quantity of a mechanism moves; mu^2 says of Gaussian noise what all of the unit does."""
    one = share.mechanism.l1_sensitivity
    by_one = f"{one} by one {budget.contribution}"
    return by_one if share.mechanism.mu_squared is not None else f"{by_one}, {one * budget.contributions} by the unit"


def noise_words(share: Share, contribution: str) -> str:
    """Return the noise of a mechanism in one line: law, scale, standard deviation, interval, and what it is for."""
    noise = share.noise
    what = "added to each of its counts" if noise.added else "blurs each decision, is in no count"
    return (
        f"{share.mechanism.distribution} noise, scale {exact(share.mechanism.scale)} {contribution}s: standard "
        f"deviation {decimal(noise.deviation)}, 95 % within ±{decimal(noise.interval)}; {what}"
    )


def _errors(stream: StreamExplanation) -> Iterator[str]:
    model = stream.errors
    head = ["answer", model.sizes, "1 release", *(f"{t:,}" for t in RELEASES[1:])]
    yield from textwrap.indent(table(head, [*_error_rows(model)]), "  ").splitlines()
    yield from wrapped("; ".join(f"{answer.name}: {answer.what}" for answer in model.answers if answer.what))
    yield from wrapped(model.formula)
    times = ", ".join(f"{t:,} take {stream.duration(t)}" for t in RELEASES[1:])
    yield from wrapped(f"{model.growth}: {times}.")
    yield from wrapped(model.conditions)


def _notches(stream: StreamExplanation) -> Iterator[str]:
    told = [
        [f"{epsilon}*" if notch.factor == 1 else epsilon, one, sure.removesuffix(" %").replace("over ", ">"), *errors]
        for notch, (epsilon, one, sure, *errors) in zip(stream.notches, _notch_rows(stream), strict=True)
    ]
    # A column for each epsilon: the names of the answers are too long for one.
    head, *rows = zip(_notches_head(stream), *told, strict=True)
    yield from textwrap.indent(table(head, rows), "  ").splitlines()
    yield from wrapped(
        '"*" marks the configured epsilon. "From even to": how sure, in percent, somebody who thought it an even '
        "chance that a unit is in the data can become. Twice the epsilon halves the noise, nearly; the odds are "
        "squared."
    )


def _points(points: Sequence[Point]) -> Iterator[str]:
    for point in points:
        yield from wrapped(f"{point.title}: {point.text}", first="  !! " if point.loud else "  -  ", rest="     ")


def _head(title: str) -> str:
    return f"\n{title}"


def render_page(explanation: Explanation) -> str:
    """Return an explanation as one self-contained page: no script, nothing loaded, readable on a phone."""
    return render_template(
        "explain.html",
        filters={"exact": exact, "spent": spent},
        explanation=explanation,
        releases=RELEASES,
        parts=PARTS,
        split_heads=SPLIT_HEADS,
        plot=_plot,
        tiles_of=_tiles,
        facts_of=_facts,
        errors_head=lambda model: ["answer", model.sizes, *(f"{t:,}" for t in RELEASES)],
        errors_rows=_error_rows,
        notches_head=_notches_head,
        notches_rows=_notch_rows,
        marked=lambda stream: [index for index, notch in enumerate(stream.notches) if notch.factor == 1],
    )


def _tiles(stream: StreamExplanation) -> Sequence[tuple[str, str]]:
    budget = stream.budget
    middle = stream.errors.answers[len(stream.errors.answers) // 2]
    of_one = "epsilon of the unit" if stream.split is None else "epsilon of the unit, in one part"
    together = () if stream.split is None else ((decimal(stream.split.price.stated[0]), "epsilon over all parts"),)
    return (
        *together,
        (decimal(float(budget.unit_epsilon)), of_one),
        (decimal(float(budget.event_epsilon)), f"epsilon of one {budget.contribution}"),
        (format_percent(max_posterior(float(budget.unit_epsilon))), "sure at most, from an even chance"),
        (f"±{rounded(middle.first)}", f"error of a {middle.name}, one release"),
    )


def _facts(share: Share, budget: Budget) -> Iterator[tuple[str, str]]:
    mechanism = share.mechanism
    yield "share", spent(share.part)
    if mechanism.uses != 1:
        yield "uses", f"{mechanism.uses}, of {exact(mechanism.epsilon)} each"
    if mechanism.mu_squared is None:
        yield f"epsilon of one {budget.contribution}", exact(share.event_epsilon)
        yield "epsilon of the unit", exact(share.unit_epsilon)
    else:
        yield "mu^2 of the unit", decimal(float(mechanism.mu_squared))
    yield "L1 sensitivity", _moved(share, budget)
    yield "noise", noise_words(share, budget.contribution)


def _error_rows(model: ErrorModel) -> Iterator[Sequence[str]]:
    for answer in model.answers:
        yield [answer.name, f"{answer.size:,}", *(f"±{rounded(interval)}" for interval in answer.intervals)]


def _notches_head(stream: StreamExplanation) -> Sequence[str]:
    return ["epsilon", stream.budget.one, "from even to", *(answer.name for answer in stream.errors.answers)]


def _notch_rows(stream: StreamExplanation) -> Iterator[Sequence[str]]:
    for notch in stream.notches:
        yield [
            decimal(notch.epsilon),
            decimal(float(notch.budget.event_epsilon)),
            format_percent(max_posterior(notch.epsilon)),
            *(f"±{rounded(answer.first)}" for answer in notch.errors.answers),
        ]


def _plot(stream: StreamExplanation) -> str:
    """Draw 95 % of the errors after one release against epsilon, a line for each kind of answer."""
    notches, answers = stream.notches, stream.errors.answers
    if len(notches) < 2:
        return ""
    colours = (VIOLET, BLUE, SYNTHETIC, AMBER, RED)
    configured = next(notch for notch in notches if notch.factor == 1)
    lines = {
        answer.name: Curve([max(notch.errors.answers[index].first, LEAST) for notch in notches], colours[index % 5])
        for index, answer in enumerate(answers)
    }
    said = "; ".join(
        f"{answer.name} ±{rounded(answer.first)} at the configured epsilon" for answer in configured.errors.answers
    )
    return draw(
        LineChart(
            x=[notch.epsilon for notch in notches],
            labels=[f"{notch.epsilon:.3g}" for notch in notches],
            panels=[Panel(lines=lines, log=True)],
            what="epsilon",
            mark=configured.epsilon,
            alt=f"Lines of the error against epsilon: {said}",
        )
    )

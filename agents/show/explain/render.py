"""An explanation as plain text, and as a page."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

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
from agents.show.noise import RELEASES, rounded
from agents.show.report import render_template
from agents.show.text import WIDTH, table, wrapped
from schemas.guarantee import format_percent, max_posterior

VIOLET = "#8a6fb0"
LEAST = 0.01
"""Errors below this are drawn here."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Pairs of a name and what it stands for. Attributes: title: a heading. colour: its number on the page."""

    facts: Sequence[tuple[str, str]]
    title: str = ""
    colour: int = 0
    kind: ClassVar[str] = "facts"


@dataclass(frozen=True, slots=True)
class Formula:
    text: str
    kind: ClassVar[str] = "formula"


@dataclass(frozen=True, slots=True)
class TextTable:
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    kind: ClassVar[str] = "rows"


@dataclass(frozen=True, slots=True)
class Drawing:
    """What a page shows and a terminal cannot."""

    of: Literal["shares", "notches"]
    kind: ClassVar[str] = "drawing"


Block = str | Facts | Formula | TextTable | Point | Drawing


def sections(stream: StreamExplanation) -> Iterator[tuple[str, Sequence[Block]]]:
    """Yield the headings of an explanation and what stands below each, for a terminal and a page alike."""
    unit = Facts([("unit of privacy", stream.unit), ("neighbouring", stream.neighbouring)])
    yield "The guarantee", [*stream.plain, unit]
    yield "In symbols", [*map(Formula, stream.symbols)]
    yield "Where the budget goes", [*_budget(stream.budget)]
    yield "The error to expect", [*_errors(stream)]
    yield "One notch more or less", [*_notches(stream)]
    yield "Public by assumption", stream.public
    yield "Not protected", stream.unprotected


def _budget(budget: Budget) -> Iterator[Block]:
    whole = [("epsilon of the unit", exact(budget.unit_epsilon))]
    if budget.delta:
        whole.append(("delta", f"{budget.delta:g}" + (f": {budget.split}" if budget.split else "")))
    if budget.mu_squared is None:
        each = f"each {budget.contribution} {exact(budget.event_epsilon)}"
        whole.append(("contributions", f"{budget.contributions}, {each}"))
    yield Facts(whole)
    yield Drawing("shares")
    for colour, share in enumerate(budget.shares):
        yield Facts([*_facts(share, budget)], share.mechanism.name, colour)
    yield Formula(budget.sum)


def _errors(stream: StreamExplanation) -> Iterator[Block]:
    model = stream.errors
    yield f"In {model.unit}: 95 % of errors are within plus or minus this."
    rows = [
        [answer.name, f"{answer.size:,}", *(f"±{rounded(interval)}" for interval in answer.intervals)]
        for answer in model.answers
    ]
    yield TextTable(["answer", model.sizes, "1 release", *(f"{t:,}" for t in RELEASES[1:])], rows)
    yield "; ".join(f"{answer.name}: {answer.what}" for answer in model.answers if answer.what)
    yield Formula(model.formula)
    times = ", ".join(f"{t:,} take {stream.duration(t)}" for t in RELEASES[1:])
    yield f"{model.growth}: {times}."
    yield model.conditions


def _notches(stream: StreamExplanation) -> Iterator[Block]:
    yield "The same stream with another epsilon, after one release."
    yield Drawing("notches")
    told = [
        [
            decimal(notch.epsilon) + ("*" if notch.factor == 1 else ""),
            decimal(float(notch.budget.event_epsilon)),
            format_percent(max_posterior(notch.epsilon)).removesuffix(" %").replace("over ", ">"),
            *(f"±{rounded(answer.first)}" for answer in notch.errors.answers),
        ]
        for notch in stream.notches
    ]
    names = ["epsilon", stream.budget.one, "from even to", *(answer.name for answer in stream.errors.answers)]
    # A column for each epsilon: the names of the answers are too long for one.
    head, *rows = zip(names, *told, strict=True)
    yield TextTable(head, rows)
    yield (
        '"*" marks the configured epsilon. "From even to": how sure, in percent, somebody who thought it an even '
        "chance that a unit is in the data can become. Twice the epsilon halves the noise, nearly; the odds are "
        "squared."
    )


def render_text(explanation: Explanation) -> str:
    """Return an explanation as plain text for a terminal, one stream below the other."""
    texts = ["\n".join(_stream(stream)) for stream in explanation.streams]
    if explanation.shared:
        lines = ["\nSTREAMS THAT ADD UP"]
        for shared in explanation.shared:
            lines += wrapped(shared.sentence)
            for told, rows in shared.tables():
                lines += ["", *wrapped(told), *_lines(TextTable(PARTS, rows))]
        texts.append("\n".join(lines))
    return "\n\n\n".join(texts)


def _stream(stream: StreamExplanation) -> Iterator[str]:
    yield f"{stream.name}: {stream.source}, engine {stream.engine} ({stream.mode})"
    yield "=" * WIDTH
    if stream.split is not None:
        yield from _lines(TextTable(SPLIT_HEADS, stream.split.rows()))
        if (crowded := stream.split.crowded()) is not None:
            yield from wrapped(crowded)
    for alert in stream.alerts:
        yield from wrapped(alert, first="!! ", rest="   ")
    for heading, blocks in sections(stream):
        yield f"\n{heading.upper()}"
        for block in blocks:
            yield from _lines(block)


def _lines(block: Block) -> Iterator[str]:
    match block:
        case Facts(facts, title):
            yield from ["", *wrapped(title, first="    ")] if title else ()
            for name, told in facts:
                yield from wrapped(f"{name}: {told}", first="      " if title else "  ", rest=" " * 8)
        case Formula(text):
            yield from wrapped(text, rest="    ")
        case TextTable(head, rows):
            yield from textwrap.indent(table(head, rows), "  ").splitlines()
        case Point(title, text, loud):
            yield from wrapped(f"{title}: {text}", first="  !! " if loud else "  -  ", rest="     ")
        case str():
            yield from wrapped(block)


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


def render_page(explanation: Explanation) -> str:
    """Return an explanation as one self-contained page: no script, nothing loaded, readable on a phone."""
    return render_template(
        "explain.html",
        filters={"spent": spent},
        explanation=explanation,
        parts=PARTS,
        split_heads=SPLIT_HEADS,
        plot=_plot,
        tiles_of=_tiles,
        sections_of=sections,
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

"""An explanation as plain text, 100 columns wide."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from agents.show.explain.parts import (
    Budget,
    Explanation,
    Point,
    Share,
    StreamExplanation,
    decimal,
    exact,
)
from agents.show.explain.words import spent
from agents.show.pages.text import table
from agents.show.presentation.error import RELEASES, rounded
from schemas.guarantee import chance, surest

WIDTH = 100


def render_text(explanation: Explanation) -> str:
    """All streams, one below the other."""
    blocks = ["\n".join(_stream(stream)) for stream in explanation.streams]
    if explanation.shared:
        lines = [_head("STREAMS THAT ADD UP")]
        for shared in explanation.shared:
            lines += _wrapped(shared.sentence())
        blocks.append("\n".join(lines))
    return "\n\n\n".join(blocks)


def _stream(stream: StreamExplanation) -> Iterator[str]:
    yield f"{stream.name}: {stream.source}, engine {stream.engine} ({stream.mode})"
    yield "=" * WIDTH
    for alert in stream.alerts:
        yield from _wrapped(alert, first="!! ", rest="   ")
    yield _head("THE GUARANTEE")
    for line in stream.plain:
        yield from _wrapped(line)
    yield ""
    yield from _wrapped(f"unit of privacy:  {stream.unit}", rest=" " * 20)
    yield from _wrapped(f"neighbouring:     {stream.neighbouring}", rest=" " * 20)
    yield _head("IN SYMBOLS")
    for line in stream.symbols:
        yield from _wrapped(line, rest="    ")
    yield _head("WHERE THE BUDGET GOES")
    yield from _budget(stream.budget)
    yield _head(f"EXPECTED ERROR, in {stream.errors.unit}: 95 % of the errors are within plus or minus")
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
    if budget.mu_squared is None:
        yield f"  / {budget.contributions} contributions     each {budget.contribution} {exact(budget.event_epsilon)}"
    for share in budget.shares:
        mechanism = share.mechanism
        yield ""
        yield f"  {spent(share.part)} for the {mechanism.name}"
        uses = "" if mechanism.uses == 1 else f", {mechanism.uses} uses of {exact(mechanism.epsilon)}"
        one = f"of one {budget.contribution} {exact(share.event_epsilon)}"
        yield f"      {one}{uses}; of the unit {exact(share.unit_epsilon)}"
        yield (
            f"      L1 sensitivity: {mechanism.l1_sensitivity} by one {budget.contribution}, "
            f"{mechanism.l1_sensitivity * budget.contributions} by the unit"
        )
        yield from _wrapped(noise_words(share, budget.contribution), first="      ", rest="      ")
    yield ""
    yield from _wrapped(f"sum: {budget.sum}", first="  ", rest="  ")


def noise_words(share: Share, contribution: str) -> str:
    """The noise of a mechanism in one line: law, scale, standard deviation, interval, and what it is for."""
    noise = share.noise
    what = "added to each of its counts" if noise.added else "blurs each decision, is in no count"
    return (
        f"{share.mechanism.distribution} noise, scale {exact(share.mechanism.scale)} {contribution}s: standard "
        f"deviation {decimal(noise.deviation)}, 95 % within ±{decimal(noise.interval)}; {what}"
    )


def _errors(stream: StreamExplanation) -> Iterator[str]:
    model = stream.errors
    head = ["answer", model.sizes, *(f"{t:,} release{'s' if t > 1 else ''}" for t in RELEASES), ""]
    rows = [
        [
            answer.name,
            f"{answer.size:,}",
            *(f"±{rounded(interval)}" for interval in answer.intervals),
            answer.what,
        ]
        for answer in model.answers
    ]
    yield from textwrap.indent(table(head, rows), "  ").splitlines()
    yield from _wrapped(model.formula)
    times = ", ".join(f"{t:,} take {stream.duration(t)}" for t in RELEASES[1:])
    yield from _wrapped(f"{model.growth}: {times}.")
    yield from _wrapped(model.conditions)


def _notches(stream: StreamExplanation) -> Iterator[str]:
    head = ["epsilon", stream.budget.one, "from even to", *(answer.name for answer in stream.errors.answers), ""]
    rows = [
        [
            decimal(float(notch.epsilon)),
            decimal(float(notch.budget.event_epsilon)),
            chance(surest(float(notch.epsilon))),
            *(f"±{rounded(answer.first)}" for answer in notch.errors.answers),
            "<- configured" if notch.factor == 1 else "",
        ]
        for notch in stream.notches
    ]
    yield from textwrap.indent(table(head, rows), "  ").splitlines()
    yield from _wrapped(
        '"From even to": how sure somebody who thought it an even chance that a unit is in the data can become. Twice '
        "the epsilon "
        "halves the noise, nearly; the odds are squared."
    )


def _points(points: Sequence[Point]) -> Iterator[str]:
    for point in points:
        yield from _wrapped(f"{point.title}: {point.text}", first="  !! " if point.loud else "  -  ", rest="     ")


def _head(title: str) -> str:
    return f"\n{title}"


def _wrapped(text: str, *, first: str = "  ", rest: str = "  ") -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )

"""An explanation as one self-contained page: no script, nothing loaded, readable on a phone, in light and dark."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from agents.explain.parts import (
    Budget,
    Explanation,
    Point,
    Share,
    StreamExplanation,
    chance,
    decimal,
    exact,
    rounded,
    surest,
)
from agents.explain.plot import error_plot
from agents.explain.style import PAGE
from agents.explain.text import noise_words
from agents.explain.words import spent
from agents.presentation.error import RELEASES


def render_page(explanation: Explanation) -> str:
    """The page, as text of a file of its own."""
    body: list[str] = []
    if len(explanation.streams) > 1:
        links = "".join(f'<li><a href="#{_esc(s.name)}">{_esc(s.name)}</a></li>' for s in explanation.streams)
        body.append(f"<nav><ul>{links}</ul></nav>")
    if explanation.shared:
        sentences = "".join(f"<p>{_esc(shared.sentence())}</p>" for shared in explanation.shared)
        body.append(f'<section class="card"><h2>Streams that add up</h2>{sentences}</section>')
    for stream in explanation.streams:
        body += _stream(stream)
    names = ", ".join(stream.name for stream in explanation.streams)
    return PAGE.format(title=_esc(f"{names}: what is promised"), body="\n".join(body))


def _stream(stream: StreamExplanation) -> Iterator[str]:
    yield f'<article id="{_esc(stream.name)}"><header><h1>{_esc(stream.name)}</h1>'
    yield f"<p class=sub>{_esc(stream.source)} · engine {_esc(stream.engine)} ({_esc(stream.mode)}) · a release every "
    yield f"{_esc(stream.duration(1))}</p></header>"
    for alert in stream.alerts:
        yield f'<p class="alert" role="alert">{_esc(alert)}</p>'
    yield _tiles(stream)
    yield "<h2>The guarantee</h2>"
    yield "".join(f"<p>{_esc(line)}</p>" for line in stream.plain)
    yield f"<dl><dt>unit of privacy</dt><dd>{_esc(stream.unit)}</dd>"
    yield f"<dt>neighbouring</dt><dd>{_esc(stream.neighbouring)}</dd></dl>"
    symbols = "".join(f"<p>{_esc(line)}</p>" for line in stream.symbols)
    yield f'<details><summary>In symbols</summary><div class="symbols">{symbols}</div></details>'
    yield "<h2>Where the budget goes</h2>" + _budget(stream.budget)
    yield "<h2>The error to expect</h2>" + _errors(stream)
    yield "<h2>One notch more or less</h2>" + _notches(stream)
    yield "<h2>Not protected</h2>" + _points(stream.unprotected)
    yield "<h2>Public by assumption</h2>" + _points(stream.public)
    yield "</article>"


def _tiles(stream: StreamExplanation) -> str:
    budget = stream.budget
    middle = stream.errors.answers[len(stream.errors.answers) // 2]
    tiles = [
        (decimal(float(budget.unit_epsilon)), "epsilon of the unit"),
        (decimal(float(budget.event_epsilon)), f"epsilon of one {budget.contribution}"),
        (chance(surest(float(budget.unit_epsilon))), "sure at most, from an even chance"),
        (f"±{rounded(middle.first)}", f"error of a {middle.name}, one release"),
    ]
    return (
        '<div class="tiles">'
        + "".join(f"<div><b>{_esc(b)}</b><span>{_esc(s)}</span></div>" for b, s in tiles)
        + "</div>"
    )


def _budget(budget: Budget) -> str:
    bars = "".join(
        f'<div class="b{index}" style="flex:{float(share.part):.6f}">{_esc(spent(share.part))}</div>'
        for index, share in enumerate(budget.shares)
    )
    return (
        f"<p>epsilon of the unit {_esc(exact(budget.unit_epsilon))}, over {budget.contributions} contributions: "
        f"each {budget.contribution} {_esc(exact(budget.event_epsilon))}.</p>"
        f'<div class="bar" aria-hidden="true">{bars}</div>'
        + "".join(_share(index, share, budget) for index, share in enumerate(budget.shares))
        + f'<p class="sum">{_esc(budget.terms)} = {_esc(str(budget.event_epsilon))} {budget.one}; '
        f"× {budget.contributions} = {_esc(str(budget.unit_epsilon))}, exactly</p>"
    )


def _share(index: int, share: Share, budget: Budget) -> str:
    mechanism = share.mechanism
    rows = [
        ("share", spent(share.part)),
        (f"epsilon of one {budget.contribution}", exact(share.event_epsilon)),
        ("epsilon of the unit", exact(share.unit_epsilon)),
        (
            "L1 sensitivity",
            f"{mechanism.l1_sensitivity} by one {budget.contribution}, "
            f"{mechanism.l1_sensitivity * budget.contributions} by the unit",
        ),
        ("noise", noise_words(share, budget.contribution)),
    ]
    if mechanism.uses != 1:
        rows.insert(1, ("uses", f"{mechanism.uses}, of {exact(mechanism.epsilon)} each"))
    cells = "".join(f"<dt>{_esc(key)}</dt><dd>{_esc(value)}</dd>" for key, value in rows)
    return f'<section class="card"><h3><i class="b{index}"></i>{_esc(mechanism.title)}</h3><dl>{cells}</dl></section>'


def _errors(stream: StreamExplanation) -> str:
    model = stream.errors
    head = ["answer", model.sizes, *(f"{t:,}" for t in RELEASES)]
    rows = [
        [
            answer.name,
            f"{answer.size:,}",
            *(_within(interval) for interval in answer.intervals),
        ]
        for answer in model.answers
    ]
    times = ", ".join(f"{t:,} take {stream.duration(t)}" for t in RELEASES[1:])
    return (
        f"<p>In {_esc(model.unit)}: 95 % of the errors lie within ± this, after so many releases. "
        f"{_esc(model.growth)}: {_esc(times)}.</p>{_table(head, rows)}"
        f'<p class="symbols">{_esc(model.formula)}</p>'
        f"<p class=sub>{_esc(model.conditions)}</p>"
    )


def _notches(stream: StreamExplanation) -> str:
    head = ["epsilon", stream.budget.one, "from even to", *(answer.name for answer in stream.errors.answers)]
    rows = [
        [
            decimal(float(notch.epsilon)),
            decimal(float(notch.budget.event_epsilon)),
            chance(surest(float(notch.epsilon))),
            *(_within(answer.first) for answer in notch.errors.answers),
        ]
        for notch in stream.notches
    ]
    mark = [index for index, notch in enumerate(stream.notches) if notch.factor == 1]
    return (
        "<p>The same stream with another epsilon, after one release; the line shows what is configured.</p>"
        f"<figure>{error_plot(stream)}<figcaption>95 % of the errors, in counts, against epsilon</figcaption></figure>"
        f"{_table(head, rows, mark=mark)}"
        "<p class=sub>“From even to”: how sure somebody who thought it an even chance that a unit is in the data can "
        "become. "
        "Twice the epsilon halves the noise, nearly; the odds are squared.</p>"
    )


def _points(points: Sequence[Point]) -> str:
    return "".join(
        f'<div class="point{" loud" if point.loud else ""}"><h3>{_esc(point.title)}</h3><p>{_esc(point.text)}</p></div>'
        for point in points
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, mark: Sequence[int] = ()) -> str:
    top = "".join(f"<th>{_esc(cell)}</th>" for cell in head)
    body = "".join(
        f"<tr{' class=mark' if index in mark else ''}>" + "".join(f"<td>{_esc(cell)}</td>" for cell in row) + "</tr>"
        for index, row in enumerate(rows)
    )
    return f'<div class="scroll" tabindex="0"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _within(value: float) -> str:
    return f"±{rounded(value)}"


def _esc(text: str) -> str:
    return html.escape(text)

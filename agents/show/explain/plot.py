"""Error against epsilon as an SVG that a page takes in as it is, in the page's own colours, sharp at every size."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence

from agents.show.explain.parts import StreamExplanation
from agents.show.presentation.error import rounded

WIDTH, HEIGHT = 420, 290
LEFT, RIGHT, TOP, BOTTOM = 44, 100, 10, 38
LABEL_GAP = 15
LEAST = 0.01
"""Errors below this are drawn here."""


def error_plot(stream: StreamExplanation) -> str:
    """95 % of the errors after one release, one line for each kind of answer; both axes logarithmic."""
    notches, answers = stream.notches, stream.errors.answers
    if len(notches) < 2:
        return ""
    epsilons = [float(notch.epsilon) for notch in notches]
    errors = [[max(notch.errors.answers[index].first, LEAST) for notch in notches] for index in range(len(answers))]
    x = _Axis(min(epsilons), max(epsilons), LEFT, WIDTH - RIGHT)
    y = _Axis(min(map(min, errors)), max(map(max, errors)), HEIGHT - BOTTOM, TOP)
    parts = [*_grid(x, y, epsilons)]
    configured = next(i for i, notch in enumerate(notches) if notch.factor == 1)
    at = x(epsilons[configured])
    parts.append(f'<line class="now" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
    labels = _spread([y(line[-1]) for line in errors])
    for index, (answer, line, label) in enumerate(zip(answers, errors, labels, strict=True)):
        points = " ".join(f"{x(e):.1f},{y(v):.1f}" for e, v in zip(epsilons, line, strict=True))
        parts.append(f'<polyline class="c{index}" points="{points}"/>')
        parts.append(f'<circle class="c{index}" cx="{at:.1f}" cy="{y(line[configured]):.1f}" r="3.5"/>')
        parts.append(
            f'<text class="c{index}" x="{WIDTH - RIGHT + 6}" y="{label + 4:.1f}">{html.escape(answer.name)}</text>'
        )
    parts.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">epsilon</text>')
    title = "Error against epsilon: " + "; ".join(
        f"{answer.name} ±{rounded(line[configured])} at the configured epsilon"
        for answer, line in zip(answers, errors, strict=True)
    )
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(title)}">'
        + "".join(parts)
        + "</svg>"
    )


class _Axis:
    """A logarithmic axis from `low` to `high`, drawn from `begin` to `end`."""

    def __init__(self, low: float, high: float, begin: float, end: float) -> None:
        self.low, self.high = low, max(high, low * 2)
        self._begin, self._length = begin, end - begin

    def __call__(self, value: float) -> float:
        return self._begin + self._length * math.log(value / self.low) / math.log(self.high / self.low)


def _grid(x: _Axis, y: _Axis, epsilons: Sequence[float]) -> Iterator[str]:
    for epsilon in epsilons:
        at = x(epsilon)
        yield f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        yield f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{_short(epsilon)}</text>'
    for power in range(math.ceil(math.log10(y.low)), math.floor(math.log10(y.high)) + 1):
        at = y(10.0**power)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text x="{LEFT - 5}" y="{at + 4:.1f}" text-anchor="end">±{_thousands(power)}</text>'


def _spread(places: Sequence[float]) -> list[float]:
    """Labels from the lowest line up, moved apart where they would overlap. The first line is the lowest."""
    moved: list[float] = []
    for place in places:
        moved.append(place if not moved else min(place, moved[-1] - LABEL_GAP))
    return moved


def _short(value: float) -> str:
    return f"{value:.3g}"


def _thousands(power: int) -> str:
    for step, letter in ((9, "G"), (6, "M"), (3, "k")):
        if power >= step:
            return f"{10 ** (power - step)}{letter}"
    return f"{10.0**power:g}"

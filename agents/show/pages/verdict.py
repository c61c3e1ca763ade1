"""What a release is good for and what not: errors from coarse answers to fine ones, and the sentence that follows.

Pure. An engine says what its scales are (`Presentation.judged`); thresholds and words are the same for all.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import isnan, nan

import numpy as np

from agents.show.pages.metrics import percent
from agents.show.pages.plots import AMBER, GREY, RED, SYNTHETIC, TRUE, figure, folded, image, quiet
from schemas.arrays import FloatArray

GOOD, POOR = 0.10, 0.50
"""Up to the first an error is good; beyond the second an answer is not worth reading."""
RULE = (
    f"“Good” is an error of at most {GOOD:.0%} of the true counts; “not” is more than {POOR:.0%}; what lies between "
    "is rough."
)
_MOST = 2.0
"""Bars end there."""


def relative(true: FloatArray, made: FloatArray) -> float:
    """Error of counts: of all differences, without signs, over all that is true; NaN where nothing is.

    >>> relative(np.array([90.0, 10.0]), np.array([84.0, 12.0]))
    0.08
    """
    total = float(np.abs(true).sum())
    return float(np.abs(made - true).sum()) / total if total else nan


@dataclass(frozen=True, slots=True)
class Scale:
    """Answers of one size. `error` is relative; `baseline` that of a release that knows nothing but the total."""

    name: str
    error: float
    baseline: float = nan

    @property
    def judgement(self) -> str:
        return "good" if self.error <= GOOD else "not" if self.error > POOR else "rough"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Answers of one kind.

    Attributes:
        what: they are. scales: from coarse to fine. beyond: what is coarser than a scale, in two words.
        how: they were measured, in a sentence. baseline: what the baseline is, empty where there is none.
        more: a sentence or two beside the verdict.
    """

    what: str
    scales: Sequence[Scale]
    how: str
    beyond: str = "and larger"
    baseline: str = ""
    more: str = ""

    @property
    def known(self) -> Sequence[Scale]:
        return [scale for scale in self.scales if not isnan(scale.error)]

    def sentence(self) -> str:
        """The verdict.

        >>> scales = [Scale("districts", 0.08), Scale("streets", 1.4)]
        >>> Judged(what="Counts by place", scales=scales, how="").sentence()
        'Counts by place: good for districts, errors of 8 %; not for streets, errors of 140 %.'
        """
        return f"{self.what}: {self._found()}."

    def _found(self) -> str:
        scales = self.known
        if not scales:
            return "there is nothing to compare yet"
        good = list(takewhile(lambda scale: scale.judgement == "good", scales))
        if len(scales) == 1:
            return f"{scales[0].judgement.replace('not', 'not good')} for {_with_error(scales[0])}"
        if len(good) == len(scales):
            return f"good down to {_with_error(scales[-1])}, the finest that was looked at"
        poor = [scale for scale in scales if scale.judgement == "not"]
        if len(poor) == len(scales):
            return f"good for nothing that was looked at: even {_with_error(scales[0])}"
        best = min(scales, key=lambda scale: scale.error)
        if good:
            first = f"good for {_with_error(good[-1])}{f', {self.beyond}' if len(good) > 1 else ''}"
        else:
            # Scales need not be nested: a finer one can be good where a coarser one is not.
            first = f"{'good only for' if best.judgement == 'good' else 'rough at best,'} {_with_error(best)}"
        rough = [scale for scale in scales if scale.judgement == "rough"]
        return f"{first}; {'not' if poor else 'rough'} for {_with_error(poor[0] if poor else rough[-1])}"


def _with_error(scale: Scale) -> str:
    return f"{scale.name}, errors of {percent(scale.error)}"


def section(judged: Judged) -> str:
    """HTML: a bar for each scale with its error on it, and the same as a table."""
    if not judged.known:
        return ""
    against = f" The mark on a bar, and the last column: {judged.baseline}." if _has_baseline(judged) else ""
    head = ["answers", "error", "verdict", *(["knowing nothing"] if _has_baseline(judged) else [])]
    return (
        f"<h2>{html.escape(judged.what)}: how fine can you look?</h2>"
        f"<p class=sub>{html.escape(judged.how + against)}</p>"
        f"{_bars(judged)}{folded(head, [_cells(judged, scale) for scale in judged.known])}"
    )


def _has_baseline(judged: Judged) -> bool:
    return bool(judged.baseline) and any(not isnan(scale.baseline) for scale in judged.known)


def _cells(judged: Judged, scale: Scale) -> list[str]:
    cells = [scale.name, percent(scale.error), scale.judgement]
    if _has_baseline(judged):
        cells.append("-" if isnan(scale.baseline) else percent(scale.baseline))
    return cells


def _bars(judged: Judged) -> str:
    scales = judged.known
    made, axes = figure(5.4, 1.1 + 0.3 * len(scales))
    places = np.arange(len(scales))[::-1]
    colours = {"good": SYNTHETIC, "rough": AMBER, "not": RED}
    shown = np.minimum([scale.error for scale in scales], _MOST)
    axes.barh(places, shown, height=0.66, color=[colours[scale.judgement] for scale in scales])
    for place, scale, length in zip(places, scales, shown, strict=True):
        axes.text(
            length + 0.02, place, f"{percent(scale.error)}  {scale.judgement}", va="center", fontsize=8, color=TRUE
        )
    for limit in (GOOD, POOR):
        axes.axvline(limit, color=GREY, linewidth=0.8, linestyle=":", zorder=0)
    marks = [min(scale.baseline, _MOST) for scale in scales]
    axes.plot(marks, places, linestyle="", marker="|", markersize=11, markeredgewidth=2, color=TRUE)
    axes.set_yticks(places, [scale.name for scale in scales], fontsize=8)
    most = max([float(shown.max()), POOR, *(mark for mark in marks if not isnan(mark))])
    axes.set_ylim(-0.6, len(scales) - 0.4)
    axes.set_xlim(0, most * 1.25)
    axes.set_xlabel("error, in % of the true counts", color=TRUE, fontsize=8)
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}")
    axes.tick_params(axis="x", labelsize=8)
    quiet(axes)
    told = "; ".join(f"{scale.name} {percent(scale.error)}, {scale.judgement}" for scale in scales)
    return image(made, "svg", alt=f"Bars of the error at each scale, from coarse to fine: {told}")


__all__ = ["GOOD", "POOR", "RULE", "Judged", "Scale", "relative", "section"]

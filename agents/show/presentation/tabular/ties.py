"""Of a tabular stream's report: what ties attributes together, in the true rows and in the synthetic ones."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np

from agents.show.pages.plots import TRUE, figure, image
from engines.tabular.evaluator import TableEvaluator
from engines.tabular.marginals import Marginals
from engines.tabular.ties import STRONG, cramers_v
from schemas.arrays import FloatArray
from schemas.blocks import Folded

MOST_ATTRIBUTES, MOST_CELLS = 16, 4_000_000
LISTED = 10
"""Pairs in the table below the picture."""


def section(evaluator: TableEvaluator, truth: Folded, synthetic: Mapping[str, list[Any]]) -> str:
    """HTML; empty where there is no pair."""
    names, sizes = evaluator.domain.names, evaluator.domain.sizes
    shown = [index for index, size in enumerate(sizes) if size > 1][:MOST_ATTRIBUTES]
    pairs = that_fit(list(combinations(shown, 2)), sizes)
    if not pairs:
        return ""
    layout = Marginals(sizes, tuple(pairs))
    counts = evaluator.true_counts(truth, layout), evaluator.synthetic_counts(synthetic, layout)
    true, made = (np.array([cramers_v(layout.table(of, i)) for i in range(len(pairs))]) for of in counts)
    strong = true > STRONG
    missing = f" Of {sum(size > 1 for size in sizes)} attributes, the first {MOST_ATTRIBUTES} are looked at." * (
        sum(size > 1 for size in sizes) > MOST_ATTRIBUTES
    )
    left_out = len(shown) * (len(shown) - 1) // 2 - len(pairs)
    missing += f" {left_out} pairs with most values are left out." if left_out else ""
    return (
        "<h2>What ties attributes together</h2><p class=sub>Cramer's V of each pair after the last step, from 0 "
        f"(knowing one says nothing of the other) to 1 (it says all). {_verdict(true, made, strong)}{missing}</p>"
        f"{_picture([names[index] for index in shown], shown, pairs, (true, made))}"
        '<div class="scroll" tabindex="0"><table><thead><tr><th>pair</th><th>true V</th><th>synthetic V</th></tr>'
        f"</thead><tbody>{''.join(_rows(names, pairs, true, made))}</tbody></table></div>"
    )


def kept(layout: Marginals, true: FloatArray, made: FloatArray) -> str:
    """Of counts of pairs: how much of what ties attributes together synthetic rows keep, and which pairs are lost."""
    strengths = [np.array([cramers_v(layout.table(of, i)) for i in range(len(layout.cliques))]) for of in (true, made)]
    strong = strengths[0] > STRONG
    if not strong.any():
        return f"No two attributes are tied together (no true Cramer's V above {STRONG}): there is little to keep."
    share = float((strengths[1][strong] / strengths[0][strong]).mean())
    lost = int((strengths[1][strong] < strengths[0][strong] / 2).sum())
    return (
        f"Of what ties attributes together {share:.0%} is kept (Cramer's V): of {int(strong.sum())} "
        f"pair{'s' if strong.sum() > 1 else ''} that are tied, {lost} {'is' if lost == 1 else 'are'} noise."
    )


def that_fit(pairs: list[tuple[int, int]], sizes: tuple[int, ...]) -> list[tuple[int, int]]:
    """The pairs with the fewest cells, in their order, as many as memory is meant for."""
    cells = np.array([sizes[left] * sizes[right] for left, right in pairs], np.int64)
    order = np.argsort(cells, kind="stable")
    kept = set(order[np.cumsum(cells[order]) <= MOST_CELLS].tolist())
    return [pair for index, pair in enumerate(pairs) if index in kept]


def _verdict(true: FloatArray, made: FloatArray, strong: np.ndarray) -> str:
    if not strong.any():
        return f"No pair has a true V above {STRONG}: there is little to keep."
    kept = float((made[strong] / true[strong]).mean())
    return (
        f"Synthetic rows keep {kept:.0%} of it: the mean over the {int(strong.sum())} "
        f"pair{'s' if strong.sum() > 1 else ''} whose true V is above {STRONG}. What is lost, noise hides: more "
        "epsilon, fewer attributes or coarser values keep more."
    )


def _rows(names: tuple[str, ...], pairs: list[tuple[int, int]], true: FloatArray, made: FloatArray) -> Iterator[str]:
    """The strongest true ties first."""
    for index in np.argsort(-true, kind="stable")[:LISTED]:
        left, right = (html.escape(names[place]) for place in pairs[index])
        yield f"<tr><td>{left}, {right}</td><td>{true[index]:.2f}</td><td>{made[index]:.2f}</td></tr>"


def _picture(
    labels: list[str], shown: list[int], pairs: list[tuple[int, int]], values: tuple[FloatArray, FloatArray]
) -> str:
    """Two squares of attributes against attributes, on one scale."""
    place = {attribute: index for index, attribute in enumerate(shown)}
    picture, panels = figure(8.0, 4.8, columns=2)
    mesh = None
    for axes, title, of in zip(panels, ("true", "synthetic"), values, strict=True):
        square = np.full((len(shown), len(shown)), np.nan)
        for (left, right), value in zip(pairs, of, strict=True):
            square[place[right], place[left]] = value
        mesh = axes.imshow(square, vmin=0.0, vmax=1.0, cmap="cividis", aspect="auto")
        axes.set_title(title, color=TRUE, fontsize=10)
        axes.set_xticks(range(len(shown)), labels, rotation=90, fontsize=7)
        axes.set_yticks(range(len(shown)), labels if title == "true" else [""] * len(shown), fontsize=7)
        axes.tick_params(length=0)
        for side in axes.spines.values():
            side.set_visible(False)
    picture.colorbar(mesh, ax=panels, shrink=0.8, label="Cramer's V")
    told = "; ".join(
        f"{labels[place[left]]} and {labels[place[right]]} {values[0][index]:.2f} and {values[1][index]:.2f}"
        for index in np.argsort(-values[0], kind="stable")[:3].tolist()
        for left, right in [pairs[index]]
    )
    return image(picture, "png", alt=f"Squares of Cramer's V of all pairs, true and synthetic. Strongest: {told}")

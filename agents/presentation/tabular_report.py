"""The report of a tabular stream: one-way marginals, true beside synthetic, and the workload errors over time."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from agents.pages.plots import AMBER, BLUE, curves, figure, image, quiet
from agents.presentation import tabular_ties
from engines.tabular.evaluator import METRICS, TableEvaluator
from engines.tabular.marginals import Marginals
from schemas.arrays import FloatArray
from schemas.config import Stream

if TYPE_CHECKING:
    from agents.pages.report import StepRow
    from agents.protocol.release.held_out import HeldOutAudit

LABELS = {
    "avg_we": "mean workload error",
    "max_we": "largest workload error",
    "avg_rel_we": "mean relative workload error",
    "max_rel_we": "largest relative workload error",
}
COLOURS = {"mean": BLUE, "largest": AMBER}
MOST_ATTRIBUTES, MOST_VALUES = 16, 40


def tiles(metrics: Mapping[str, float]) -> Sequence[tuple[str, str]]:
    return [(f"last {LABELS[name]}", f"{metrics[name]:.4f}") for name in METRICS if name in metrics]


def errors(metrics: Mapping[str, float]) -> Mapping[str, float]:
    return {LABELS[name]: metrics[name] for name in METRICS if name in metrics}


def sections(stream: Stream, audit: HeldOutAudit, steps: Sequence[StepRow]) -> Sequence[str]:
    evaluator = audit.evaluator
    assert isinstance(evaluator, TableEvaluator)
    synthetic = {name: [row.get(name) for row in audit.alive.values()] for name in evaluator.domain.names}
    parts = [_marginals(evaluator, audit, synthetic)]
    parts += [ties] if (ties := tabular_ties.section(evaluator, audit.truth, synthetic)) else []
    released = [row for row in steps if not row.gathered and set(METRICS) <= set(row.metrics)]
    if released:
        starts = [row.start for row in released]
        for title, mean, largest in (
            ("Workload error over time", "avg_we", "max_we"),
            ("Relative workload error over time", "avg_rel_we", "max_rel_we"),
        ):
            lines = {
                "mean": [row.metrics[mean] for row in released],
                "largest": [row.metrics[largest] for row in released],
            }
            parts += [f"<h2>{title}</h2><p class=sub>{_EXPLAINED[mean]}</p>", curves(starts, lines, COLOURS)]
    return parts


_EXPLAINED = {
    "avg_we": "Mean absolute error of a marginal's cells, as a share of all rows; mean over the marginals, and the "
    "largest. Lower is better.",
    "avg_rel_we": "Mean relative error of a marginal's cells; a cell with no true row counts as 0. Lower is better.",
}


def _marginals(evaluator: TableEvaluator, audit: HeldOutAudit, synthetic: Mapping[str, list[Any]]) -> str:
    domain = evaluator.domain
    layout = Marginals(domain.sizes, tuple((index,) for index in range(len(domain.sizes))))
    true = evaluator.true_counts(audit.truth, layout)
    made = evaluator.synthetic_counts(synthetic, layout)
    figures = []
    for index, name in enumerate(domain.names[:MOST_ATTRIBUTES]):
        pair = (layout.table(true, index)[:MOST_VALUES], layout.table(made, index)[:MOST_VALUES])
        figures.append(f"<figure>{_bars(*pair)}<figcaption>{html.escape(name)}</figcaption></figure>")
    left_out = ""
    if len(domain.names) > MOST_ATTRIBUTES or max(domain.sizes) > MOST_VALUES:
        left_out = f" The first {MOST_ATTRIBUTES} attributes, and {MOST_VALUES} values of each."
    return (
        "<h2>How many rows have each value</h2><p class=sub>After the last step, value by value in the declared order: "
        f"blue is true (private), amber is synthetic.{left_out}</p><div class=maps>{''.join(figures)}</div>"
    )


def _bars(true: FloatArray, made: FloatArray) -> str:
    picture, axes = figure(3.2, 2.2)
    places = np.arange(len(true))
    axes.bar(places - 0.2, true, width=0.4, color=BLUE)
    axes.bar(places + 0.2, made, width=0.4, color=AMBER)
    axes.set_xticks([])
    axes.locator_params(axis="y", nbins=4)
    quiet(axes)
    return image(picture, "png")

"""The report of a tabular stream: how frequent a value must be to be read, attributes' counts, errors over time."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from agents.show.pages.metrics import percent
from agents.show.pages.plots import AMBER, BLUE, SYNTHETIC, TRUE, curves, figure, folded, image, quiet
from agents.show.pages.verdict import GOOD, POOR, Judged, Scale, relative
from agents.show.presentation.bars import written
from agents.show.presentation.tabular import ties
from engines.tabular.domain import TableDomain
from engines.tabular.evaluator import METRICS, TableEvaluator
from engines.tabular.marginals import Marginals
from schemas.arrays import FloatArray
from schemas.config import Stream

if TYPE_CHECKING:
    from agents.protocol.release.held_out import HeldOutAudit
    from agents.show.pages.report import StepRow

COLOURS = {"mean": BLUE, "largest": AMBER}
MOST_ATTRIBUTES, MOST_VALUES, LABELLED = 16, 40, 8
EDGES = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 1_000_000, 10_000_000)
"""True rows of a value, from which and to which it is judged with others of its size."""


def sections(stream: Stream, audit: HeldOutAudit, steps: Sequence[StepRow]) -> Sequence[str]:
    evaluator, synthetic = _both(audit)
    parts = [_marginals(evaluator, audit, synthetic)]
    parts += [found] if (found := ties.section(evaluator, audit.truth, synthetic)) else []
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
            drawn = curves(starts, lines, COLOURS, what=f"{title.removesuffix(' over time').lower()}, %", text=percent)
            parts += [f"<h2>{title}</h2><p class=sub>{_EXPLAINED[mean]}</p>", drawn]
    return parts


_EXPLAINED = {
    "avg_we": "Mean absolute error of a marginal's cells, as a share of all rows; mean over the marginals, and the "
    "largest. Less is better.",
    "avg_rel_we": "Mean relative error of a marginal's cells; a cell with no true row counts as 0. Less is better.",
}


def _both(audit: HeldOutAudit) -> tuple[TableEvaluator, Mapping[str, list[Any]]]:
    evaluator = audit.evaluator
    assert isinstance(evaluator, TableEvaluator)
    return evaluator, {name: [row.get(name) for row in audit.alive.values()] for name in evaluator.domain.names}


def judged(stream: Stream, audit: HeldOutAudit, steps: Sequence[StepRow]) -> Sequence[Judged]:
    """Counts of single values and of pairs of values, by how many rows have them."""
    evaluator, synthetic = _both(audit)
    sizes, rows = evaluator.domain.sizes, float(evaluator.size(audit.truth))
    ones = Marginals(sizes, tuple((index,) for index in range(len(sizes))))
    true, made = evaluator.true_counts(audit.truth, ones), evaluator.synthetic_counts(synthetic, ones)
    even = np.concatenate([np.full(size, rows / size) for size in sizes])
    found = [
        Judged(
            what="Values of one attribute",
            scales=by_size(true, made, even, "values"),
            how="How many rows have a value, true and synthetic, after the last step; values that as many rows have "
            "are judged together. Bars are the differences, added up, as a share of the true counts. Values that no "
            "row has are named where synthetic rows with them are more than a tenth as many as all true ones.",
            beyond="and more",
            baseline="every value of an attribute as frequent as the others",
            more=_attributes(evaluator.domain.names, ones, true, made) + _unlisted(evaluator.domain, ones, true),
        )
    ]
    shown = [index for index, size in enumerate(sizes) if size > 1][:MOST_ATTRIBUTES]
    cliques = ties.that_fit(list(combinations(shown, 2)), sizes)
    if cliques and rows:
        pairs = Marginals(sizes, tuple(cliques))
        alone = [ones.table(true, index).reshape(-1) for index in range(len(sizes))]
        independent = np.concatenate([np.outer(alone[a], alone[b]).reshape(-1) / rows for a, b in cliques])
        true, made = evaluator.true_counts(audit.truth, pairs), evaluator.synthetic_counts(synthetic, pairs)
        found.append(
            Judged(
                what="Pairs of values of two attributes",
                scales=by_size(true, made, independent, "pairs"),
                how="How many rows have a value of one attribute and a value of another, judged in the same way.",
                beyond="and more",
                baseline="the true counts of single values, and attributes that have nothing to do with each other",
                more=ties.kept(pairs, true, made),
            )
        )
    return found


def by_size(true: FloatArray, made: FloatArray, known: FloatArray, what: str) -> list[Scale]:
    """Errors of counts, those of about the same true size together, from frequent to rare.

    Last, values that no row has: what was invented for them, as a share of all true counts. Where that is good it is
    left out: it would be praise for a release that is good at nothing else.

    >>> true, made = np.array([500.0, 400.0, 20.0]), np.array([491.0, 400.0, 30.0])
    >>> [(scale.name, scale.error) for scale in by_size(true, made, true, "values")]
    [('values of 300 to 999 rows', 0.01), ('values of 10 to 29 rows', 0.5)]
    """
    found = []
    for low, high in zip(EDGES, (*EDGES[1:], None), strict=True):
        there = (true >= low) & ((true < high) if high is not None else True)
        if there.any():
            size = f"{low:,} rows and more" if high is None else f"{low:,} to {high - 1:,} rows"
            errors = relative(true[there], made[there]), relative(true[there], known[there])
            found.append(Scale(f"{what} of {size}", *errors))
    found.reverse()
    nobodys, total = true < EDGES[0], float(np.abs(true).sum())
    invented, guessed = (float(np.abs(counts - true)[nobodys].sum()) for counts in (made, known))
    if invented > GOOD * total > 0:
        found.append(Scale(f"{what} that no row has", invented / total, guessed / total))
    return found


def _unlisted(domain: TableDomain, ones: Marginals, true: FloatArray) -> str:
    """Attributes of which most true rows have a value that is not listed: "8" may be written "8.0"."""
    most = []
    for index, attribute in enumerate(domain.attributes):
        if attribute.unknown != "other":
            continue
        counts = ones.table(true, index).reshape(-1)[: attribute.size - attribute.missing]  # the last of these is other
        if counts[-1] > POOR * counts.sum():
            most.append(f"{attribute.name} ({percent(float(counts[-1] / counts.sum()))} of them)")
    if not most:
        return ""
    return f" Most values are not listed and count as other: {', '.join(most)}. Are they written in another way?"


def _attributes(names: Sequence[str], ones: Marginals, true: FloatArray, made: FloatArray) -> str:
    """Which attributes are good as a whole, and which are worst."""
    errors = [relative(ones.table(true, index), ones.table(made, index)) for index in range(len(names))]
    known = sorted((error, name) for error, name in zip(errors, names, strict=True) if not np.isnan(error))
    if not known:
        return ""
    good = sum(error <= GOOD for error, _ in known)
    poor = [name for error, name in known if error > POOR]
    worst = f" Worst is {known[-1][1]}, {percent(known[-1][0])}." if len(known) > 1 else ""
    noise = f" Noise: {', '.join(poor[:5])}{' and others' if len(poor) > 5 else ''}." if poor else ""
    return f"As a whole, {good} of {len(known)} attributes {'is' if good == 1 else 'are'} good.{worst}{noise}"


def _marginals(evaluator: TableEvaluator, audit: HeldOutAudit, synthetic: Mapping[str, list[Any]]) -> str:
    domain = evaluator.domain
    layout = Marginals(domain.sizes, tuple((index,) for index in range(len(domain.sizes))))
    true = evaluator.true_counts(audit.truth, layout)
    made = evaluator.synthetic_counts(synthetic, layout)
    figures, rows = [], []
    for index, name in enumerate(domain.names[:MOST_ATTRIBUTES]):
        pair = (layout.table(true, index)[:MOST_VALUES], layout.table(made, index)[:MOST_VALUES])
        codes = np.arange(len(pair[0]))
        values = domain.attributes[index].decode(codes, np.full(len(codes), 0.5))
        labels = ["none" if value is None else str(value) for value in values]
        rows += [[name, *cells] for cells in _cells(labels, *pair)]
        error = percent(relative(*pair)) if pair[0].sum() else "-"
        caption = f"<figcaption>{html.escape(name)}: error {error}</figcaption>"
        figures.append(f"<figure>{_bars(name, labels, *pair)}{caption}</figure>")
    left_out = ""
    if len(domain.names) > MOST_ATTRIBUTES or max(domain.sizes) > MOST_VALUES:
        left_out = f" The first {MOST_ATTRIBUTES} attributes, and {MOST_VALUES} values of each."
    return (
        "<h2>How many rows have each value</h2><p class=sub>After the last step, value by value in the declared order: "
        f"grey is true (private), green is synthetic.{left_out}</p><div class='maps small'>{''.join(figures)}</div>"
        + folded(["attribute", "value", "true", "synthetic", "difference"], rows, title="All values as a table")
    )


def _cells(labels: Sequence[str], true: FloatArray, made: FloatArray) -> list[list[str]]:
    return [[label, f"{t:,.0f}", f"{m:,.0f}", f"{m - t:+,.0f}"] for label, t, m in zip(labels, true, made, strict=True)]


def _bars(name: str, labels: Sequence[str], true: FloatArray, made: FloatArray) -> str:
    picture, axes = figure(3.4, 2.5)
    places = np.arange(len(true))
    axes.bar(places - 0.2, true, width=0.4, color=TRUE)
    axes.bar(places + 0.2, made, width=0.4, color=SYNTHETIC)
    if len(labels) <= LABELLED:
        short = [label if len(label) < 12 else f"{label[:10]}..." for label in labels]
        axes.set_xticks(places, short, fontsize=7, rotation=0 if len(labels) < 4 else 45)
        for offset, counts in ((-0.2, true), (0.2, made)):
            for place, count in zip(places, counts, strict=True):
                height, text = max(float(count), 0.0), written(round(float(count)))
                axes.text(place + offset, height, text, ha="center", va="bottom", fontsize=6, color=TRUE)
    else:
        axes.set_xticks([])
        axes.set_xlabel(f"{len(labels)} values", color=TRUE, fontsize=8)
    axes.set_ylabel("rows", color=TRUE, fontsize=8)
    axes.tick_params(axis="y", labelsize=7)
    axes.yaxis.set_major_formatter(lambda value, _: written(value))
    axes.locator_params(axis="y", nbins=4)
    quiet(axes)
    worst = int(np.argmax(np.abs(made - true)))
    told = f"the largest difference is at {labels[worst]}: {true[worst]:,.0f} true, {made[worst]:,.0f} synthetic"
    return image(picture, "png", alt=f"Bars of rows by {name}, true and synthetic, {len(labels)} values; {told}")

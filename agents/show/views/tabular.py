"""What engine `tabular` shows: how frequent a value must be to be read, marginals, ties, errors over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from agents.protocol.release.held_out import HeldOutAudit
from agents.show.charts import AMBER, BLUE, Chart, ColumnChart, Gallery, HeatMap, Table
from agents.show.noise import Answer, ErrorModel, noise_facts
from agents.show.pictures import WIDE, AttributeCells, Picture, TablePicture
from agents.show.text import printable
from agents.show.view import (
    GOOD,
    POOR,
    Judged,
    Metric,
    ReportSection,
    Scale,
    StepRow,
    Term,
    View,
    over_time,
    percent,
    relative,
)
from engines.core.registry import build_domain, uncorrected_engine
from engines.tabular.domain import FOUND, MISSING, OTHER, Attribute, Discovered, TableDomain
from engines.tabular.evaluator import STRONG, TableEvaluator, cramers_v, others
from engines.tabular.growing.config import parts_of
from engines.tabular.growing.engine import GrowingBlocks
from engines.tabular.growing.learn import variances
from engines.tabular.marginals import Marginals
from schemas.arrays import BoolArray, FloatArray, IntArray
from schemas.blocks import Folded
from schemas.config import Stream
from schemas.config.engines.tabular import FINDING_DELTA, FINDING_SHARE, TableDomainSection, TabularOptions
from schemas.guarantee import Guarantee

_SHOWN = 8
MOST_ATTRIBUTES, MOST_VALUES = 16, 40
MOST_CELLS = 4_000_000
"""Of the pairs of attributes that are looked at together."""
LISTED = 10
"""Pairs in the table below the picture, and those that are named as lost."""
EDGES = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 1_000_000, 10_000_000)
"""True rows of a value, from which and to which it is judged with others of its size."""
_CELLS = "of the counts of rows that have a pair (or more) of values"
_RELATIVE = "each by its own true count; a pair that no true row has counts as 0"
METRICS = [
    Metric(
        keys=(f"{which}_{short}",), label=f"{label} {kind}workload error", short=f"{which.capitalize()}{name}",
        meaning=f"{meaning}; {over}.", baseline=baseline * (which == "avg"), text=percent,
    )
    for kind, short, name, meaning, baseline in (
        ("", "we", "WE", f"Mean absolute error {_CELLS}, as a share of all rows",
         "It is small wherever most cells are nearly empty: look at the relative one beside it."),
        ("relative ", "rel_we", "RelWE", f"Mean relative error {_CELLS}, {_RELATIVE}", ""),
    )
    for which, label, over in (
        ("avg", "mean", "the mean over all such attributes"),
        ("max", "largest", "of the attributes where it is largest"),
    )
]  # fmt: skip
TERMS = (
    Term("marginal", "The counts of all combinations of values of some attributes: of one, a column of bars."),
    Term(
        "Cramer's V",
        "How strongly two attributes are tied together: 0, knowing one says nothing of the other; 1, it says all. "
        f"Pairs whose true V is above {STRONG} are worth keeping.",
    ),
)


def _table(stream: Stream) -> TableDomain:
    domain = build_domain(stream)
    assert isinstance(domain, TableDomain)
    return domain


def _domain(stream: Stream) -> str:
    domain = _table(stream)
    listed = [
        f"{each.name} (up to {each.most} that are found)"
        if isinstance(each, Discovered)
        else f"{each.name} ({each.size})"
        for each in domain.attributes
    ]
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    zeros = " Some combinations of values cannot be." if domain.impossible else ""
    return (
        f"rows of {len(listed)} attributes, with their numbers of values: {', '.join(listed[:_SHOWN])}{more}, "
        f"by declaration and not from the data.{zeros}"
    )


def _error_model(stream: Stream, guarantee: Guarantee) -> ErrorModel:
    engine = uncorrected_engine(stream)
    if isinstance(engine, GrowingBlocks):
        return _of_blocks(engine)
    counts = [mechanism for mechanism in guarantee if mechanism.name.startswith("counts")]
    deviation = noise_facts(counts[0]).deviation

    def answer(name: str, size: int, what: str) -> Answer:
        return Answer.of(name, size, what, lambda t: math.sqrt(size * t) * deviation)

    return ErrorModel(
        (
            answer("one cell", 1, "of a marginal that is chosen in every step"),
            answer("ten cells", 10, "their sum, in one such marginal"),
        ),
        sizes="cells",
        growth="The error grows with the square root of the number of steps that measured the marginal",
        formula="sd(L, t) = sqrt(L · t · V),  V = variance of the noise in one cell",
        conditions="It is the noise alone, of a marginal that is chosen in each of t releases. Marginals that are not "
        "chosen are what the model says, whose error depends on the data. privstream simulate measures the error as a "
        "whole on your own data.",
    )


def _of_blocks(engine: GrowingBlocks) -> ErrorModel:
    parts = engine.config
    answers = []
    counter = parts.totals_counter
    answers.append(
        Answer.of("all rows", 1, "the number of rows that were inserted", lambda t: math.sqrt(counter.variance(t)))
    )
    lines = [("one-way", parts.of_ones, parts.ones_share, np.sqrt(np.array(parts.ones.sizes, np.float64)))]
    if len(parts.larger):
        lengths, finer = parts.larger.lengths.astype(np.float64), np.sqrt(parts.of_larger.finer)
        lines.append(("larger", parts.of_larger, parts.larger_share, parts.weights * lengths**-0.2 * finer))
    for name, contrasts, share, costs in lines:
        if contrasts.marginals.cliques:
            deviation = math.sqrt(float(variances(parts.laws(share, parts_of(parts.recipe.best(costs)))).max()))
            answers.append(
                Answer.of(f"{name} cell", 1, f"one cell of a {name} marginal, or its difference", _blocks(deviation))
            )
    return ErrorModel(
        tuple(answers),
        sizes="draws of noise",
        growth="A cell's error grows with the root of the number of blocks, about the logarithm of the rows where rows "
        "only come",
        formula="sd(blocks) = sqrt(blocks · V),  V = variance of the noise in one cell of the noisiest marginal",
        conditions="t releases are taken for 1 + log2(t) blocks, in which all marginals have their share; early, and "
        "where a larger marginal is not worth its noise, it has a part of that, and more noise; less where most rows "
        "have the same values and pairs leave them out (lost, in the measurements, says how many rows some pair then "
        "lacks). It is the noise alone, "
        "before the fit, which makes it several times smaller by what marginals say of each other; what an open block "
        "holds is not known yet, a further error. privstream simulate measures the error as a whole on your own data.",
    )


def _blocks(deviation: float) -> Callable[[int], float]:
    return lambda releases: deviation * math.sqrt(1 + math.log2(releases))


def _remarks(stream: Stream) -> Iterator[str]:
    if stream.mode == "default":
        yield (
            "Rows are private while a block is open. A block closes when enough events have come, by the noisy totals; "
            "its counts are then published with noise, once, and forgotten."
        )
    if (said := _found(stream)) is not None:
        yield said[0].upper() + said[1:]
    if TabularOptions.from_stream(stream).records:
        yield (
            "Synthetic rows are made from what was published and cost nothing. Each is an invention: none stands for a "
            "person."
        )


def _found(stream: Stream) -> str | None:
    """Say what is found of values that nobody listed, and with how many rows; None where all are listed."""
    engine = uncorrected_engine(stream)
    if not isinstance(engine, GrowingBlocks) or engine.config.finding is None:
        return None
    rule, discovered = engine.config.finding, engine.config.domain.discovered
    assert discovered is not None
    _, attribute = discovered
    last = rule.tests
    even = math.ceil(rule.threshold(last))
    sure = math.ceil(rule.threshold(last) + WIDE * math.sqrt(rule.counter.variance(last)))
    return (
        f'values of "{attribute.name}" are found by {float(FINDING_SHARE):.0%} of the noise budget and '
        f"{float(FINDING_DELTA):.0%} of delta; the rest counts rows. A value is found with even odds once {even:,} "
        f"rows of a period of {last} tests have it, nearly surely (95 %) with {sure:,}; one of fewer "
        f"than {attribute.least_count:,} never is. At most {attribute.most:,} are found; all others are "
        f'"{attribute.other}", and so are rows from before.'
    )


def _warnings(stream: Stream) -> Iterator[str]:
    if (said := _found(stream)) is not None:
        yield said


def sections(stream: Stream, audit: HeldOutAudit, steps: Sequence[StepRow]) -> Iterator[ReportSection]:
    """Yield the marginals, what ties attributes together, and errors over time."""
    evaluator, synthetic = _both(audit)
    yield _marginals(evaluator, audit, synthetic)
    if evaluator.domain.discovered is not None:
        yield _not_found(stream, evaluator, audit, synthetic)
    yield from ties(evaluator, audit.truth, synthetic)
    for title, metrics, meaning in (
        (
            "Workload error over time",
            METRICS[:2],
            "Mean absolute error of a marginal's cells, as a share of all rows; mean over the marginals, and the "
            "largest. Less is better.",
        ),
        (
            "Relative workload error over time",
            METRICS[2:],
            "Mean relative error of a marginal's cells; a cell with no true row counts as 0. Less is better.",
        ),
    ):
        what = f"{title.removesuffix(' over time').lower()}, %"
        colours = dict(zip(metrics, (BLUE, AMBER), strict=True))
        yield from over_time(title, meaning, colours, steps, what=what, names=["mean", "largest"])


def _both(audit: HeldOutAudit) -> tuple[TableEvaluator, Mapping[str, list[Any]]]:
    evaluator = audit.evaluator
    assert isinstance(evaluator, TableEvaluator)
    if evaluator.domain.discovered is not None:
        column = evaluator.domain.discovered[1].name
        evaluator = evaluator.showing([row.get(column) for row in audit.points])
    return evaluator, {name: [row.get(name) for row in audit.points] for name in evaluator.domain.names}


def judged(stream: Stream, audit: HeldOutAudit, steps: Sequence[StepRow]) -> Sequence[Judged]:
    """Return errors of counts of single values and of pairs of values, by how many rows have them."""
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
    pairs = _pairs(sizes)
    if pairs.cliques and rows:
        single = [ones.table(true, index).reshape(-1) for index in range(len(sizes))]
        independent = np.concatenate([np.outer(single[a], single[b]).reshape(-1) / rows for a, b in pairs.cliques])
        true, made = evaluator.true_counts(audit.truth, pairs), evaluator.synthetic_counts(synthetic, pairs)
        found.append(
            Judged(
                what="Pairs of values of two attributes",
                scales=by_size(true, made, independent, "pairs"),
                how="How many rows have a value of one attribute and a value of another, judged in the same way.",
                beyond="and more",
                baseline="the true counts of single values, and attributes that have nothing to do with each other",
                more=_kept(*(_strengths(pairs, counts) for counts in (true, made))),
            )
        )
    return found


def by_size(true: FloatArray, made: FloatArray, known: FloatArray, what: str) -> list[Scale]:
    """Return errors of counts, those of about the same true size together, from frequent to rare.

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
    absent, total = true < EDGES[0], float(np.abs(true).sum())
    invented, guessed = (float(np.abs(counts - true)[absent].sum()) for counts in (made, known))
    if invented > GOOD * total > 0:
        found.append(Scale(f"{what} that no row has", invented / total, guessed / total))
    return found


def _unlisted(domain: TableDomain, ones: Marginals, true: FloatArray) -> str:
    """Name attributes of which most true rows have a value that is not listed: "8" may be written "8.0"."""
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
    """Say which attributes are good as a whole, and which are worst."""
    errors = [relative(ones.table(true, index), ones.table(made, index)) for index in range(len(names))]
    known = sorted((error, name) for error, name in zip(errors, names, strict=True) if not np.isnan(error))
    if not known:
        return ""
    good = sum(error <= GOOD for error, _ in known)
    poor = [name for error, name in known if error > POOR]
    worst = f" Worst is {known[-1][1]}, {percent(known[-1][0])}." if len(known) > 1 else ""
    noise = f" Noise: {', '.join(poor[:5])}{' and others' if len(poor) > 5 else ''}." if poor else ""
    return f"As a whole, {good} of {len(known)} attributes {'is' if good == 1 else 'are'} good.{worst}{noise}"


def _marginals(evaluator: TableEvaluator, audit: HeldOutAudit, synthetic: Mapping[str, list[Any]]) -> ReportSection:
    domain = evaluator.domain
    layout = Marginals(domain.sizes, tuple((index,) for index in range(len(domain.sizes))))
    counts = evaluator.true_counts(audit.truth, layout), evaluator.synthetic_counts(synthetic, layout)
    columns, rows = [], []
    for index, name in enumerate(domain.names[:MOST_ATTRIBUTES]):
        true, made = (layout.table(each, index).reshape(-1) for each in counts)
        codes = _in_order(domain.attributes[index], true)
        true, made = true[codes], made[codes]
        values = domain.attributes[index].decode(codes, np.full(len(codes), 0.5))
        labels = ["none" if value is None else printable(str(value)) for value in values]
        rows += [[name, label, f"{t:,.0f}", f"{m:,.0f}", f"{m - t:+,.0f}"]
                 for label, t, m in zip(labels, true, made, strict=True)]  # fmt: skip
        worst = int(np.argmax(np.abs(made - true)))
        columns.append(
            ColumnChart(
                labels=labels,
                true=true,
                made=made,
                caption=f"{name}: error {percent(relative(true, made)) if true.sum() else '-'}",
                alt=f"Bars of rows by {name}, true and synthetic, {len(labels)} values; the largest difference is at "
                f"{labels[worst]}: {true[worst]:,.0f} true, {made[worst]:,.0f} synthetic",
            )
        )
    left_out = ""
    if len(domain.names) > MOST_ATTRIBUTES or max(domain.sizes) > MOST_VALUES:
        left_out = f" The first {MOST_ATTRIBUTES} attributes, and {MOST_VALUES} values of each."
    order = "in the declared order"
    if domain.discovered is not None:
        order += f', those of {domain.discovered[1].name}, which were found, from frequent to rare behind "other"'
    sub = f"After the last step, value by value {order}: grey is true (private), green is synthetic."
    head = ["attribute", "value", "true", "synthetic", "difference"]
    charts: list[Chart] = [Gallery(columns, small=True), Table(head, rows, "All values as a table")]
    return ReportSection("How many rows have each value", f"{sub}{left_out}", charts)


def _in_order(attribute: Attribute, true: FloatArray) -> IntArray:
    """Return the codes that are shown, in their order: those of found values by how many true rows have them."""
    codes = np.arange(attribute.size)
    if isinstance(attribute, Discovered):
        found = codes[FOUND:][np.argsort(-true[FOUND:], kind="stable")]
        codes = np.concatenate(([OTHER], [MISSING] if attribute.missing else [], found)).astype(np.int64)
    return codes[:MOST_VALUES]


def _not_found(
    stream: Stream, evaluator: TableEvaluator, audit: HeldOutAudit, synthetic: Mapping[str, list[Any]]
) -> ReportSection:
    """Say which values are found, and what "other" still stands for."""
    assert evaluator.domain.discovered is not None
    _, attribute = evaluator.domain.discovered
    texts, counts = others(evaluator.domain, audit.truth)
    made = sum(value == attribute.other for value in synthetic[attribute.name])
    found = f"{len(attribute.found):,} {'value is' if len(attribute.found) == 1 else 'values are'}"
    sub = (
        f"Of {attribute.name} {found} found, of {attribute.most:,} at most, and have rows of their own. All others are "
        f'"{attribute.other}": {len(texts):,} values with {int(counts.sum()):,} true rows, for which there are '
        f"{made:,} synthetic ones. Rows from before a value was found are among these, too."
    )
    engine = uncorrected_engine(stream)
    if isinstance(engine, GrowingBlocks) and engine.config.finding is not None:
        rule = engine.config.finding
        sub += (
            f" A value is found with even odds once {math.ceil(rule.threshold(rule.tests)):,} rows have it at the end "
            f"of one period of {rule.tests} tests."
            if len(attribute.found) < attribute.most
            else " As many are found as may be: in a new stream most = N makes room for more."
        )
    rows = [[printable(text), f"{count:,}"] for text, count in zip(texts[:LISTED], counts.tolist(), strict=False)]
    charts = [Table(["value", "true rows"], rows, "Those with most true rows that are not found", open=True)]
    return ReportSection("Values that nobody listed", sub, charts if rows else [])


def ties(evaluator: TableEvaluator, truth: Folded, synthetic: Mapping[str, list[Any]]) -> Sequence[ReportSection]:
    """Return what ties attributes together, in the true rows and in the synthetic ones; nothing without a pair."""
    names, layout, several = evaluator.domain.names, _pairs(evaluator.domain.sizes), _several(evaluator.domain.sizes)
    shown, pairs = several[:MOST_ATTRIBUTES], layout.cliques
    if not pairs:
        return []
    counts = evaluator.true_counts(truth, layout), evaluator.synthetic_counts(synthetic, layout)
    true, made = (_strengths(layout, each) for each in counts)
    found = _kept(true, made)
    if (true > STRONG).any():
        found += " What is lost, noise hides: more epsilon, fewer attributes or coarser values keep more."
    if hidden := [pairs[at] for at in np.argsort(-true, kind="stable") if _hidden(true, made)[at]]:
        listed = "; ".join(f"{names[left]} and {names[right]}" for left, right in hidden[:LISTED])
        more = f"; and {len(hidden) - LISTED} more" if len(hidden) > LISTED else ""
        found += f" Less than half is left of {listed}{more}."
    if len(several) > MOST_ATTRIBUTES:
        found += f" Of {len(several)} attributes, the first {MOST_ATTRIBUTES} are looked at."
    if left_out := len(shown) * (len(shown) - 1) // 2 - len(pairs):
        found += f" {left_out} pairs with most values are left out."
    squares = []
    for title, values in (("true", true), ("synthetic", made)):
        square = np.full((len(shown), len(shown)), np.nan)
        for (left, right), value in zip(pairs, values, strict=True):
            square[shown.index(right), shown.index(left)] = value
        squares.append((title, square))
    strongest = [
        (*(names[place] for place in pairs[at]), true[at], made[at]) for at in np.argsort(-true, kind="stable")
    ]
    said = "; ".join(f"{left} and {right} {t:.2f} and {m:.2f}" for left, right, t, m in strongest[:3])
    rows = [[f"{left}, {right}", f"{t:.2f}", f"{m:.2f}"] for left, right, t, m in strongest[:LISTED]]
    heat = HeatMap(
        panels=squares,
        what="Cramer's V",
        scale="unit",
        size=(8.0, 4.8),
        ticks=[names[index] for index in shown],
        alt=f"Squares of Cramer's V of all pairs, true and synthetic. Strongest: {said}",
    )
    sub = (
        "Cramer's V of each pair after the last step, from 0 (knowing one says nothing of the other) to 1 (it says "
        f"all). {found}"
    )
    table = Table(["pair", "true V", "synthetic V"], rows, "The strongest true ties", open=True)
    return [ReportSection("What ties attributes together", sub, [heat, table])]


def _strengths(layout: Marginals, counts: FloatArray) -> FloatArray:
    """Return Cramer's V of each pair of a layout."""
    return np.array([cramers_v(layout.table(counts, index)) for index in range(len(layout.cliques))])


def _hidden(true: FloatArray, made: FloatArray) -> BoolArray:
    """Return which pairs are tied together, and keep less than half of it: noise hides them."""
    return (true > STRONG) & (made < true / 2)


def _kept(true: FloatArray, made: FloatArray) -> str:
    """Say how much of what ties attributes together synthetic rows keep, and how many pairs are lost.

    Args: true, made: Cramer's V of each pair.
    """
    strong = true > STRONG
    if not strong.any():
        return f"No two attributes are tied together (no true Cramer's V above {STRONG}): there is little to keep."
    share, lost = float((made[strong] / true[strong]).mean()), int(_hidden(true, made).sum())
    return (
        f"Of what ties attributes together {share:.0%} is kept (Cramer's V): of {int(strong.sum())} "
        f"pair{'s' if strong.sum() > 1 else ''} that are tied, {lost} {'is' if lost == 1 else 'are'} noise."
    )


def _several(sizes: Sequence[int]) -> list[int]:
    """Return the attributes that have several values."""
    return [index for index, size in enumerate(sizes) if size > 1]


def _pairs(sizes: tuple[int, ...]) -> Marginals:
    """Return the pairs of attributes that are looked at: those with the fewest cells, as memory is meant for."""
    pairs = list(combinations(_several(sizes)[:MOST_ATTRIBUTES], 2))
    cells = np.array([sizes[left] * sizes[right] for left, right in pairs], np.int64)
    order = np.argsort(cells, kind="stable")
    kept = set(order[np.cumsum(cells[order]) <= MOST_CELLS].tolist())
    return Marginals(sizes, tuple(pair for index, pair in enumerate(pairs) if index in kept))


def _picture(stream: Stream) -> Picture:
    return TablePicture(
        [
            AttributeCells(
                each.field,
                values=() if each.discovered or each.values is None else each.values,
                edges=each.edges or (),
                found=each.most if each.discovered else 0,
                other=each.other,
            )
            for each in TableDomainSection.from_stream(stream).all_attributes
        ],
        weighted=stream.weighted,
    )


VIEW = View(
    domain=_domain,
    error_model=_error_model,
    sections=sections,
    metrics=lambda stream: METRICS,
    judged=judged,
    events=lambda stream: "rows",
    records=lambda stream: "synthetic rows",
    terms=TERMS,
    error_unit="%",
    remarks=_remarks,
    warnings=_warnings,
    picture=_picture,
)

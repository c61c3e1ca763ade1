"""What engine `series` shows: truth beside its releases with their intervals, however many steps there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from math import nan
from statistics import mean

import numpy as np

from agents.protocol.release.held_out import HeldOutAudit
from agents.show.charts import AMBER, BLUE, MOST_POINTS, Chart, Curve, LineChart, Panel, thinned
from agents.show.noise import Answer, ErrorModel, noise_facts
from agents.show.pictures import WIDE, SeriesPicture
from agents.show.view import Judged, Metric, ReportSection, Scale, StepRow, View, known, relative
from engines.core.accounting import gaussian
from engines.series.build import config
from engines.series.config import SeriesConfig
from engines.series.evaluator import compared
from schemas.arrays import FloatArray
from schemas.config import Stream
from schemas.guarantee import Guarantee

LAST_STEPS = 200
"""Steps that are drawn one by one beside a long series."""
WINDOWS = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)
"""Steps whose mean is judged."""
MOST_PANELS = 12
"""Groups that are drawn side by side."""
KEYS = ("true", "released", "se")
"""Of a step's figures: the truth, the release and its standard error."""


def _domain(stream: Stream) -> str:
    parts = []
    for field in config(stream).domain.fields:
        of = {
            "sum": f"the sum of {field.name}",
            "count": "the number of events",
            "value": f"the reading {field.name}",
            "histogram": f"the histogram of {field.name}",
        }
        text = f"{of[field.of]} in each step"
        if field.edges is not None:
            bins = f"{len(field.edges) - 1:,} bins from {field.edges[0]:g} to {field.edges[-1]:g}"
            parts.append(f"{text}, in {bins}, one for what is below and one for what is above")
            continue
        if field.limits is not None:
            text += f", values clipped to [{field.limits[0]:g}, {field.limits[1]:g}]"
        if field.sensitivity is not None:
            text += f", of which one user moves {field.sensitivity:g} at most"
        parts.append(f"{text}, on a lattice of {field.unit:g}")
    by = config(stream).domain.by
    if by is not None:
        parts.append(f"of each of {len(by.values):,} groups by {by.field}")
    return "; ".join(parts) + "; by declaration and not from the data."


def _error_model(stream: Stream, guarantee: Guarantee) -> ErrorModel:
    """Return the noise of one step's measurement; filters make less of it, by how much depends on the series."""
    recipe = config(stream)
    what = "noise of one measurement"
    if recipe.domain.histograms:
        return _histogram_model(recipe, guarantee)
    return ErrorModel(
        tuple(
            Answer.steady(f"{field.name}, one step", 1, what, noise_facts(mechanism))
            for field, mechanism in zip(recipe.domain.fields, guarantee, strict=True)
        ),
        sizes="draws",
        growth="The error of a step does not grow with the number of releases within a span",
        formula="sd of the noise of one step's measurement at an even share of the budget",
        conditions="It is the noise alone. Every mode filters it: where a series moves little against the noise, the "
        "released value is much closer; each release carries its own standard error. Where the noise is far below what "
        "the series moves by, no filter helps. Events beyond the bounds, and what clipping takes away, are not in it. "
        "privstream simulate measures the error on your own data.",
        unit="units of the field",
    )


def _histogram_model(recipe: SeriesConfig, guarantee: Guarantee) -> ErrorModel:
    """Return the noise of one bin and of the number of all events of a step."""
    answers = []
    for field, mechanism in zip(recipe.domain.fields, guarantee, strict=True):
        bins = field.bounds[1] + 1
        facts = noise_facts(mechanism)
        answers.append(Answer.steady(f"{field.name}, one bin of a step", 1, "noise of one count", facts))
        answers.append(Answer.steady(f"{field.name}, all {bins:,} bins of a step", bins, "noise of one count", facts))
    return ErrorModel(
        tuple(answers),
        sizes="draws",
        growth="The error of a step does not grow with the number of releases",
        formula="sd of the noise of one bin, times the root of the bins that are added up",
        conditions="The rank of a percentile errs by the noise of the bins on its far side, over the events of the "
        "step: half as many bins, or steps of twice the length, are better. Over n steps the noise of a bin is the "
        "root of n as large: let a step be as long as the window that you ask about. Each release has its intervals. "
        "Events beyond the bounds are not in it. privstream simulate measures the error on your own data.",
        unit="events",
    )


def _remarks(stream: Stream) -> Iterator[str]:
    """Say how the budget is accounted for, and what the length of the stream costs."""
    recipe = config(stream)
    if recipe.domain.histograms:
        yield (
            "An event is in one bin of one step, so all bins of all steps together move by "
            + ("1" if stream.privacy.unit == "event" else "as much as a user has events")
            + (": that is what the noise hides." if recipe.pure else " (in L2 norm at most).")
        )
    if recipe.domain.by is not None:
        yield (
            f"An event is in one group by {recipe.domain.by.field}, so each of {len(recipe.domain.by.values):,} groups "
            "has the whole epsilon."
            + (
                ""
                if stream.privacy.unit == "event"
                else " A user whose events are in several pays for each event once."
            )
        )
    if recipe.pure:
        yield from _length(stream, recipe)
        return
    if recipe.mode == "paper-binomial":
        yield (
            "Binomial noise is accounted by lemma A.2 and theorem A.3 of the paper (Zhang, Khalili, Liu 2022), which "
            "need several times the standard deviation of Gaussian noise for the same promise."
        )
    else:
        yield from _accounting(recipe)
    units = "events" if stream.privacy.unit == "event" else "users"
    yield (
        f"delta = {recipe.delta:g} must be far below one in your {units}: among N of them, N times delta may be "
        "unprotected."
    )
    yield from _length(stream, recipe)


def _accounting(recipe: SeriesConfig) -> Iterator[str]:
    exact = gaussian.sigma_for(epsilon=recipe.epsilon, delta=recipe.delta)
    paper = gaussian.corollary_5_2(epsilon=recipe.epsilon, delta=recipe.delta)
    yield (
        f"Exact Gaussian accounting: sigma = {exact:.4g} for each unit of total L2 shift. Corollary 5.2 of the paper "
        f"(Zhang, Khalili, Liu 2022) asks for {paper:.4g}, {(paper / exact) ** 2:.2f} times the variance, for the same "
        "promise."
    )


def _length(stream: Stream, recipe: SeriesConfig) -> Iterator[str]:
    presence = recipe.presence
    if recipe.horizon is not None:
        yield (
            f"After {recipe.horizon:,} steps the stream goes on with empty releases that say so. A new stream over the "
            f"same {'events' if stream.privacy.unit == 'event' else 'users'} adds its epsilon to this one's."
        )
    if presence.renews:
        yield f"The budget renews every {presence.steps:,} steps; what was learnt of the series is kept."
    if presence.most_steps is None:
        yield (
            "One user may be in every step for ever, so weights decay: the noise grows without end. Against a stream "
            "that knows its horizon the mean squared error is 1.07 (a lucky guess of decay) to 10 times as large; "
            "bounds that renew (per) are the better offer."
        )
    elif presence.most_steps == 1:
        who = "One event is in one step." if stream.privacy.unit == "event" else "One user is in one step at most."
        yield f"{who} The noise does not depend on the length of the stream."
    elif presence.everywhere and presence.steps is not None and recipe.mode == "default":
        share = 1 / presence.steps
        yield (
            f"One user may be in all {presence.steps:,} steps, so that an even step gets {share:.2g} of mu squared: "
            "twice the horizon is twice the variance."
        )
    elif presence.steps is None or presence.most_steps < presence.steps:
        told = f"One user is in at most {presence.most_steps:,} steps. "
        told += "The noise does not depend on the length of the stream."
        yield f"{told} A lower max_per_step makes it smaller." if presence.per_step > 1 else told


def sections(stream: Stream, truth: HeldOutAudit, steps: Sequence[StepRow]) -> Iterator[ReportSection]:
    """Yield for each number how far its releases are off, in words and as lines; with groups, a panel for each."""
    for name, groups in _numbers(stream).items():
        found = {group: _table(tail, steps) for group, tail in groups.items()}
        tables = {group: table for group, (table, _) in found.items() if len(table) > 1}
        if not tables:
            continue
        if None not in groups:
            yield ReportSection(f"{name}: truth and release", how_far_off(_all(tables)), [_multiples(found, name)])
            continue
        table, starts = found[None]
        charts: list[Chart] = [_lines(starts, table, f"all {len(table):,} steps", name)]
        if len(table) > MOST_POINTS:
            charts.append(_lines(starts[-LAST_STEPS:], table[-LAST_STEPS:], f"the last {LAST_STEPS} steps", name))
        yield ReportSection(f"{name}: truth and release", how_far_off(table), charts)


def _numbers(stream: Stream) -> Mapping[str, Mapping[str | None, str]]:
    """Return by number that is compared, and by its groups, what each adds to the keys of its figures."""
    found: dict[str, dict[str | None, str]] = {}
    for one in compared(config(stream).domain):
        found.setdefault(one.name, {})[one.group] = one.tail
    return found


def _all(tables: Mapping[str | None, FloatArray]) -> FloatArray:
    return np.concatenate(list(tables.values()))


def _multiples(found: Mapping[str | None, tuple[FloatArray, Sequence[datetime]]], name: str) -> LineChart:
    """Draw the groups that are named first side by side; a line has gaps where a group has no number."""
    first = list(found)[:MOST_PANELS]
    x = sorted({start for group in first for start in found[group][1]})
    panels = []
    for group in first:
        table, starts = found[group]
        at, rows = {start: row for row, start in enumerate(starts)}, np.full((len(x), 3), nan)
        for place, start in enumerate(x):
            if start in at:
                rows[place] = table[at[start]]
        panels.append(_panel(rows, name, str(group)))
    more = f"; the first of {len(found):,}" if len(found) > len(first) else ""
    return LineChart(
        x=x,
        panels=panels,
        columns=3,
        size=(9.0, 1.8 * -(-len(panels) // 3) + 0.6),
        alt=f"Lines of {name}, truth and release with its 90 % interval, for {len(panels)} groups{more}",
    )


def _table(tail: str, steps: Sequence[StepRow]) -> tuple[FloatArray, Sequence[datetime]]:
    """Return `(steps, 3)` truth, release and its standard error, NaN where it has none, and when the steps began."""
    rows = [
        (row.start, [nan if (value := row.metrics.get(f"{key}{tail}")) is None else value for key in KEYS])
        for row in steps
    ]
    there = [(start, values) for start, values in rows if known(values[0]) and known(values[1])]
    return np.array([values for _, values in there], np.float64).reshape(-1, 3), [start for start, _ in there]


def how_far_off(table: FloatArray) -> str:
    """Return the errors of a `(steps, 3)` table as `_table` makes it, in words.

    >>> print(how_far_off(np.array([[100.0, 104.0, 3.0], [100.0, 98.0, 3.0]])).replace(". ", "\\n"))
    A release is off by 3 on average (root mean square 3.16), 3 % of the mean truth
    Its 90 % interval held the truth in 100 % of 2 steps.
    """
    true, released, error = table.T
    off = np.abs(released - true)
    mean, size = float(off.mean()), float(np.abs(true).mean())
    said = f"A release is off by {mean:.4g} on average (root mean square {np.sqrt((off**2).mean()):.3g})"
    said += f", {100 * mean / size:.3g} % of the mean truth." if size else "."
    published = ~np.isnan(error)
    if published.any():
        held = float((off[published] <= WIDE * error[published]).mean())
        said += f" Its 90 % interval held the truth in {100 * held:.0f} % of {int(published.sum()):,} steps."
    return said


def _lines(starts: Sequence[datetime], table: FloatArray, label: str, name: str) -> LineChart:
    true, released, _ = table.T
    said = f"truth from {true.min():.4g} to {true.max():.4g}, release from {released.min():.4g} to {released.max():.4g}"
    return LineChart(
        x=starts,
        panels=[_panel(table, name, label)],
        size=(6.0, 3.0),
        alt=f"Lines of {name}, truth and release with its 90 % interval, {label}: {said}",
    )


def _panel(table: FloatArray, name: str, label: str) -> Panel:
    true, released, error = table.T
    published = Curve(released, BLUE, band=WIDE * error)
    return Panel(
        lines={"release": published, "truth": Curve(true, AMBER, "--")},
        what=name,
        title=label,
        text="{:.4g}".format,
        zero=False,
        band="90 % interval of a step",
    )


def metrics(stream: Stream) -> Sequence[Metric]:
    """Return what is true of each number, what is released, and how far apart the two are; of groups, on average."""
    found, by = [], config(stream).domain.by
    meanings = {
        ("true", "truth", ""): "The true number of the step. Not for publication.",
        ("released", "release", ""): "What is published of the step.",
        ("se", "standard error", "SE"): "Of the release, and published with it; smaller than the noise alone where a "
        "filter helps.",
    }
    off = "How far the release of a step is from the truth, in the units of the field."
    for name, groups in _numbers(stream).items():
        field = f" of {name}" if by is None else f" of {name} by {by.field}"
        for (what, label, short), meaning in meanings.items():
            found.append(
                Metric(
                    keys=tuple(f"{what}{tail}" for tail in groups.values()),
                    label=f"{label}{field}",
                    short=short,
                    meaning=meaning,
                    better="",
                    of=lambda *values: mean(values),
                    text="{:.5g}".format,
                    tile=by is None,
                    error=False,
                )
            )
        if by is not None:
            found.append(
                Metric(keys=(f"error_{name}",), label=f"error{field}", meaning=f"{off} The mean of all groups.")
            )
            continue
        keys = tuple(f"{what}{groups[None]}" for what in ("true", "released"))
        error = Metric(
            keys=keys,
            label=f"error{field}",
            meaning=off,
            of=lambda true, released: abs(released - true),
            tile=False,
        )
        found.append(error)
    return found


def judged(stream: Stream, audit: HeldOutAudit, steps: Sequence[StepRow]) -> Sequence[Judged]:
    """Return errors of means over more and more steps, from all of them to single ones, of each number; its groups are
    judged together, those of a percentile by how many events they have.
    """
    found = []
    for name, groups in _numbers(stream).items():
        sizes = _sizes(stream, name, steps)
        each = {group: _table(tail, steps) for group, tail in groups.items()}
        series = [(table, starts, sizes.get(group, 1.0)) for group, (table, starts) in each.items() if len(table) > 1]
        what = name if "" not in groups.values() else "Values over time"
        if not series:
            found.append(Judged(what=what, scales=(), how=""))
            continue
        longest, starts, _ = max(series, key=lambda each: len(each[0]))
        scales = []
        for width in [width for width in WINDOWS if 2 * width <= len(longest)][::-1]:
            parts = [
                [weight * thinned(values, width) for values in (*table.T[:2], np.full(len(table), table[:, 0].mean()))]
                for table, _, weight in series
            ]
            means = [np.concatenate(part) for part in zip(*parts, strict=True)]
            scales.append(Scale(_window(width, starts), relative(means[0], means[1]), relative(means[0], means[2])))
        found.append(
            Judged(
                what=what,
                scales=scales,
                how="Means of steps in a row, true and released. Bars are the differences, added up, as a share of the "
                "true values." + (" Groups count by their events." if sizes else ""),
                beyond="and longer",
                baseline="the mean of all steps in place of each",
                more=how_far_off(np.concatenate([table for table, _, _ in series])),
            )
        )
    return found


def _sizes(stream: Stream, name: str, steps: Sequence[StepRow]) -> Mapping[str | None, float]:
    """Return the mean number of events of each group, where a number of theirs is none of events; else nothing."""
    domain = config(stream).domain
    if domain.by is None or not domain.histograms or name.endswith("_count"):
        return {}
    counts = _numbers(stream)[f"{name.rpartition('_')[0]}_count"]
    return {group: float(_table(tail, steps)[0][:, 0].mean()) for group, tail in counts.items()}


def _window(width: int, starts: Sequence[datetime]) -> str:
    if width == 1:
        return "single steps"
    hours = (starts[width] - starts[0]).total_seconds() / 3600
    long = f"{hours / 24:,.3g} days" if hours >= 48 else f"{hours:.3g} hours" if hours >= 2 else f"{60 * hours:.3g} min"
    return f"means of {width:,} steps ({long})"


def _picture(stream: Stream) -> SeriesPicture:
    domain = config(stream).domain
    names = list(dict.fromkeys(one.name for one in compared(domain)))
    return SeriesPicture(names, by=None if domain.by is None else (domain.by.field, domain.by.values))


VIEW = View(
    domain=_domain,
    error_model=_error_model,
    sections=sections,
    metrics=metrics,
    judged=judged,
    events=lambda stream: "readings" if config(stream).domain.readings else "events",
    records=lambda stream: "released values",
    remarks=_remarks,
    picture=_picture,
)

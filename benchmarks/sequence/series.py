"""Error of the series engine and of the methods of [zhang2022], on every series: the series part of `bench-sequence`.

Per series and epsilon, over the same series and 20 seeds: `default` as it runs in the job, but with noise in floats
(`release`), and the other methods at their best parameters in hindsight (`benchmarks.papers.series`). One user is
in every step and moves it by at most 1; delta is 1e-6 where a method has one. What is released is moved into the
public range (not negative; the drive cycle from 0 to 1), whatever the method.
Writes benchmarks/results/series.csv, .md and .png.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from statistics import geometric_mean

import numpy as np
from rich.console import Console
from rich.progress import Progress

from benchmarks.panels import draw_panels
from benchmarks.papers.series import BASELINES, DELTA, Best, best, kalman, relative_error, releaser
from benchmarks.sequence.series_data import DRIVE, SOURCES, SeriesData, Source
from benchmarks.size import RESULTS, kept, sized
from engines.series.bank import FilterBank
from engines.series.budget import Presence
from engines.series.config import SeriesConfig
from engines.series.fields import SeriesDomain, SeriesField

PAPER, EXACT = "paper", "paper, exact"


@dataclass(frozen=True)
class Row:
    """Mean over seeds of one method on one series at one epsilon, and its spread."""

    series: str
    epsilon: str
    method: str
    mse: float
    spread: float
    relative: float
    parameter: str

    FIELDS = ("series", "epsilon", "method", "mse", "spread", "relative", "parameter")

    @staticmethod
    def of(series: str, epsilon: str, method: str, found: Best) -> Row:
        errors = found.errors
        spread = float(errors.std(ddof=1) / len(errors) ** 0.5) if len(errors) > 1 else 0.0
        relative = float(found.relative.mean()) if found.relative is not None else float("nan")
        return Row(series, epsilon, method, float(errors.mean()), spread, relative, found.parameter)


def write(found: Sequence[Row], path: Path) -> None:
    """As CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(Row.FIELDS)
        out.writerows([getattr(row, field) for field in Row.FIELDS] for row in found)


def ratios(found: Sequence[Row], other: str, *, drive: bool = False) -> dict[tuple[str, str], float]:
    """MSE of `default` over that of another method, by series and epsilon."""
    mse = {(row.series, row.epsilon, row.method): row.mse for row in found}
    return {
        (series, epsilon): value / mse[series, epsilon, other]
        for (series, epsilon, method), value in mse.items()
        if method == "default" and (series == DRIVE) == drive
    }


def summary(found: Sequence[Row]) -> dict[str, float]:
    """Geometric means over series and epsilons, the drive cycle apart; the worst of all against the exact paper."""
    paper, exact = ratios(found, PAPER), ratios(found, EXACT)
    untouched = [ratio for (series, _), ratio in exact.items() if not SOURCES[series].tuned]
    return {
        "series_ratio": round(geometric_mean(list(paper.values())), 3),
        "series_ratio_exact": round(geometric_mean(list(exact.values())), 3),
        "series_worst": round(max(exact.values()), 3),
        **({"series_ratio_exact_untouched": round(geometric_mean(untouched), 3)} if untouched else {}),
    }


def table(found: Sequence[Row]) -> str:
    """Markdown: ratios by series and epsilon, then errors by method."""
    epsilons = list(dict.fromkeys(row.epsilon for row in found))
    names = list(dict.fromkeys(row.series for row in found))
    lines = ["MSE of `default` over the paper's, with its own accounting / with exact accounting", ""]
    lines += [f"| series | {' | '.join(epsilons)} |", "|---" * (len(epsilons) + 1) + "|"]
    paper, exact = ratios(found, PAPER), ratios(found, EXACT)
    for name in names:
        drive = name == DRIVE
        of_paper = ratios(found, PAPER, drive=True) if drive else paper
        of_exact = ratios(found, EXACT, drive=True) if drive else exact
        cells = [f"{of_paper[name, e]:.2f} / {of_exact[name, e]:.2f}" for e in epsilons]
        lines.append(f"| {name}{' (tuned)' if SOURCES[name].tuned else ''} | {' | '.join(cells)} |")
    means = [
        f"{geometric_mean([r for (_, x), r in paper.items() if x == e]):.2f} / "
        f"{geometric_mean([r for (_, x), r in exact.items() if x == e]):.2f}"
        for e in epsilons
    ]
    lines += [f"| geometric mean, {DRIVE} apart | {' | '.join(means)} |", ""]
    methods = list(dict.fromkeys(row.method for row in found))
    lines += ["Root mean square error by method", "", f"| series | epsilon | {' | '.join(methods)} |"]
    lines.append("|---" * (len(methods) + 2) + "|")
    mse = {(row.series, row.epsilon, row.method): row for row in found}
    for name in names:
        for e in epsilons:
            cells = [f"{mse[name, e, method].mse ** 0.5:.3g}" for method in methods]
            lines.append(f"| {name} | {e} | {' | '.join(cells)} |")
    return "\n".join(lines)


def figure(found: Sequence[Row], path: Path) -> None:
    """Relative error ([zhang2022]'s RE) against epsilon, a panel for each series; bars are the spread over seeds."""
    panels: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
    for row in found:
        # Half of the spread of a square is that of its root, relative to its size.
        spread = row.relative * row.spread / row.mse / 2 if row.mse else 0.0
        points = panels.setdefault(row.series, {}).setdefault(row.method, [])
        points.append((float(row.epsilon), row.relative, spread))
    draw_panels(panels, path, x="epsilon", y="RE")


EPSILONS = ("0.1", "0.5", "1", "2", "5", "10")
SEEDS = 20
MANY_SEEDS, MANY_BELOW = 100, 0.2
"""Simulated series at the smallest epsilon: there the level is all there is to know, and its error is as heavy as a
square of one normal number, so that 20 seeds would leave 20 % of doubt."""
QUICK_SEEDS, QUICK_STEPS = sized((3, 400), smallest=(2, 60))
QUICK_EPSILONS = sized(("0.1", "1", "10"), smallest=("1",))
QUICK_SERIES = sized(
    ("AR(1) .5", "AR(1) .95", "bike days", "road segment", "bike hours"), smallest=("AR(1) .5", "bike days")
)
WIDE = 2.0**20


def recipe(data: SeriesData, epsilon: str) -> SeriesConfig:
    """Of the stream that the job would run."""
    limits = (0.0, WIDE) if data.positive else (-WIDE, WIDE)
    if float(data.values.max()) <= 1:
        limits = (0.0, 1.0)  # the drive cycle is relative to its public range
    return SeriesConfig(
        name="benchmark",
        domain=SeriesDomain((SeriesField(name="value", of="value", limits=limits, sensitivity=1.0),)),
        epsilon=Fraction(epsilon),
        delta=DELTA,
        presence=Presence(steps=len(data.values)),
        clock=data.clock,
    )


def release(data: SeriesData, epsilon: str, normal: np.ndarray) -> np.ndarray:
    """Released values of one run: the engine's own estimator and budget, on the engine's lattice.

    Noise is `normal`, `(steps,)`, scaled in floats: the exact noise has the same law up to parts in a million, and
    takes ten times as long. A test holds this to the engine.
    """
    config = recipe(data, epsilon)
    field = config.domain.fields[0]
    totals = field.lattice(data.values)
    steps = len(totals)
    released = np.empty(steps)
    _, (bank,) = config.build()
    assert isinstance(bank, FilterBank)
    left = config.gaussian.precision(0)
    for step in range(steps):
        wished = bank.wanted_precision(remaining=left, left=steps - step)
        spent = left if step == steps - 1 else min(left, wished)
        left -= spent
        released[step] = bank.update(totals[step] + normal[step] / spent**0.5, 1 / spent)[0]
    return np.clip([field.real(value) for value in released], *field.range)


def ours(made: Sequence[SeriesData], epsilon: str, normal: np.ndarray) -> Best:
    """One run per seed."""
    truth = np.stack([data.values for data in made])
    released = np.stack([release(data, epsilon, normal[seed]) for seed, data in enumerate(made)])
    return Best(((released - truth) ** 2).mean(axis=1), "", relative_error(released, truth))


def seeds_for(source: Source, epsilon: str) -> int:
    """More where a mean over seeds needs them."""
    return MANY_SEEDS if source.needs is None and float(epsilon) < MANY_BELOW else SEEDS


def rows(name: str, source: Source, epsilon: str, seeds: int, steps: int | None) -> Iterator[Row]:
    """All methods on one series at one epsilon."""
    made = [_cut(source.make(seed), steps) for seed in range(seeds)]
    truth = np.stack([data.values for data in made])
    normal, filtered = (np.random.default_rng(seed).normal(size=truth.shape) for seed in (5, 7))
    value = float(epsilon)
    limits = recipe(made[0], epsilon).domain.fields[0].range
    yield Row.of(name, epsilon, "default", ours(made, epsilon, filtered))
    yield Row.of(name, epsilon, "kalman", best(kalman(truth, filtered, value), truth, limits))
    yield Row.of(name, epsilon, PAPER, best(releaser(truth, normal, value, exact=False), truth, limits))
    yield Row.of(name, epsilon, EXACT, best(releaser(truth, normal, value, exact=True), truth, limits))
    for method, run in BASELINES.items():
        yield Row.of(name, epsilon, method, best(run(truth, np.random.default_rng(6), value), truth, limits))


def _cut(data: SeriesData, steps: int | None) -> SeriesData:
    return SeriesData(data.values[:steps], data.clock, data.positive)


def run(*, quick: bool, console: Console) -> dict[str, float]:
    """All of it; the figures of the last line."""
    names = [name for name in SOURCES if not quick or name in QUICK_SERIES]
    absent = [name for name in names if SOURCES[name].missing]
    if absent:
        console.print(f"[yellow]skipped, their data are not there:[/] {', '.join(absent)}")
    names = [name for name in names if name not in absent]
    epsilons = QUICK_EPSILONS if quick else EPSILONS
    found: list[Row] = []
    with Progress(console=console) as progress:
        task = progress.add_task("series", total=len(names) * len(epsilons))
        for name in names:
            for epsilon in epsilons:
                seeds, steps = (QUICK_SEEDS, QUICK_STEPS) if quick else (seeds_for(SOURCES[name], epsilon), None)
                found += rows(name, SOURCES[name], epsilon, seeds, steps)
                progress.advance(task)
                # A part is kept if the rest is stopped; quick figures do not replace the true ones.
                if kept(quick=quick):
                    write(found, RESULTS / "series.csv")
    if kept(quick=quick):
        (RESULTS / "series.md").write_text(table(found) + "\n", encoding="utf-8")
        figure(found, RESULTS / "series.png")
    return summary(found)

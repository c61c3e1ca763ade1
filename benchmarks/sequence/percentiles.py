"""Rank error of windowed percentiles, as engine `series` has them, over a plain histogram: a part of `bench-sequence`.

A plain histogram is one release of the window's bins with Laplace noise of scale 1/epsilon, negative counts cut at 0
and values spread evenly in a bin: all that somebody does who wants this window and no other. The engine runs as in the
job, exact noise and all, one event is protected (epsilon 1), and windows of several steps are asked of its answers.
The rank error of x at q is how far q lies from the ranks of the true values that x can have: 0 where x is right.
"Bins alone" has no noise. Delays: departures of flights, 66 bins of 5 minutes. Response times: log-normal, 40 bins of
equal ratio, 2,000 a day, whose median moves from day to day.
Writes benchmarks/results/percentiles.csv and .md.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from benchmarks.data import DATA
from benchmarks.size import RESULTS, kept, sized
from engines.core.answers.contract import CountQuestion
from engines.core.answers.where import Atom
from engines.core.contract import Batch, Columns
from engines.core.noise import seeded
from engines.core.registry import build_domain, build_engine
from engines.series.answers import answers
from schemas.arrays import FloatArray, IntArray
from schemas.blocks import Folded
from schemas.config import Stream
from schemas.config.engines.series import PERCENTILES

DAYS, FEWEST = sized(364, smallest=28), sized(50, smallest=5)
"""Days of each data set, and events of the smallest window that is asked for."""
DELTA = 1e-6


@dataclass(frozen=True, eq=False)
class Values:
    """Events in the order of their days. Attributes: groups: texts, empty where there are none."""

    name: str
    edges: tuple[float, ...]
    days: IntArray
    values: FloatArray
    groups: Sequence[str] = ()


@dataclass(frozen=True)
class Setting:
    """Attributes: step, window: in days, the second a multiple of the first. by: whether each group is asked for."""

    step: int
    window: int
    by: bool = False
    delta: float = 0.0

    @property
    def name(self) -> str:
        steps = f"steps of {self.step} d, windows of {self.window} d"
        return steps + (", by group" if self.by else "") + (f", delta {self.delta:g}" if self.delta else "")


SETTINGS = (
    Setting(7, 7),
    Setting(1, 1),
    Setting(1, 7),
    Setting(7, 28),
    Setting(7, 7, by=True),
    Setting(7, 7, delta=DELTA),
)


def delays() -> Values:
    import pyarrow.parquet as parquet

    table = parquet.read_table(
        DATA / "nyc_flights_2013" / "nyc_flights_2013.parquet", columns=["sched_dep_local", "dep_delay", "carrier"]
    ).to_pandas()
    table = table.dropna(subset=["dep_delay"]).sort_values("sched_dep_local", kind="stable")
    days = ((table.sched_dep_local - table.sched_dep_local.min().normalize()).dt.days).to_numpy(np.int64)
    here = days < DAYS
    carriers = table.carrier.astype(str).tolist()
    return Values(
        "departure delays",
        tuple(range(-30, 301, 5)),
        days[here],
        table.dep_delay.to_numpy(np.float64)[here],
        [carrier for carrier, inside in zip(carriers, here.tolist(), strict=True) if inside],
    )


def times() -> Values:
    chance = np.random.default_rng(7)
    days = np.repeat(np.arange(DAYS), sized(2000, smallest=40))
    medians = np.exp(np.cumsum(chance.normal(0, 0.05, DAYS)))
    edges = tuple(float(f"{edge:.12g}") for edge in np.geomspace(1, 10_000, 41))
    return Values("response times", edges, days, 80 * medians[days] * np.exp(chance.normal(0, 0.9, len(days))))


def stream(data: Values, setting: Setting) -> Stream:
    by: dict[str, Any] = {"by": "group", "values": sorted(set(data.groups))} if setting.by else {}
    field = {"name": "x", "of": "histogram", "edges": list(data.edges)}
    return Stream.model_validate(
        {
            "name": "percentiles",
            "engine": "series",
            "source": "raw",
            "privacy": {"epsilon": 1.0, "unit": "event", "delta": setting.delta},
            "time": {"field": "t", "start": "2020-01-01T00:00:00", "step": f"{setting.step}d", "clock": "replay"},
            "domain": {"kind": "series", "fields": [field], **by},
        }
    )


def rank_error(x: float, part: float, ordered: FloatArray) -> float:
    """Return how far `part` lies from the ranks of x among the true values.

    >>> rank_error(2.0, 0.9, np.array([1.0, 2.0, 2.0, 3.0]))
    0.15000000000000002
    """
    low, high = (float(np.searchsorted(ordered, x, side)) / len(ordered) for side in ("left", "right"))
    return max(0.0, low - part, part - high)


def plain(counts: FloatArray, edges: Sequence[float]) -> dict[str, float]:
    """Return percentiles of noisy counts as everybody takes them: negative ones are 0."""
    below = np.cumsum(np.maximum(counts, 0.0))
    found = np.interp(list(PERCENTILES.values()), below[:-1] / max(below[-1], 1e-9), edges)
    return dict(zip(PERCENTILES, found.tolist(), strict=True))


def windows(data: Values, setting: Setting) -> Iterator[tuple[int, str | None, FloatArray]]:
    """Yield each window's first day, group and true values, where there are enough of them."""
    groups = np.array(data.groups) if setting.by else None
    for first in range(0, DAYS - setting.window + 1, setting.window):
        inside = (data.days >= first) & (data.days < first + setting.window)
        for group in [None] if groups is None else np.unique(groups).tolist():
            here = data.values[inside if groups is None else inside & (groups == group)]
            if len(here) >= FEWEST:
                yield first, group, here


def released(data: Values, setting: Setting, seed: int) -> Iterator[dict[str, float | None]]:
    """Run the engine over all steps; yield what its answers say of each window."""
    made = stream(data, setting)
    domain, engine, told = build_domain(made), build_engine(made), []
    steps = DAYS // setting.step
    for step in range(steps):
        first, last = np.searchsorted(data.days, [step * setting.step, (step + 1) * setting.step]).tolist()
        texts = {name: list(data.groups[first:last]) for name in domain.text_fields}
        columns = Columns({"x": data.values[first:last]}, texts, np.ones(last - first, np.int8))
        release = engine.step(Batch(step, Folded.from_keys(domain.encode(columns)[0])), seeded(seed).child(step))
        told += [(step, each) for each in release.measurements]
    answerer = answers(made, told, steps - 1)
    for begin, group, _ in windows(data, setting):
        where = None if group is None else Atom("group", "=", (group,))
        asked = (begin // setting.step, (begin + setting.window) // setting.step - 1)
        yield {name: answerer.answer(CountQuestion(*asked, where, series=f"x_{name}")).estimate for name in PERCENTILES}


def errors(data: Values, setting: Setting, seed: int) -> dict[str, dict[str, float]]:
    """Return the mean rank error over all windows, by method and percentile."""
    chance = np.random.default_rng(seed)
    found: dict[str, dict[str, list[float]]] = {
        method: {name: [] for name in PERCENTILES} for method in ("series", "plain", "bins alone")
    }
    edges = np.array([-np.inf, *data.edges, np.inf])
    for (_, _, values), ours in zip(windows(data, setting), released(data, setting, seed), strict=True):
        ordered = np.sort(values)
        counts = np.histogram(values, edges)[0].astype(np.float64)
        noisy = plain(counts + chance.laplace(0, 1, len(counts)), data.edges)
        for method, told in (("series", ours), ("plain", noisy), ("bins alone", plain(counts, data.edges))):
            for name, part in PERCENTILES.items():
                x = told[name]
                # Nothing is said of so few events that there may be none: any rank may be meant.
                found[method][name].append(max(part, 1 - part) if x is None else rank_error(x, part, ordered))
    return {method: {name: mean(each) for name, each in of.items()} for method, of in found.items()}


Key = tuple[str, str, str]
"""Data, setting and method."""


def run(*, quick: bool, console: Console) -> dict[str, float]:
    """All of it; writes the results unless quick."""
    seeds = sized(2 if quick else 5, smallest=1)
    found: dict[Key, list[dict[str, float]]] = {}
    todo = [(data, setting) for data in (delays(), times()) for setting in SETTINGS if data.groups or not setting.by]
    with Progress(console=console) as progress:
        bar = progress.add_task("percentiles", total=len(todo) * seeds)
        for data, setting in todo:
            for seed in range(1, seeds + 1):
                for method, of in errors(data, setting, seed).items():
                    found.setdefault((data.name, setting.name, method), []).append(of)
                progress.advance(bar)
    if kept(quick=quick):
        write(found)
    first = SETTINGS[0].name
    return {
        f"percentiles_p95_over_plain_{data.split()[0]}": over_plain(found, data, setting)
        for data, setting, method in found
        if method == "series" and setting == first
    }


def over_plain(found: Mapping[Key, Sequence[Mapping[str, float]]], data: str, setting: str) -> float:
    """Return the rank error at the 95th percentile over that of a plain histogram, in the mean of all seeds."""
    ours, theirs = (mean(of["p95"] for of in found[data, setting, method]) for method in ("series", "plain"))
    return ours / max(theirs, 1e-12)


def write(found: Mapping[Key, Sequence[Mapping[str, float]]]) -> None:
    """Write the errors of each seed as CSV, and their means with the spread over seeds as a table."""
    with RESULTS.joinpath("percentiles.csv").open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["data", "setting", "method", "seed", *PERCENTILES])
        for key, runs in found.items():
            for seed, of in enumerate(runs, start=1):
                out.writerow([*key, seed, *(f"{of[name]:.6g}" for name in PERCENTILES)])
    lines = [
        f"Rank error in thousandths, mean of {len(next(iter(found.values())))} seeds ± spread; epsilon 1 of an event.",
        "`make bench-sequence ARGS='--only percentiles'`",
        "",
        f"| data, steps and windows | method | {' | '.join(PERCENTILES)} | p95 over plain |",
        f"|---|---|{'---|' * (len(PERCENTILES) + 1)}",
    ]
    for (data, setting, method), runs in found.items():
        cells = [_cell([1000 * of[name] for of in runs]) for name in PERCENTILES]
        over = f"{over_plain(found, data, setting):.2f}" if method == "series" else ""
        lines.append(f"| {data}: {setting} | {method} | {' | '.join(cells)} | {over} |")
    RESULTS.joinpath("percentiles.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _cell(each: Sequence[float]) -> str:
    return f"{mean(each):.2f}" + (f" ± {stdev(each):.2f}" if len(each) > 1 else "")

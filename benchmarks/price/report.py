"""Prices as tables, and the last line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean, stdev

from benchmarks.price import maps, tables, trips
from benchmarks.results import Results

PRICES = {
    "price_table": (tables.PART, tables.OURS, (tables.RIVAL,), ("avg_we",)),
    "price_table_max_we": (tables.PART, tables.OURS, (tables.RIVAL,), ("max_we",)),
    "price_table_pure": (tables.PART, tables.PURE, (tables.RIVAL,), ("avg_we",)),
    "price_map": (maps.PART, maps.OURS, maps.RIVALS, maps.FIGURES),
    "price_map_to_privtree": (maps.PART, maps.OURS, ("PrivTree",), maps.FIGURES),
    "price_map_to_grid": (maps.PART, maps.OURS, ("adaptive grid",), maps.FIGURES),
    "price_trips": (trips.PART, trips.OURS, trips.RIVALS, trips.FIGURES),
    "price_trips_4": (trips.PART, "4 windows", trips.RIVALS, trips.FIGURES),
    "one_batch_table": (tables.PART, tables.OURS, ("one batch, delta",), ("avg_we",)),
    "one_batch_table_pure": (tables.PART, tables.PURE, ("one batch",), ("avg_we",)),
    "one_batch_map": (maps.PART, maps.OURS, ("one batch",), maps.FIGURES),
    "one_batch_trips": (trips.PART, trips.OURS, ("one batch",), trips.FIGURES),
    "one_batch_trips_4": (trips.PART, "4 windows", ("one batch",), trips.FIGURES),
    "method_table": (tables.PART, "one batch, delta", (tables.RIVAL,), ("avg_we",)),
    "method_map": (maps.PART, "one batch", maps.RIVALS, maps.FIGURES),
    "method_trips": (trips.PART, "one batch", trips.RIVALS, trips.FIGURES),
}
"""Part, what is streamed, batch methods of which the best counts, figures. `one_batch_*`: over our engine in one step;
`method_*`: of that over the others."""
TITLES = {
    tables.PART: "Tables: all pairs of attributes after the last step, epsilon 1 (delta 1e-6 but for the pure rows)",
    maps.PART: "Maps: relative errors after the last step, epsilon 1",
    trips.PART: "Trips: all windows together, epsilon 1 for one trip",
    tables.TIES: "Ties: Cramer's V of synthetic rows over the true one, epsilon 2 (delta 1e-6 but for the pure rows)",
}


@dataclass(frozen=True)
class Price:
    """Attributes:

    mean: geometric mean, over data sets and figures, of ratios of means over seeds. spread: standard deviation over
    seeds of the same from each seed alone; None of one seed. by_data, by_figure: the geometric mean over one's others.
    """

    mean: float
    spread: float | None
    by_data: Mapping[str, float]
    by_figure: Mapping[str, float]


def price(results: Results, part: str, ours: str, rivals: Sequence[str], figures: Sequence[str]) -> Price | None:
    """Of `ours` to the best of the rivals, which is chosen for each data set and figure by its mean.

    None where nothing was run on both sides.
    """
    ratios: dict[tuple[str, str], float] = {}
    by_seed: list[list[float]] = []
    for data in results.data(part):
        for figure in figures:
            mine = results.of(part, data, ours, figure)
            theirs = [found for rival in rivals if (found := results.of(part, data, rival, figure))]
            if not mine or not theirs:
                continue
            best = min(theirs, key=fmean)
            ratios[data, figure] = fmean(mine) / fmean(best)
            by_seed.append([left / right for left, right in zip(mine, best, strict=False)])
    if not ratios:
        return None
    seeds = [geometric_mean(of_seed) for of_seed in zip(*by_seed, strict=False)]

    def by(place: int) -> dict[str, float]:
        names = dict.fromkeys(key[place] for key in ratios)
        return {name: geometric_mean(value for key, value in ratios.items() if key[place] == name) for name in names}

    spread = stdev(seeds) if len(seeds) > 1 else None
    return Price(geometric_mean(ratios.values()), spread, by(0), by(1))


def prices(results: Results) -> dict[str, Price]:
    """Those of which both sides were run."""
    found = {name: price(results, *asked) for name, asked in PRICES.items()}
    return {name: each for name, each in found.items() if each is not None}


def last_line(results: Results) -> dict[str, float | str]:
    line: dict[str, float | str] = {}
    for name, each in prices(results).items():
        line[name] = round(each.mean, 3)
        if each.spread is not None:
            line[f"{name}_spread"] = round(each.spread, 3)
    for method in results.methods(tables.TIES):
        kept = [fmean(results.of(tables.TIES, name, method, "ties")) for name in results.data(tables.TIES)]
        line["ties_batch" if method == tables.RIVAL else f"ties ({method})"] = round(fmean(kept), 3)
    return line


def markdown(results: Results) -> str:
    return "\n".join(_lines(results)) + "\n"


def _lines(results: Results) -> Iterator[str]:
    yield "# The price of streaming"
    yield "\nMade by `make bench-price`. Mean ± standard deviation over seeds (their number in brackets)."
    yield "\n| price | streamed | over the best of | geometric mean | by data | by figure |"
    yield "|---|---|---|---|---|---|"
    for name, found in prices(results).items():
        _, ours, rivals, _ = PRICES[name]
        parts = (found.by_data, found.by_figure)
        each = " | ".join(", ".join(f"{name} {value:.2f}" for name, value in part.items()) for part in parts)
        spread = "" if found.spread is None else f" ± {found.spread:.3f}"
        yield f"| {name} | {ours} | {'; '.join(rivals)} | {found.mean:.3f}{spread} | {each} |"
    for part, title in TITLES.items():
        runs = [run for run in results.rows if run.part == part]
        if not runs:
            continue
        figures = list(dict.fromkeys(figure for run in runs for figure in results.rows[run]))
        yield f"\n## {title}\n"
        yield "| data | method | " + " | ".join(figures) + " |"
        yield "|---" * (len(figures) + 2) + "|"
        for data, method in dict.fromkeys((run.data, run.method) for run in runs):
            cells = (_cell(results.of(part, data, method, figure)) for figure in figures)
            yield f"| {data} | {method} | " + " | ".join(cells) + " |"


def _cell(values: list[float]) -> str:
    spread = f" ± {stdev(values):.2g}" if len(values) > 1 else ""
    return f"{fmean(values):.3g}{spread} ({len(values)})"

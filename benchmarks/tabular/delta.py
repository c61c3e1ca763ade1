"""What a delta buys: AvgWE of `default` with delta = 1e-6 over that of pure `default`, same seeds, epsilon 1."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import geometric_mean

import numpy as np

from benchmarks.results import Results
from benchmarks.tabular.modes import DELTA
from benchmarks.tabular.plan import DELTAS, part

COLUMNS = {"AvgWE": "avg_we_all", "MaxWE": "max_we_all"}


def ratios(results: Results, column: str = "avg_we_all") -> dict[str, np.ndarray]:
    """Of each stream that both ran, `(2, seeds)`: pure figures, and those with the delta."""
    found = {}
    pure, with_delta = DELTAS.modes
    for stream in DELTAS.streams:
        both = [results.of(part(DELTAS.epsilons[0]), stream, mode, column) for mode in (pure, with_delta)]
        seeds = min(map(len, both))
        if seeds:
            found[stream] = np.array([figures[:seeds] for figures in both])
    return found


def ratio(results: Results, column: str = "avg_we_all") -> float | None:
    """Geometric mean over the streams of the ratio of means over the seeds; None where nothing was run."""
    each = [figures[1].mean() / figures[0].mean() for figures in ratios(results, column).values()]
    return round(geometric_mean(each), 3) if each else None


def summary(results: Results) -> dict[str, float | None]:
    """For the last line."""
    return {"delta_ratio": ratio(results), "delta_ratio_max_we": ratio(results, "max_we_all")}


def table(results: Results) -> Iterator[str]:
    """By stream; the spread is that of the ratio of means, by the seeds."""
    yield f"\n## With delta = {DELTA:g}, at epsilon 1\n"
    yield "| stream | seeds | AvgWE pure | with delta | ratio | MaxWE: ratio |"
    yield "|---|---|---|---|---|---|"
    largest = ratios(results, "max_we_all")
    for stream, (pure, with_delta) in ratios(results).items():
        seeds = len(pure)
        spread = float(np.std(with_delta / with_delta.mean() - pure / pure.mean(), ddof=1)) if seeds > 1 else np.nan
        found, worst = with_delta.mean() / pure.mean(), largest[stream]
        yield (
            f"| {stream} | {seeds} | {pure.mean():.4f} | {with_delta.mean():.4f} | "
            f"{found:.3f} ± {found * spread / seeds**0.5:.3f} | {worst[1].mean() / worst[0].mean():.2f} |"
        )

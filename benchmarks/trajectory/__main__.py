"""Error of the trajectory engine's modes, and of a coarse grid, on trips that we have: `make bench-trajectory`
(QUICK=1: under three minutes).

The five figures of the paper (`engines.trajectory.metrics`) and the patterns of collapsed runs, scored on grids of 40
and of 33 cells a side (the first is aligned with `default`'s), at epsilon 0.5, 1 and 2 for one trip. `resampled` is no
mode: as many true trips, drawn again with replacement. NOT private; what chance alone leaves.
Writes benchmarks/results/trajectory.csv, .md and trajectory-<data>.png (true and synthetic trips side by side). Last
line, JSON; a baseline's figure is the better one of its variants, means over seeds are compared:
    metrics_won, metrics_won_unaligned: of five, fewest over large data sets and epsilons, on grids 40 and 33
    fp_are_ratio, cp_are_ratio, qe_ratio: of `default` to `paper`, the worst of large data sets and epsilons; where, and
        the same at epsilon 1 alone, beside
    qe_ratio_to_grid: the same to `grid`
    small_worst_ratio: the worst of five figures to the better of both, over data sets of less than 2,000 trips
    seconds_per_million_points: a window of the largest data set; seconds and memory of it beside
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import sys
import time
from fractions import Fraction
from itertools import product

import numpy as np
from rich.console import Console
from rich.progress import Progress

from benchmarks.size import QUICK, RESULTS, SMALLEST, sized
from benchmarks.trajectory import delta, memory
from benchmarks.trajectory.data import LARGE, SMALL, SOURCES, chosen
from benchmarks.trajectory.modes import FIVE, GRIDS, MODES
from benchmarks.trajectory.pictures import side_by_side
from engines.core.noise import NoiseSource, seeded
from engines.trajectory.engine import Limits
from engines.trajectory.metrics import FIGURES, Truth
from engines.trajectory.trips import Trips

EPSILONS = (Fraction(1, 2), Fraction(1), Fraction(2))
BOUND = "resampled"
VARIANTS = {"paper": ("paper", "paper, exponential"), "grid": ("grid",)}
PICTURED = ("manhattan", "storms")
"""Simulated, and public domain."""
Row = tuple[str, Fraction, str]


class Results:
    """Figures by data set, epsilon and mode: `(seeds, grids, figures)`; trips and seconds beside."""

    def __init__(self) -> None:
        self.figures: dict[Row, list[np.ndarray]] = {}
        self.trips: dict[str, int] = {}
        self.points: dict[str, int] = {}
        self.seconds: dict[Row, list[float]] = {}

    def mean(self, name: str, epsilon: Fraction, mode: str, figure: str, *, side: int = 40) -> float:
        values = np.mean(self.figures[name, epsilon, mode], axis=0)
        return float(values[GRIDS.index(side), FIGURES.index(figure)])

    def ratio(self, name: str, epsilon: Fraction, figure: str, *baselines: str, side: int = 40) -> float:
        """Of `default` to the best variant of some baselines."""
        others = [mode for baseline in baselines for mode in VARIANTS[baseline]]
        least = min(self.mean(name, epsilon, mode, figure, side=side) for mode in others)
        return self.mean(name, epsilon, "default", figure, side=side) / least

    def cells(self, *, least: int = 0, most: int = 10**9) -> list[tuple[str, Fraction]]:
        return [(name, e) for name, e, mode in self.figures if mode == "default" and least <= self.trips[name] < most]


def resampled(trips: Trips, *, epsilon: Fraction, limits: Limits, noise: NoiseSource) -> Trips:
    """As many true trips, drawn again with replacement. NOT private."""
    rng = np.random.default_rng(noise.words(1))
    return chosen(trips, rng.integers(0, len(trips), len(trips)))


def run(names: list[str], epsilons: tuple[Fraction, ...], seeds: int, *, pictures: bool) -> Results:
    results, methods = Results(), {**MODES, BOUND: resampled}
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("data", total=len(names) * seeds * len(epsilons) * len(methods))
        for name in names:
            trips = SOURCES[name].make()
            results.trips[name], results.points[name] = len(trips), len(trips.x)
            truths = [Truth.of(trips, side=side) for side in GRIDS]
            shown: dict[str, Trips] = {"true": trips}
            for seed, epsilon, mode in product(range(seeds), epsilons, methods):
                progress.update(task, description=f"{name}, epsilon {float(epsilon):g}, {mode}")
                begin = time.perf_counter()
                noise = seeded(seed).child(name, str(epsilon), mode)
                made = methods[mode](trips, epsilon=epsilon, limits=Limits(), noise=noise)
                row = (name, epsilon, mode)
                results.seconds.setdefault(row, []).append(time.perf_counter() - begin)
                errors = [list(truth.errors(made).values()) for truth in truths]
                results.figures.setdefault(row, []).append(np.array(errors))
                if epsilon == 1 and mode in ("default", "paper", "grid"):
                    shown[mode] = made
                progress.advance(task)
            if pictures and name in PICTURED:
                side_by_side(shown, RESULTS / f"trajectory-{name}.png")
    return results


def report(results: Results) -> dict[str, object]:
    large, small = results.cells(least=LARGE), results.cells(most=SMALL)

    def worst(
        cells: list[tuple[str, Fraction]], figures: tuple[str, ...], *baselines: str
    ) -> tuple[float | None, str | None]:
        found = [
            (results.ratio(name, epsilon, figure, *baselines), f"{name}, epsilon {float(epsilon):g}, {figure}")
            for (name, epsilon), figure in product(cells, figures)
        ]
        return (round(max(found)[0], 3), max(found)[1]) if found else (None, None)

    def won(side: int) -> int | None:
        counts = [sum(results.ratio(*cell, figure, *VARIANTS, side=side) < 1 for figure in FIVE) for cell in large]
        return min(counts, default=None)

    ratios: dict[str, object] = {}
    for name, figure, baseline in (
        ("fp_are_ratio", "FP_ARE", "paper"),
        ("cp_are_ratio", "CP_ARE", "paper"),
        ("qe_ratio", "QE", "paper"),
        ("qe_ratio_to_grid", "QE", "grid"),
    ):
        ratios[name], ratios[f"{name}_at"] = worst(large, (figure,), baseline)
        ratios[f"{name}_epsilon_1"] = worst([cell for cell in large if cell[1] == 1], (figure,), baseline)[0]
    ratios["small_worst_ratio"], ratios["small_worst"] = worst(small, FIVE, *VARIANTS)
    largest = max(results.points, key=lambda name: results.points[name])
    seconds = min(min(all_of) for row, all_of in results.seconds.items() if (row[0], row[2]) == (largest, "default"))
    return {
        "metrics_won": won(40),
        "metrics_won_unaligned": won(33),
        **ratios,
        "seconds_per_million_points": round(seconds / results.points[largest] * 1e6, 3),
        "window": {"data": largest, "points": results.points[largest], "seconds": round(seconds, 2)},
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def markdown(results: Results) -> str:
    """A table for each scoring grid: means over seeds, the spread of a figure as a percentage in brackets."""
    lines = []
    for at, side in enumerate(GRIDS):
        lines += [f"\nScoring grid {side} x {side}\n"]
        lines += ["| data (trips) | epsilon | mode | " + " | ".join(FIGURES) + " |", "|---" * (len(FIGURES) + 3) + "|"]
        for (name, epsilon, mode), every in results.figures.items():
            values = np.array(every)[:, at]
            mean, spread = values.mean(axis=0), values.std(axis=0)
            cells = " | ".join(
                f"{m:.3f} (±{s / m:.0%})" if m > 0 else f"{m:.3f}" for m, s in zip(mean, spread, strict=True)
            )
            mark = ", tuned" if SOURCES[name].tuned else ""
            lines.append(f"| {name} ({results.trips[name]}{mark}) | {float(epsilon):g} | {mode} | {cells} |")
    return "\n".join(lines).lstrip() + "\n"


def save(results: Results) -> None:
    with (RESULTS / "trajectory.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        head = ["data", "trips", "points", "epsilon", "mode", "grid", "figure", "mean", "deviation", "seeds", "seconds"]
        writer.writerow(head)
        for (name, epsilon, mode), every in results.figures.items():
            values, seconds = np.array(every), np.mean(results.seconds[name, epsilon, mode])
            for at, side in enumerate(GRIDS):
                for index, figure in enumerate(FIGURES):
                    column = values[:, at, index]
                    numbers = [f"{column.mean():.4f}", f"{column.std():.4f}", len(column), f"{seconds:.2f}"]
                    about = [name, results.trips[name], results.points[name], float(epsilon), mode, side, figure]
                    writer.writerow(about + numbers)
    (RESULTS / "trajectory.md").write_text(markdown(results))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", default=QUICK)
    parser.add_argument("--seeds", type=int, help="3, or 2 when quick")
    parser.add_argument("--data", help="some of them, semicolons between: " + "; ".join(SOURCES))
    parser.add_argument(
        "--memory", action="store_true", help="time and memory of ten large windows instead, see memory.py"
    )
    parser.add_argument("--only", choices=["delta"], help="users with many trips instead, see delta.py")
    arguments = parser.parse_args()
    if arguments.only:
        delta.main(arguments.seeds or 3, arguments.data or "")
        return
    if arguments.memory:
        memory.main(windows=10)
        return
    few = sized(("cabs", "storms", "geolife"), smallest=("cabs", "storms"))
    names = arguments.data.split(";") if arguments.data else list(few if arguments.quick else SOURCES)
    some = (arguments.quick and not SMALLEST) or arguments.data
    for name in list(names):
        if SOURCES[name].missing:
            print(f"skipped {name}: {SOURCES[name].missing}", file=sys.stderr)
            names.remove(name)
    epsilons = (Fraction(1),) if arguments.quick else EPSILONS
    seeds = arguments.seeds or sized(2 if arguments.quick else 3, smallest=1)
    results = run(names, epsilons, seeds, pictures=not some)
    if not some:
        save(results)
    print(markdown(results))
    print(json.dumps(report(results)))


if __name__ == "__main__":
    main()

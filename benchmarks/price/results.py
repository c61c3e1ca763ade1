"""Figures of runs on disk, one line each, so that the benchmark can be stopped and goes on where it was; and prices."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, geometric_mean, stdev

HEAD = ["part", "data", "method", "seed", "figure", "value"]


@dataclass(frozen=True, order=True)
class Run:
    """One method on one data set."""

    part: str
    data: str
    method: str
    seed: int


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


class Results:
    """What is in a CSV file. Of two lines about one figure the later one counts."""

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        self.path = path
        self.rows: dict[Run, dict[str, float]] = {}
        if fresh:
            path.unlink(missing_ok=True)
        if path.exists():
            with path.open(encoding="utf-8", newline="") as file:
                for row in csv.DictReader(file):
                    run = Run(row["part"], row["data"], row["method"], int(row["seed"]))
                    self.rows.setdefault(run, {})[row["figure"]] = float(row["value"])

    def add(self, run: Run, figures: Mapping[str, float]) -> None:
        """Write a run down at once."""
        self.rows[run] = dict(figures)
        new = not self.path.exists()
        with self.path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            if new:
                writer.writerow(HEAD)
            for figure, value in figures.items():
                writer.writerow([run.part, run.data, run.method, run.seed, figure, f"{value:.6g}"])

    def sort(self) -> None:
        """Rewrite the file in the order of its rows' names."""
        rows, self.rows = sorted(self.rows.items()), {}
        self.path.unlink(missing_ok=True)
        for run, figures in rows:
            self.add(run, figures)

    def data(self, part: str) -> list[str]:
        return list(dict.fromkeys(run.data for run in self.rows if run.part == part))

    def methods(self, part: str) -> list[str]:
        return list(dict.fromkeys(run.method for run in self.rows if run.part == part))

    def of(self, part: str, data: str, method: str, figure: str) -> list[float]:
        """Of all seeds, in their order."""
        runs = sorted(run for run in self.rows if (run.part, run.data, run.method) == (part, data, method))
        return [self.rows[run][figure] for run in runs]

    def price(self, part: str, ours: str, rivals: Sequence[str], figures: Sequence[str]) -> Price | None:
        """Of `ours` to the best of the rivals, which is chosen for each data set and figure by its mean.

        None where nothing was run on both sides.
        """
        ratios: dict[tuple[str, str], float] = {}
        by_seed: list[list[float]] = []
        for data in self.data(part):
            for figure in figures:
                mine = self.of(part, data, ours, figure)
                theirs = [found for rival in rivals if (found := self.of(part, data, rival, figure))]
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
            return {
                name: geometric_mean(value for key, value in ratios.items() if key[place] == name) for name in names
            }

        spread = stdev(seeds) if len(seeds) > 1 else None
        return Price(geometric_mean(ratios.values()), spread, by(0), by(1))

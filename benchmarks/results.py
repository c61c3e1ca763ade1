"""Figures of runs on disk, so that a benchmark that was stopped goes on where it was."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

HEAD = ["part", "data", "method", "seed", "figure", "value"]


@dataclass(frozen=True, order=True)
class Run:
    """One method on one data set; methods of one part are compared with each other."""

    part: str
    data: str
    method: str
    seed: int


class Results:
    """What is in a CSV file. Of two lines about one figure the later one counts."""

    def __init__(self, path: Path, *, forget: Callable[[Run], bool] = lambda run: False) -> None:
        """Args: forget: says of a run that it is to be repeated."""
        self.path = path
        self.rows: dict[Run, dict[str, float]] = {}
        if path.exists():
            with path.open(encoding="utf-8", newline="") as file:
                for row in csv.DictReader(file):
                    run = Run(row["part"], row["data"], row["method"], int(row["seed"]))
                    self.rows.setdefault(run, {})[row["figure"]] = float(row["value"])
        if any(map(forget, self.rows)):
            self._rewrite({run: figures for run, figures in self.rows.items() if not forget(run)})

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
        self._rewrite(dict(sorted(self.rows.items())))

    def _rewrite(self, rows: Mapping[Run, Mapping[str, float]]) -> None:
        self.rows = {}
        self.path.unlink(missing_ok=True)
        for run, figures in rows.items():
            self.add(run, figures)

    def data(self, part: str) -> list[str]:
        return list(dict.fromkeys(run.data for run in self.rows if run.part == part))

    def methods(self, part: str) -> list[str]:
        return list(dict.fromkeys(run.method for run in self.rows if run.part == part))

    def of(self, part: str, data: str, method: str, figure: str) -> list[float]:
        """Of all seeds, in their order."""
        runs = sorted(run for run in self.rows if (run.part, run.data, run.method) == (part, data, method))
        return [self.rows[run][figure] for run in runs]

"""Figures of runs on disk, one line each, so that a long benchmark can be stopped and goes on where it was."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.size import RESULTS
from benchmarks.tabular.metrics import METRICS

LAST = 10
"""Steps at the end that the papers' tables are about."""
PERIODS = ("all", "last")
_POINTS = 60


@dataclass(frozen=True, order=True)
class Key:
    """One run."""

    stream: str
    epsilon: float
    mode: str
    seed: int


class Results:
    """What is in `<name>.csv`, and the curves in `<name>_curves.csv`."""

    def __init__(self, name: str, *, forget: Callable[[str, float, str], bool] = lambda *_: False) -> None:
        """Args: forget: says of a stream, an epsilon and a mode that their runs are to be repeated."""
        self.path, self.curves_path = RESULTS / f"{name}.csv", RESULTS / f"{name}_curves.csv"
        for path in (self.path, self.curves_path):
            _forget(path, forget)
        self.rows: dict[Key, dict[str, float]] = dict(self._read())

    def _read(self) -> Iterator[tuple[Key, dict[str, float]]]:
        if not self.path.exists():
            return
        with self.path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                key = Key(row.pop("stream"), float(row.pop("epsilon")), row.pop("mode"), int(row.pop("seed")))
                yield key, {name: float(value) for name, value in row.items()}

    def add(self, key: Key, errors: np.ndarray, seconds: np.ndarray) -> None:
        """Write down a run: errors `(steps, metrics)`, seconds `(steps,)`."""
        row: dict[str, float] = {"steps": len(errors)}
        for period, part in zip(PERIODS, (errors, errors[-LAST:]), strict=True):
            row |= {f"{name}_{period}": float(value) for name, value in zip(METRICS, part.mean(axis=0), strict=True)}
        row |= {"median_ms": float(np.median(seconds) * 1e3), "worst_ms": float(seconds.max() * 1e3)}
        self.rows[key] = row
        new = not self.path.exists()
        with self.path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            if new:
                writer.writerow(["stream", "epsilon", "mode", "seed", *row])
            writer.writerow([key.stream, key.epsilon, key.mode, key.seed, *(f"{value:.5g}" for value in row.values())])
        if key.seed == 0:
            self._add_curve(key, errors)

    def _add_curve(self, key: Key, errors: np.ndarray) -> None:
        steps = np.unique(np.linspace(0, len(errors) - 1, _POINTS).astype(int))
        new = not self.curves_path.exists()
        with self.curves_path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            if new:
                writer.writerow(["stream", "epsilon", "mode", "step", METRICS[0], METRICS[1]])
            for step in steps.tolist():
                figures = (f"{value:.4g}" for value in errors[step, :2])
                writer.writerow([key.stream, key.epsilon, key.mode, step, *figures])

    def curve(self, stream: str, epsilon: float, mode: str) -> np.ndarray:
        """`(points, 3)`: step, AvgWE, MaxWE of seed 0."""
        if not self.curves_path.exists():
            return np.zeros((0, 3))
        with self.curves_path.open(encoding="utf-8", newline="") as file:
            found = [
                [float(row["step"]), float(row[METRICS[0]]), float(row[METRICS[1]])]
                for row in csv.DictReader(file)
                if (row["stream"], float(row["epsilon"]), row["mode"]) == (stream, epsilon, mode)
            ]
        return np.array(found).reshape(-1, 3)

    def of(self, stream: str, epsilon: float, mode: str, column: str) -> np.ndarray:
        """One figure of all seeds, in their order."""
        keys = sorted(key for key in self.rows if (key.stream, key.epsilon, key.mode) == (stream, epsilon, mode))
        return np.array([self.rows[key][column] for key in keys])


def _forget(path: Path, forget: Callable[[str, float, str], bool]) -> None:
    if not path.exists():
        return
    with path.open(encoding="utf-8", newline="") as file:
        head, *lines = csv.reader(file)
    stream, epsilon, mode = (head.index(name) for name in ("stream", "epsilon", "mode"))
    kept = [line for line in lines if not forget(line[stream], float(line[epsilon]), line[mode])]
    if len(kept) < len(lines):
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([head, *kept])

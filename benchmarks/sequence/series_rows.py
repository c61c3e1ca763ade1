"""What the series benchmark finds: a row for each method on each series, and ratios between methods."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.papers.series import Best
from benchmarks.sequence.series_data import DRIVE, SOURCES

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


def mean(values: Sequence[float]) -> float:
    """Geometric mean."""
    return float(np.exp(np.log(values).mean()))


def summary(found: Sequence[Row]) -> dict[str, float]:
    """Geometric means over series and epsilons, the drive cycle apart; the worst of all against the exact paper."""
    paper, exact = ratios(found, PAPER), ratios(found, EXACT)
    untouched = [ratio for (series, _), ratio in exact.items() if not SOURCES[series].tuned]
    return {
        "series_ratio": round(mean(list(paper.values())), 3),
        "series_ratio_exact": round(mean(list(exact.values())), 3),
        "series_worst": round(max(exact.values()), 3),
        **({"series_ratio_exact_untouched": round(mean(untouched), 3)} if untouched else {}),
    }

"""What the benchmark of chains finds: a row for each method in each experiment, and the figures of its last line."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

from benchmarks.sequence.markov_chains import STRONG
from benchmarks.size import RESULTS

EPSILONS = ("0.01", "0.1", "0.5", "1", "2")
RIVALS = ("raw", "MLE", "prior mean", "MAP")
EVEN = ("prior mean, even", "MAP, even")


@dataclass(frozen=True)
class Row:
    """Mean over seeds of a method's MSE, and the standard error of that mean."""

    experiment: str
    world: str
    x: str
    method: str
    mse: float
    spread: float
    seeds: int


def by(rows: Sequence[Row]) -> dict[tuple[str, str], dict[str, float]]:
    """(world, epsilon) of the table of chains -> method -> MSE."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows:
        if row.experiment == "chains":
            found.setdefault((row.world, row.x), {})[row.method] = row.mse
    return found


def geometric(values: Sequence[float]) -> float:
    return exp(sum(log(value) for value in values) / len(values))


def summary(rows: Sequence[Row]) -> dict[str, float]:
    """What the last line says. `markov_worst`: over all chains, default over the best rival, both priors tried."""
    cells = by(rows)
    usual = {key: found for key, found in cells.items() if float(key[1]) >= 0.1}
    strong = [found for (world, _), found in usual.items() if world == STRONG]
    strict = {key: found for key, found in cells.items() if float(key[1]) < 0.1}

    def worst(where: dict[tuple[str, str], dict[str, float]]) -> float:
        return max(found["default"] / min(found[name] for name in (*RIVALS, *EVEN)) for found in where.values())

    return {
        "markov_ratio": round(geometric([found["default"] / found["MAP"] for found in strong]), 4),
        "markov_smoother_ratio": round(geometric([found["default, lag 5"] / found["MAP"] for found in strong]), 4),
        "markov_worst": round(worst(usual), 4),
        "markov_worst_at_0.01": round(worst(strict), 4),
    }


def unknown(rows: Sequence[Row], learnt: Sequence[Row]) -> float:
    """The worst ratio of unknown to known chain at epsilon .5 and more, over the same seeds."""
    known = {(row.world, row.x): row.mse for row in learnt if row.method == "default"}
    ratios = [
        row.mse / known[row.world, row.x]
        for row in learnt
        if row.method == "default, P unknown" and float(row.x) >= 0.5
    ]
    return round(max(ratios), 4)


def write(rows: Sequence[Row], same: Sequence[Row]) -> None:
    with RESULTS.joinpath("markov.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["experiment", "world", "x", "method", "mse", "spread", "seeds"])
        both = [*rows, *(row for row in same if row.method == "default, P unknown")]
        for row in both:
            writer.writerow(
                [row.experiment, row.world, row.x, row.method, f"{row.mse:.6g}", f"{row.spread:.3g}", row.seeds]
            )

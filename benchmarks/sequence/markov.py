"""Counts of a Markov chain: [cao2023]'s experiments with the prior mean and the collective filter beside its methods.

Every method works on the same noisy counts: 20 seeds of users and of exact noise, 10 where the start is chosen. Epsilon
is that of ONE step; MSE is over all steps and states. Writes benchmarks/results/markov.csv (means and their spread),
.md and .png.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import digamma

from benchmarks.panels import draw_panels
from benchmarks.papers.markov import objective
from benchmarks.sequence.markov_chains import LEARNT, METHODS, STRONG, WORLDS, Method, World, errors, ring, smoothed
from benchmarks.size import RESULTS, kept, sized
from engines.markov.chain import Transition, project
from engines.markov.filters import Collective, DiagonalFilter
from engines.markov.leakage import Adversary, allocate
from engines.markov.paper import map_counts

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


def summary(rows: Sequence[Row]) -> dict[str, float]:
    """What the last line says. `markov_worst`: over all chains, default over the best rival, both priors tried."""
    cells = by(rows)
    usual = {key: found for key, found in cells.items() if float(key[1]) >= 0.1}
    strong = [found for (world, _), found in usual.items() if world == STRONG]
    strict = {key: found for key, found in cells.items() if float(key[1]) < 0.1}

    def worst(where: dict[tuple[str, str], dict[str, float]]) -> float:
        return max(found["default"] / min(found[name] for name in (*RIVALS, *EVEN)) for found in where.values())

    return {
        "markov_ratio": round(geometric_mean([found["default"] / found["MAP"] for found in strong]), 4),
        "markov_smoother_ratio": round(geometric_mean([found["default, lag 5"] / found["MAP"] for found in strong]), 4),
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


SHOWN = ("raw", "MLE", "prior mean", "prior mean, even", "MAP, even", "kalman", "default", "default, lag 5")
DRAWN = ("raw", "MLE", "prior mean", "MAP", "default", "default, lag 5")


def table(rows: Sequence[Row], same: Sequence[Row], figures: Mapping[str, float]) -> str:
    """Markdown: ratios of MSE to the corrected MAP by chain, then the paper's experiments as MSE."""
    cells, learnt = by(rows), by(same)
    lines = ["MSE over that of MAP (frequency prior); last column: chain unknown over known, same seeds", ""]
    lines += [f"| chain | epsilon | {' | '.join(SHOWN)} | P unknown / known |", "|---" * (len(SHOWN) + 3) + "|"]
    for (world, epsilon), found in cells.items():
        ratios = " | ".join(f"{found[name] / found['MAP']:.2f}" for name in SHOWN)
        known = learnt[world, epsilon]
        lines.append(f"| {world} | {epsilon} | {ratios} | {known['default, P unknown'] / known['default']:.2f} |")
    lines += ["", "MSE (standard error of the mean)", ""]
    names = ("raw", "MLE", "prior mean", "MAP", "MAP, even", "default", "default, lag 5")
    lines += [f"| experiment | x | {' | '.join(names)} |", "|---" * (len(names) + 2) + "|"]
    found_rows = {(row.experiment, row.x, row.method): row for row in rows if row.experiment != "chains"}
    for experiment, x in dict.fromkeys((key[0], key[1]) for key in found_rows):
        shown = [found_rows[experiment, x, name] for name in names]
        lines.append(f"| {experiment} | {x} | {' | '.join(f'{row.mse:.3g} ({row.spread:.2g})' for row in shown)} |")
    lines += ["", "Figures of the last line", "", *(f"- {name}: {value}" for name, value in figures.items()), ""]
    return "\n".join(lines)


def figure(rows: Sequence[Row], path: Path) -> None:
    """A panel for each chain and for each of the paper's experiments; bars are two standard errors."""
    panels: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
    for row in rows:
        if row.method in DRAWN and not row.experiment.startswith("start "):
            panel = row.world if row.experiment == "chains" else row.experiment
            points = panels.setdefault(panel, {}).setdefault(row.method, [])
            points.append((float(row.x), row.mse, 2 * row.spread))
    # The paper's own experiments have linear axes, but for those that are ours: n and m varied.
    linear = {row.experiment for row in rows if row.experiment.startswith("fig ")}
    draw_panels(panels, path, x="epsilon, or what the panel varies", y="MSE of a count", linear=linear)


RATE = 0.25
FEW, MANY = sized((100, 10_000), smallest=(10, 100))


def milliseconds(work: Callable[[], object], repeats: int) -> float:
    """Median over repeats."""
    taken = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return 1e3 * float(np.median(taken))


def problem(seed: int, states: int) -> tuple[np.ndarray, np.ndarray, float]:
    rng = np.random.default_rng(seed)
    prior = rng.dirichlet(np.ones(states))
    total = 100 * states
    return np.round(rng.multinomial(total, prior) + rng.laplace(0, 1 / RATE, states)), prior, float(total)


def map_speed(*, quick: bool) -> dict[str, float]:
    """Speed-up at 100 states, how much SLSQP's objective lies above ours at least, and a step of 10,000 states."""
    ours, theirs, gaps = [], [], []
    for seed in range(3 if quick else 10):
        noisy, prior, total = problem(seed, FEW)
        ours.append(milliseconds(partial(map_counts, noisy, prior, total, RATE), 5))
        equal: Any = {"type": "eq", "fun": lambda r, n=total: r.sum() - n, "jac": lambda r: np.ones(len(r))}
        begin = time.perf_counter()
        found = minimize(  # type: ignore[call-overload]  # its stubs know no default arguments
            lambda r, y=noisy, p=prior: objective(np.maximum(r, 0.0), y, p, RATE),
            np.full(FEW, total / FEW),
            jac=lambda r, y=noisy, p=prior: RATE * np.sign(r - y) - np.log(p) + digamma(np.maximum(r, 0.0) + 1),
            bounds=[(0, total)] * FEW,
            constraints=equal,
            method="SLSQP",
            options={"ftol": 1e-10, "maxiter": 500},
        )
        theirs.append(1e3 * (time.perf_counter() - begin))
        best = objective(map_counts(noisy, prior, total, RATE), noisy, prior, RATE)
        gaps.append(objective(project(found.x, total), noisy, prior, RATE) - best)
    noisy, prior, total = problem(1, MANY)
    return {
        "map_speedup": round(float(np.median(theirs) / np.median(ours)), 1),
        "map_slsqp_least_gap": float(f"{min(gaps):.3g}"),
        "map_ms_10000": round(milliseconds(lambda: map_counts(noisy, prior, total, RATE), 5), 2),
    }


def step_times(*, quick: bool) -> dict[str, float]:
    """A step of the filter at 10,000 states with some 59,000 moves: its update alone, and with a revision."""
    rng = np.random.default_rng(1)
    begin = np.repeat(np.arange(MANY), 8)
    end = (begin + rng.integers(-5, 6, len(begin))) % MANY
    moves = sparse.csr_array((np.ones(len(begin)), (begin, end)), shape=(MANY, MANY))
    chain = Transition.from_matrix(sparse.diags_array(1 / np.asarray(moves.sum(axis=1)).ravel()) @ moves)
    engine = DiagonalFilter(chain, 50.0 * MANY, np.ones(MANY, np.bool_))
    noisy = np.full(MANY, 50.0) + np.round(rng.laplace(0, 4, MANY))
    belief, _ = engine.update(engine.start(float(MANY)), noisy, 4.0)
    repeats = 5 if quick else 25
    alone = milliseconds(lambda: engine.update(engine.predict(belief), noisy, 4.0), repeats)
    estimator = Collective(engine, chain, 5)
    state = estimator.begin()
    for step in range(8):
        state, _ = estimator.observe(state, step, noisy, Fraction(4), last=False)
    whole = milliseconds(lambda: estimator.observe(state, 8, noisy, Fraction(4), last=False), repeats)
    return {"filter_ms_10000": round(alone, 2), "filter_and_smoother_ms_10000": round(whole, 2)}


SEEDS, START_SEEDS, LEARNT_SEEDS = 20, 10, 5
QUICK_SEEDS = sized(2, smallest=1)
QUICK_EPSILONS = sized(("0.01", "0.5", "2"), smallest=("0.01", "0.5"))
QUICK_WORLDS = sized((WORLDS[0], WORLDS[2], WORLDS[4]), smallest=(replace(WORLDS[0], steps=12),))
STARTS = ("even", "one state")
Groups = dict[str, list[float]]


@dataclass(frozen=True)
class Point:
    """One setting of one experiment; `x` is what varies."""

    experiment: str
    x: str
    world: World
    budgets: tuple[Fraction, ...]


def even(epsilon: str, world: World) -> tuple[Fraction, ...]:
    return (Fraction(epsilon),) * world.steps


def leaking(alpha: str, world: World) -> tuple[Fraction, ...]:
    """Budgets of alpha-DP_T."""
    made = allocate(Fraction(alpha), Adversary.from_matrix(world.matrix), horizon=world.steps)
    return tuple(made.at(step) for step in range(world.steps))


def points(*, quick: bool) -> list[Point]:
    """All experiments: the table of chains, then those of [cao2023], section 6.2, and its n and m varied."""
    epsilons = QUICK_EPSILONS if quick else EPSILONS
    made = [
        Point("chains", e, world, even(e, world)) for world in (QUICK_WORLDS if quick else WORLDS) for e in epsilons
    ]
    if quick:
        return made
    for start in STARTS:
        for world in WORLDS:
            other = replace(world, start=start)
            made += [Point(f"start {start}, {world.name}", e, other, even(e, other)) for e in ("0.01", "0.1", "0.5")]
    base = [World("paper's chain", smoothed(s), 200) for s in (0.0, 0.01)]
    made += [Point("fig 4a, epsilon (s=0)", e, base[0], even(e, base[0])) for e in ("0.2", "0.6", "1", "1.4", "2")]
    made += [Point("fig 4b, alpha (s=.01)", a, base[1], leaking(a, base[1])) for a in ("0.2", "0.6", "1", "1.4", "2")]
    for steps in (100, 150, 200):
        world = World("paper's chain", smoothed(0.01), 200, steps)
        made.append(Point("fig 5, T at epsilon 1", str(steps), world, even("1", world)))
        made.append(Point("fig 5, T at alpha 1", str(steps), world, leaking("1", world)))
    for s in (0.01, 0.1, 1.0):
        world = World("paper's chain", smoothed(s), 200)
        made.append(Point("fig 6, s at epsilon 1", f"{s:g}", world, even("1", world)))
        made.append(Point("fig 6, s at alpha 1", f"{s:g}", world, leaking("1", world)))
    for users in (50, 1000, 5000):
        world = World("paper's chain", smoothed(0.01), users)
        made.append(Point("n at epsilon .5 (s=.01)", str(users), world, even("0.5", world)))
    for states in (5, 10, 50):
        world = World("ring", ring(states), 100 * states, 100)
        made.append(Point("m at epsilon .5 (ring, n=100m)", str(states), world, even("0.5", world)))
    return made


def measured(point: Point, methods: Sequence[Method], *, seeds: int) -> list[Row]:
    groups: Groups = {}
    for seed in range(seeds):
        for name, mse in errors(point.world, seed, point.budgets, methods).items():
            groups.setdefault(name, []).append(mse)
    return [
        Row(point.experiment, point.world.name, point.x, name, float(np.mean(found)), spread(found), len(found))
        for name, found in groups.items()
    ]


def spread(found: Sequence[float]) -> float:
    return float(np.std(found, ddof=1) / len(found) ** 0.5) if len(found) > 1 else 0.0


def run(*, quick: bool, console: Console) -> dict[str, float]:
    """All of it; writes the results unless quick."""
    seeds, learnt = (QUICK_SEEDS, 1) if quick else (SEEDS, LEARNT_SEEDS)
    rows: list[Row] = []
    same: list[Row] = []
    todo = points(quick=quick)
    with Progress(console=console) as progress:
        bar = progress.add_task("markov", total=len(todo))
        for point in todo:
            if point.experiment == "chains":
                same += measured(point, (METHODS["default"], LEARNT), seeds=learnt)
            chosen = point.world.start != "random"
            rows += measured(point, list(METHODS.values()), seeds=START_SEEDS if chosen else seeds)
            progress.advance(bar)
            if kept(quick=quick):
                write(rows, same)
    figures = summary(rows) | {"markov_unknown": unknown(rows, same)}
    figures |= map_speed(quick=quick) | step_times(quick=quick)
    if kept(quick=quick):
        RESULTS.joinpath("markov.md").write_text(table(rows, same, figures))
        figure(rows, RESULTS / "markov.png")
    return figures

"""Counts of a Markov chain: [cao2023]'s experiments with the prior mean and the collective filter beside its methods.

Every method works on the same noisy counts: 20 seeds of users and of exact noise, 10 where the start is chosen. Epsilon
is that of ONE step; MSE is over all steps and states. Writes benchmarks/results/markov.csv (means and their spread),
.md and .png.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from rich.console import Console
from rich.progress import Progress

from benchmarks.sequence.markov_chains import LEARNT, METHODS, WORLDS, Method, World, errors, ring, smoothed
from benchmarks.sequence.markov_figures import figure, table
from benchmarks.sequence.markov_rows import EPSILONS, RESULTS, Row, summary, unknown, write
from benchmarks.sequence.markov_speed import map_speed, step_times
from benchmarks.size import kept, sized
from engines.markov.leakage import Adversary, allocate

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
    made = allocate(Fraction(alpha), Adversary.of(world.matrix), horizon=world.steps)
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

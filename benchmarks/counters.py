"""Variances of all counters and of comparators, and a paper's comparison of three: `python -m benchmarks.counters`.

Writes benchmarks/results/counters.csv (mean and largest variance over t <= T, bytes and time for each coordinate),
counters_figure2.csv ([kumar2024b], figure 2: mean absolute error on random bits at epsilon 1/2) and counters.png.
Costs: epsilon 1 for Laplace counters, mu 1 (rho 1/2) for Gaussian ones. `continuous` is the variance that Laplace
noise of the same scale on reals would have, the number of the papers; the discrete noise that runs has a little less.
Comparators are functions (`benchmarks.papers.counters`), which have no bytes and no time.
`optimal_to_kary`, in the last line: the largest ratio of their mean variances, at `COMPARED_AT`.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import matplotlib as mpl
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Column, Table

from benchmarks.papers.counters import COUNTERS as COMPARATORS
from benchmarks.papers.counters import LONGEST
from benchmarks.size import RESULTS, sized
from engines.core.counters import Counter
from engines.core.counters.by_name import COUNTERS
from engines.core.noise import seeded

HORIZONS = sized((30, 100, 200, 1024, 4096), smallest=(4, 8))
COMPARED_AT = sized((30, 100, 200, 1024), smallest=(4, 8))
PLOTTED = HORIZONS[-1]
SHOWN, LONG = HORIZONS[1], COMPARED_AT[-1]
"""Horizons of the table's columns that have one."""
SMALL = Fraction(1, 1000)
WIDTH, STEPS = sized(2_000, smallest=20), 64

# [kumar2024b], figure 2.
BITS = sized(200, smallest=8)
PAPER_RUNS, MANY_RUNS = 10, sized(4_000, smallest=20)
HALF = Fraction(1, 2)


@dataclass(frozen=True)
class Row:
    counter: str
    measure: str
    horizon: int
    mean: float
    largest: float
    continuous: float
    state_bytes: int | None
    us_per_coordinate: float | None


def variances(counter: Counter, horizon: int) -> np.ndarray:
    return np.array([counter.variance(t) for t in range(1, horizon + 1)])


def speed(counter: Counter) -> tuple[float, int]:
    """Microseconds for one coordinate and activation, and bytes of one coordinate's state after STEPS activations.

    Or after as many as there may be.
    """
    steps = min(STEPS, counter.horizon or STEPS)
    state, values = counter.initial(WIDTH), np.ones(WIDTH, dtype=np.int64)
    start = time.perf_counter()
    for t in range(steps):
        _, state = counter.step(values, state, seeded(t))
    spent = time.perf_counter() - start
    return 1e6 * spent / (WIDTH * steps), sum(array.nbytes for array in state.values()) // WIDTH


def row(name: str, horizon: int) -> tuple[Row, np.ndarray]:
    if name in COMPARATORS:
        exact, small = (
            COMPARATORS[name](horizon, cost) for cost in ((Fraction(1), SMALL) if name in PURE else (HALF, HALF))
        )
        mean = float(small.mean()) * (float(SMALL) ** 2 if name in PURE else 1.0)
        measure = "epsilon 1" if name in PURE else "mu 1"
        return Row(name, measure, horizon, float(exact.mean()), float(exact.max()), mean, None, None), exact
    pure = name in PURE
    counter = COUNTERS[name](horizon, Fraction(1) if pure else HALF)
    exact = variances(counter, horizon)
    # With a small epsilon discrete noise is continuous noise, to a part in a million.
    continuous = variances(COUNTERS[name](horizon, SMALL), horizon) * float(SMALL) ** 2 if pure else exact
    us, size = speed(counter)
    return (
        Row(
            counter=name,
            measure="epsilon 1" if pure else "mu 1",
            horizon=horizon,
            mean=float(exact.mean()),
            largest=float(exact.max()),
            continuous=float(continuous.mean()),
            state_bytes=size,
            us_per_coordinate=us,
        ),
        exact,
    )


def figure2(name: str, runs: int) -> np.ndarray:
    """`(BITS,)` mean absolute error on one stream of random bits; each coordinate of the counter is one run."""
    counter = COUNTERS[name](BITS, HALF)
    bits = np.random.default_rng(2).integers(0, 2, size=BITS)
    state, errors = counter.initial(runs), []
    for t, bit in enumerate(bits):
        _, state = counter.step(np.full(runs, bit), state, seeded(runs).child(name, t))
        errors.append(np.abs(counter.running_sum(state) - bits[: t + 1].sum()).mean())
    return np.array(errors)


NAMES = (*COUNTERS, *COMPARATORS)
LAPLACE = (name for name, build in COUNTERS.items() if build(8, Fraction(1)).measure == "epsilon")
PURE = frozenset((*LAPLACE, "honaker", "optimal"))
COMPARED = {"simple": "Simple", "block8": "Block(8)", "tree": "Binary tree", "kary": "balanced k-ary (ours)"}
COLOURS = {
    "simple": "#7f7f7f",
    "block8": "#ff9d3b",
    "block": "#c46200",
    "tree": "#2a7fba",
    "honaker": "#7fc4ee",
    "kary": "#b3123f",
    "optimal": "#111111",
    "hybrid": "#2a7fba",
    "unbounded-block-paper": "#ffc98a",
    "unbounded-block": "#c46200",
    "unbounded-kary": "#b3123f",
    "toeplitz": "#1b7837",
    "blt": "#7fd08f",
    "unbounded-blt": "#7fd08f",
}


def plot(curves: dict[str, np.ndarray], few: dict[str, np.ndarray], many: dict[str, np.ndarray], path: Path) -> None:
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(16, 5.2), layout=sized("constrained", smallest="none"))
    at = np.arange(1, PLOTTED + 1)
    for axis, title, chosen in (
        (axes[0], f"Known horizon T = {PLOTTED}", [n for n in curves if not endless(n)]),
        (axes[1], "No horizon", [n for n in curves if endless(n)]),
    ):
        for name in chosen:
            # Mean up to t: the curves themselves jump at every activation.
            mean = np.cumsum(curves[name]) / at
            # blt lies on toeplitz: the wider one shows below it.
            width = 5 if name == "toeplitz" else 1.8
            axis.loglog(at, mean, color=COLOURS[name], ls="-" if name in PURE else "--", lw=width, label=name)
        axis.set_title(f"{title}\nsolid: epsilon 1, dashed: mu 1")
        axis.set_xlabel("activations t")
        axis.set_ylim(1, 6_000)
        axis.grid(alpha=0.25, which="both")
        axis.legend(fontsize=8, loc="upper left")
    axes[0].set_ylabel("mean variance of the running sum up to t, squared events")
    for name, label in COMPARED.items():
        axes[2].plot(np.arange(1, BITS + 1), few[name], color=COLOURS[name], lw=0.7, alpha=0.55)
        axes[2].plot(np.arange(1, BITS + 1), many[name], color=COLOURS[name], lw=2, label=label)
    axes[2].set_title(
        "PrivStream (Kumar, Strohmer, Vershynin 2024), figure 2: random bits, epsilon 1/2\n"
        f"thin: {PAPER_RUNS} runs as there, thick: {MANY_RUNS}"
    )
    axes[2].set_xlabel("activations t")
    axes[2].set_ylabel("mean absolute error, events")
    axes[2].set_ylim(0, 68)
    axes[2].grid(alpha=0.25)
    axes[2].legend(fontsize=8, ncols=2, loc="upper left")
    figure.savefig(path, dpi=110, metadata={"Software": None})


def horizons(name: str) -> tuple[int, ...]:
    """Those of the table that the counter may have."""
    longest = LONGEST.get(name)
    return HORIZONS if longest is None else tuple(horizon for horizon in HORIZONS if horizon <= longest)


def endless(name: str) -> bool:
    return name in ("simple", "block8", "hybrid") or name.startswith("unbounded")


def write(path: Path, header: list[str], rows: list[list[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True)
    console = console if console.is_terminal else Console(stderr=True, width=120)
    rows: list[Row] = []
    curves: dict[str, np.ndarray] = {}
    few: dict[str, np.ndarray] = {}
    many: dict[str, np.ndarray] = {}
    with Progress(console=console) as progress:
        task = progress.add_task("variances", total=sum(len(horizons(name)) for name in NAMES) + len(COMPARED))
        for name in NAMES:
            for horizon in horizons(name):
                measured, curve = row(name, horizon)
                rows.append(measured)
                if horizon == PLOTTED:
                    curves[name] = curve
                progress.update(task, description=name, advance=1)
        for name in COMPARED:
            few[name], many[name] = figure2(name, PAPER_RUNS), figure2(name, MANY_RUNS)
            progress.update(task, description=f"random bits: {name}", advance=1)
    write(
        out / "counters.csv",
        ["counter", "cost", "T", "mean_variance", "max_variance", "mean_variance_continuous", "state_bytes_t64"],
        [
            [r.counter, r.measure, r.horizon, f"{r.mean:.3f}", f"{r.largest:.3f}", f"{r.continuous:.3f}", r.state_bytes]
            for r in rows
        ],
    )
    write(
        out / "counters_figure2.csv",
        ["t", *(f"{name}_{runs}_runs" for runs in (PAPER_RUNS, MANY_RUNS) for name in COMPARED)],
        [[t + 1, *(f"{errors[n][t]:.3f}" for errors in (few, many) for n in COMPARED)] for t in range(BITS)],
    )
    plot(curves, few, many, out / "counters.png")
    table = Table(
        Column("counter", no_wrap=True),
        Column("cost", no_wrap=True),
        *(f"T={h}" for h in HORIZONS),
        f"discrete, T={SHOWN}",
        "bytes",
        "us",
    )
    means = {(r.counter, r.horizon): r for r in rows}
    for name in NAMES:
        first = means[name, SHOWN]
        cells = [f"{means[name, h].continuous:.1f}" if h in horizons(name) else "-" for h in HORIZONS]
        taken = [means[name, horizon].us_per_coordinate for horizon in horizons(name)]
        us = min((each for each in taken if each is not None), default=None)
        held = [str(means[name, LONG].state_bytes), f"{us:.2f}"] if us is not None else ["-", "-"]
        table.add_row(name, first.measure, *cells, f"{first.mean:.1f}", *held)
    console.print(table)
    ratios = [means["optimal", h].mean / means["kary", h].mean for h in COMPARED_AT]
    report = {
        "mean_variance": {name: [round(means[name, h].continuous, 1) for h in horizons(name)] for name in NAMES},
        "horizons": HORIZONS,
        "figure2_mean_error": {name: round(float(many[name].mean()), 2) for name in COMPARED},
        "figure2_horizon": BITS,
        "optimal_to_kary": round(max(ratios), 3),
        "optimal_to_kary_at": dict(zip(map(str, COMPARED_AT), (round(ratio, 3) for ratio in ratios), strict=True)),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()

"""Strategies of the counter `optimal`, computed anew: `python -m benchmarks.strategies`, a quarter of an hour.

For each horizon the p-identity strategy [I; Theta] diag(1 / (1 + column sums of Theta)) of least mean variance over
running sums, by L-BFGS with bounds from seeded random starts and several p: all a little way, the best few to the end;
rounded to 1/4096, and of these the one that is best after rounding ([mckenna2018]).
Writes engines/counters/optimal/strategies.bin and prints the digest that `strategies.DIGEST` must be. To change either
is to change what running streams draw. Floats decide what is found, so another machine may find others as good:
what is stored is what counts. It was found with --seeds 3 up to T = 64, 4 up to 200, 2 up to 512 and 1 beyond.
`--horizons 30 64` computes these alone, and keeps the others. The last line on stdout is JSON: by horizon, the mean
variance at epsilon 1 (of continuous noise) and p.
"""

from __future__ import annotations

import argparse
import json
import zlib
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress
from scipy.optimize import minimize

from agents.offline.processes import process_pool
from engines.counters.optimal.strategies import LATTICE, LEAST_SHARE, cut, packed, unpacked

FILE = Path(__file__).parents[1] / "engines" / "counters" / "optimal" / "strategies.bin"
LADDER = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 30, 40, 50, 64, 80, 100, 128, 160, 200)
LADDER = (*LADDER, 256, 320, 400, 512, 640, 800, 1024)
SPREADS = (0.2, 0.5, 1.0)
"""Of the random entries of Theta that a start has."""
SHORT, LONG, FINISHED = 300, 5000, 4
Matrix = np.ndarray[Any, np.dtype[np.float64]]


def objective(flat: Matrix, p: int, horizon: int) -> tuple[float, Matrix]:
    """Mean variance at epsilon 1, of continuous noise, and its gradient, for Theta `(p, horizon)`.

    With s = 1 + column sums, W = L'L, V = diag(s) W diag(s) and X = (I + Theta' Theta)^-1 it is 2 tr(X V) / horizon.
    """
    theta = flat.reshape(p, horizon)
    s = 1 + theta.sum(axis=0)
    tails = horizon - np.arange(horizon)  # the diagonal of W
    solved = np.linalg.solve(np.eye(p) + theta @ theta.T, theta)
    products = _summed(solved * s)
    scaled = products * s
    value = float((tails * s * s).sum() - (theta * scaled).sum())
    through_x = -2 * (scaled - (scaled @ theta.T) @ solved)
    through_s = 2 * (tails * s - (theta * products).sum(axis=0))
    return 2 * value / horizon, (2 * (through_x + through_s) / horizon).ravel()


def _summed(rows: Matrix) -> Matrix:
    """Rows times W."""
    return np.cumsum(np.cumsum(rows, axis=1)[:, ::-1], axis=1)[:, ::-1]


def descended(theta: Matrix, iterations: int) -> tuple[float, Matrix]:
    """Mean variance before rounding, and Theta, after so many iterations of L-BFGS."""
    options = {"maxiter": iterations, "maxfun": 2 * iterations, "maxcor": 20, "ftol": 1e-11, "gtol": 1e-8}
    bounds = [(0, None)] * theta.size
    found = minimize(objective, theta.ravel(), theta.shape, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return float(found.fun), found.x.reshape(theta.shape)


def rounded(theta: Matrix) -> np.ndarray:
    """`sums` of the strategy."""
    sums = np.floor(LATTICE * theta / (1 + theta.sum(axis=0)) + 0.5).astype(np.int64)
    # A node of a single activation is another own one: its share is worth more there.
    return sums[(sums > 0).sum(axis=1) > 1]


def mean_variance(sums: np.ndarray) -> float:
    """Of noise of scale 1 / epsilon at epsilon 1, over the strategy's horizon; infinite where an own share is small."""
    if sums.size and int(sums.sum(axis=0).max()) > LATTICE - LEAST_SHARE:
        return float("inf")
    strategy = cut(sums, horizon := sums.shape[1])
    return 2 * strategy.lattice**2 * float((strategy.decoder(horizon) ** 2).sum()) / horizon


def sizes(horizon: int) -> list[int]:
    """Numbers of nodes that are tried: about a half to twice the root of the horizon."""
    root = horizon**0.5
    return sorted({max(1, round(root * share)) for share in (0.4, 0.6, 0.8, 1.0, 1.3, 1.7)})


def best(horizon: int, seeds: int) -> np.ndarray:
    """`sums` of the best of many starts: all a little way, the most promising ones to the end."""
    found = []
    for p, spread, seed in product(sizes(horizon), SPREADS, range(seeds)):
        start = spread * np.random.default_rng([horizon, p, seed]).random((p, horizon))
        found.append(descended(start, SHORT))
    found.sort(key=lambda each: each[0])
    finished = [rounded(descended(theta, LONG)[1]) for _, theta in found[:FINISHED]]
    # No node that adds up at all: the simple counter.
    return min([np.zeros((0, horizon), np.int64), *finished], key=mean_variance)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--horizons", type=int, nargs="+", default=LADDER, help="compute these; keep the others")
    parser.add_argument("--seeds", type=int, default=2, help="random starts of each size and spread")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=FILE)
    arguments = parser.parse_args()
    strategies = unpacked(zlib.decompress(arguments.out.read_bytes())) if arguments.out.exists() else {}
    strategies = {horizon: sums for horizon, sums in strategies.items() if horizon in LADDER}
    console = Console(stderr=True)
    with Progress(console=console) as progress, process_pool(arguments.workers) as pool:
        task = progress.add_task("strategies", total=len(arguments.horizons))
        made = pool.map(best, arguments.horizons, [arguments.seeds] * len(arguments.horizons))
        for horizon, sums in zip(arguments.horizons, made, strict=True):
            strategies[horizon] = sums
            progress.update(task, description=f"T = {horizon}", advance=1)
    content = packed(strategies)
    arguments.out.write_bytes(zlib.compress(content, 9))
    console.print(f"digest {sha256(content).hexdigest()}, {arguments.out.stat().st_size:,} bytes")
    figures = {t: {"mean_variance": round(mean_variance(sums), 3), "p": len(sums)} for t, sums in strategies.items()}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()

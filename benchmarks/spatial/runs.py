"""Runs in two processes: a task is one stream, seed and epsilon, all modes in turn."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import as_completed
from fractions import Fraction
from functools import lru_cache
from itertools import product

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from agents.local.offline.processes import process_pool
from benchmarks.spatial.modes import MEASURES, MODES, MORE, Scene
from benchmarks.spatial.sources import SOURCES
from benchmarks.spatial.streams import FIRST

PROCESSES = 2
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
Results = dict[tuple[str, Fraction, str], np.ndarray]
"""By stream, epsilon and mode, `(seeds, evaluated steps, MEASURES)`."""


@lru_cache(maxsize=1)
def _scene(stream: str, seed: int, early: float) -> Scene:
    data = SOURCES[stream].make(seed, early)
    return Scene(data, data.spread if early else FIRST)


def _run(stream: str, seed: int, epsilon: Fraction, modes: Sequence[str], early: float) -> dict[str, np.ndarray]:
    # Only simulated streams differ with the seed.
    scene = _scene(stream, 0 if SOURCES[stream].needs else seed, early)
    every = {**MODES, **MORE}
    return {
        mode: np.array([[errors[name] for name in MEASURES] for errors in every[mode](scene, epsilon, seed)])
        for mode in modes
    }


def run_all(
    streams: Sequence[str], modes: Sequence[str], epsilons: Sequence[Fraction], *, seeds: int, early: float
) -> Results:
    """Run each mode on each stream, at each epsilon, with so many seeds."""
    tasks = list(product(streams, range(seeds), epsilons))
    errors: dict[tuple[str, Fraction, str], list[np.ndarray]] = {row: [] for row in product(streams, epsilons, modes)}
    for name in _THREADS:
        os.environ.setdefault(name, "1")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        process_pool(PROCESSES) as pool,
        Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress,
    ):
        bar = progress.add_task("streams", total=len(tasks))
        futures = {pool.submit(_run, *task, modes, early): task for task in tasks}
        for future in as_completed(futures):
            stream, _, epsilon = futures[future]
            for mode, found in future.result().items():
                errors[stream, epsilon, mode].append(found)
            progress.update(bar, advance=1, description=stream)
    return {row: np.array(found) for row, found in errors.items()}

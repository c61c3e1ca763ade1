"""Runs in two processes: a task is one stream, seed and epsilon, all modes in turn."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from agents.local.offline.processes import process_pool
from benchmarks.spatial.modes import MODES, MORE, Scene
from benchmarks.spatial.sources import SOURCES

PROCESSES = 2
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
Row = tuple[str, Fraction, str]
"""Stream, epsilon, mode."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Attributes, `(sizes,)` each: mean and standard deviation over seeds of the mean error over evaluated steps."""

    mean: np.ndarray
    deviation: np.ndarray
    seeds: int

    @staticmethod
    def of(errors: Sequence[np.ndarray]) -> Cell:
        table = np.array(errors)
        return Cell(table.mean(axis=0), table.std(axis=0), len(table))


@dataclass(frozen=True, slots=True)
class Task:
    """One stream, seed and epsilon."""

    stream: str
    seed: int
    epsilon: Fraction
    modes: tuple[str, ...]
    early: float


@lru_cache(maxsize=1)
def _scene(stream: str, seed: int | None, early: float) -> Scene:
    return Scene(SOURCES[stream].make(seed or 0, early))


def _run(task: Task) -> dict[str, np.ndarray]:
    simulated = not SOURCES[task.stream].needs
    scene = _scene(task.stream, task.seed if simulated else None, task.early)
    every = {**MODES, **MORE}
    return {mode: np.mean(list(every[mode](scene, task.epsilon, task.seed)), axis=0) for mode in task.modes}


def run_all(
    streams: Sequence[str],
    modes: Sequence[str],
    epsilons: Sequence[Fraction],
    *,
    seeds: int,
    early: float,
    after: Callable[[Mapping[Row, Cell]], None],
) -> dict[Row, Cell]:
    """Errors by stream, epsilon and mode.

    Args:
        after: called with what there is, whenever a stream is done.
    """
    tasks = [
        Task(stream, seed, epsilon, tuple(modes), early)
        for stream in streams
        for seed in range(seeds)
        for epsilon in epsilons
    ]
    errors: dict[Row, list[np.ndarray]] = {
        (stream, epsilon, mode): [] for stream in streams for epsilon in epsilons for mode in modes
    }
    left = {stream: seeds * len(epsilons) for stream in streams}
    for name in _THREADS:
        os.environ.setdefault(name, "1")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        process_pool(PROCESSES) as pool,
        Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress,
    ):
        bar = progress.add_task("streams", total=len(tasks))
        futures = {pool.submit(_run, task): task for task in tasks}
        for future in as_completed(futures):
            task = futures[future]
            for mode, found in future.result().items():
                errors[task.stream, task.epsilon, mode].append(found)
            left[task.stream] -= 1
            progress.update(bar, advance=1, description=task.stream)
            if not left[task.stream]:
                after({row: Cell.of(found) for row, found in errors.items() if not left[row[0]]})
    return {row: Cell.of(found) for row, found in errors.items()}

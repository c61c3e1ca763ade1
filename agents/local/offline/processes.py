"""Worker processes that end when their parent does, however it ends.

A process that is killed cannot tell its workers, and those of `concurrent.futures` go on until their tasks end. So each
worker watches whether its parent still exists. All pools of processes are made here.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import MutableSequence
from concurrent.futures import ProcessPoolExecutor

LOOK_S = 0.5
_SPAWN = multiprocessing.get_context("spawn")


Counts = MutableSequence[int]
"""Progress of each task: a number that one process writes and another one reads."""

_counts: list[Counts] = []  # of this process, if it belongs to a pool


def shared_counts(tasks: int) -> Counts:
    """Return counts of 0 for so many tasks, for `process_pool`."""
    counts: Counts = _SPAWN.RawArray("Q", tasks)
    return counts


def process_pool(workers: int | None, counts: Counts | None = None) -> ProcessPoolExecutor:
    """Return a pool of fresh interpreters that does not outlive this process.

    Forks are not used, because they would inherit locks that threads of libraries hold.

    Args:
        workers: number of processes; None for one on each core.
        counts: counts that tasks change by `count_one`.
    """
    return ProcessPoolExecutor(workers, _SPAWN, initializer=_in_pool, initargs=(counts,))


def count_one(task: int) -> None:
    """Add one to the count of a task; the task itself calls this, in a process of the pool."""
    for counts in _counts:
        counts[task] += 1


def end_with(parent: int) -> None:
    """End this process as soon as `parent` is no longer its parent."""
    threading.Thread(target=_watch, args=(parent,), name="parent watch", daemon=True).start()


def _in_pool(counts: Counts | None) -> None:
    if counts is not None:
        _counts.append(counts)
    parent = multiprocessing.parent_process()
    assert parent is not None
    assert parent.pid is not None
    end_with(parent.pid)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os._exit(1)

"""Processes that work for another one and end when it does, however it ends.

A process that is killed cannot tell its workers, and those of `concurrent.futures` go on for as long as their tasks
take. So each of them looks whether its parent is still there. Whoever shares work with processes makes them here.
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
"""How far each task is: a number that one process writes and another one reads."""

_counts: list[Counts] = []  # those of this process, where it is one of a pool


def shared_counts(tasks: int) -> Counts:
    """Return counts that are all 0, for `process_pool`."""
    counts: Counts = _SPAWN.RawArray("Q", tasks)
    return counts


def process_pool(workers: int | None, counts: Counts | None = None) -> ProcessPoolExecutor:
    """Return a pool of fresh interpreters (a fork would inherit locks of libraries' threads) that does not outlive us.

    Args:
        workers: None for one on each core. counts: where tasks `count_one`.
    """
    return ProcessPoolExecutor(workers, _SPAWN, initializer=_in_pool, initargs=(counts,))


def count_one(task: int) -> None:
    """Count one more for a task of a pool, which calls this itself."""
    for counts in _counts:
        counts[task] += 1


def end_with(parent: int) -> None:
    """End this process, which works for `parent`, as soon as that is no longer its parent."""
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

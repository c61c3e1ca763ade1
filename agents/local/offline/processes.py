"""Worker processes that end when their parent does, however it ends.

A process that is killed cannot tell its workers, and those of `concurrent.futures` go on until their tasks end. So each
worker watches whether its parent still exists. All pools of processes are made here.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from concurrent.futures import ProcessPoolExecutor

LOOK_S = 0.5
_SPAWN = multiprocessing.get_context("spawn")


def process_pool(workers: int | None) -> ProcessPoolExecutor:
    """Return a pool of fresh interpreters that does not outlive this process; None: one for each core.

    Forks are not used, because they would inherit locks that threads of libraries hold.
    """
    return ProcessPoolExecutor(workers, _SPAWN, initializer=_in_pool)


def end_with(parent: int) -> None:
    """End this process as soon as `parent` is no longer its parent."""
    threading.Thread(target=_watch, args=(parent,), name="parent watch", daemon=True).start()


def _in_pool() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    assert parent.pid is not None
    end_with(parent.pid)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os._exit(1)

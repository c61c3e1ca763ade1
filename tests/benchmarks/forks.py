"""Runs modules one after the other, each in a fork of this process, which has imported what benchmarks take longest to.

Each line of standard input is a JSON object: module, environment, and folder, which gets `stdout` and `stderr`. The
answer is a line with the exit code.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import tempfile
from collections.abc import Mapping

import matplotlib.pyplot  # noqa: F401
import pandas  # noqa: F401
import scipy.signal  # noqa: F401

import agents.local.offline.tune  # noqa: F401


def main() -> None:
    for line in sys.stdin:
        told = json.loads(line)
        if not (child := os.fork()):
            run(**told)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def run(module: str, environment: Mapping[str, str], folder: str) -> None:
    """Never returns: this process ends as `python -m` does."""
    os.environ |= environment
    tempfile.tempdir = None  # as the environment says
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT), number)
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit()


if __name__ == "__main__":
    main()

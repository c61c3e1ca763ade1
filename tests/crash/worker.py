"""A worker process as the crash tests run it: `python -m tests.crash.worker CONFIG`. It keeps its private log."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from agents.worker.process import run_worker
from schemas.config import Config
from schemas.config.load import load_config
from tests.crash.machine import CLOCK_VARIABLE, follow_clock


def kept(config: Config) -> Config:
    """The same job, never deleting its private records."""
    return config.model_copy(update={"job": config.job.model_copy(update={"keep_private_log": True})})


if __name__ == "__main__":
    if CLOCK_VARIABLE in os.environ:
        follow_clock(Path(os.environ[CLOCK_VARIABLE]))
    run_worker(kept(load_config(Path(sys.argv[1]), os.environ)))

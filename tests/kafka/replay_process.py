"""A replay in a process of its own, in small chunks, to be killed; each commit is a line of its output."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from agents.local.offline.replay import replay
from schemas.config import load_config


def told(row: int, total: int) -> None:
    if row:  # what is told at 0 is no commit
        print(row, flush=True)


if __name__ == "__main__":
    job = load_config(sys.argv[1])
    asyncio.run(replay(job, job.streams[0], Path(sys.argv[2]), chunk_rows=200, progress=told))

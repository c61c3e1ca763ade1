"""AIM in an environment of its own: `.venv-price`, installed from requirements/price.lock when it is asked for."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.environments import environment

PROGRAM = Path(__file__).with_name("aim_process.py")
MODEL_MB = 1.0
"""Most that the tables of AIM's model may take; its authors' default is 80. On Adult, 1/4 and 4 give the same error."""


@dataclass(frozen=True)
class Answer:
    """Counts of all pairs of attributes, in order; synthetic rows, if asked for."""

    pairs: np.ndarray
    rows: np.ndarray | None


def aim(
    codes: np.ndarray,
    sizes: Sequence[int],
    *,
    epsilon: float,
    delta: float,
    seed: int,
    rows: int = 0,
    model_mb: float = MODEL_MB,
) -> Answer:
    """Args: codes: `(rows, attributes)`. rows: synthetic ones that are wanted."""
    python = environment("price")
    with tempfile.TemporaryDirectory() as folder:
        question, answer = Path(folder) / "question.npz", Path(folder) / "answer.npz"
        asked: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "seed": seed, "rows": rows, "model_mb": model_mb}
        np.savez(question, codes=codes, sizes=np.array(sizes), **asked)
        done = subprocess.run([python, PROGRAM, question, answer], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"AIM failed:\n{done.stderr}")
        with np.load(answer) as found:
            return Answer(found["pairs"], found["synthetic"] if rows else None)

"""How much of a benchmark runs, said to all of them by two variables of the environment.

`QUICK=1` takes a minute or so, and its figures are rough. `SIZE=smallest` takes seconds, and its figures mean nothing:
each part, method and comparison of a benchmark runs once, on as little as it can run on, through to its last line. What
differs from another part in a number or a setting alone is left out, and is in a test of its own.
That shows that it still runs, which is what tests/benchmarks/test_targets.py asks of each target of the Makefile.
At the smallest size
- data are made up (`benchmarks.data`), since those beside the checkout need not be there;
- results go below the folder for temporary files (`TMPDIR`), and those in benchmarks/results stay what they are;
- the broker is that of `PRIVSTREAM_BOOTSTRAP`, where it is set;
- a program whose environment is not installed is named and left out.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

SIZES = ("", "smallest")
SIZE = os.environ.get("SIZE", "")
if SIZE not in SIZES:
    raise SystemExit(f"SIZE={SIZE} is no size of a benchmark: leave it out, or say SIZE=smallest")
SMALLEST = SIZE == "smallest"
QUICK = SMALLEST or os.environ.get("QUICK", "") not in ("", "0")
FOLDER = Path(tempfile.gettempdir()) / "privstream-smallest"
"""Where everything is that a run at the smallest size writes."""
RESULTS = FOLDER / "results" if SMALLEST else Path(__file__).parent / "results"
if SMALLEST:
    RESULTS.mkdir(parents=True, exist_ok=True)


def sized(otherwise: T, *, smallest: T) -> T:
    """Return the second of both at the smallest size."""
    return smallest if SMALLEST else otherwise


def kept(*, quick: bool) -> bool:
    """Say whether results are written: a quick run's would replace the true ones."""
    return SMALLEST or not quick

"""The rows of examples/, as batches of the library."""

from __future__ import annotations

import csv
import gzip
from functools import cache
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@cache
def rows_of(place: str) -> tuple[dict[str, Any], ...]:
    """Return the rows of a gzipped CSV file, with numbers as such."""
    with gzip.open(EXAMPLES / place, "rt", newline="") as file:
        return tuple({name: _cell(cell) for name, cell in row.items()} for row in csv.DictReader(file))


def _cell(cell: str) -> Any:
    if cell == "":
        return None
    try:
        return float(cell) if "." in cell else int(cell)
    except ValueError:
        return cell

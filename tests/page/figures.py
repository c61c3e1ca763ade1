"""What the tests of the page measured, for the last line of `make test-page`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

FILE = "PAGE_FIGURES"
IMAGES = "PAGE_IMAGES"


def note(**figures: Any) -> None:
    """Add numbers to those of other tests; nowhere, where nobody asked."""
    if (name := os.environ.get(FILE)) is None:
        return
    known = read(Path(name))
    for key, value in figures.items():
        known[key] = known[key] + value if key in known else value
    Path(name).write_text(json.dumps(known), encoding="utf-8")


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def images() -> Path | None:
    """The folder to which screenshots go, where they are asked for."""
    found = os.environ.get(IMAGES)
    return Path(found) if found else None

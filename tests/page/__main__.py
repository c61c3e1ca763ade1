"""`make test-page`: the live page in a headless Chromium. Last line: `pages N, errors 0, fps_at_1e6 X, reconnects N`.

`--images` also writes the screenshots of docs/images.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

from tests.page.figures import FILE, IMAGES, read

HERE = Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "docs" / "images"


def main() -> int:
    arguments = [argument for argument in sys.argv[1:] if argument != "--images"]
    if "--images" in sys.argv:
        os.environ[IMAGES] = str(DOCS)
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.json"
        os.environ[FILE] = str(figures)
        code = pytest.main(["-q", str(HERE), *arguments])
        found = {"pages": 0, "errors": 0, "fps_at_1e6": 0.0, "reconnects": 0, **read(figures)}
    print(
        f"pages {found['pages']}, errors {found['errors']}, fps_at_1e6 {found['fps_at_1e6']:.1f}, "
        f"reconnects {found['reconnects']}"
    )
    return int(code)


if __name__ == "__main__":
    sys.exit(main())

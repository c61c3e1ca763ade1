"""`python -m website.pictures [NAME...]`: draws the pictures of docs/images, all or those named. The same each time:
the noise comes from a fixed seed, which a stream that is meant to protect anybody never has.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

from PIL import Image

from website.pictures import choosing, engines

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "images"
PICTURES = {**engines.PICTURES, **choosing.PICTURES}
COLOURS = 40


def main(names: list[str]) -> None:
    for name in names or list(PICTURES):
        target = FOLDER / f"{name}.png"
        target.write_bytes(png(PICTURES[name]()))
        print(f"{target.relative_to(FOLDER.parent.parent)}: {target.stat().st_size:,} bytes")


def png(figure: Any) -> bytes:
    """Return a figure as a PNG of few colours: a third of the bytes, and nobody sees it."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=130, metadata={"Software": None})
    made = io.BytesIO()
    Image.open(drawn).convert("RGB").quantize(COLOURS).save(made, format="png", optimize=True)
    return made.getvalue()


if __name__ == "__main__":
    main(sys.argv[1:])

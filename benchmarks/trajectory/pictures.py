"""Trips as lines, true and synthetic ones side by side."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from engines.trajectory.trips import LATTICE, Trips

SHOWN = 400


def side_by_side(shown: dict[str, Trips], path: Path) -> None:
    """One picture with a panel for each entry, of some trips each, drawn evenly over the data."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot
    from matplotlib.collections import LineCollection
    from PIL import Image

    figure, axes = pyplot.subplots(1, len(shown), figsize=(3.2 * len(shown), 3.4), squeeze=False)
    for axis, (name, trips) in zip(axes[0], shown.items(), strict=True):
        points = np.stack([trips.x, trips.y], axis=1) / LATTICE
        some = np.unique(np.linspace(0, len(trips) - 1, SHOWN).astype(int)) if len(trips) else np.zeros(0, int)
        lines = [points[trips.offsets[trip] : trips.offsets[trip + 1]] for trip in some]
        axis.add_collection(LineCollection(lines, linewidths=0.4, alpha=0.35, colors="#1f4e79"))
        axis.set(xlim=(0, 1), ylim=(0, 1), xticks=[], yticks=[], aspect="equal")
        axis.set_title(f"{name} ({len(trips):,} trips)", fontsize=9)
    figure.tight_layout()
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=90)
    pyplot.close(figure)
    # Shades of one blue: a palette is a fifth of the size.
    Image.open(drawn).convert("RGB").quantize(24).save(path, optimize=True)

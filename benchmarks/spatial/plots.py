"""Errors over epsilon: a column for each stream, a row for each size; bars are standard deviations over seeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.spatial.report import Results
from engines.spatial.evaluators import SIZES

WIDE = 5
"""Streams side by side."""


def plot(results: Results, path: Path) -> None:
    """One figure of all streams, three rows of sizes for every `WIDE` of them."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    names = list(dict.fromkeys(name for name, _, _ in results))
    modes = list(dict.fromkeys(mode for _, _, mode in results))
    blocks = -(-len(names) // WIDE)
    figure, axes = pyplot.subplots(
        len(SIZES) * blocks, WIDE, figsize=(2.7 * WIDE, 5.6 * blocks + 0.6), sharex=True, squeeze=False
    )
    for axis in axes.flat:
        axis.set_visible(False)
    for index, name in enumerate(names):
        for row, size in enumerate(SIZES):
            axis = axes[index // WIDE * len(SIZES) + row][index % WIDE]
            axis.set_visible(True)
            for mode in modes:
                epsilons = [epsilon for other, epsilon, which in results if other == name and which == mode]
                cells = [results[name, epsilon, mode] for epsilon in epsilons]
                if not cells:
                    continue
                means = np.array([cell.mean[row] for cell in cells])
                bars = np.array([cell.deviation[row] for cell in cells])
                axis.errorbar([float(epsilon) for epsilon in epsilons], means, bars, label=mode, capsize=2, lw=1.2)
            axis.set_yscale("log")
            axis.set_xscale("log")
            axis.set_xticks([0.5, 1, 2], ["0.5", "1", "2"])
            axis.minorticks_off()
            axis.tick_params(labelbottom=True, labelsize=7)
            if index % WIDE == 0:
                axis.set_ylabel(f"{size}: relative error", fontsize=8)
        axes[index // WIDE * len(SIZES)][index % WIDE].set_title(name, fontsize=9)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(modes), fontsize=8)
    figure.supxlabel("epsilon of one event", fontsize=9, y=0.6 / (5.6 * blocks + 0.6) * 0.7)
    figure.tight_layout(rect=(0, 0.5 / (5.6 * blocks + 0.6), 1, 1))
    figure.savefig(path, dpi=80)
    pyplot.close(figure)

"""Table and plot of the markov benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.sequence.markov_rows import EPSILONS, Row, by

SHOWN = ("raw", "MLE", "prior mean", "prior mean, even", "MAP, even", "kalman", "default", "default, lag 5")
COLOURS = {
    "raw": "#9a9a9a",
    "MLE": "#6f6f6f",
    "prior mean": "#d9a441",
    "MAP": "#c0392b",
    "default": "#2c6fbb",
    "default, lag 5": "#7fb3e6",
}


def table(rows: Sequence[Row], same: Sequence[Row], figures: Mapping[str, float]) -> str:
    """Markdown: ratios of MSE to the corrected MAP by chain, then the paper's experiments as MSE."""
    cells, learnt = by(rows), by(same)
    lines = ["MSE over that of MAP (frequency prior); last column: chain unknown over known, same seeds", ""]
    lines += [f"| chain | epsilon | {' | '.join(SHOWN)} | P unknown / known |", "|---" * (len(SHOWN) + 3) + "|"]
    for (world, epsilon), found in cells.items():
        ratios = " | ".join(f"{found[name] / found['MAP']:.2f}" for name in SHOWN)
        known = learnt[world, epsilon]
        lines.append(f"| {world} | {epsilon} | {ratios} | {known['default, P unknown'] / known['default']:.2f} |")
    lines += ["", "MSE (standard error of the mean)", ""]
    names = ("raw", "MLE", "prior mean", "MAP", "MAP, even", "default", "default, lag 5")
    lines += [f"| experiment | x | {' | '.join(names)} |", "|---" * (len(names) + 2) + "|"]
    found_rows = {(row.experiment, row.x, row.method): row for row in rows if row.experiment != "chains"}
    for experiment, x in dict.fromkeys((key[0], key[1]) for key in found_rows):
        shown = [found_rows[experiment, x, name] for name in names]
        lines.append(f"| {experiment} | {x} | {' | '.join(f'{row.mse:.3g} ({row.spread:.2g})' for row in shown)} |")
    lines += ["", "Figures of the last line", "", *(f"- {name}: {value}" for name, value in figures.items()), ""]
    return "\n".join(lines)


def figure(rows: Sequence[Row], path: Path) -> None:
    """A panel for each chain and for each of the paper's experiments; bars are two standard errors."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = dict.fromkeys(
        (row.experiment, row.world if row.experiment == "chains" else "")
        for row in rows
        if row.experiment[:6] != "start "
    )
    columns = 4
    lines = -(-len(panels) // columns)
    made, axes = plt.subplots(lines, columns, figsize=(4 * columns, 3 * lines), squeeze=False)
    for panel in axes.flat[len(panels) :]:
        panel.set_visible(False)
    for panel, (experiment, world) in zip(axes.flat, panels, strict=False):
        here = [row for row in rows if row.experiment == experiment and world in ("", row.world)]
        for name, colour in COLOURS.items():
            line = [row for row in here if row.method == name]
            panel.errorbar(
                [float(row.x) for row in line],
                [row.mse for row in line],
                yerr=[2 * row.spread for row in line],
                color=colour,
                marker="o",
                markersize=3,
                linewidth=1.4,
                label=name,
            )
        panel.set_yscale("log")
        panel.set_xscale("log" if experiment == "chains" or experiment.startswith(("n at", "m at")) else "linear")
        panel.set_title(world or experiment, fontsize=9)
        panel.tick_params(labelsize=7)
        if experiment == "chains":
            panel.set_xlim(float(EPSILONS[0]) * 0.8, float(EPSILONS[-1]) * 1.25)
    axes.flat[0].legend(fontsize=7, frameon=False)
    axes.flat[0].set_ylabel("MSE of a count", fontsize=8)
    made.tight_layout()
    made.savefig(path, dpi=110)
    plt.close(made)

"""The table and the plot of the series benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.sequence.series_data import DRIVE, SOURCES
from benchmarks.sequence.series_rows import EXACT, PAPER, Row, mean, ratios

COLUMNS = (
    "default",
    "kalman",
    PAPER,
    EXACT,
    "gaussian",
    "laplace",
    "fast",
    "dft, delay 24",
    "dft, offline",
    "bd",
    "ba",
)


def table(found: Sequence[Row]) -> str:
    """Markdown: ratios by series and epsilon, then errors by method."""
    epsilons = list(dict.fromkeys(row.epsilon for row in found))
    names = list(dict.fromkeys(row.series for row in found))
    lines = ["MSE of `default` over the paper's, with its own accounting / with exact accounting", ""]
    lines += [f"| series | {' | '.join(epsilons)} |", "|---" * (len(epsilons) + 1) + "|"]
    paper, exact = ratios(found, PAPER), ratios(found, EXACT)
    for name in names:
        drive = name == DRIVE
        of_paper = ratios(found, PAPER, drive=True) if drive else paper
        of_exact = ratios(found, EXACT, drive=True) if drive else exact
        cells = [f"{of_paper[name, e]:.2f} / {of_exact[name, e]:.2f}" for e in epsilons]
        lines.append(f"| {name}{' (tuned)' if SOURCES[name].tuned else ''} | {' | '.join(cells)} |")
    means = [
        f"{mean([r for (_, x), r in paper.items() if x == e]):.2f} / "
        f"{mean([r for (_, x), r in exact.items() if x == e]):.2f}"
        for e in epsilons
    ]
    lines += [f"| geometric mean, {DRIVE} apart | {' | '.join(means)} |", ""]
    methods = list(dict.fromkeys(row.method for row in found))
    lines += ["Root mean square error by method", "", f"| series | epsilon | {' | '.join(methods)} |"]
    lines.append("|---" * (len(methods) + 2) + "|")
    mse = {(row.series, row.epsilon, row.method): row for row in found}
    for name in names:
        for e in epsilons:
            cells = [f"{mse[name, e, method].mse ** 0.5:.3g}" for method in methods]
            lines.append(f"| {name} | {e} | {' | '.join(cells)} |")
    return "\n".join(lines)


def figure(found: Sequence[Row], path: Path) -> None:
    """Relative error ([zhang2022]'s RE) against epsilon, a panel for each series; bars are the spread over seeds."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(row.series for row in found))
    columns = 4
    rows = -(-len(names) // columns)
    plot, panels = plt.subplots(rows, columns, figsize=(4 * columns, 3 * rows), squeeze=False)
    for panel, name in zip(panels.flat, names, strict=False):
        for method in COLUMNS:
            line = [row for row in found if row.series == name and row.method == method]
            if not line:
                continue
            at = [float(row.epsilon) for row in line]
            errors = [row.relative for row in line]
            # Half of the spread of a square is that of its root, relative to its size.
            spread = [row.relative * row.spread / row.mse / 2 if row.mse else 0.0 for row in line]
            # Black is none of the ten colours that the others take in turn.
            style = {"lw": 2.0, "color": "black"} if method == "default" else {"lw": 0.9}
            panel.errorbar(at, errors, yerr=spread, label=method, capsize=2, **style)
        panel.set(xscale="log", yscale="log", title=name, xlabel="epsilon", ylabel="RE")
    for panel in list(panels.flat)[len(names) :]:
        panel.axis("off")
    handles, labels = panels[0][0].get_legend_handles_labels()
    plot.legend(handles, labels, loc="lower center", ncol=6)
    plot.tight_layout(rect=(0, 0.06, 1, 1))
    plot.savefig(path, dpi=80)
    plt.close(plot)

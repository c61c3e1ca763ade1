"""What comes out: a table and plots of errors, ratios of `default` to `paper`, and how modes are ordered."""

from __future__ import annotations

import csv
from fractions import Fraction
from pathlib import Path

import numpy as np

from benchmarks.spatial.runs import Results
from benchmarks.spatial.sources import SOURCES
from engines.spatial.evaluators import SIZES

HEAD = ["stream", "tuned", "epsilon", "mode", "size", "error", "deviation", "seeds"]


def ratios(results: Results, *, of: str = "default", to: str = "paper") -> dict[tuple[str, Fraction], np.ndarray]:
    """`(sizes,)` ratios of mean errors by stream and epsilon."""
    return {
        (name, epsilon): errors.mean(axis=0) / results[name, epsilon, to].mean(axis=0)
        for (name, epsilon, mode), errors in results.items()
        if mode == of and (name, epsilon, to) in results
    }


def _geometric(values: np.ndarray) -> float | None:
    return round(float(np.exp(np.log(values).mean())), 3) if values.size else None


def last_line(results: Results) -> dict[str, object]:
    """Ratios of `default` to `paper`, geometric means over streams and epsilons; those of streams not tuned on, too."""
    found = ratios(results)
    if not found:
        return {}
    table = np.array(list(found.values()))
    untuned = np.array([values for (name, _), values in found.items() if not SOURCES[name].tuned]).reshape(
        -1, len(SIZES)
    )
    worst = max(found.items(), key=lambda item: float(item[1].max()))
    return {
        **{f"ratio_{size}": _geometric(table[:, i]) for i, size in enumerate(SIZES)},
        "ratio_all": _geometric(table),
        **{f"ratio_{size}_untuned": _geometric(untuned[:, i]) for i, size in enumerate(SIZES)},
        "ratio_all_untuned": _geometric(untuned),
        "worst_ratio": round(float(table.max()), 3),
        "worst": f"{worst[0][0]}, epsilon {float(worst[0][1]):g}, {list(SIZES)[int(worst[1].argmax())]}",
        "to_paper": {
            mode: {
                size: _geometric(np.array([r[i] for r in ratios(results, of=mode).values()]))
                for i, size in enumerate(SIZES)
            }
            for mode in dict.fromkeys(mode for _, _, mode in results)
            if mode != "paper"
        },
    }


def markdown(results: Results) -> str:
    """One table: small / medium / large, mean over seeds, and the spread as a percentage in brackets."""
    modes = list(dict.fromkeys(mode for _, _, mode in results))
    found = ratios(results)
    last = [" default / paper |"] if found else []
    lines = [
        "| stream | epsilon | " + " | ".join(modes) + " |" + "".join(last),
        "|---" * (len(modes) + 2 + len(last)) + "|",
    ]
    for name, epsilon in dict.fromkeys((name, epsilon) for name, epsilon, _ in results):
        cells = [_cell(results[name, epsilon, mode]) for mode in modes]
        mark = " (tuned)" if SOURCES[name].tuned else ""
        if found:
            cells.append(" / ".join(f"{value:.2f}" for value in found[name, epsilon]))
        lines.append(f"| {name}{mark} | {float(epsilon):g} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(errors: np.ndarray) -> str:
    mean = errors.mean(axis=0)
    values = " / ".join(f"{value:.3f}" if value < 10 else f"{value:.1f}" for value in mean)
    return f"{values} (±{float((errors.std(axis=0) / mean).mean()):.0%})"


def write_csv(results: Results, path: Path) -> None:
    """One line for each stream, epsilon, mode and size."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEAD)
        for (name, epsilon, mode), errors in results.items():
            for size, each in zip(SIZES, errors.T, strict=True):
                numbers = [f"{each.mean():.5f}", f"{each.std():.5f}", len(each)]
                writer.writerow([name, int(SOURCES[name].tuned), float(epsilon), mode, size, *numbers])


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
                errors = np.stack([results[name, epsilon, mode][:, row] for epsilon in epsilons])
                means, bars = errors.mean(axis=1), errors.std(axis=1)
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

"""What comes out: a table and plots of errors, ratios of `default` to `paper`, and how modes are ordered."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import numpy as np

from benchmarks.spatial.runs import Cell, Row
from benchmarks.spatial.sources import SOURCES
from engines.spatial.evaluators import SIZES

Results = Mapping[Row, Cell]
HEAD = ["stream", "tuned", "epsilon", "mode", "size", "error", "deviation", "seeds"]


def ratios(results: Results, *, of: str = "default", to: str = "paper") -> dict[tuple[str, Fraction], np.ndarray]:
    """`(sizes,)` ratios of mean errors by stream and epsilon."""
    return {
        (name, epsilon): cell.mean / results[name, epsilon, to].mean
        for (name, epsilon, mode), cell in results.items()
        if mode == of and (name, epsilon, to) in results
    }


def _geometric(values: np.ndarray) -> float | None:
    return round(float(np.exp(np.log(values).mean())), 3) if values.size else None


def last_line(results: Results) -> dict[str, object]:
    """Ratios of `default` to `paper`, geometric means over streams and epsilons; those of streams not tuned on, too."""
    found = ratios(results)
    if not found:
        return {}
    known = SOURCES
    table = np.array(list(found.values()))
    untuned = np.array([values for (name, _), values in found.items() if not known[name].tuned]).reshape(-1, len(SIZES))
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
    known = SOURCES
    for name, epsilon in dict.fromkeys((name, epsilon) for name, epsilon, _ in results):
        cells = [_cell(results.get((name, epsilon, mode))) for mode in modes]
        mark = " (tuned)" if known[name].tuned else ""
        if found:
            ratio = found.get((name, epsilon))
            cells.append("" if ratio is None else " / ".join(f"{value:.2f}" for value in ratio))
        lines.append(f"| {name}{mark} | {float(epsilon):g} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return ""
    values = " / ".join(f"{value:.3f}" if value < 10 else f"{value:.1f}" for value in cell.mean)
    return f"{values} (±{float((cell.deviation / cell.mean).mean()):.0%})"


def write_csv(results: Results, path: Path) -> None:
    """One line for each stream, epsilon, mode and size."""
    known = SOURCES
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEAD)
        for (name, epsilon, mode), cell in results.items():
            for size, mean, deviation in zip(SIZES, cell.mean, cell.deviation, strict=True):
                tuned = int(known[name].tuned)
                numbers = [f"{mean:.5f}", f"{deviation:.5f}", cell.seeds]
                writer.writerow([name, tuned, float(epsilon), mode, size, *numbers])


def read_csv(path: Path) -> dict[Row, Cell]:
    """What `write_csv` wrote; nothing where there is no file. Streams that are no more are left out."""
    if not path.exists():
        return {}
    parts: dict[Row, dict[str, tuple[float, float, int]]] = {}
    with path.open(newline="") as file:
        for line in csv.DictReader(file):
            if line["stream"] in SOURCES:
                row = (line["stream"], Fraction(line["epsilon"]), line["mode"])
                numbers = (float(line["error"]), float(line["deviation"]), int(line["seeds"]))
                parts.setdefault(row, {})[line["size"]] = numbers
    return {
        row: Cell(
            np.array([sizes[size][0] for size in SIZES]),
            np.array([sizes[size][1] for size in SIZES]),
            sizes["small"][2],
        )
        for row, sizes in parts.items()
    }


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

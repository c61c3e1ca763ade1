"""What comes out: a table and plots of errors, ratios of `default` to `paper`, and how modes are ordered."""

from __future__ import annotations

import csv
from fractions import Fraction
from pathlib import Path
from statistics import geometric_mean

import numpy as np

from benchmarks.panels import draw_panels
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
    return round(geometric_mean(values.ravel().tolist()), 3) if values.size else None


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


def plot(results: Results, path: Path) -> None:
    """A panel for each stream and size of rectangles; bars are the spread over seeds."""
    panels: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
    for (name, epsilon, mode), errors in results.items():
        for size, each in zip(SIZES, errors.T, strict=True):
            points = panels.setdefault(f"{name}, {size}", {}).setdefault(mode, [])
            points.append((float(epsilon), float(each.mean()), float(each.std())))
    draw_panels(panels, path, x="epsilon of one event", y="relative error", columns=2 * len(SIZES))

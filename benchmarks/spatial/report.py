"""What comes out: a table and plots of errors, ratios of `default` to `paper`, and how modes are ordered."""

from __future__ import annotations

import csv
from fractions import Fraction
from pathlib import Path
from statistics import geometric_mean

import numpy as np

from benchmarks.panels import draw_panels
from benchmarks.spatial.modes import MEASURES
from benchmarks.spatial.runs import Results
from benchmarks.spatial.sources import SOURCES
from benchmarks.spatial.streams import FIRST
from engines.spatial.evaluators import SIZES

HEAD = ["stream", "tuned", "epsilon", "mode", "size", "error", "deviation", "seeds"]


def over_steps(errors: np.ndarray) -> np.ndarray:
    """`(seeds, sizes)`: the means over the evaluated steps."""
    means: np.ndarray = errors[:, :, : len(SIZES)].mean(axis=1)
    return means


def ratios(results: Results, *, of: str = "default", to: str = "paper") -> dict[tuple[str, Fraction], np.ndarray]:
    """`(sizes,)` ratios of mean errors by stream and epsilon."""
    return {
        (name, epsilon): over_steps(errors).mean(axis=0) / over_steps(results[name, epsilon, to]).mean(axis=0)
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
        cells = [_cell(over_steps(results[name, epsilon, mode])) for mode in modes]
        mark = " (tuned)" if SOURCES[name].tuned else ""
        if found:
            cells.append(" / ".join(f"{value:.2f}" for value in found[name, epsilon]))
        lines.append(f"| {name}{mark} | {float(epsilon):g} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(errors: np.ndarray) -> str:
    mean = errors.mean(axis=0)
    values = " / ".join(f"{value:.3f}" if value < 10 else f"{value:.1f}" for value in mean)
    return f"{values} (±{float((errors.std(axis=0) / mean).mean()):.0%})"


def first_steps(results: Results) -> str:
    """One table of the first steps: `default` over `paper` on all streams, and how far totals are off."""
    table, off = _by_step(results), {mode: _totals(results, mode) for mode in ("default", "paper")}
    lines = [
        "| step | " + " | ".join(SIZES) + " | all | all, worst stream | total, default | total, paper |",
        "|---" * (len(SIZES) + 5) + "|",
    ]
    for at, step in enumerate(FIRST):
        each = [_geometric(table[:, at, i]) for i in range(len(SIZES))] + [_geometric(table[:, at])]
        cells = [f"{value:.2f}" for value in [*each, _worst(table[:, at])]]
        cells += [
            f"{np.nanmean(errors[:, at]):.1%} (worst {np.nanmax(errors[:, at]):.1%})"
            if np.isfinite(errors[:, at]).any()
            else ""
            for errors in off.values()
        ]
        lines.append(f"| {step} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _by_step(results: Results) -> np.ndarray:
    """`(streams and epsilons, steps, sizes)` ratios of `default` to `paper`, of mean errors over seeds."""
    mean = {row: errors[:, :, : len(SIZES)].mean(axis=0) for row, errors in results.items()}
    return np.array(
        [each / mean[name, epsilon, "paper"] for (name, epsilon, mode), each in mean.items() if mode == "default"]
    )


def _totals(results: Results, mode: str) -> np.ndarray:
    """`(streams and epsilons, steps)` mean relative errors of all that is alive; NaN before there is enough."""
    return np.array([errors[:, :, -1].mean(axis=0) for (*_, each), errors in results.items() if each == mode])


def _worst(table: np.ndarray) -> float:
    return float(np.exp(np.log(table).mean(axis=-1)).max())


def first_line(results: Results) -> dict[str, object]:
    """Ratios of the first steps as `last_line` has them, the worst of all sizes at one step, and the worst total."""
    totals = _totals(results, "default")
    found = {name: value for name, value in last_line(results).items() if name.startswith("ratio")}
    found["worst_step"] = round(_worst(_by_step(results)), 3)
    if np.isfinite(totals).any():
        found["worst_total"] = round(float(np.nanmax(totals)), 3)
    return {f"first_{name}": value for name, value in found.items()}


def write_csv(results: Results, path: Path) -> None:
    """One line for each stream, epsilon, mode and size."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEAD)
        for (name, epsilon, mode), errors in results.items():
            for size, each in zip(SIZES, over_steps(errors).T, strict=True):
                numbers = [f"{each.mean():.5f}", f"{each.std():.5f}", len(each)]
                writer.writerow([name, int(SOURCES[name].tuned), float(epsilon), mode, size, *numbers])


def plot(results: Results, path: Path) -> None:
    """A panel for each stream and size of rectangles; bars are the spread over seeds."""
    panels: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
    for (name, epsilon, mode), errors in results.items():
        for size, each in zip(SIZES, over_steps(errors).T, strict=True):
            points = panels.setdefault(f"{name}, {size}", {}).setdefault(mode, [])
            points.append((float(epsilon), float(each.mean()), float(each.std())))
    draw_panels(panels, path, x="epsilon of one event", y="relative error", columns=2 * len(SIZES))


def write_first(results: Results, path: Path) -> None:
    """One line for each stream, epsilon, mode and step: mean errors, and that of the total where there is enough."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["stream", "tuned", "epsilon", "mode", "step", *MEASURES, "seeds"])
        for (name, epsilon, mode), errors in results.items():
            for step, each in zip(FIRST, errors.mean(axis=0), strict=True):
                numbers = ["" if np.isnan(value) else f"{value:.5f}" for value in each]
                writer.writerow([name, int(SOURCES[name].tuned), float(epsilon), mode, step, *numbers, len(errors)])

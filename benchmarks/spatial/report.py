"""What comes out: a table of errors, ratios of `default` to `paper`, and how modes are ordered."""

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

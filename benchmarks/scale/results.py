"""What was measured: on the terminal, in `benchmarks/results/scale.*`, and as a plot."""

from __future__ import annotations

import asyncio
import csv
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from benchmarks.size import RESULTS, kept

HEAD = ["part", "workers", "partitions", "streams", "figure", "value"]
CURVES_HEAD = ["curve", "x", "y"]
BAR = (1, 4, 1)
"""Workers, partitions and streams of the case that the bars are of."""
MANY_STREAMS = 100
WIDE = ("others_median_ms", "others_p99_ms", "release_cpu_ms", "cpu_share", "rss_mb", "ready_s", "takeover_s")
"""Figures of each job that has so many."""
MOST_POINTS = 250
"""Of a curve that is kept."""
PARTS = ("latency", "beside", "wide", "weighted", "replay", "undated", "crash", "backpressure")

Figures = dict[str, float]


class Progressing:
    """One bar for the whole run, in seconds that are expected; what is left of it is shown."""

    def __init__(self, console: Console, *, expected_s: float) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=console)
        self._expected_s, self._begun, self._told = expected_s, time.monotonic(), ""
        self._bar = self._progress.add_task("starts", total=expected_s)
        self._console = console

    def __enter__(self) -> Progressing:
        self._progress.__enter__()
        return self

    def __exit__(self, *given: Any) -> None:
        self._progress.__exit__(*given)

    def tell(self, what: str, share: float | None = None) -> None:
        """What is at work, and how much of it is done."""
        done = min(time.monotonic() - self._begun, self._expected_s)
        shown = what if share is None else f"{what}: {share:.0%}"
        self._progress.update(self._bar, completed=done, description=shown)
        if what != self._told and not self._console.is_terminal:
            self._told = what
            self._console.print(f"{done:.0f} s: {what}")

    async def sleep(self, seconds: float, what: str, *, look: Callable[[], object]) -> None:
        """A part that takes so long."""
        begun = time.monotonic()
        while (gone := time.monotonic() - begun) < seconds:
            self.tell(what, gone / seconds)
            look()
            await asyncio.sleep(min(0.5, seconds - gone))


@dataclass(frozen=True)
class Row:
    """The figures of one case of a part."""

    part: str
    workers: int
    partitions: int
    streams: int
    figures: Figures


@dataclass
class Run:
    """Attributes: curves: name -> (x, y) of what is drawn over time. failed: what could not be measured."""

    rows: list[Row] = field(default_factory=list)
    curves: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def of(self, part: str) -> list[Row]:
        return [row for row in self.rows if row.part == part]


def summary(run: Run) -> dict[str, Any]:
    """The figures of the bars, and those from which `benchmarks.scale.projection` counts on."""
    found: dict[str, Any] = {}
    latency = run.of("latency")
    for bar in (row.figures for row in latency if _places(row)[1:] == BAR):
        found |= {"p99_ms": bar["main_p99_ms"], "median_ms": bar["main_median_ms"]}
        found["parts_ms"] = {name: bar[name] for name in bar if name.endswith("_ms") and "_to_" in name}
        found["phases_ms"] = {f"{name}": bar[f"{name}_ms"] for name in ("seed", "compute", "candidate", "publish")}
    if latency:
        found |= {"streams": max(row.streams for row in latency)}
        widest = max(latency, key=lambda row: (row.streams, -row.workers))
        found |= {f"widest_{name}": widest.figures[name] for name in ("ready_s", "first_release_s", "all_released_s")}
        found |= {f"widest_{name}": value for name, value in widest.figures.items() if name == "others_p99_ms"}
        one = [row for row in latency if row.workers == 1]
        # Before events come, or those of the main stream would be what is seen.
        wide = [row for row in one if row.partitions == widest.partitions]
        found["rss_mb_by_streams"] = {row.streams: row.figures["rss_cold_mb"] for row in wide}
        found["rss_mb_by_partitions"] = {row.partitions: row.figures["rss_cold_mb"] for row in one if row.streams == 1}
        found["wide"] = {
            f"{row.streams} by {row.workers}": {name: row.figures[name] for name in WIDE if name in row.figures}
            for row in latency
            if row.streams >= MANY_STREAMS
        }
    found["wide_source"] = {row.workers: row.figures for row in run.of("wide")}
    for part in (part for part in PARTS[1:] if part != "wide"):
        for row in run.of(part):
            found |= row.figures
    return found


def table(run: Run) -> Table:
    """For people."""
    shown = Table("part", "workers", "partitions", "streams", "figure", "value", title="scale")
    for row in run.rows:
        first = True
        for name, value in row.figures.items():
            places = [row.part, str(row.workers), str(row.partitions), str(row.streams)] if first else [""] * 4
            shown.add_row(*places, name, f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}")
            first = False
    return shown


def write(run: Run, *, folder: Path = RESULTS, quick: bool = False) -> dict[str, Any]:
    """Everything to files and a plot; of cases that were not run, the last figures stay. Not of a quick run.

    Returns: the summary of this run.
    """
    found = _rounded(summary(run))
    if not kept(quick=quick) or not run.rows:
        return found
    places = {_places(row) for row in run.rows}
    whole = read(folder)
    whole.rows = sorted([row for row in whole.rows if _places(row) not in places] + run.rows, key=_order)
    (folder / "scale.json").write_text(json.dumps(_rounded(summary(whole)), indent=2) + "\n")
    whole.curves |= {name: curve[:: -(-len(curve) // MOST_POINTS)] for name, curve in run.curves.items()}
    _csv(folder / "scale.csv", HEAD, (
        [row.part, row.workers, row.partitions, row.streams, name, f"{value:.6g}"]
        for row in whole.rows
        for name, value in row.figures.items()
    ))  # fmt: skip
    _csv(folder / "scale_curves.csv", CURVES_HEAD, (
        [name, f"{x:.6g}", f"{y:.6g}"] for name, curve in sorted(whole.curves.items()) for x, y in curve
    ))  # fmt: skip
    figure(whole, folder / "scale.png")
    return found


def read(folder: Path = RESULTS) -> Run:
    """What is on disk."""
    found = Run()
    if (path := folder / "scale.csv").exists():
        with path.open(encoding="utf-8", newline="") as file:
            for line in csv.DictReader(file):
                places = line["part"], int(line["workers"]), int(line["partitions"]), int(line["streams"])
                if not found.rows or places != _places(found.rows[-1]):
                    found.rows.append(Row(*places, {}))
                found.rows[-1].figures[line["figure"]] = float(line["value"])
    if (path := folder / "scale_curves.csv").exists():
        with path.open(encoding="utf-8", newline="") as file:
            for line in csv.DictReader(file):
                found.curves.setdefault(line["curve"], []).append((float(line["x"]), float(line["y"])))
    return found


def _rounded(figures: dict[str, Any]) -> dict[str, Any]:
    return {name: _round(value) for name, value in figures.items()}


def _order(row: Row) -> tuple[int, ...]:
    return PARTS.index(row.part), row.streams, row.workers, row.partitions


def _places(row: Row) -> tuple[str, int, int, int]:
    return row.part, row.workers, row.partitions, row.streams


def _csv(path: Path, head: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(lines)


def _round(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _round(each) for name, each in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def figure(run: Run, path: Path) -> None:
    """Latency by width; memory and step time of the replay; memory under backpressure."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plot, panels = plt.subplots(2, 2, figsize=(11, 7))
    latency = run.of("latency")
    for panel, name, rows in (
        (panels[0][0], "partitions", [row for row in latency if row.streams == 1]),
        (panels[0][1], "streams", [row for row in latency if row.partitions in (4, 16)]),
    ):
        for workers in sorted({row.workers for row in rows}):
            some = sorted((row for row in rows if row.workers == workers), key=lambda row: getattr(row, name))
            at = [getattr(row, name) for row in some]
            for kind, style in (("median", "-"), ("p99", "--")):
                values = [row.figures[f"main_{kind}_ms"] for row in some]
                panel.plot(at, values, style, marker="o", color=f"C{workers}", label=f"{workers} workers, {kind}")
        panel.set(xscale="log", yscale="log", xlabel=name, ylabel="ms from step end to release", title="latency")
        panel.axhline(1000, color="grey", lw=0.8)
        panel.axhline(200, color="grey", lw=0.8, ls=":")
        panel.legend(fontsize=7)
    for panel, (name, other), x, (y, other_y), title in (
        (panels[1][0], ("replay_ms", "replay_rss"), "events", ("ms a step", "MB resident"), "replay"),
        (
            panels[1][1],
            ("backpressure_rss", "backpressure_lag"),
            "seconds",
            ("MB resident", "steps taken in and not public"),
            "a slow engine",
        ),
    ):
        panel.plot(*zip(*run.curves.get(name, [(0.0, 0.0)]), strict=True), color="C0")
        panel.set(xlabel=x, ylabel=y, title=title, ylim=(0, None))
        twin = panel.twinx()
        twin.plot(*zip(*run.curves.get(other, [(0.0, 0.0)]), strict=True), color="C1")
        twin.set(ylabel=other_y, ylim=(0, None))
        panel.yaxis.label.set_color("C0")
        twin.yaxis.label.set_color("C1")
    plot.tight_layout()
    plot.savefig(path, dpi=80)
    plt.close(plot)

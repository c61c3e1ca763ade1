"""Tables, plots and the line of JSON, from the figures of the runs that there are."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean, geometric_mean

import numpy as np

from benchmarks.panels import draw_panels
from benchmarks.results import Results
from benchmarks.tabular import delta
from benchmarks.tabular.consumer import INDEPENDENT, PART, REAL, SYNTHETIC
from benchmarks.tabular.metrics import METRICS
from benchmarks.tabular.modes import MODES
from benchmarks.tabular.plan import EPSILONS, part, twin
from benchmarks.tabular.speed import SPEED, Speed
from benchmarks.tabular.streams import ADULT, STREAMS, WINDOWS

TARGETED = (0.5, 1.0, 2.0)
"""Epsilons of the ratios."""
OTHERS = ("evictions-weekly", "evictions-biweekly", "minneapolis-200")
PRINTED = {"paper": "paper", "streaming-mwem": "streaming-mwem", "paper-block": "paper-block"}
TITLES = dict(zip(METRICS, ("AvgWE", "MaxWE", "AvgRelWE", "MaxRelWE"), strict=True))


def printed() -> dict[tuple[str, float, str, str], float]:
    """Figures of [kumar2024], tables 4.1 to 4.3, and [kumar2024c], table 3, by stream, epsilon, metric and mode."""
    found = {}
    with (Path(__file__).parent / "printed.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            for mode in PRINTED:
                if row[mode]:
                    found[row["stream"], float(row["epsilon"]), row["metric"], mode] = float(row[mode])
    return found


class Report:
    """What the figures say."""

    def __init__(self, results: Results) -> None:
        self.results = results
        self.speed = Speed(**results.rows[SPEED]) if SPEED in results.rows else None
        self.printed = printed()
        found = {run.method for run in results.rows}
        self.modes = [mode for mode in MODES if mode in found]
        self.streams = [stream for stream in STREAMS if any(run.data == stream for run in results.rows)]

    def figures(self, stream: str, epsilon: float, mode: str, column: str) -> np.ndarray:
        return np.array(self.results.of(part(epsilon), twin(mode, stream), mode, column))

    def ratio(self, stream: str, epsilon: float, column: str, *, to: str = "paper", at: float | None = None) -> float:
        """Mean of `default` over that of another mode, at another epsilon if given, of the seeds that both ran; nan
        where there are none.
        """
        mine = self.figures(stream, epsilon, "default", column)
        theirs = self.figures(stream, epsilon if at is None else at, to, column)
        seeds = min(len(mine), len(theirs))
        return float(mine[:seeds].mean() / theirs[:seeds].mean()) if seeds else float("nan")

    def ratios(self, streams: Sequence[str], column: str, epsilons: Sequence[float] = TARGETED) -> list[float]:
        found = [self.ratio(stream, epsilon, column) for stream in streams for epsilon in epsilons]
        return [ratio for ratio in found if np.isfinite(ratio)]

    def ttl_at_one_promise(self) -> list[float]:
        """AvgWE under a ttl over `paper` at half the epsilon: there an insert and its expiry are counted apart, so that
        a user is promised the same.
        """
        found = [self.ratio(WINDOWS[1], epsilon, "avg_we_all", at=epsilon / 2) for epsilon in TARGETED]
        return [ratio for ratio in found if np.isfinite(ratio)]

    def to_printed(self) -> list[float]:
        """AvgWE of the last 10 steps over the printed "Proposed", on Adult."""
        found = []
        for stream in ADULT:
            for epsilon in TARGETED:
                figures = self.figures(stream, epsilon, "default", "avg_we_last")
                if len(figures):
                    found.append(float(figures.mean()) / self.printed[stream, epsilon, "avg_we", "paper"])
        return found

    def summary(self) -> dict[str, float | None]:
        """The last line. Ratios are geometric means over streams and epsilons .5 to 2; below 1 `default` is better."""
        every = [*ADULT, *OTHERS, *WINDOWS]
        both = [*self.ratios(every, "avg_we_all"), *self.ratios(every, "max_we_all")]
        at_four = [self.ratio(stream, 4.0, "avg_we_all", to="streaming-mwem") for stream in every]
        at_four = [ratio for ratio in at_four if np.isfinite(ratio)]
        return {
            "ratio_avg_we": _mean(self.ratios(ADULT, "avg_we_all")),
            "ratio_max_we": _mean(self.ratios(every, "max_we_all")),
            "ratio_to_printed": _mean(self.to_printed()),
            "worst_ratio": round(max(both), 3) if both else None,
            "speedup_over_refit": _known(self.speed.speedup if self.speed else None),
            "ratio_avg_we_others": _mean(self.ratios(OTHERS, "avg_we_all")),
            "ratio_avg_we_ttl": _mean(self.ratios(WINDOWS[1:], "avg_we_all")),
            "ratio_avg_we_ttl_at_one_promise": _mean(self.ttl_at_one_promise()),
            "worst_ratio_to_baseline_at_4": round(max(at_four), 3) if at_four else None,
            **delta.summary(self.results),
        }

    def markdown(self) -> str:
        return "\n".join([*self._errors(), *delta.table(self.results), *self._speed(), *self._consumer(), ""])

    def _errors(self) -> Iterator[str]:
        yield "# Tabular streams: error, speed and use\n"
        yield "Made by `make bench-tabular`. Mean ± standard deviation over seeds (their number in brackets).\n"
        yield "## AvgWE and MaxWE over all steps\n"
        yield f"| stream | epsilon | {' | '.join(self.modes)} | default / paper: AvgWE | MaxWE |"
        yield "|---" * (len(self.modes) + 4) + "|"
        for stream in self.streams:
            for epsilon in EPSILONS:
                cells = [self._pair(stream, epsilon, mode) for mode in self.modes]
                if any(cells):
                    ratios = [self.ratio(stream, epsilon, column) for column in ("avg_we_all", "max_we_all")]
                    shown = [f"{ratio:.2f}" if np.isfinite(ratio) else "" for ratio in ratios]
                    yield f"| {stream} | {epsilon:g} | {' | '.join([*cells, *shown])} |"
        yield from self._windows()
        yield "\n## Last 10 steps, beside what the papers print\n"
        yield (
            "`printed` are [kumar2024]'s tables 4.1 to 4.3 ([kumar2024c]'s 1 and 2) and [kumar2024c]'s table 3. The "
            "papers' own runs publish the exact number of events and divide scores by a sensitivity of 1/4; their "
            "evictions are of 1997 to 2024, ours of 2011 to 2015.\n"
        )
        columns = [part for mode in self.modes for part in (mode, *(["printed"] if mode in PRINTED else []))]
        yield f"| stream | epsilon | metric | {' | '.join(columns)} |"
        yield "|---" * (len(columns) + 3) + "|"
        for stream in self.streams:
            for epsilon in EPSILONS:
                for metric in METRICS:
                    cells = list(self._beside(stream, epsilon, metric))
                    if any(cells):
                        yield f"| {stream} | {epsilon:g} | {TITLES[metric]} | {' | '.join(cells)} |"

    def _windows(self) -> Iterator[str]:
        shares = [f"{ratio:.2f}" for ratio in self.ttl_at_one_promise()]
        if shares:
            yield (
                "\nUnder a ttl the papers' modes count an insert and its expiry, `default` the insert only. Above they "
                "have the same epsilon for one count, so the papers' user is promised half as much. At one promise "
                f"(`paper` at half the epsilon) AvgWE of `default` is {', '.join(shares)} of theirs."
            )

    def _pair(self, stream: str, epsilon: float, mode: str) -> str:
        average, worst = (self.figures(stream, epsilon, mode, column) for column in ("avg_we_all", "max_we_all"))
        return f"{_spread(average)}, {worst.mean():.3f} ({len(average)})" if len(average) else ""

    def _beside(self, stream: str, epsilon: float, metric: str) -> Iterator[str]:
        for mode in self.modes:
            figures = self.figures(stream, epsilon, mode, f"{metric}_last")
            yield _spread(figures) if len(figures) else ""
            if mode in PRINTED:
                there = self.printed.get((stream, epsilon, metric, mode))
                yield "" if there is None else f"{there:g}"

    def _speed(self) -> Iterator[str]:
        if self.speed is None:
            return
        speed = self.speed
        yield "\n## Speed\n"
        yield "Randomised Adult, batches of 200, epsilon 1, milliseconds of the processor.\n"
        yield "| | median step | worst step |"
        yield "|---|---|---|"
        yield f"| default, measurements only | {speed.median:.1f} | {speed.worst:.0f} |"
        yield f"| default, with rows | {speed.median_with_rows:.1f} | {speed.worst_with_rows:.0f} |"
        yield (
            f"| mbi, warm refit of {speed.pairs_refitted:g} of the same pairs, 1,000 iterations | {speed.refit:.0f} "
            "| |\n"
        )
        yield (
            f"The refit takes {speed.speedup:.1f} times the worst step without rows (it makes none), "
            f"{speed.speedup_with_rows:.1f} times the worst with rows. Median step in the second quarter of the stream "
            f"{speed.early:.2f}, in the last {speed.late:.2f}; with rows {speed.early_with_rows:.1f} and "
            f"{speed.late_with_rows:.1f}. Rows changed in a step beyond twice its true events plus 2 % of the table: "
            f"{speed.changed:.0f} at most."
        )

    def _consumer(self) -> Iterator[str]:
        kinds = self.results.methods(PART)
        if not kinds:
            return
        yield "\n## Training on synthetic rows\n"
        yield "Gradient boosting for income, tested on real rows that were in no stream; mean over seeds.\n"
        yield "| trained on | epsilon | accuracy | area under ROC | of the way from independent to real |"
        yield "|---|---|---|---|---|"
        means = {
            kind: [fmean(self.results.of(PART, "adult", kind, name)) for name in ("accuracy", "auc")] for kind in kinds
        }
        low, high = means[INDEPENDENT][1], means[REAL][1]
        for kind in sorted(
            kinds, key=(*(kind for kind in kinds if kind.startswith(SYNTHETIC)), INDEPENDENT, REAL).index
        ):
            accuracy, area = means[kind]
            name, _, epsilon = kind.partition(", epsilon ")
            yield f"| {name} | {epsilon} | {accuracy:.3f} | {area:.3f} | {(area - low) / (high - low):.2f} |"

    def plot(self, path: Path) -> None:
        """AvgWE over all steps by epsilon; bars are the spread over seeds."""
        panels: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
        for stream, mode, epsilon in product(self.streams, self.modes, EPSILONS):
            figures = self.figures(stream, epsilon, mode, "avg_we_all")
            if len(figures):
                points = panels.setdefault(stream, {}).setdefault(mode, [])
                points.append((epsilon, float(figures.mean()), float(figures.std())))
        draw_panels(panels, path, x="epsilon", y="AvgWE")


def _spread(figures: np.ndarray) -> str:
    deviation = figures.std(ddof=1) if len(figures) > 1 else float("nan")
    return f"{figures.mean():.4f}" + (f" ± {deviation:.4f}" if len(figures) > 1 else "")


def _known(figure: float | None) -> float | None:
    return None if figure is None or not np.isfinite(figure) else round(figure, 1)


def _mean(ratios: Sequence[float]) -> float | None:
    """Geometric."""
    return round(geometric_mean(ratios), 3) if ratios else None

"""Milliseconds of one spatial engine step of 2,000 events, with little and much history: `python -m benchmarks.step`.

Engines of all histories take turns in one run, so that a busy machine slows all of them. A step is timed from the
folded events to the last synthetic record as a Python object. Events are clustered as in a city (40 Gaussian spots),
depth 18, event epsilon 1/2.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from fractions import Fraction

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from engines.contract import Batch, Columns
from engines.noise import seeded
from engines.spatial import BoxDomain, HeldConfig, HeldLeaves, PHDStream, PHDStreamConfig
from schemas.blocks import Folded

DOMAIN = BoxDomain("x", "y", (0.0, 0.0, 1.0, 1.0), depth=18)
EVENTS = 2_000
CHUNK = 1_000_000


class City:
    """Endless clustered points, the same every time."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._centres = self._random.random((40, 2))
        self._spreads = 0.003 + 0.05 * self._random.random(40)
        weights = self._random.random(40) ** 3
        self._weights = weights / weights.sum()

    def events(self, count: int) -> Folded:
        folded = Folded.empty(1)
        for start in range(0, count, CHUNK):
            size = min(CHUNK, count - start)
            spots = self._random.choice(40, size, p=self._weights)
            noise = self._random.normal(size=(size, 2)) * self._spreads[spots, None]
            x, y = np.clip(self._centres[spots] + noise, 0, 1 - 1e-9).T
            keys, _ = DOMAIN.encode(Columns({"x": x, "y": y}, {}, np.ones(size, np.int8)))
            folded = folded.merge(Folded.of(keys))
        return folded


def fresh(mode: str) -> HeldLeaves | PHDStream:
    """An engine of this mode before its first step."""
    if mode == "paper":
        return PHDStream(PHDStreamConfig(name="bench", domain=DOMAIN, epsilon=Fraction(1, 2)))
    return HeldLeaves(HeldConfig(name="bench", domain=DOMAIN, epsilon=Fraction(1, 2)))


def timed(engine: HeldLeaves | PHDStream, batch: Batch) -> tuple[float, float, int, int]:
    """Milliseconds of the step and of reading its records, number of records that changed, leaves."""
    noise = seeded(batch.step)
    start = time.perf_counter()
    release = engine.step(batch, noise)
    middle = time.perf_counter()
    changed = len(list(release.added)) + len(list(release.removed))
    end = time.perf_counter()
    return 1e3 * (middle - start), 1e3 * (end - middle), changed, release.notes["leaves"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10^5 and 10^6 events of history, fewer steps")
    arguments = parser.parse_args()
    histories = (10**5, 10**6) if arguments.quick else (10**5, 10**6, 10**7)
    warm, rounds = (10, 20) if arguments.quick else (40, 60)
    cases = [(mode, history) for mode in ("default", "paper") for history in histories]
    engines: dict[tuple[str, int], HeldLeaves | PHDStream] = {}
    first: dict[tuple[str, int], float] = {}
    times: dict[tuple[str, int], list[tuple[float, float, int, int]]] = {case: [] for case in cases}
    console = Console(stderr=True)
    console.width = max(console.width, 100)
    with Progress(console=console) as progress:
        task = progress.add_task("histories", total=len(cases) + warm + rounds)
        for history in histories:
            events = City(1).events(history)
            for mode in ("default", "paper"):
                engine = engines[mode, history] = fresh(mode)
                start = time.perf_counter()
                engine.step(Batch(0, events), seeded(0))
                first[mode, history] = time.perf_counter() - start
                progress.advance(task)
        city = City(2)
        gc.collect()
        for step in range(1, warm + rounds + 1):
            progress.update(task, description="warming up" if step <= warm else "steps", advance=1)
            batch = Batch(step, city.events(EVENTS))
            for case in cases:
                if case[0] == "default" or step > warm:
                    batch_of_case = batch if case[0] == "default" else Batch(step - warm, batch.events)
                    row = timed(engines[case], batch_of_case)
                    if step > warm:
                        times[case].append(row)
    table = Table("mode", "history", "first release s", "step ms", "records ms", "p95 ms", "leaves", "changed", "nodes")
    medians: dict[tuple[str, int], float] = {}
    for case in cases:
        rows = np.array(times[case])
        total = rows[:, 0] + rows[:, 1]
        medians[case] = float(np.median(total))
        table.add_row(
            case[0],
            f"{case[1]:.0e}",
            f"{first[case]:.2f}",
            f"{np.median(rows[:, 0]):.1f}",
            f"{np.median(rows[:, 1]):.1f}",
            f"{np.percentile(total, 95):.1f}",
            f"{np.median(rows[:, 3]):.0f}",
            f"{np.median(rows[:, 2]):.0f}",
            str(len(engines[case].state()["tree/nodes"])),
        )
    console.print(table)
    low, high = histories[0], histories[-1]
    report = {
        "ms_2000_at_1e5": round(medians["default", low], 2),
        f"ms_2000_at_1e{len(str(high)) - 1}": round(medians["default", high], 2),
        "flatness": round(medians["default", high] / medians["default", low], 3),
        "paper_ms_2000_at_1e5": round(medians["paper", low], 2),
        "paper_flatness": round(medians["paper", high] / medians["paper", low], 3),
        "leaves": {
            f"{mode}_{history:.0e}": int(np.median([r[3] for r in times[mode, history]])) for mode, history in cases
        },
        "history": high,
        "rounds": rounds,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()

"""The command: `python -m benchmarks.step`."""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import benchmarks.step
from benchmarks.size import QUICK, sized
from benchmarks.step.big import big_steps
from benchmarks.step.breakdown import Clock, watching
from benchmarks.step.city import DOMAIN, EVENTS, MODES, City, Engine, fresh
from benchmarks.step.forms import ALL_PARTS, costs
from benchmarks.step.small import PARTS, small_steps
from benchmarks.step.twin import Twin
from engines.core.contract import Batch, Release
from engines.core.noise import seeded
from engines.spatial.held.engine import HeldConfig, HeldLeaves

Case = tuple[str, int]
"""Mode and events of history."""


def read(release: Release) -> tuple[list[tuple[str, float, float]], list[str]]:
    """All records as objects."""
    added = [(record.id, record.fields["x"], record.fields["y"]) for record in release.added]
    return added, list(release.removed)


@dataclass(frozen=True, slots=True)
class Row:
    """One step: milliseconds of it and of reading its records, of processor time for both, records changed, leaves."""

    step_ms: float
    records_ms: float
    cpu_ms: float
    changed: int
    leaves: int

    @property
    def total_ms(self) -> float:
        """On the clock."""
        return self.step_ms + self.records_ms


def timed(engine: Engine, batch: Batch) -> Row:
    """Run a step and read its records. Processor time is what a machine with nothing else to do would need."""
    noise = seeded(batch.step)
    cpu, start = time.process_time(), time.perf_counter()
    release = engine.step(batch, noise)
    middle = time.perf_counter()
    changed = len(list(release.added)) + len(list(release.removed))
    end, cpu_end = time.perf_counter(), time.process_time()
    return Row(1e3 * (middle - start), 1e3 * (end - middle), 1e3 * (cpu_end - cpu), changed, release.notes["leaves"])


def median(rows: Sequence[Row], name: str) -> float:
    """Of one of their numbers."""
    return float(np.median([getattr(row, name) for row in rows]))


def breakdown(engine: Engine, first: int, city: City, rounds: int) -> dict[str, float]:
    """Mean milliseconds of processor time by part."""
    clock = Clock()
    with watching(clock):
        for step in range(first, first + rounds):
            batch = Batch(step, city.events(EVENTS))
            release = clock.run("all else", engine.step, batch, seeded(step))
            clock.run("records as objects", read, release)
    return {label: 1e3 * spent / rounds for label, spent in sorted(clock.seconds.items(), key=lambda item: -item[1])}


def beside_twin(
    engine: HeldLeaves, config: HeldConfig, first: int, city: City, rounds: int, *, events: int = EVENTS
) -> tuple[float, bool]:
    """How often plain Python takes the processor time of the same steps (median), and whether it releases the same."""
    ratios, same = [], True
    for step in range(first, first + rounds):
        batch = Batch(step, city.events(events))
        keys = np.repeat(batch.events.keys[:, 0], batch.events.counts).tolist()
        twin = Twin(config, engine.state())
        start = time.process_time()
        added, removed, _ = twin.step(step, keys, seeded(step))
        middle = time.process_time()
        theirs = read(engine.step(batch, seeded(step)))
        end = time.process_time()
        ratios.append((middle - start) / (end - middle))
        same &= sorted(removed) == sorted(theirs[1]) and len(added) == len(theirs[0])
        for one, other in zip(sorted(added), sorted(theirs[0]), strict=False):
            same &= one[0] == other[0] and abs(one[1] - other[1]) + abs(one[2] - other[2]) < 1e-12
    return float(np.median(ratios)), same


def many_at_once(engine: Engine, first: int, city: City, rounds: int) -> list[Row]:
    """Steps of 10^5 events."""
    return [timed(engine, Batch(first + i, city.events(100_000))) for i in range(rounds)]


def small(ages: tuple[int, ...], rounds: int) -> None:
    """Print what a step of a small stream costs."""
    found = small_steps(ages, rounds)
    table = Table("engine", "steps before", *(f"{part} ms" for part in PARTS), "mean of all ms")
    for engine, rows in found.items():
        for age, milliseconds in rows.items():
            table.add_row(engine, str(age), *(f"{each:.2f}" for each in milliseconds))
    Console(stderr=True, width=100).print(table)
    print(json.dumps({e: {a: [round(each, 2) for each in row] for a, row in of.items()} for e, of in found.items()}))


def big(per_step: int, warm: int, rounds: int) -> None:
    """Print what 10^6 events of a big stream cost."""
    found = big_steps(per_step, warm, rounds)
    table = Table("seconds for 10^6 events", *found)
    for part in next(iter(found.values())):
        table.add_row(part, *(f"{rows[part]:.2f}" for rows in found.values()))
    Console(stderr=True, width=100).print(table)
    print(json.dumps({e: {part: round(each, 3) for part, each in rows.items()} for e, rows in found.items()}))


def forms(events: int, steps: int) -> None:
    """Print what large steps cost in either form of records."""
    table = Table("engine", "step", "form", *(f"{part} s" for part in ALL_PARTS), "all s", "records", "MB")
    report: dict[str, object] = {}
    for engine, step, found in costs(events, steps):
        for form, cost in found.items():
            seconds = [round(each, 2) for each in cost.seconds]
            total, size = round(sum(cost.seconds), 2), round(cost.size / 1e6, 2)
            table.add_row(engine, str(step), form, *map(str, seconds), str(total), f"{cost.records:,}", str(size))
            report[f"{engine}_{step}_{form}"] = {"cpu_s": total, "records": cost.records, "mb": size}
    Console(stderr=True, width=120).print(table)
    print(json.dumps({"events": events, **report}))


def main() -> None:
    """Run and print; see the package."""
    parser = argparse.ArgumentParser(description=benchmarks.step.__doc__)
    parser.add_argument("--quick", action="store_true", default=QUICK, help="up to 10^6, fewer")
    parser.add_argument("--small", action="store_true", help="of every engine, one step of a hundred events alone")
    parser.add_argument("--big", action="store_true", help="of big streams, each stage of 10^6 events alone")
    parser.add_argument("--forms", action="store_true", help="one record for each event against records with weights")
    arguments = parser.parse_args()
    if arguments.big:
        big(*sized((10_000, 20, 30), smallest=(200, 1, 1)))
        return
    if arguments.forms:
        forms(*sized((10**5 if arguments.quick else 10**6, 2), smallest=(200, 1)))
        return
    if arguments.small:
        small(*sized(((20, 200), 40), smallest=((1,), 2)))
        return
    histories = (10**5, 10**6) if arguments.quick else (10**5, 10**6, 10**7, 10**8)
    histories = sized(histories, smallest=(10**4, 10**5))
    warm, rounds, extra = (10, 20, 5) if arguments.quick else (120, 60, 15)
    warm, rounds, extra = sized((warm, rounds, extra), smallest=(2, 2, 1))
    # Mode `paper` has the more leaves the more there is to tell apart, and is never flat: two histories show that.
    reached = {"default": histories, "paper": histories[:2]}
    cases = [(mode, history) for mode in MODES for history in reached[mode]]
    engines: dict[Case, Engine] = {}
    begun: dict[Case, float] = {}
    times: dict[Case, list[Row]] = {case: [] for case in cases}
    console = Console(stderr=True)
    console.width = max(console.width, 100)
    with Progress(console=console) as progress:
        task = progress.add_task("histories", total=len(cases) + warm + rounds + 3)
        for history in histories:
            events = City(1).events(history)
            for mode in (mode for mode in MODES if history in reached[mode]):
                engine = engines[mode, history] = fresh(mode)
                start = time.process_time()
                engine.step(Batch(0, events), seeded(0))  # Its points are not read: 10^8 records would take minutes.
                begun[mode, history] = time.process_time() - start
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
        low, high, now = histories[0], histories[-1], warm + rounds + 1
        first = engines["default", low]
        assert isinstance(first, HeldLeaves)
        progress.update(task, description="parts", advance=1)
        parts = {
            "default": breakdown(first, now, city, extra),
            "paper": breakdown(engines["paper", low], rounds + 1, city, extra),
        }
        progress.update(task, description="plain Python", advance=1)
        config = HeldConfig(name="bench", domain=DOMAIN, epsilon=Fraction(1, 2))
        ratio, same = beside_twin(first, config, now + extra, city, extra)
        progress.update(task, description="10^5 at once", advance=1)
        many = many_at_once(first, now + 2 * extra, city, extra)
    table = Table(
        "mode",
        "history",
        "first cpu s, unread",
        "step ms",
        "records ms",
        "cpu ms",
        "p95 ms",
        "leaves",
        "changed",
        "nodes",
    )
    for case in cases:
        rows = times[case]
        numbers = [median(rows, name) for name in ("step_ms", "records_ms", "cpu_ms")]
        table.add_row(
            case[0],
            f"{case[1]:.0e}",
            f"{begun[case]:.2f}",
            *(f"{number:.1f}" for number in numbers),
            f"{np.percentile([row.total_ms for row in rows], 95):.1f}",
            f"{median(rows, 'leaves'):.0f}",
            f"{median(rows, 'changed'):.0f}",
            str(len(engines[case].state()["tree/nodes"])),
        )
    console.print(table)
    for mode, spent in parts.items():
        shares = Table(f"{mode}: part of a step of {EVENTS:,} events", "cpu ms", "share")
        for label, milliseconds in spent.items():
            shares.add_row(label, f"{milliseconds:.2f}", f"{milliseconds / sum(spent.values()):.0%}")
        console.print(shares)
    report: dict[str, object] = {}
    for mode in MODES:
        begin, end = "" if mode == "default" else f"{mode}_", reached[mode][-1]
        for kind, name in (("ms", "total_ms"), ("cpu_ms", "cpu_ms")):
            short, long = (median(times[mode, history], name) for history in (low, end))
            report[f"{begin}{kind}_2000_at_1e{len(str(low)) - 1}"] = round(short, 2)
            report[f"{begin}{kind}_2000_at_1e{len(str(end)) - 1}"] = round(long, 2)
            report[f"{begin}{'cpu_' if kind == 'cpu_ms' else ''}flatness"] = round(long / short, 3)
    report |= {
        "ms_1e5_events": round(median(many, "total_ms"), 1),
        "cpu_ms_1e5_events": round(median(many, "cpu_ms"), 1),
        "plain_python_ratio": round(ratio, 1),
        "plain_python_same": same,
        "breakdown_ms": {label: round(spent, 2) for label, spent in parts["default"].items()},
        "leaves": {f"{mode}_{history:.0e}": int(median(times[mode, history], "leaves")) for mode, history in cases},
        "history": high,
        "rounds": rounds,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()

"""`make couple RUNS=N`: N coupled pairs of runs over all settings, every planted fault, every scale mutant.

The last line is JSON:

engines, modes: that were coupled. runs: pairs.
violations: pairs in which public bytes differ, a private value was read, or a unit costs more than is claimed.
worst_loss: the largest share of a claim that a pair used; at most 1.
planted, planted_caught: faults in tests/couple/plants, and one mutant with half the noise for every call that sizes it.

Ends with 1 where a pair is violated or a fault is not found. A violation is printed with what runs it again.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import time
from concurrent.futures import as_completed
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import Progress

from agents.offline.processes import process_pool
from benchmarks.couple.mutants import sites
from benchmarks.couple.runs import Verdict
from benchmarks.couple.work import mutant, pair, plant
from tests.couple.plants.all import PLANTS

RUNS = 1000


@dataclass(slots=True)
class Totals:
    """What all pairs showed."""

    engines: set[str] = field(default_factory=set)
    modes: set[tuple[str, str]] = field(default_factory=set)
    worst: dict[tuple[str, str], float] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=dict)
    broken: list[Verdict] = field(default_factory=list)

    def add(self, verdict: Verdict) -> None:
        engine, mode, _ = verdict.setting.split("/")
        self.engines.add(engine)
        self.modes.add((engine, mode))
        self.worst[engine, mode] = max(self.worst.get((engine, mode), 0.0), verdict.share)
        for name, count in verdict.events.items():
            self.events[name] = self.events.get(name, 0) + count
        if verdict.broken:
            self.broken.append(verdict)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS, help="pairs of runs")
    parser.add_argument(
        "--seed", type=int, help="of the first pair; the others count on from it (default: a fresh one)"
    )
    parser.add_argument("--faults", type=int, help="how many planted faults to look for (default: all)")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    options = parser.parse_args()
    begin = secrets.randbelow(10**9) if options.seed is None else options.seed
    console, began = Console(), time.perf_counter()
    console.print(f"seeds from {begin}", highlight=False)
    totals, missed = Totals(), []
    plants, mutants = PLANTS[: options.faults], list(sites())[: options.faults]
    with (
        process_pool(options.workers) as pool,
        Progress(console=Console(stderr=True)) as progress,
    ):
        pairs = [pool.submit(pair, number, begin) for number in range(options.runs)]
        faults = [pool.submit(plant, index) for index in range(len(plants))]
        faults += [pool.submit(mutant, site) for site in mutants]
        bar = progress.add_task("pairs", total=len(pairs))
        for future in as_completed(pairs):
            verdict = future.result()
            totals.add(verdict)
            _print_broken(console, verdict)
            progress.advance(bar)
        bar = progress.add_task("faults", total=len(faults))
        for done in as_completed(faults):
            name, found = done.result()
            console.print(f"{name}: {found or 'NOT FOUND'}", soft_wrap=True, highlight=False, markup=False)
            missed += [] if found else [name]
            progress.advance(bar)
    _report(console, totals)
    console.print(f"\n{time.perf_counter() - began:.0f} s", highlight=False)
    result = {
        "engines": len(totals.engines),
        "modes": len(totals.modes),
        "runs": options.runs,
        "violations": len(totals.broken),
        "worst_loss": max(totals.worst.values(), default=0.0),
        "planted": len(plants) + len(mutants),
        "planted_caught": len(plants) + len(mutants) - len(missed),
    }
    print(json.dumps(result))
    return int(bool(totals.broken) or bool(missed))


def _report(console: Console, totals: Totals) -> None:
    from rich.table import Table

    table = Table("engine", "mode", "largest share of the claim that a pair used")
    for (engine, mode), share in sorted(totals.worst.items()):
        table.add_row(engine, mode, f"{share:.6f}")
    console.print(table)
    console.print(f"what happened on the way: {totals.events}", highlight=False)
    for verdict in totals.broken:
        _print_broken(console, verdict)


def _print_broken(console: Console, verdict: Verdict) -> None:
    if verdict.broken:
        again = f"again: {verdict.setting}, seed {verdict.seed}"
        console.print(f"VIOLATED: {verdict.broken[0]} ({again})", soft_wrap=True, highlight=False, markup=False)


if __name__ == "__main__":
    sys.exit(main())

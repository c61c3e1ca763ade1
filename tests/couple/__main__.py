"""`make couple RUNS=N`: N coupled pairs of runs over all settings, every planted fault, every scale mutant.

Every setting is coupled twice at least, and once as dearly as it can be (`agents.local.coupling.dearest`); where a
bound renews, also with a unit in two periods; wide settings are coupled once, beside RUNS. Fewer RUNS are refused.
`--only spatial/paper` couples a part of the settings.
The last line is JSON:

engines, modes, settings: that were coupled. runs: pairs.
violations: pairs in which public bytes differ, a private value was read, or a unit costs more than is claimed.
unreached: settings of which no pair used up what their claim allows.
uncoupled: settings that are registered, and were not coupled.
worst_loss: the largest share of a claim that a pair used; at most 1.
planted, planted_caught: faults in tests/couple/plants, and one mutant with half the noise for every call that sizes it.

Ends with 1 where a pair is violated, a setting unreached or uncoupled, or a fault is not found. A violation is printed
with what runs it again.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
import time
from collections.abc import Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import Progress

from agents.local.coupling.mutants import every_site
from agents.local.coupling.runs import Verdict, settings
from agents.local.offline.processes import process_pool
from tests.couple.plants.all import PLANTS
from tests.couple.wide import wide
from tests.couple.work import WINDOWS, dearest_pair, mutant, pair, plant, wide_pair, window_pair

RUNS = 1000
EACH = 2
"""Pairs of each setting, at least."""


@dataclass(slots=True)
class Totals:
    """What all pairs showed."""

    settings: set[str] = field(default_factory=set)
    worst: dict[tuple[str, str], float] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=dict)
    broken: list[Verdict] = field(default_factory=list)

    def parts(self, count: int) -> int:
        """How many engines (1) or modes of them (2) were coupled."""
        return len({tuple(name.split("/")[:count]) for name in self.settings})

    def add(self, verdict: Verdict) -> None:
        engine, mode, _ = verdict.setting.split("/")
        self.settings.add(verdict.setting)
        self.worst[engine, mode] = max(self.worst.get((engine, mode), 0.0), verdict.share)
        for name, count in verdict.events.items():
            self.events[name] = self.events.get(name, 0) + count
        if verdict.broken:
            self.broken.append(verdict)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS, help="pairs of runs")
    parser.add_argument("--only", default="", help="couple settings whose names begin so, such as spatial/paper")
    parser.add_argument(
        "--seed", type=int, help="of the first pair; the others count on from it (default: a fresh one)"
    )
    parser.add_argument("--faults", type=int, help="how many planted faults to look for (default: all)")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    options = parser.parse_args(arguments)
    chosen = [(name, stream) for name, stream in settings() if name.startswith(options.only)]
    coupled, renewing = [name for name, _ in chosen], [name for name, stream in chosen if stream.privacy.per]
    if options.runs < EACH * len(coupled):
        parser.error(
            f"{options.runs} runs leave some of {len(coupled)} settings with less than {EACH} pairs. "
            f"Fix: --runs {EACH * len(coupled)} (make couple RUNS={EACH * len(coupled)}) or more, or --only a part."
        )
    broad = [name for name, _ in wide() if name.startswith(options.only)]
    begin = secrets.randbelow(10**9) if options.seed is None else options.seed
    console, began = Console(), time.perf_counter()
    console.print(f"seeds from {begin}", highlight=False)
    totals, missed = Totals(), []
    unreached: list[str] = []
    plants, mutants = PLANTS[: options.faults], list(every_site())[: options.faults]
    with (
        process_pool(options.workers) as pool,
        Progress(console=Console(stderr=True)) as progress,
    ):
        pairs = [pool.submit(pair, number, begin, options.only) for number in range(options.runs)]
        pairs += [pool.submit(wide_pair, name, begin) for name in broad]
        dear = [pool.submit(dearest_pair, name) for name in coupled]
        windows = [pool.submit(window_pair, name, begin) for name in renewing]
        faults = [pool.submit(plant, index) for index in range(len(plants))]
        faults += [pool.submit(mutant, site) for site in mutants]
        bar = progress.add_task("pairs", total=len(pairs))
        for future in as_completed(pairs):
            verdict = future.result()
            totals.add(verdict)
            _print_broken(console, verdict)
            progress.advance(bar)
        bar = progress.add_task("dearest pairs", total=len(dear))
        for reached in as_completed(dear):
            verdict, reach = reached.result()
            totals.add(verdict)
            _print_broken(console, verdict)
            if verdict.share < reach:
                unreached.append(verdict.setting)
                console.print(f"{verdict.setting}: reaches {verdict.share:.6f} of its claim, not {reach:.6f}")
            progress.advance(bar)
        bar = progress.add_task("pairs of two periods", total=len(windows))
        for window in as_completed(windows):
            for verdict in window.result():
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
        "engines": totals.parts(1),
        "modes": totals.parts(2),
        "settings": len(totals.settings),
        "runs": len(pairs) + len(dear) + WINDOWS * len(windows),
        "violations": len(totals.broken),
        "unreached": sorted(unreached),
        "uncoupled": sorted({*coupled, *broad} - totals.settings),
        "worst_loss": max(totals.worst.values(), default=0.0),
        "planted": len(plants) + len(mutants),
        "planted_caught": len(plants) + len(mutants) - len(missed),
    }
    print(json.dumps(result))
    return int(bool(totals.broken or missed or unreached or result["uncoupled"]))


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

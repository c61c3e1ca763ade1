"""`make bench-price`: what releases at every step cost against one batch release at the end, at one epsilon and delta.

The last step of `default` over the best batch method that runs: for tables AIM, in an environment of its own; for maps
the better of PrivTree and the adaptive grid, on all that is alive; for trips the best of AdaTrace, of the paper's trees
and of a coarse grid. ARGS="--adatrace FOLDER" runs AdaTrace, of a checkout of git-disl/AdaTrace; without it the runs
that are in the results count. Runs that are in benchmarks/results/price.csv are not repeated (`--fresh` does). QUICK=1:
one seed of a few, into price_quick.*.

Last line, JSON. Geometric means over data sets and figures, of means over seeds; with `_spread`, the standard deviation
over seeds of the same from each seed alone:

price_table, price_map, price_trips: see above. price_table is with delta = 1e-6 on both sides and of AvgWE;
    price_table_max_we of MaxWE; price_table_pure: pure `default` over AIM, which has a delta. price_map_to_...: to
    one of both alone.
price_trips is of 10 windows, price_trips_4 of 4.
one_batch_*: over our own engine, given everything in one step: what steps cost; method_*: of that over the others.
ties_batch: share of Cramer's V that AIM's rows keep, on benchmarks/tabular/ties.py; ties (...): the other methods.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from benchmarks.price import maps, tables, trips
from benchmarks.price.report import last_line, markdown
from benchmarks.results import Results, Run
from benchmarks.size import QUICK, RESULTS

RUN: dict[str, Callable[[str, str, int], dict[str, float]]] = {
    maps.PART: maps.run,
    trips.PART: trips.run,
    tables.PART: tables.run,
    tables.TIES: tables.run_ties,
}


def planned(*, quick: bool) -> Iterator[Run]:
    """In an order in which a data set is made once."""
    parts = (
        (maps.PART, maps.data, maps.METHODS, maps.SEEDS),
        (trips.PART, trips.data, trips.METHODS, trips.SEEDS),
        (tables.PART, tables.data, tables.METHODS, tables.SEEDS),
        (tables.TIES, tables.tied, tables.METHODS, tables.SEEDS),
    )
    for part, names, methods, seeds in parts:
        for name in names(quick=quick):
            for seed in range(1 if quick else seeds):
                yield from (Run(part, name, method, seed) for method in methods)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", default=QUICK, help="as QUICK=1")
    parser.add_argument("--fresh", action="store_true", help="repeat the runs that are in the results")
    parser.add_argument("--only", action="append", choices=sorted(RUN), help="this part; may be repeated")
    parser.add_argument("--adatrace", type=Path, help="a checkout of git-disl/AdaTrace")
    arguments = parser.parse_args()
    console = Console(stderr=True)
    name = "price_quick" if arguments.quick else "price"
    results = Results(RESULTS / f"{name}.csv", forget=lambda run: bool(arguments.quick))
    parts = arguments.only or list(RUN)
    runs = [run for run in planned(quick=arguments.quick) if run.part in parts]
    more = [Run(trips.PART, data, trips.ADATRACE, 0) for data in trips.data(quick=arguments.quick)]
    more = [run for run in more if arguments.adatrace and trips.PART in parts]
    if not arguments.fresh:
        runs, more = ([run for run in of if run not in results.rows] for of in (runs, more))
    with Progress(console=console) as progress:
        task = progress.add_task("runs", total=len(runs) + len(more))
        for run in runs:
            progress.update(task, description=f"{run.part}: {run.data}, {run.method}, seed {run.seed}")
            results.add(run, RUN[run.part](run.data, run.method, run.seed))
            progress.advance(task)
        for run in more:
            progress.update(task, description=f"{run.part}: {run.data}, {run.method}")
            for seed, found in enumerate(trips.adatrace(run.data, arguments.adatrace)):
                results.add(Run(run.part, run.data, run.method, seed), found)
            progress.advance(task)
    if not results.rows:
        console.print("no data: the sets are read from ../shared/data")
        return 1
    results.sort()
    (RESULTS / f"{name}.md").write_text(markdown(results), encoding="utf-8")
    print(markdown(results))
    print(json.dumps(last_line(results)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

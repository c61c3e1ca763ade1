"""Error, speed and use of tabular streams: `make bench-tabular` (QUICK=1: under three minutes).

The streams, epsilons and metrics of [kumar2024c]'s tables 1 to 3, Minneapolis police stops, and windows whose rows are
deleted by events or by a ttl; every mode, the papers' counters, five seeds; speed beside mbi's own refit; and gradient
boosting trained on synthetic rows. Runs that are in benchmarks/results/tabular.csv are not repeated (`--fresh` does),
so the whole, many hours of mbi, can be stopped and goes on where it was: `--mode default` is the part of minutes.
Writes benchmarks/results/tabular.csv, .md and .png (quick: tabular_quick.*, not
committed); the last line is JSON, see `report.Report.summary`, `delta`,
`ties` and `discover`, each of which runs alone with `--only`. The table in the .md says how many seeds a figure has.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, replace
from fractions import Fraction

import numpy as np
from rich.console import Console
from rich.progress import Progress

from benchmarks.data import DATA
from benchmarks.results import Results
from benchmarks.size import QUICK, RESULTS
from benchmarks.tabular import delta, discover, ties
from benchmarks.tabular.consumer import scores
from benchmarks.tabular.metrics import summarised
from benchmarks.tabular.modes import MODES, run
from benchmarks.tabular.plan import DELTAS, EPSILONS, FEW, Plan, epsilon_of
from benchmarks.tabular.report import Report
from benchmarks.tabular.speed import SPEED, measure
from benchmarks.tabular.streams import STREAMS

USE_SEEDS = 3
STORED = RESULTS / "tabular.csv"


def main() -> int:
    arguments = _arguments()
    console = Console(stderr=True)
    if not (DATA / "adult").is_dir():
        console.print(f"no data beside the checkout: {DATA}")
        return 1
    if arguments.only == "delta":
        return _deltas(fresh=arguments.fresh, console=console)
    if arguments.only == "discover":
        return _discovered()
    if arguments.only == "ties":
        found = ties.measured()
        print("\n".join(ties.table(found)))
        print(json.dumps({**ties.summary(found), **delta.summary(Results(STORED))}))
        return 0
    quick = QUICK or arguments.quick
    plan = FEW if quick else Plan(seeds=arguments.seeds)
    if arguments.mode:
        plan = replace(plan, modes=tuple(arguments.mode))
    if arguments.stream:
        plan = replace(plan, streams=tuple(arguments.stream))
    if arguments.epsilon:
        plan = replace(plan, epsilons=tuple(arguments.epsilon))
    name = "tabular_quick" if quick else "tabular"
    path = RESULTS / f"{name}.csv"
    results = Results(path, forget=plan.has) if quick or arguments.fresh else Results(path)
    with Progress(console=console) as progress:
        _run(plan, results, progress)
        if not arguments.errors_only:
            _beside(results, quick, arguments.use_seeds, progress)
    report = Report(results)
    (RESULTS / f"{name}.md").write_text(report.markdown(), encoding="utf-8")
    report.plot(RESULTS / f"{name}.png")
    print(report.markdown())
    tied = ties.measured()
    print("\n".join(ties.table(tied)))
    of_found = discover.measured()
    print("\n".join(discover.table(of_found)))
    print(json.dumps({**report.summary(), **ties.summary(tied), **discover.summary(of_found)}))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="as QUICK=1")
    parser.add_argument("--fresh", action="store_true", help="repeat the runs that are in the results")
    parser.add_argument("--errors-only", action="store_true", help="neither speed nor training anew")
    parser.add_argument("--only", choices=["delta", "ties", "discover"], help="one measure alone: a minute or two")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--use-seeds", type=int, default=USE_SEEDS, help="of the consumer that trains")
    parser.add_argument("--mode", action="append", choices=sorted(MODES), help="only this one; may be repeated")
    parser.add_argument(
        "--epsilon", action="append", type=float, choices=EPSILONS, help="only this one; may be repeated"
    )
    parser.add_argument("--stream", action="append", choices=sorted(STREAMS), help="only this one; may be repeated")
    return parser.parse_args()


def _deltas(*, fresh: bool, console: Console) -> int:
    """Runs that are not in the results yet, a table, and the part of the last line that is of them."""
    results = Results(STORED, forget=DELTAS.has) if fresh else Results(STORED)
    with Progress(console=console) as progress:
        _run(DELTAS, results, progress)
    print("\n".join(delta.table(results)))
    print(json.dumps(delta.summary(results)))
    return 0


def _discovered() -> int:
    """What it costs that nobody lists the values of an attribute, and the part of the last line that is of it."""
    found = discover.measured()
    print("\n".join(discover.table(found)))
    print(json.dumps(discover.summary(found)))
    return 0


def _run(plan: Plan, results: Results, progress: Progress) -> None:
    todo = [each for each in plan.runs() if each not in results.rows]
    task = progress.add_task("runs", total=len(todo))
    for each in todo:
        data = STREAMS[each.data](each.seed, plan.steps)
        step_task = progress.add_task(f"{each.method}, {each.data}, {each.part}", total=len(data.inserts))
        errors, seconds = [], []
        for found, took in run(each.method, data, Fraction(epsilon_of(each)), each.seed):
            errors.append(found)
            seconds.append(took)
            progress.advance(step_task)
        progress.remove_task(step_task)
        results.add(each, summarised(np.array(errors), np.array(seconds)))
        progress.advance(task)


def _beside(results: Results, quick: bool, use_seeds: int, progress: Progress) -> None:
    """What is measured anew each time."""
    steps = 60 if quick else None
    task = progress.add_task("speed", total=None)
    results.add(SPEED, asdict(measure(row_steps=steps, advance=lambda: progress.advance(task))))
    epsilons, seeds = ((1.0,), 1) if quick else (EPSILONS, use_seeds)
    used_task = progress.add_task("training", total=seeds * (len(epsilons) + 2))
    for trained, figures in scores(epsilons, seeds, steps=steps, advance=lambda: progress.advance(used_task)):
        results.add(trained, figures)


if __name__ == "__main__":
    sys.exit(main())

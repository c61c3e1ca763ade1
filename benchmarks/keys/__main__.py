"""`make bench-keys`: keys that nobody listed, found by engine `keys`, beside what is published; QUICK=1: three minutes.

The engine's own noise and thresholds, from repeatable seeds, on counts of users by key and test. Beside it DP-SQLP, run
again from its description (benchmarks/papers/keys.py, which says what of it is our reading), and one batch at the end
with a threshold, Gaussian or Laplace, whichever finds more. On real streams each method has its best bound in
hindsight, out of powers of two up to 64; a user's first pairs count. Runs that are in benchmarks/results/keys.csv are
not repeated (`--fresh` does). A stream whose file is not there is left out, and named.

Last line, JSON:

zipf_keys, zipf_l1: keys found, and the sum of absolute errors of all counts, on the synthetic stream of DP-SQLP with
    100 tests, where its paper has 28,338 and 17.74 million; zipf_keys_10 and zipf_l1_10: with 10 tests.
to_dpsqlp: keys found over those of DP-SQLP, geometric mean over real streams, both with 10 tests; to_dpsqlp_100: both
    with 100. to_batch, to_batch_100: over those of the batch. ..._spread: the standard deviation over seeds.
keys_held, bytes_per_key, us_per_event: as `make bench-table` has them.
people_by_zone: error of people of public zones in all weeks so far, mode `public`, over that of `spatial` that somebody
    hands people's first check-ins alone, each at its best bound (Gowalla and Foursquare, see `benchmarks.keys.zones`).
    ..._busy: in zones and weeks of 50 people or more alone. ..._checkins: over `spatial` on all check-ins.
    ..._read: with counts below two standard errors taken for 0. people_by_week...: the same of people in each week.
"""

from __future__ import annotations

import argparse
import json
import sys

from rich.console import Console
from rich.progress import Progress

from benchmarks.keys import streams
from benchmarks.keys.report import last_line, markdown, plot
from benchmarks.keys.runs import figures, planned
from benchmarks.results import Results
from benchmarks.size import QUICK, RESULTS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fresh", action="store_true", help="repeat the runs that are in the results")
    arguments = parser.parse_args()
    console = Console(stderr=True)
    for name in streams.FILES:
        if not streams.path(name).exists():
            console.print(f"{name} is left out: no file {streams.path(name)}, see benchmarks/keys/words.py")
    name = "keys_quick" if QUICK else "keys"
    results = Results(RESULTS / f"{name}.csv", forget=lambda run: QUICK or arguments.fresh)
    runs = [run for run in planned(quick=QUICK) if run not in results.rows]
    with Progress(console=console) as progress:
        task = progress.add_task("runs", total=len(runs))
        for run in runs:
            progress.update(task, description=f"{run.part}: {run.data}, {run.method}, seed {run.seed}")
            results.add(run, figures(run))
            progress.advance(task)
    results.sort()
    (RESULTS / f"{name}.md").write_text(markdown(results), encoding="utf-8")
    plot(results, RESULTS / f"{name}.png")
    print(markdown(results))
    print(json.dumps(last_line(results)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`make audit`: every claim that can be audited, the examples' streams end to end, and all planted cheats, afresh.

Seeds are the operating system's. False alarms: 1e-6 for each Monte Carlo row. The last line is JSON:

claims: rows of honest mechanisms, counters, engines and streams.
violations: of these, lower bounds above the claim.
cheats, cheats_caught: planted bugs, and those caught by the detector that is named for them.

Ends with 1 where a claim is violated, a cheat is not caught, or an honest twin is.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

from agents.cli.audit import audit_case, case_names, draw
from agents.cli.output import table
from engines.auditor import HEAD, Finding, audit, table_rows, violations
from tests.audit.cheats import CHEATS

RUNS = 2000
STREAM_RUNS = 400
"""Of a stream end to end: its engine is audited above; here it is ingest, bounds, merge, restarts and formats."""

STREAMS = """
[kafka]
bootstrap = "localhost:9092"
{}
"""
STREAM = """
[[streams]]
name = "{name}"
engine = "spatial"
mode = "{mode}"
source = "raw.{name}"
partitioner = "{partitioner}"
[streams.privacy]
epsilon = {epsilon}
{unit}
[streams.time]
field = "at"
start = "2020-01-01T00:00:00"
step = "1h"
[streams.domain]
kind = "box"
x = "x"
y = "y"
bounds = [0.0, 0.0, 1.0, 1.0]
{domain}
[streams.options]
depth = 4
max_leaves = 16
initial_steps = 2
"""
USER = 'unit = "user"\nuser = "who"\nmax_contributions = {}'
CONFIGURED = (
    {"name": "users", "mode": "paper", "epsilon": 4.0, "unit": USER.format(2), "domain": 'op = "action"'},
    {"name": "held", "mode": "default", "epsilon": 4.0, "unit": USER.format(2), "domain": ""},
    {"name": "events", "mode": "default", "epsilon": 3.0, "unit": 'unit = "event"', "domain": 'ttl = "2h"'},
)


def judge(index: int, honest: bool) -> tuple[list[Finding], float]:
    """Findings of a cheat or of its twin, and seconds. Here, so that another process can be asked for it."""
    began = time.perf_counter()
    cheat = CHEATS[index]
    runs = min(cheat.runs, 200) if honest else cheat.runs
    found = list(audit(cheat.honest() if honest else cheat.cheat(), runs=runs))
    return found, time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS, help="of an engine on each of two inputs")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--plot", type=Path, help="draw claims and lower bounds into this file")
    options = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "streams.toml"
        streams = [STREAM.format(**({"partitioner": "murmur2"} | each)) for each in CONFIGURED]
        config.write_text(STREAMS.format("".join(streams)))
        findings, caught = _work(options.runs, options.workers, config)
    print(table(HEAD, table_rows(findings)))
    broken = violations(findings)
    if options.plot is not None:
        draw(findings, options.plot)
    print(f"\n{len(findings)} claims, {len(broken)} violated; {time.perf_counter() - began:.0f} s")
    print(f"cheats caught {caught} of {len(CHEATS)}")
    result = {"claims": len(findings), "violations": len(broken), "cheats": len(CHEATS), "cheats_caught": caught}
    print(json.dumps(result))
    return int(bool(broken) or caught < len(CHEATS))


def _work(runs: int, workers: int, config: Path) -> tuple[list[Finding], int]:
    # Longest first, so that no worker ends alone with the longest one.
    names = sorted(case_names(None, None), key=lambda name: not name.startswith("engine"))
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        honest: list[Future[list[Finding]]] = [
            pool.submit(audit_case, (name, STREAM_RUNS, config, None)) for name in case_names(config, None)
        ]
        honest += [pool.submit(audit_case, (name, runs, None, None)) for name in names]
        planted = [[pool.submit(judge, index, twin) for twin in (False, True)] for index in range(len(CHEATS))]
        findings: list[Finding] = []
        for future in honest:
            findings += future.result()
            print(f"{findings[-1].case}: done", file=sys.stderr, flush=True)
        caught = 0
        for cheat, (bad, good) in zip(CHEATS, planted, strict=True):
            found, seconds = bad.result()
            twin, _ = good.result()
            seen = cheat.caught_by in {each.detector for each in violations(found)}
            false_alarm = bool(violations(twin))
            caught += seen and not false_alarm
            verdict = "caught" if seen else "NOT CAUGHT"
            verdict += ", but its HONEST TWIN TOO" if false_alarm else ""
            worst = max(found, key=lambda each: each.lower_bound / each.claimed)
            bound = f"{worst.lower_bound:.3g} where {worst.claimed:.3g} is claimed"
            print(f"cheat: {cheat.name}: {verdict} ({cheat.caught_by}; {bound}; {seconds:.1f} s)", flush=True)
    return findings, caught


if __name__ == "__main__":
    sys.exit(main())

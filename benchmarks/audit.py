"""`make audit`: every claim that can be audited, the examples' streams end to end, afresh.

Seeds are the operating system's. False alarms: 1e-6 for each Monte Carlo row. The last line is JSON:

claims: rows of honest mechanisms, counters, engines and streams.
violations: of these, lower bounds above the claim.
rows_without_power: rows in which even a total leak would pass.

Ends with 1 where a claim is violated, a row cannot fail, or something that must be tried (a burst, a merge ...) never
occurred. CI runs all cases with fewer runs (`tests/audit`); this is not in CI.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from concurrent.futures import Future
from pathlib import Path

from agents.cli.audit import audit_case, case_names, draw
from agents.offline.processes import process_pool
from agents.pages.text import table
from engines.auditor import COVERED, HEAD, AuditFinding, powerless, remedies, table_rows, violations

RUNS = 200
STREAM_RUNS = 120
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
    {"name": "users", "mode": "paper", "epsilon": 1.5, "unit": USER.format(2), "domain": 'op = "action"'},
    {"name": "held", "mode": "default", "epsilon": 2.0, "unit": USER.format(2), "domain": ""},
    {"name": "renewed", "mode": "paper", "epsilon": 2.0, "unit": USER.format(2) + '\nper = "3h"', "domain": ""},
    {"name": "events", "mode": "default", "epsilon": 2.0, "unit": 'unit = "event"', "domain": 'ttl = "2h"'},
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS, help="of an engine")
    parser.add_argument("--stream-runs", type=int, default=STREAM_RUNS, help="of a stream end to end")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--plot", type=Path, help="draw claims and lower bounds into this file")
    options = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "streams.toml"
        streams = [STREAM.format(**({"partitioner": "murmur2"} | each)) for each in CONFIGURED]
        config.write_text(STREAMS.format("".join(streams)))
        findings = _work(options, config)
    print(table(HEAD, table_rows(findings)))
    broken = violations(findings)
    weak = len(powerless(findings))
    if options.plot is not None:
        draw(findings, options.plot)
    print(f"\n{len(findings)} claims, {len(broken)} violated; {time.perf_counter() - began:.0f} s")
    print("\n".join(remedies(findings)))
    missing = _coverage(findings)
    result = {
        "claims": len(findings),
        "violations": len(broken),
        "rows_without_power": weak,
    }
    print(json.dumps(result))
    return int(bool(broken) or bool(weak) or bool(missing))


def _coverage(findings: list[AuditFinding]) -> list[str]:
    """Print how often each thing that must be tried occurred; returns those that never did, or not where they must."""
    counts = {
        what: sum(found.runs for found in findings if found.detector == "coverage" and found.check.endswith(what))
        for what in COVERED
    }
    print("came across: " + ", ".join(f"{what} {count:,}" for what, count in counts.items()))
    nowhere = [what for what, count in counts.items() if not count]
    return nowhere + [f"{found.case}: {found.check}" for found in findings if found.uncovered]


def _work(options: argparse.Namespace, config: Path) -> list[AuditFinding]:
    # Longest first, so that no worker ends alone with the longest one.
    names = sorted(case_names(None, None), key=lambda name: not name.startswith("engine"))
    with process_pool(options.workers) as pool:
        honest: list[Future[list[AuditFinding]]] = [
            pool.submit(audit_case, (name, options.stream_runs, config, None)) for name in case_names(config, None)
        ]
        honest += [pool.submit(audit_case, (name, options.runs, None, None)) for name in names]
        findings: list[AuditFinding] = []
        for future in honest:
            findings += future.result()
            print(f"{findings[-1].case}: done", file=sys.stderr, flush=True)
    return findings


if __name__ == "__main__":
    sys.exit(main())

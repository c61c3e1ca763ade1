"""Monthly counts from synthetic rows against truth: `make bench-trend` (QUICK=1 runs each once, under a minute).

Two streams with steps of one calendar day and epsilon 1 of an event, run by the code of `privstream simulate`: New
York's vehicle thefts of 2014 to 2017 as points (engine `spatial`), San Francisco's eviction notices of 2011 to 2015 as
rows (engine `tabular`). Four ways to a curve of months:

released: rows alive at the end, by the month of their time, as records are by default. What not to do.
dated: the same with `records = "dated"` in `[streams.time]`.
ledger: how `synthetic_records` grew from the end of one month to the end of the next; it needs no row.
measured: noisy numbers of events from `<stream>.measurements`, each spread evenly over the steps that it counted.

The error of a way is the sum over months of how far it is off, as a share of all events (0: exact; a curve that puts
all into one month may have 2). Writes benchmarks/results/trend.json; the last line is JSON, the mean error of each
way, over streams, in all seeds.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import orjson
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from agents.local.job import LocalIngest, planned
from agents.local.offline.files import rows_for
from agents.protocol.clock import StepClock
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.release.public_records import instant
from agents.protocol.release.stepper import Stepper
from benchmarks.data import DATA
from benchmarks.size import QUICK, RESULTS, kept
from engines.core.noise import NoiseSource
from engines.core.registry import build_domain
from schemas.blocks import Block
from schemas.config import Stream, config_from_mapping
from schemas.releases import unframe_records

WAYS = ("released", "dated", "ledger", "measured")


def config(name: str) -> tuple[Stream, Path]:
    """A stream and its rows."""
    if name == "thefts":
        path = DATA / "nyc_vehicle_thefts" / "nyc_vehicle_thefts_2014_2017.csv.gz"
        field, form, zone, start = "date_single", "%Y-%m-%d %H:%M", "America/New_York", "2014-01-01"
        tables: dict[str, Any] = {
            "engine": "spatial",
            "domain": {"kind": "box", "x": "longitude", "y": "latitude", "bounds": [-74.27, 40.49, -73.68, 40.92]},
        }
    else:
        path = DATA / "sf_evictions" / "eviction_notices_2011_2015.csv.gz"
        field, form, zone, start = "File Date", "%Y-%m-%d", "America/Los_Angeles", "2011-01-01"
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        # The reasons, and the district: public, since whoever files a notice ticks a form that has them.
        reasons = [each for each in rows[0] if {row[each] for row in rows} == {"true", "false"}]
        attributes = [{"field": each, "values": ["false", "true"]} for each in reasons]
        attributes.append(
            {"field": "Supervisor District", "values": [str(each) for each in range(1, 12)], "missing": True}
        )
        tables = {"engine": "tabular", "domain": {"kind": "table", "attributes": attributes}}
    time = {"field": field, "format": form, "timezone": zone, "start": start, "step": "1 day"}
    stream = {
        "name": name,
        "source": "raw",
        "privacy": {"epsilon": 1.0, "unit": "event"},
        "time": {**time, "clock": "replay", "records": "dated"},
        **tables,
    }
    job = {"job": {"name": "bench"}, "kafka": {"bootstrap": "localhost:9092"}, "streams": [stream]}
    return config_from_mapping(job).streams[0], path


def seeds(seed: int) -> Iterator[bytes]:
    source = NoiseSource(seed.to_bytes(32, "big"), "trend")
    while True:
        yield source.words(4).tobytes()


class Feed:
    """What ingest makes of a file, once for all seeds."""

    def __init__(self, name: str) -> None:
        self.stream, path = config(name)
        file = rows_for(path, self.stream)
        summary = file.summary()
        self.blocks: list[Block] = []
        spec = SourceSpec.from_stream(self.stream, build_domain(self.stream), key=None, partitions=1)
        ingest = LocalIngest(spec, lambda _, block: self.blocks.append(block))
        for records, _ in planned(self.stream, file.batches(), source=summary.digest):
            ingest.take_planned(records)

    def month(self, step: int) -> str:
        """That a step begins in."""
        clock, zone = StepClock.from_stream(self.stream), self.stream.time.zone
        return instant(clock.start_of(step)).astimezone(zone).strftime("%Y-%m")

    def truth(self) -> Counter[str]:
        """Events that were let in, by the month of their step."""
        found: Counter[str] = Counter()
        for block in self.blocks:
            for step, events in block.steps.items():
                found[self.month(step)] += events.total
        return found


def curves(feed: Feed, seed: int, progress: Progress) -> dict[str, Counter[str]]:
    """The four curves of one run."""
    stepper, drawn = Stepper.from_stream(feed.stream, 1), seeds(seed)
    for offset, block in enumerate(feed.blocks):
        stepper.fold(offset, block)
    task = progress.add_task(f"{feed.stream.name}, seed {seed}", total=None)
    released: dict[bytes, int] = {}
    dated: dict[bytes, str] = {}
    found: dict[str, Counter[str]] = {way: Counter() for way in WAYS}
    counted, alive = 0, 0
    while stepper.closable:
        step = stepper.step
        candidate = stepper.compute(next(drawn))
        for record in unframe_records(candidate.payload):
            if record.channel == "measurements":
                assert record.value is not None
                told = orjson.loads(record.value)
                if "totals" in told:
                    now = told["totals"]["inserts"] - told["totals"]["deletes"]
                    found["measured"][feed.month(step)] += now - counted
                    counted = now
                elif isinstance(told.get("increment"), int):
                    steps = range(told["since"] + 1, step + 1)
                    for at in steps:
                        found["measured"][feed.month(at)] += told["increment"] / len(steps)
            elif record.value is None:
                del released[record.key], dated[record.key]
            else:
                released[record.key] = step
                dated[record.key] = str(orjson.loads(record.value)[feed.stream.time.field])[:7]
        total = orjson.loads(candidate.ledger)["synthetic_records"]
        found["ledger"][feed.month(step)] += total - alive
        alive = total
        progress.advance(task)
    found["released"].update(map(feed.month, released.values()))
    found["dated"].update(dated.values())
    progress.remove_task(task)
    return found


def error(curve: Mapping[str, float], truth: Mapping[str, float]) -> float:
    return sum(abs(curve.get(month, 0) - truth.get(month, 0)) for month in {*curve, *truth}) / sum(truth.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1 if QUICK else 5)
    arguments = parser.parse_args()
    if not DATA.is_dir():
        print(f"no data beside the checkout: {DATA}", file=sys.stderr)
        return 1
    table = Table("stream", "way", "error, mean", "spread", "first half of its months")
    results: dict[str, Any] = {"seeds": arguments.seeds, "epsilon": 1.0, "streams": {}}
    with Progress(console=Console(stderr=True)) as progress:
        for name in ("thefts", "evictions"):
            feed = Feed(name)
            truth = feed.truth()
            runs = [curves(feed, seed, progress) for seed in range(1, arguments.seeds + 1)]
            early = sorted(truth)[: len(truth) // 2]
            shown: dict[str, Any] = {"events": sum(truth.values()), "months": len(truth)}
            for way in WAYS:
                errors = [error(run[way], truth) for run in runs]
                halves = [sum(run[way][month] for month in early) / sum(run[way].values()) for run in runs]
                spread = stdev(errors) if len(errors) > 1 else 0.0
                shown[way] = {
                    "error": round(fmean(errors), 4),
                    "spread": round(spread, 4),
                    "first_half": round(fmean(halves), 3),
                    "first_seed": {month: round(runs[0][way][month]) for month in sorted(truth)},
                }
                table.add_row(name, way, f"{fmean(errors):.3f}", f"{spread:.3f}", f"{fmean(halves):.1%}")
            half = sum(truth[month] for month in early) / sum(truth.values())
            table.add_row(name, "truth", "", "", f"{half:.1%}", end_section=True)
            results["streams"][name] = {
                **shown,
                "truth_first_half": round(half, 3),
                "truth": dict(sorted(truth.items())),
            }
    Console().print(table)
    if kept(quick=QUICK):
        (RESULTS / "trend.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    means = {way: round(fmean(each[way]["error"] for each in results["streams"].values()), 4) for way in WAYS}
    print(json.dumps(means))
    return 0


if __name__ == "__main__":
    sys.exit(main())

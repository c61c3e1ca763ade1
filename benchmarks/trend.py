"""Counts by time from synthetic rows against truth: `make bench-trend` (QUICK=1 runs each once, a minute or two).

Epsilon 1 of an event, run by the code of `privstream simulate`. Steps of one calendar day: New York's vehicle thefts of
2014 to 2017 as points (engine `spatial`), San Francisco's eviction notices of 2011 to 2015 as rows (engine `tabular`).
Steps of one week: two files of points that nothing about dates was chosen by, crimes in Chicago of 2001 to 2017 and the
earthquakes of the world of 1965 to 2016. Four ways to a curve:

dated: rows alive at the end by their time, which everybody plots.
released: the same by the time of the step that released them, as with `records = "released"`. What not to do.
ledger: how `synthetic_records` grew from the end of one month to the end of the next; it needs no row.
measured: noisy numbers of events from `<stream>.measurements`, each spread evenly over the steps that it counted.

The error of a way is the sum over months of how far it is off, as a share of all events (0: exact; a curve that puts
all into one month may have 2). "by year" is the total variation of its shares of years from the true ones (0: exact, at
most 1), which of dated rows should not be above `BAR`. Writes benchmarks/results/trend.json; the last line is JSON, the
mean over streams of both, in all seeds, and which streams are above the bar.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
from collections import Counter, defaultdict
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
from agents.protocol.release.stepper import Stepper
from benchmarks.data import DATA
from benchmarks.size import QUICK, RESULTS, kept, sized
from engines.core.noise import NoiseSource
from engines.core.registry import build_domain
from schemas.blocks import Block
from schemas.config import Stream, config_from_mapping
from schemas.releases import unframe_records
from schemas.steps import instant

WAYS = ("dated", "released", "ledger", "measured")
FIGURES = ("error", "by_year")
BAR = 0.03
MOST_STEPS = sized(1_000_000, smallest=30)
"""Of a stream: more than any has, but at the smallest size."""
FILES: Mapping[str, tuple[str, Mapping[str, str], tuple[str, str, list[float]] | None]] = {
    "thefts": (
        "nyc_vehicle_thefts/nyc_vehicle_thefts_2014_2017.csv.gz",
        {
            "field": "date_single",
            "format": "%Y-%m-%d %H:%M",
            "timezone": "America/New_York",
            "start": "2014-01-01",
            "step": "1 day",
        },
        ("longitude", "latitude", [-74.27, 40.49, -73.68, 40.92]),
    ),
    "evictions": (
        "sf_evictions/eviction_notices_2011_2015.csv.gz",
        {
            "field": "File Date",
            "format": "%Y-%m-%d",
            "timezone": "America/Los_Angeles",
            "start": "2011-01-01",
            "step": "1 day",
        },
        None,
    ),
    "crimes": (
        "chicago_crimes/chicago_crimes_sample_50k.csv.gz",
        {
            "field": "datetime_hour",
            "format": "%Y-%m-%d %H:%M:%S",
            "timezone": "America/Chicago",
            "start": "2001-01-01",
            "step": "1 week",
        },
        ("longitude", "latitude", [-87.95, 41.63, -87.5, 42.03]),
    ),
    "earthquakes": (
        "earthquakes_world/earthquakes_1965_2016.csv.gz",
        {"field": "Date", "format": "%Y-%m-%d", "start": "1965-01-01", "step": "1 week"},
        ("Longitude", "Latitude", [-180.0, -90.0, 180.0, 90.0]),
    ),
}
"""The file of each stream, its time, and the columns and bounds of its points; None: a table."""


def config(name: str) -> tuple[Stream, Path]:
    """A stream and its rows."""
    file, time, bounds = FILES[name]
    path = DATA / file
    if bounds is not None:
        x, y, box = bounds
        tables: dict[str, Any] = {
            "engine": "spatial",
            "domain": {"kind": "box", "x": x, "y": y, "bounds": box},
        }
    else:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as opened:
            rows = list(csv.DictReader(opened))
        # The reasons, and the district: public, since whoever files a notice ticks a form that has them.
        reasons = [each for each in rows[0] if {row[each] for row in rows} == {"true", "false"}]
        attributes = [{"field": each, "values": ["false", "true"]} for each in reasons]
        attributes.append(
            {"field": "Supervisor District", "values": [str(each) for each in range(1, 12)], "missing": True}
        )
        tables = {"engine": "tabular", "domain": {"kind": "table", "attributes": attributes}}
    stream = {
        "name": name,
        "source": "raw",
        "privacy": {"epsilon": 1.0, "unit": "event"},
        "time": {**time, "clock": "replay"},
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
    while stepper.closable and stepper.step < MOST_STEPS:
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


def variation(curve: Mapping[str, float], truth: Mapping[str, float]) -> float:
    """The total variation of shares of years: half of what they are off by."""
    shares: dict[str, float] = defaultdict(float)
    for months, sign in ((curve, 1), (truth, -1)):
        whole = sum(months.values())
        for month, count in months.items():
            shares[month[:4]] += sign * count / whole
    return sum(map(abs, shares.values())) / 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1 if QUICK else 5)
    arguments = parser.parse_args()
    if not DATA.is_dir():
        print(f"no data beside the checkout: {DATA}", file=sys.stderr)
        return 1
    table = Table("stream", "way", "error, mean", "spread", "first half of its months", "by year, mean", "spread")
    results: dict[str, Any] = {"seeds": arguments.seeds, "epsilon": 1.0, "streams": {}}
    with Progress(console=Console(stderr=True)) as progress:
        for name in FILES:
            feed = Feed(name)
            truth = feed.truth()
            runs = [curves(feed, seed, progress) for seed in range(1, arguments.seeds + 1)]
            early = sorted(truth)[: len(truth) // 2]
            shown: dict[str, Any] = {"events": sum(truth.values()), "months": len(truth)}
            for way in WAYS:
                errors = [error(run[way], truth) for run in runs]
                halves = [sum(run[way][month] for month in early) / sum(run[way].values()) for run in runs]
                apart = [variation(run[way], truth) for run in runs]
                spread, apart_spread = (stdev(each) if len(each) > 1 else 0.0 for each in (errors, apart))
                shown[way] = {
                    "error": round(fmean(errors), 4),
                    "spread": round(spread, 4),
                    "first_half": round(fmean(halves), 3),
                    "by_year": round(fmean(apart), 4),
                    "by_year_spread": round(apart_spread, 4),
                    "first_seed": {month: round(runs[0][way][month]) for month in sorted(truth)},
                }
                shares = f"{fmean(halves):.1%}", f"{fmean(apart):.4f}", f"{apart_spread:.4f}"
                table.add_row(name, way, f"{fmean(errors):.3f}", f"{spread:.3f}", *shares)
            half = sum(truth[month] for month in early) / sum(truth.values())
            table.add_row(name, "truth", "", "", f"{half:.1%}", "", "", end_section=True)
            results["streams"][name] = {
                **shown,
                "truth_first_half": round(half, 3),
                "truth": dict(sorted(truth.items())),
            }
    Console().print(table)
    if kept(quick=QUICK):
        (RESULTS / "trend.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    streams = results["streams"]
    means = {
        way: {key: round(fmean(each[way][key] for each in streams.values()), 4) for key in FIGURES} for way in WAYS
    }
    above = [name for name, each in streams.items() if each["dated"]["by_year"] > BAR]
    print(json.dumps({**means, "above_bar": above}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

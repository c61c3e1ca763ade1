"""Resident memory of a worker's ingest and engine over many steps: `python -m benchmarks.growth [--steps N]`.

A stream of users with a renewing bound goes record by record through the job's own classes, in one process. What may
grow are the dates of the records alive: "dates" is what they take in memory, "saved" what of a candidate they are. All
else must be the same after a tenth of the steps and after all of them: resident memory and candidates, less the dates.
"step" is the processor time of computing and encoding a candidate, the median of the last ten. With `--released` there
are no dates.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections import deque
from statistics import median

import numpy as np
import psutil
from rich.console import Console
from rich.progress import track
from rich.table import Table

from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.release.stepper import Stepper
from benchmarks.size import sized
from engines.core.registry import build_domain
from schemas import wire
from schemas.config import parse_config

EVENTS = 500
STEP_S = 60
START_S = 1_577_836_800
CONFIG = f"""
[kafka]
bootstrap = "localhost:9092"
[[streams]]
name = "growth"
engine = "spatial"
source = "raw.growth"
[streams.privacy]
epsilon = 1.0
unit = "user"
user = "user"
max_contributions = 2
per = "{100 * STEP_S}s"
[streams.time]
field = "at"
format = "s"
start = "2020-01-01T00:00:00"
step = "{STEP_S}s"
clock = "replay"
{{records}}
[streams.domain]
kind = "box"
x = "x"
y = "y"
bounds = [0.0, 0.0, 1.0, 1.0]
"""


def records(chance: np.random.Generator, step: int, offset: int) -> list[RawRecord]:
    """Clustered events of one step, by new and old users."""
    at = START_S + step * STEP_S
    spots = chance.integers(0, 20, EVENTS)
    x = np.clip(0.05 + spots / 22 + chance.normal(0, 0.01, EVENTS), 0, 0.999)
    y = np.clip(0.5 + 0.3 * np.sin(spots) + chance.normal(0, 0.01, EVENTS), 0, 0.999)
    users = chance.integers(0, 10**7, EVENTS)
    return [
        RawRecord(offset + i, at * 1000, None, b'{"at":%d,"user":"u%d","x":%.6f,"y":%.6f}' % (at, users[i], x[i], y[i]))
        for i in range(EVENTS)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=sized(3000, smallest=20))
    parser.add_argument("--released", action="store_true", help='with records = "released"')
    arguments = parser.parse_args()
    steps = arguments.steps
    text = CONFIG.format(records='records = "released"' if arguments.released else "")
    stream = parse_config(text, {}).streams[0]
    ingest = PartitionIngest(SourceSpec.from_stream(stream, build_domain(stream), key=b"k" * 16, partitions=1), 0)
    stepper = Stepper.from_stream(stream, 1)
    chance = np.random.default_rng(1)
    process = psutil.Process()
    marks: dict[int, dict[str, float]] = {steps // 10: {}, steps: {}}
    console = Console(stderr=True)
    started = time.perf_counter()
    took: deque[float] = deque(maxlen=10)
    for step in track(range(steps), "steps", console=console):
        ingest.take(records(chance, step, step * EVENTS))
        ingest.tick(step)
        block, _ = ingest.seal()
        ingest.committed(at=step)
        assert block is not None
        stepper.fold(step, block)
        begun = time.process_time()
        candidate = stepper.compute(step.to_bytes(32, "big"))
        body = b"".join(candidate.encode())
        took.append(1e3 * (time.process_time() - begun))
        if step + 1 in marks:
            assert stepper.release is not None
            assert candidate.arrays is not None
            dates = {name: array for name, array in candidate.arrays.items() if name.startswith("dating/")}
            gc.collect()
            marks[step + 1] = {
                "rss_mb": round(process.memory_info().rss / 1e6, 1),
                "candidate_kb": round(len(body) / 1e3, 1),
                "users_in_bounds": ingest.users,
                "step_ms": round(median(took), 1),
                "records": stepper.release.total,
                "dates_mb": round(sum(array.nbytes for array in dates.values()) / 1e6, 1),
                "saved_kb": round(len(wire.encode(wire.Kind.STATE, {}, dates, level=3)) / 1e3, 1),
            }
        del candidate  # as the job does, before it computes the next one
    table = Table(
        "after steps", "resident MB", "candidate kB", "users in bounds", "step ms", "records", "dates MB", "saved kB"
    )
    for after, mark in marks.items():
        table.add_row(str(after), *(str(value) for value in mark.values()))
    console.print(table)
    early, late = marks.values()
    report = {
        "steps": steps,
        "rss_mb_early": early["rss_mb"],
        "rss_mb_late": late["rss_mb"],
        "candidate_kb_early": early["candidate_kb"],
        "candidate_kb_late": late["candidate_kb"],
        "step_ms_early": early["step_ms"],
        "step_ms_late": late["step_ms"],
        "records_late": late["records"],
        "dates_mb_late": late["dates_mb"],
        "saved_kb_late": late["saved_kb"],
        "seconds": round(time.perf_counter() - started, 1),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()

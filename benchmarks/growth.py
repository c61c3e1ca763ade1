"""Resident memory of a worker's ingest and engine over many steps: `python -m benchmarks.growth [--steps N]`.

A stream of users with a renewing bound goes record by record through the job's own classes, in one process, and its
blocks through two steppers: one whose records are dated, one with `records = "released"`. What may grow are the
dates of the records alive: "saved" is what of a state they are. All else must be the same after a tenth of the steps
and after all of them: resident memory and states, less the dates.
"step" is the processor time of computing and encoding a candidate, "written" what of it and of its state goes to the
logs, both as the mean of the last hundred steps, and "times" over the same
without dates.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections import deque
from dataclasses import dataclass, field
from statistics import mean

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
from schemas.blocks import Block
from schemas.config import parse_config
from schemas.releases import Candidate

EVENTS = 500
STEP_S = 60
LAST = 100
"""Steps of which the mean is shown."""
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


@dataclass
class Run:
    """A stepper, and what its last steps took and wrote."""

    stepper: Stepper
    took_ms: deque[float] = field(default_factory=lambda: deque(maxlen=LAST))
    wrote_kb: deque[float] = field(default_factory=lambda: deque(maxlen=LAST))
    _pieces: frozenset[str] = frozenset()

    def step(self, number: int, block: Block) -> Candidate:
        self.stepper.fold(number, block)
        begun = time.process_time()
        candidate = self.stepper.compute(number.to_bytes(32, "big"))
        release, state = candidate.encode()
        pieces = {piece.digest: len(piece.body) for piece in state.pieces}
        self.took_ms.append(1e3 * (time.process_time() - begun))
        written = sum(size for digest, size in pieces.items() if digest not in self._pieces)
        self.wrote_kb.append((len(release) + written) / 1e3)
        self._pieces = frozenset(pieces)
        return candidate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=sized(3000, smallest=20))
    steps = parser.parse_args().steps
    dated, released = (
        Run(Stepper.from_stream(parse_config(CONFIG.format(records=records), {}).streams[0], 1))
        for records in ("", 'records = "released"')
    )
    stream = dated.stepper.stream
    ingest = PartitionIngest(SourceSpec.from_stream(stream, build_domain(stream), key=b"k" * 16, partitions=1), 0)
    chance = np.random.default_rng(1)
    process = psutil.Process()
    marks: dict[int, dict[str, float]] = {steps // 10: {}, steps: {}}
    console = Console(stderr=True)
    started = time.perf_counter()
    for step in track(range(steps), "steps", console=console):
        ingest.take(records(chance, step, step * EVENTS))
        ingest.tick(step)
        block, _ = ingest.seal()
        ingest.committed(at=step)
        assert block is not None
        released.step(step, block)
        candidate = dated.step(step, block)
        if step + 1 in marks:
            assert dated.stepper.release is not None
            gc.collect()
            took, wrote = mean(dated.took_ms), mean(dated.wrote_kb)
            marks[step + 1] = {
                "rss_mb": round(process.memory_info().rss / 1e6, 1),
                "users_in_bounds": ingest.users,
                "records": dated.stepper.release.total,
                "step_ms": round(took, 1),
                "step_times": round(took / mean(released.took_ms), 2),
                "written_kb": round(wrote, 1),
                "written_times": round(wrote / mean(released.wrote_kb), 2),
                "saved_kb": round(sum(part.size for part in candidate.kept) / 1e3, 1),
            }
        del candidate  # as the job does, before it computes the next one
    table = Table(
        "after steps",
        "resident MB",
        "users in bounds",
        "records",
        "step ms",
        "times",
        "written kB",
        "times",
        "saved kB",
    )
    for after, mark in marks.items():
        table.add_row(str(after), *(str(value) for value in mark.values()))
    console.print(table)
    early, late = marks.values()
    report = {f"{name}_{when}": mark[name] for name in early for when, mark in (("early", early), ("late", late))}
    print(json.dumps({"steps": steps, **report, "seconds": round(time.perf_counter() - started, 1)}))


if __name__ == "__main__":
    main()

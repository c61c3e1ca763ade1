"""Time and memory of large windows: `make bench-trajectory ARGS=--memory`.

Windows of 100,000 simulated drives (2.75 million points) through the engine's own `step`: points are gathered, closed,
measured, and new drives made. Last line, JSON: processor seconds of each window; peak memory before the first, and
after each, in MiB. Where the last is no higher than the second, a million trips cost the memory of one window.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from fractions import Fraction

import numpy as np

from benchmarks.trajectory.data import drives
from engines.core.contract import Batch
from engines.core.noise import seeded
from engines.core.shares import PureShares
from engines.trajectory.default.mode import Default
from engines.trajectory.domain import Closing, TripDomain
from engines.trajectory.engine import Trajectories, TrajectoryConfig
from engines.trajectory.trips import LATTICE_BITS, Trips
from schemas.blocks import Folded

TRIPS = 100_000


def peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def keys_of(trips: Trips, step: int) -> np.ndarray:
    """Records of trips that begin and end in a step, as ingest hands them over."""
    keys = np.zeros((len(trips.x), 6), np.uint64)
    keys[:, 0], keys[:, 2] = trips.owners, step
    keys[:, 3] = np.arange(len(trips.x)) - np.repeat(trips.offsets[:-1], trips.sizes)
    keys[:, 4] = trips.x << LATTICE_BITS | trips.y
    keys[trips.offsets[1:] - 1, 5] = 1
    return keys


def measure(windows: int) -> dict[str, object]:
    domain = TripDomain("x", "y", (0.0, 0.0, 1.0, 1.0), end_field="e")
    config = TrajectoryConfig(
        name="t", domain=domain, shares=PureShares(Fraction(1)), closing=Closing(idle=1, life=1), mode=Default()
    )
    engine, trips = Trajectories(config), drives(TRIPS)
    before, seconds, peaks = peak_mib(), [], []
    for step in range(windows):
        events = Folded.from_keys(keys_of(trips, step))
        begin = time.process_time()
        release = engine.step(Batch(step, events), seeded(step))
        seconds.append(round(time.process_time() - begin, 2))
        peaks.append(peak_mib())
        print(f"window {step + 1}: {len(release.added):,} points, {seconds[-1]} s, {peaks[-1]} MiB", file=sys.stderr)
        del release, events
    return {
        "trips": TRIPS * windows,
        "points_per_window": len(trips.x),
        "seconds": seconds,
        "seconds_per_million_points": round(min(seconds) / len(trips.x) * 1e6, 3),
        "peak_mib_before": before,
        "peak_mib": peaks,
    }


def main(windows: int) -> None:
    print(json.dumps(measure(windows)))

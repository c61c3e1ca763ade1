"""People of each zone of a public grid, week by week: engine `keys` with a public list beside engine `spatial`.

Both read check-ins through `configure`, as a notebook would, with the same epsilon for a user, whose records count up
to the bound. What they are asked: how many people were in each zone, either in all weeks so far, under one promise for
all of them (`weekly` is false), or in this week alone, under a promise for each week.

`keys`: mode `public`; of the records of a user in a zone the first counts.
`spatial, first check-ins`: somebody has left the same first check-ins over before they come in, which the job does not.
`spatial`: every check-in is an event, as in the job: counts are of check-ins, as far as the bound lets them in.

The error is the sum over weeks and zones of how far a count is from the number of people, those beyond the bound too,
over the sum of these numbers; `busy`: over weeks and zones of `BUSY` people or more; `read`: the same error for a
reader of `keys` who takes counts below two standard errors for 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as arrow
from pyarrow import csv

from benchmarks.keys.streams import numbered
from benchmarks.people.streams import SETS, People
from benchmarks.size import QUICK, sized
from engines import PrivateStream, configure
from schemas.arrays import FloatArray, IntArray

SIDE = 16
WEEK = 7 * 86_400
EPSILON, DELTA = 1.0, 1e-6
BUSY = sized(50, smallest=1)
BOUNDS = sized((4, 8) if QUICK else (2, 4, 8, 16, 32), smallest=(2,))
WEEKLY_BOUNDS = sized((4,) if QUICK else (1, 2, 4, 8), smallest=(2,))
SETS_OF_PEOPLE: Mapping[str, People] = {people.name: people for people in SETS[:2]}
ENGINE, SPATIAL, FIRST = "keys", "spatial", "spatial, first check-ins"
METHODS = (ENGINE, SPATIAL, FIRST)
NAMES = np.array([f"zone {at}" for at in range(SIDE * SIDE)])


@dataclass(frozen=True, slots=True)
class Visits:
    """Check-ins within the zones, in the order of time. Attributes: users, zones, weeks: `(rows,)`, numbered."""

    users: IntArray
    zones: IntArray
    weeks: IntArray
    times: np.ndarray
    start: str

    @property
    def number(self) -> int:
        """Of weeks."""
        return int(self.weeks.max()) + 1

    def first(self, *, weekly: bool) -> IntArray:
        """Return the rows in which a user is new to a zone, in the week or at all."""
        pairs = (self.users * len(NAMES) + self.zones) * self.number
        _, rows = np.unique(pairs + self.weeks if weekly else pairs, return_index=True)
        found: IntArray = np.sort(rows)
        return found

    def people(self, *, weekly: bool) -> IntArray:
        """Return `(zones, weeks)`, in each week or in all weeks so far."""
        rows = self.first(weekly=weekly)
        found = np.zeros((len(NAMES), self.number), np.int64)
        np.add.at(found, (self.zones[rows], self.weeks[rows]), 1)
        return found if weekly else np.cumsum(found, axis=1)


@lru_cache(maxsize=2)
def visits(name: str) -> Visits:
    """Read check-ins from the start of their stream on, and within its box."""
    people = SETS_OF_PEOPLE[name]
    time, domain = people.tables["time"], people.tables["domain"]
    table = csv.read_csv(people.file)
    seconds = np.asarray(table[time["field"]].combine_chunks().cast(arrow.int64()))
    since = seconds - np.datetime64(time["start"], "s").astype(np.int64)
    west, south, east, north = domain["bounds"]
    x = (np.asarray(table[domain["x"]]) - west) / (east - west)
    y = (np.asarray(table[domain["y"]]) - south) / (north - south)
    there = np.flatnonzero((x >= 0) & (x < 1) & (y >= 0) & (y < 1) & (since >= 0))
    rows = there[np.argsort(since[there], kind="stable")]
    zones = _interleaved((SIDE * x[rows]).astype(np.int64), (SIDE * y[rows]).astype(np.int64))
    times = np.datetime_as_string(seconds[rows].astype("datetime64[s]"))
    return Visits(numbered(table["user"].combine_chunks())[rows], zones, since[rows] // WEEK, times, time["start"])


def figures(data: str, method: str, seed: int, *, weekly: bool) -> dict[str, float]:
    """Errors at every bound."""
    stream = visits(data)
    truth = stream.people(weekly=weekly)
    busy = truth >= BUSY
    errors = {}
    for bound in WEEKLY_BOUNDS if weekly else BOUNDS:
        counts, deviations = released(stream, method, bound, seed, weekly=weekly)
        read = np.where(counts < 2 * deviations, 0, counts)
        errors[f"error, m={bound}"] = float(np.abs(counts - truth).sum() / truth.sum())
        errors[f"busy, m={bound}"] = float(np.abs(counts - truth)[busy].sum() / truth[busy].sum())
        errors[f"read, m={bound}"] = float(np.abs(read - truth).sum() / truth.sum())
    return errors


def released(stream: Visits, method: str, bound: int, seed: int, *, weekly: bool) -> tuple[FloatArray, FloatArray]:
    """Return `(zones, weeks)` released counts, and `(weeks,)` their standard errors as far as they are said, else 0."""
    run = _configured(stream, method, bound, seed, weekly=weekly)
    rows = stream.first(weekly=weekly) if method == FIRST else np.arange(len(stream.users))
    counts, deviations = [], []
    for week in range(stream.number):
        now = rows[stream.weeks[rows] == week]
        batch = {
            "user": stream.users[now].tolist(),
            "at": stream.times[now].tolist(),
            "zone": NAMES[stream.zones[now]].tolist(),
        }
        release = run.step(batch if len(now) else None)
        if method == ENGINE:
            placed = Counter({record["zone"]: record["count"] for record in release.records})
            deviations.append(release.records[0]["error"])
        else:
            placed = Counter(run.synthetic().to_pydict().get("zone", []))
            deviations.append(0.0)
        counts.append([placed[name] for name in NAMES.tolist()])
    return np.array(counts, np.float64).T, np.array(deviations)


def _configured(stream: Visits, method: str, bound: int, seed: int, *, weekly: bool) -> PrivateStream:
    tables: dict[str, dict[str, Any]] = {
        "privacy": {"epsilon": EPSILON, "unit": "user", "user": "user", "max_contributions": bound},
        "time": {"field": "at", "start": stream.start, "timezone": "UTC", "step": "7d"},
    }
    if weekly:
        tables["privacy"]["per"] = "7d"
    if method == ENGINE:
        tables["privacy"]["delta"] = DELTA
        tables["domain"] = {"kind": "keys", "field": "zone", "keys": NAMES.tolist()}
        if not weekly:
            tables["options"] = {"horizon": stream.number}
        return configure(engine="keys", mode="public", insecure_seed=seed, **tables)
    tables["domain"] = {"kind": "zones", "field": "zone", "zones": NAMES.tolist()}
    if weekly:
        tables["domain"]["ttl"] = "7d"
    return configure(engine="spatial", insecure_seed=seed, **tables)


def _interleaved(x: IntArray, y: IntArray) -> IntArray:
    """Number zones along a Z-curve, so that neighbours in the list are neighbours on the map."""
    found = np.zeros_like(x)
    for bit in range(SIDE.bit_length() - 1):
        found |= (x >> bit & 1) << (2 * bit) | (y >> bit & 1) << (2 * bit + 1)
    return found

"""Latency and width: from the public end of a step to its release, by partitions, streams and workers."""

from __future__ import annotations

import asyncio
import subprocess
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from statistics import median
from typing import Any

from benchmarks.scale.profile import spent
from benchmarks.scale.results import Figures, Progressing
from benchmarks.scale.setting import START_S, Setting, setting
from benchmarks.scale.statistics import quantile
from benchmarks.scale.streams import ENGINES, Job, job, main_stream, side_stream
from benchmarks.scale.watch import Releases
from benchmarks.scale.workers import fed, feeding, phases
from benchmarks.size import SMALLEST, sized

STEP_S, SIDE_STEP_S = 5, 10
EVENTS = sized(100_000, smallest=100)
"""A step of the main stream."""
FEW_EVENTS = sized(1_000, smallest=100)
"""The same, where it is one of many."""
MANY_EVENTS = 1_000_000
"""The same, where others stand beside it."""
SIDE_EVENTS = 10
"""A second of each of the others."""
SETTLE_S = 130.0
"""After the first events: what is not measured. The engine's leaves, all new, release what they hold in one step, the
twelfth, and once more in the 24th; afterwards each does at a time of its own, and a step releases about as many
records as it has events.
"""
LATE_S = 300.0
"""How long to wait for the last releases."""
TAKEOVER_S = sized(60.0, smallest=1.0)
"""How long events go on after one of several workers was killed."""


@dataclass(frozen=True)
class Case:
    """Attributes:

    partitions: of the main stream's source, and of the private topics. seconds: measured, after `settle_s`. profile:
    keep the private topics, and look into them afterwards. step_s, events: of the main stream. takeover: kill one of
    the workers at the end.
    """

    workers: int
    partitions: int
    streams: int
    seconds: float
    profile: bool = False
    settle_s: float = SETTLE_S
    step_s: int = STEP_S
    side_step_s: int = SIDE_STEP_S
    events: int = EVENTS
    takeover: bool = False

    def __str__(self) -> str:
        return f"{self.workers} workers, {self.partitions} partitions, {self.streams} streams"


def cases(*, quick: bool) -> list[Case]:
    """The first one is that of the bar."""
    if SMALLEST:
        # Two workers: the second takes over from the first.
        return [Case(2, 2, 1 + len(ENGINES), 3.5, profile=True, settle_s=1.0, step_s=2, side_step_s=2, takeover=True)]
    if quick:
        return [Case(1, 4, 1, 14.0, profile=True, settle_s=6.0), Case(1, 4, 20, 14.0, settle_s=6.0)]
    # Between the first step that releases much and the second, see `SETTLE_S`.
    narrow = [Case(w, p, 1, 40.0, settle_s=70.0) for w, p in ((1, 16), (2, 4))]
    some = Case(1, 4, 20, 40.0, settle_s=70.0)
    wide = [
        Case(w, 16, 200, 60.0, settle_s=70.0, step_s=10, events=FEW_EVENTS, profile=w == 1, takeover=w == 2)
        for w in (1, 2, 4)
    ]
    widest = Case(1, 16, 1000, 125.0, settle_s=135.0, step_s=60, side_step_s=60, events=FEW_EVENTS)
    return [Case(1, 4, 1, 120.0, profile=True), *narrow, some, *wide, widest]


def neighbours() -> tuple[Case, Case]:
    """Fifty small streams beside a stream of many events, and beside one of few."""
    many = Case(1, 4, 51, 61.0, settle_s=59.0, step_s=30, events=MANY_EVENTS)
    return many, replace(many, events=FEW_EVENTS)


async def beside(progress: Progressing) -> Figures:
    """What a stream of many events costs the small ones of the same worker."""
    many, few = [await measured(case, progress) for case in neighbours()]
    return {
        "many_events": float(MANY_EVENTS),
        "beside_main_p99_ms": many["main_p99_ms"],
        **{f"beside_many_{name}": many[f"others_{name}"] for name in ("median_ms", "p99_ms")},
        **{f"beside_few_{name}": few[f"others_{name}"] for name in ("median_ms", "p99_ms")},
    }


def job_of(case: Case, where: Setting) -> tuple[Job, list[tuple[str, str]]]:
    """The job, and source and engine of each side stream."""
    start = datetime.fromtimestamp(int(time.time()), UTC).isoformat()[:19]
    sides = [(f"{where.prefix}side{at}", ENGINES[at % len(ENGINES)]) for at in range(case.streams - 1)]
    streams = [main_stream(where.main, step=f"{case.step_s}s", clock="wall", start=start, events=case.events)]
    streams += [side_stream(name, engine, step=f"{case.side_step_s}s", start=start) for name, engine in sides]
    made = job(
        where.name,
        where.bootstrap,
        where.folder,
        streams=streams,
        partitions=case.partitions,
        source_partitions=case.partitions,
        keep=case.profile,
    )
    return made, [(f"raw.{name}", engine) for name, engine in sides]


async def measured(case: Case, progress: Progressing) -> Figures:
    """One case."""
    async with setting() as where:
        made, sides = job_of(case, where)
        config = await where.prepare(made)
        clock_us = {stream.name: stream.time for stream in config.streams}
        async with Releases(where.bootstrap, made.names) as releases:
            began = time.time()
            where.start(case.workers)
            ready = await where.until_ready()
            await releases.until(
                lambda: all(releases.seen.values()), timeout_s=START_S, what="first releases", look=where.check
            )
            firsts = [min(seen.values()) for seen in releases.seen.values()]
            cold: Figures = {
                "ready_s": ready - began,
                "first_release_s": min(firsts) - began,
                "all_released_s": max(firsts) - began,
                "rss_cold_mb": where.rss_mb / case.workers,
            }
            order = {
                "kind": "live",
                "bootstrap": where.bootstrap,
                "source": f"raw.{where.main}",
                "partitions": case.partitions,
                "rate": case.events / case.step_s,
                "sides": sides,
                "side_events": SIDE_EVENTS,
                "until": time.time() + case.settle_s + case.seconds + (TAKEOVER_S if case.takeover else 0.0),
            }
            with feeding(order) as feeder:
                begin = time.time() + case.settle_s
                await progress.sleep(case.settle_s, str(case), look=partial(_look, where, feeder))
                before = [await asyncio.to_thread(worker.metrics) for worker in where.workers]
                cpu = where.cpu_s
                await progress.sleep(case.seconds, str(case), look=where.check)
                end = time.time()
                cpu = where.cpu_s - cpu
                after = [await asyncio.to_thread(worker.metrics) for worker in where.workers]
                rss = where.rss_mb
                due = {
                    name: _due(time_of.start_us, time_of.shortest_us, time_of.grace_us, begin, end)
                    for name, time_of in clock_us.items()
                }
                if case.takeover:
                    cold["takeover_s"] = await _taken_over(where, releases, progress)
                events = await asyncio.to_thread(fed, feeder, wait=True) or 0
            try:
                await releases.until(
                    lambda: all(due[name].keys() <= releases.seen[name].keys() for name in due),
                    timeout_s=LATE_S,
                    what=f"{case}: the last releases",
                    look=where.check,
                )
            except TimeoutError as error:
                missing = {name: len(steps.keys() - releases.seen[name].keys()) for name, steps in due.items()}
                late = {name: steps for name, steps in missing.items() if steps}
                ago_s = time.time() - max(at for seen in releases.seen.values() for at in seen.values())
                raise TimeoutError(
                    f"{error}: steps missing of {len(late)} streams, the newest release came {ago_s:.0f} s ago: {late}"
                ) from error
            delays = {
                name: [1e3 * (releases.seen[name][step] - at) for step, at in steps.items()]
                for name, steps in due.items()
            }
        found: Figures = {
            **_of("main", delays[where.main]),
            "steps": len(delays[where.main]),
            "rss_mb": rss / case.workers,
            "cpu_share": cpu / (end - begin),
            "release_cpu_ms": 1e3 * cpu / sum(map(len, due.values())),
            "events": events,
            **cold,
        }
        if case.streams > 1:
            found |= _of("others", [each for name, some in delays.items() if name != where.main for each in some])
        for earlier, later in zip(before, after, strict=True):
            found |= {f"{phase}_ms": value for phase, value in phases(earlier, later, where.main).items()}
        if case.profile:
            found |= await spent(config, where.main, due[where.main], releases.seen[where.main])
        return found


async def _taken_over(where: Setting, releases: Releases, progress: Progressing) -> float:
    """Kill a worker. Return the seconds until each stream has released more: its next step, whoever computes it."""
    progress.tell("a worker is killed")
    killed = time.time()
    where.workers.pop(0).kill()
    # A release that was under way is no sign of life.
    await asyncio.sleep(1.0)
    last = {name: releases.last(name) for name in releases.seen}
    await releases.until(
        lambda: all(releases.last(name) > step for name, step in last.items()),
        timeout_s=LATE_S,
        what="releases of those who are left",
        look=where.check,
    )
    return time.time() - killed


def _look(where: Setting, feeder: subprocess.Popen[str]) -> None:
    where.check()
    if feeder.poll():
        fed(feeder)


def _due(start_us: int | None, step_us: int, grace_us: int, begin: float, end: float) -> dict[int, float]:
    """Steps that become public between two moments, and when."""
    assert start_us is not None
    ends = {step: (start_us + (step + 1) * step_us + grace_us) / 1e6 for step in _steps(start_us, step_us, begin, end)}
    return {step: at for step, at in ends.items() if begin <= at <= end - 1}


def _steps(start_us: int, step_us: int, begin: float, end: float) -> range:
    return range(max(0, int((begin * 1e6 - start_us) // step_us) - 1), int((end * 1e6 - start_us) // step_us) + 1)


def _of(name: str, delays: list[float]) -> dict[str, Any]:
    return {
        f"{name}_median_ms": median(delays),
        f"{name}_p99_ms": quantile(delays, 0.99),
        f"{name}_longest_ms": max(delays),
    }

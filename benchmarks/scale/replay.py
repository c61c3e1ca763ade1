"""A long replay: memory and step time must stay what they are; and a crash with many users held in the bounds."""

from __future__ import annotations

import asyncio
import subprocess
import time
from typing import Any

from benchmarks.scale.results import Figures, Progressing
from benchmarks.scale.setting import START_S, Setting, setting
from benchmarks.scale.statistics import flatness, growth, step_times
from benchmarks.scale.streams import Job, counting_stream, job, main_stream
from benchmarks.scale.watch import Releases
from benchmarks.scale.workers import fed, feeding, phases, total
from benchmarks.size import sized
from schemas.topics import Topics

PARTITIONS = 4
WIDE_PARTITIONS = sized(16, smallest=2)
STEP_MS = 60_000
PER_STEP = sized(10_000, smallest=100)
LARGE = sized(1_000_000, smallest=1_000)
LARGE_STEPS = sized(4, smallest=2)
LEAD = sized(20, smallest=2)
"""Steps that are sent and not public, at most: the load is the same from the first step to the last."""
LOOK_S = 0.25
STEP_AT_MOST_S = 60.0
QUIET_S = 1.0
"""Without a release: what a dead worker had committed has come by then."""

FORMS = sized(("single", "weighted"), smallest=("weighted",))
"""Of the records of large steps. At the smallest size those of every other part are single."""
UNDATED = ("flatness", "rss_growth", "replay_events_per_s", "replay_cpu_s_per_1e6")

Curve = list[tuple[float, float]]


def job_of(where: Setting, stream: dict[str, Any], *, partitions: int = PARTITIONS) -> Job:
    """A job of one stream."""
    return job(
        where.name, where.bootstrap, where.folder, streams=[stream], partitions=partitions, source_partitions=partitions
    )


def order_of(
    where: Setting,
    *,
    last: int,
    first: int = 0,
    new_users: bool = False,
    per_step: int = PER_STEP,
    partitions: int = PARTITIONS,
) -> Any:
    """What the producer is told."""
    return {
        "kind": "replay",
        "bootstrap": where.bootstrap,
        "source": f"raw.{where.main}",
        "partitions": partitions,
        "per_step": per_step,
        "step_ms": STEP_MS,
        "first": first,
        "last": last,
        "leave": first + LEAD,
        "new_users": new_users,
        "pause_s": 0.0,
    }


def let(feeder: subprocess.Popen[str], step: int) -> None:
    """The producer may send steps up to this one."""
    assert feeder.stdin is not None
    if feeder.poll() is None:
        feeder.stdin.write(f"{step}\n")
        feeder.stdin.flush()


class Followed:
    """What is noted while a replay runs."""

    def __init__(self, where: Setting, releases: Releases, feeder: subprocess.Popen[str], steps: int) -> None:
        self.rss: Curve = []
        self._where, self._releases, self._feeder, self._steps = where, releases, feeder, steps
        self._last = -1
        self._looked = 0.0

    def look(self) -> bool:
        """Whether the last step is public."""
        self._where.check()
        fed(self._feeder) if self._feeder.poll() else None
        if (last := self._releases.last(self._where.main)) != self._last:
            self._last = last
            let(self._feeder, last + 1 + LEAD)
        if last >= self._steps - 1 or time.monotonic() - self._looked > LOOK_S:
            self._looked = time.monotonic()
            self.rss.append(((last + 1) / self._steps, self._where.rss_mb))
        return last >= self._steps - 1

    async def to_the_end(self, progress: Progressing, what: str) -> None:
        """Raises: TimeoutError where nothing comes any more."""
        last, moved = -1, time.monotonic()
        while not self.look():
            if self._last != last:
                last, moved = self._last, time.monotonic()
            if time.monotonic() - moved > STEP_AT_MOST_S:
                raise TimeoutError(f"{what}: step {last + 1} is not public")
            progress.tell(what, (last + 1) / self._steps)
            await asyncio.sleep(0.02)


async def undated(events: int, progress: Progressing) -> Figures:
    """The replay of a stream whose records have no dates, so that a worker remembers nothing of each."""
    found, _ = await replayed(events, progress, records="released")
    return {f"undated_{name.removeprefix('replay_')}": found[name] for name in UNDATED}


async def replayed(events: int, progress: Progressing, *, records: str = "dated") -> tuple[Figures, dict[str, Curve]]:
    """The replay. Args: records: what dates they have."""
    steps = events // PER_STEP
    async with setting() as where:
        stream = main_stream(where.main, step=f"{STEP_MS // 1000}s", clock="replay")
        stream["time"]["records"] = records
        made = job_of(where, stream)
        await where.prepare(made)
        async with Releases(where.bootstrap, made.names) as releases:
            where.start()
            await where.until_ready()
            (worker,) = where.workers
            before, cpu = await asyncio.to_thread(worker.metrics), where.cpu_s
            with feeding(order_of(where, last=steps - 1)) as feeder:
                followed = Followed(where, releases, feeder, steps)
                began = time.time()
                await followed.to_the_end(progress, f"replay of {events:,} events, {records} records")
                sent = fed(feeder) or events
            after, cpu = await asyncio.to_thread(worker.metrics), where.cpu_s - cpu
            seen = releases.seen[where.main]
        accepted = total(after, "privstream_ingest_records_total", stream=where.main, reason="ACCEPTED")
        bounded = total(after, "privstream_ingest_records_total", stream=where.main, reason="OVER_BOUND")
        times = step_times(seen)
        found: Figures = {
            "flatness": flatness(times),
            "rss_growth": growth(followed.rss),
            "replay_events": sent,
            "replay_lost": sent - accepted - bounded,
            "replay_events_per_s": sent / (max(seen.values()) - began),
            "replay_cpu_s_per_1e6": 1e6 * cpu / sent,
            "replay_rss_mb": followed.rss[-1][1],
            "event_bytes": where.topic_bytes(f"raw.{where.main}") / sent,
            "block_bytes_per_event": total(after, "privstream_ingest_block_bytes_total") / sent,
            "state_bytes": total(after, "privstream_state_bytes", stream=where.main),
            "public_bytes_per_step": sum(map(where.topic_bytes, Topics.published(where.main))) / steps,
            **{f"replay_{phase}_ms": value for phase, value in phases(before, after, where.main).items()},
        }
        curve = [(PER_STEP * (at + 1.0), 1e3 * each) for at, each in enumerate(times)]
        return found, {"replay_ms": curve, "replay_rss": [(share * events, rss) for share, rss in followed.rss]}


async def widened(events: int, workers: int, progress: Progressing) -> Figures:
    """The replay of one stream with a source of many partitions, by several workers."""
    per_s, cpu, _ = await _passed(events, progress, workers=workers, partitions=WIDE_PARTITIONS)
    return {"wide_events_per_s": per_s, "wide_cpu_s_per_1e6": cpu}


async def weighed(progress: Progressing) -> Figures:
    """The replay of large steps, whose records are single ones, and weighted ones of cells."""
    found: Figures = {}
    for form in FORMS:
        per_s, cpu, size = await _passed(LARGE_STEPS * LARGE, progress, per_step=LARGE, form=form)
        found |= {f"{form}_events_per_s": per_s, f"{form}_cpu_s_per_1e6": cpu, f"{form}_public_bytes_per_step": size}
    return found


async def _passed(
    events: int,
    progress: Progressing,
    *,
    workers: int = 1,
    partitions: int = PARTITIONS,
    per_step: int = PER_STEP,
    form: str = "single",
) -> tuple[float, float, float]:
    """Replay one stream. Returns events a second, processor seconds for 10^6, and public bytes a step."""
    steps = events // per_step
    async with setting() as where:
        stream = main_stream(where.main, step=f"{STEP_MS // 1000}s", clock="replay", events=per_step)
        stream |= {} if form == "single" else {"records": {"form": form}}
        await where.prepare(made := job_of(where, stream, partitions=partitions))
        async with Releases(where.bootstrap, made.names) as releases:
            where.start(workers)
            await where.until_ready()
            cpu = where.cpu_s
            with feeding(order_of(where, last=steps - 1, per_step=per_step, partitions=partitions)) as feeder:
                began = time.time()
                followed = Followed(where, releases, feeder, steps)
                await followed.to_the_end(progress, f"{events:,} events by {workers} workers, {form} records")
            seen = releases.seen[where.main]
        size = sum(map(where.topic_bytes, Topics.published(where.main))) / steps
        return events / (max(seen.values()) - began), 1e6 * (where.cpu_s - cpu) / events, size


# --- The crash --------------------------------------------------------------------------------------------------------

FILL_PER_STEP, LIVE_PER_STEP = sized((100_000, 1_000), smallest=(100, 10))
LIVE_PAUSE_S = 0.3


async def crashed(users: int, progress: Progressing) -> Figures:
    """Fill the bounds, go on with small steps, kill the worker and start it again. Its stream only counts, so that the
    bounds are what there is to bring back.
    """
    steps = users // FILL_PER_STEP
    async with setting() as where:
        made = job_of(where, counting_stream(where.main, step=f"{STEP_MS // 1000}s"))
        await where.prepare(made)
        async with Releases(where.bootstrap, made.names) as releases:
            where.start()
            await where.until_ready()
            (worker,) = where.workers
            with feeding(order_of(where, last=steps - 1, new_users=True, per_step=FILL_PER_STEP)) as feeder:
                await Followed(where, releases, feeder, steps).to_the_end(progress, f"bounds of {users:,} users")
            rss, metrics = where.rss_mb, await asyncio.to_thread(worker.metrics)
            held = total(metrics, "privstream_bounded_users")
            topics = Topics(where.name, PARTITIONS)
            order = order_of(where, first=steps, last=steps + 1_000_000, per_step=LIVE_PER_STEP)
            with feeding({**order, "pause_s": LIVE_PAUSE_S, "leave": order["last"]}):
                await releases.until(
                    lambda: releases.last(where.main) > steps + 5,
                    timeout_s=START_S,
                    what="small steps",
                    look=where.check,
                )
                progress.tell(f"crash with {users:,} users in the bounds")
                killed = time.time()
                worker.kill()
                worker.start()
                await asyncio.sleep(QUIET_S)
                dead = releases.last(where.main)
                ready = await where.until_ready()
                await releases.until(
                    lambda: releases.last(where.main) > dead, timeout_s=START_S, what="a release", look=where.check
                )
                recovered = releases.seen[where.main][dead + 1]
        return {
            "recover_s": recovered - killed,
            "recover_ready_s": ready - killed,
            "crash_users": held,
            "bounds_bytes_per_user": total(metrics, "privstream_bounds_bytes") / held,
            "bounds_topic_bytes_per_user": where.topic_bytes(topics.bounds) / held,
            "crash_rss_mb": rss,
            "crash_rss_after_mb": where.rss_mb,
        }

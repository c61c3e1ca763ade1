"""Backpressure: an engine slower than its producer. Memory must not grow with what waits, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from pathlib import Path
from statistics import median

import orjson

from agents.kafka.clients import read_to_end
from benchmarks.scale.replay import PARTITIONS, Curve, order_of
from benchmarks.scale.results import Figures, Progressing
from benchmarks.scale.setting import setting
from benchmarks.scale.streams import START, job
from benchmarks.scale.watch import Releases
from benchmarks.scale.workers import fed, feeding, total
from benchmarks.size import sized
from schemas.config.engines.discovery import GROUP
from schemas.config.server import Kafka
from schemas.topics import Topics

ENGINES = (Path(__file__).parent / "slow", Path(__file__).resolve().parents[2] / "tests/contracts/toy")
PER_STEP = sized(10_000, smallest=100)
SLOW_STEP_S = 0.15
LOOK_S = 0.25
STEP_AT_MOST_S = 60.0
EPSILON = 60.0
"""So much that noise is 0 but for one run in 10^20: what is released is what was counted."""


def install(folder: Path) -> Path:
    """Lay the slow engine out as an installer would. Returns what belongs on the path."""
    for engine in ENGINES:
        shutil.copytree(engine, folder / engine.name, ignore=shutil.ignore_patterns("__pycache__"))
    about = folder / "slow-1.0.dist-info"
    about.mkdir()
    (about / "entry_points.txt").write_text(f"[{GROUP}]\nslow = slow.spec:SPEC\n")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: slow\nVersion: 1.0\n")
    return folder


async def pressed(events: int, progress: Progressing) -> tuple[Figures, dict[str, Curve]]:
    """The producer sends as fast as it can; the engine takes `SLOW_STEP_S` a step."""
    steps = events // PER_STEP
    async with setting() as where:
        path = install(where.folder)
        where.environment = {
            "PYTHONPATH": os.pathsep.join(filter(None, [str(path), os.environ.get("PYTHONPATH", "")])),
            "SLOW_STEP_S": str(SLOW_STEP_S),
        }
        stream = {
            "name": where.main,
            "engine": "slow",
            "source": f"raw.{where.main}",
            "partitioner": "none",
            "privacy": {"epsilon": EPSILON, "unit": "event"},
            "time": {"field": "at", "format": "ms", "start": START, "step": "60s", "clock": "replay"},
            "domain": {"kind": "numbered", "field": "user"},
        }
        made = job(
            where.name, where.bootstrap, where.folder, streams=[stream], partitions=2, source_partitions=PARTITIONS
        )
        where.create(made)
        async with Releases(where.bootstrap, made.names) as releases:
            where.start()
            await where.until_ready()
            rss: Curve = []
            lag: Curve = []
            began = last_look = time.monotonic()
            with feeding({**order_of(where, last=steps - 1), "leave": steps, "per_step": PER_STEP}) as feeder:
                taken = 0.0
                while (last := releases.last(where.main)) < steps - 1:
                    where.check()
                    now = time.monotonic()
                    if now - began > steps * SLOW_STEP_S * 4 + STEP_AT_MOST_S:
                        raise TimeoutError(f"backpressure: step {last + 1} of {steps} is not public")
                    if now - last_look > LOOK_S:
                        last_look = now
                        rss.append((now - began, where.rss_mb))
                        metrics = await asyncio.to_thread(where.workers[0].metrics)
                        taken = total(metrics, "privstream_ingest_records_total", reason="ACCEPTED")
                        lag.append((now - began, taken / PER_STEP - last - 1))
                        progress.tell("backpressure", (last + 1) / steps)
                    await asyncio.sleep(0.02)
                sent = fed(feeder) or 0
            metrics = await asyncio.to_thread(where.workers[0].metrics)
            accepted = total(metrics, "privstream_ingest_records_total", reason="ACCEPTED")
            measured = await read_to_end(Kafka(bootstrap=where.bootstrap), Topics.measurements(where.main), 0)
            counted = sum(int(orjson.loads(record.value)["count"]) for record in measured)
    early = [size for at, size in rss if at >= rss[-1][0] / 10][:8]
    return {
        "pressure_rss_growth": max(size for _, size in rss) / median(early),
        "pressure_rss_mb": max(size for _, size in rss),
        "pressure_most_steps_waiting": max(each for _, each in lag),
        "pressure_lost": sent - accepted,
        "pressure_uncounted": accepted - counted,
        "pressure_steps_per_s": steps / rss[-1][0],
    }, {"backpressure_rss": rss, "backpressure_lag": lag}

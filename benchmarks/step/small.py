"""Processor time of a small step: what a worker with many streams pays for each of them, whatever its events."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from agents.local.job import LocalJob
from agents.protocol.ingest.events import RawRecord
from agents.protocol.release.publisher import Publication, StreamPublisher
from benchmarks.scale.streams import ENGINES, START, START_MS, job, side_events, side_stream
from engines.core.noise.source import repeated_seed
from schemas.config.load import config_from_mapping
from schemas.releases import Chunk, LogRecord, Seed, split_into_chunks

STEP_S = 10
EVENTS = 100
PARTS = ("ingest", "step", "encode", "publish")
"""Events to a block; block and seed to a candidate; the candidate to records of Kafka; these to public ones."""


class LocalStream:
    """One of the side streams of `benchmarks.scale`, run as a worker runs it, without Kafka."""

    def __init__(self, engine: str, *, form: str | None = None) -> None:
        """Begin before the first step. Args: form: of the records; None: what the engine has by default."""
        with TemporaryDirectory() as folder:
            table = side_stream(engine, engine, step=f"{STEP_S}s", start=START)
            if form is not None:
                table |= {"records": {"form": form}, "time": {**table["time"], "records": "released"}}
            whole = job(
                "small", "no-cluster.invalid:9092", Path(folder), streams=[table], partitions=1, source_partitions=1
            )
            stream = config_from_mapping(whole.table).streams[0]
        self._engine = engine
        self._chance = np.random.default_rng(ENGINES.index(engine))
        self._job = LocalJob(stream, key=bytes(range(16)), rows=False)
        self._publisher = StreamPublisher(stream.name)
        self._sent = self._logged = 0

    @property
    def begins_ms(self) -> int:
        """When the next step begins."""
        return START_MS + self._job.stepper.step * STEP_S * 1000

    def take(self, values: Sequence[bytes]) -> float:
        """Take in events of the next step; return the seconds of processor time."""
        records = [RawRecord(self._sent + index, -1, None, value) for index, value in enumerate(values)]
        self._sent += len(records)
        start = time.process_time()
        self._job.machines[0].take(records)
        return time.process_time() - start

    def small_step(self) -> list[float]:
        """Run one step of few events; return its milliseconds of processor time by part, as in `PARTS`."""
        step = self._job.stepper.step
        taken = self.take(side_events(self._engine, self._chance, EVENTS, self.begins_ms, step))
        (closed, *others), _ = self.release()
        return [1e3 * seconds for seconds in (taken + closed, *others)]

    def release(self) -> tuple[list[float], Publication]:
        """Release the step that is open; return seconds of processor time by part, and what is published."""
        stepper, machine = self._job.stepper, self._job.machines[0]
        step = stepper.step
        times = [time.process_time()]
        machine.tick(step)
        self._job.seal()
        times.append(time.process_time())
        seed = repeated_seed(1, self._engine, step)
        candidate = stepper.compute(seed)
        times.append(time.process_time())
        release, _ = candidate.encode()
        chunks = split_into_chunks(release, stream=self._engine, step=step)
        encoded = [chunk.encode() for chunk in chunks]
        times.append(time.process_time())
        read: list[LogRecord] = [Seed(self._engine, step, seed), *map(Chunk.decode, encoded)]
        for record in read:
            publication = self._publisher.on_record(self._logged, record)
            self._logged += 1
        assert publication is not None
        self._publisher.published(step)
        times.append(time.process_time())
        return np.diff(times).tolist(), publication


def small_steps(ages: Sequence[int], rounds: int) -> Mapping[str, Mapping[int, Sequence[float]]]:
    """Return for each engine and age the median milliseconds of each part over so many steps, and the mean of all
    parts together, in which steps that are seldom and long count. Engines take turns, so that a busy machine slows all
    of them.
    """
    streams = {engine: LocalStream(engine) for engine in ENGINES}
    found: dict[str, list[list[float]]] = {engine: [] for engine in ENGINES}
    for _ in range(max(ages) + rounds):
        for engine, stream in streams.items():
            found[engine].append(stream.small_step())
    return {
        engine: {
            age: [
                *np.median(rows[age : age + rounds], axis=0).tolist(),
                float(np.sum(rows[age : age + rounds]) / rounds),
            ]
            for age in ages
        }
        for engine, rows in found.items()
    }

"""Processor time of 10^6 events through one stream, by stages: what a worker does between fetching and the producer.

Everything but the network: batches of the source as a broker sends them, blocks, steps, candidates, and batches of the
public topics as they are produced.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from agents.kafka.lifecycle.stops import Stops
from agents.local.job import LocalJob
from agents.protocol.release.publisher import Publication, StreamPublisher
from agents.worker.ingest.partition_task import LEAST_SNAPSHOT_BYTES, MOST_SNAPSHOTS
from agents.worker.ingest.service import _calm_collector
from agents.worker.publish import PublishStreamTask
from benchmarks.scale.streams import MAIN, START, START_MS, MainEvents, Table, job, main_stream
from engines.core.contract import Batch, Release
from engines.core.noise import NoiseSource
from engines.core.noise.source import repeated_seed
from schemas.blocks import Block
from schemas.config.load import config_from_mapping
from schemas.releases import Chunk, LogRecord, Seed, split_into_chunks
from schemas.topics import BATCH_BYTES

PARTITIONS = 4
STEP_S = 60
ENGINES = ("spatial", "tabular")
PARTS = ("parse", "take in", "block", "merge", "engine", "records", "candidate", "read back", "produce")
"""Records of fetched batches; decoded, filtered and bounded; sealed and encoded; decoded and merged; the engine's step;
its records and ledger entry as bytes; the candidate encoded with its state; decoded and checked; batches of Kafka."""


def table_of(engine: str) -> Table:
    """The stream that is measured, with users under a bound: points, or rows of four attributes."""
    stream = main_stream(MAIN, step=f"{STEP_S}s", clock="replay", start=START)
    if engine == "tabular":
        edges = [edge / 16 for edge in range(17)]
        bins = [{"field": name, "edges": edges} for name in ("x", "y")]
        stream |= {"engine": engine, "domain": {"kind": "table", "attributes": bins}, "options": {}}
    return stream


class _Producer:
    """Takes batches as a producer does, and builds their bytes as its sender does."""

    async def begin_transaction(self) -> None: ...

    async def commit_transaction(self) -> None: ...

    def create_batch(self) -> BatchBuilder:
        return BatchBuilder(BATCH_BYTES, 0, is_transactional=1)

    async def send_batch(self, batch: BatchBuilder, topic: str, *, partition: int) -> asyncio.Future[None]:
        batch._set_producer_state(1, 1, 0)
        batch._build()
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        sent.set_result(None)
        return sent


class BigStream:
    """One stream with many events a step, run as a worker runs it, without Kafka."""

    def __init__(self, engine: str, per_step: int) -> None:
        with TemporaryDirectory() as folder:
            whole = job(
                "big",
                "no-cluster.invalid:9092",
                Path(folder),
                streams=[table_of(engine)],
                partitions=PARTITIONS,
                source_partitions=PARTITIONS,
            )
            stream = config_from_mapping(whole.table).streams[0]
        self._per_step = per_step
        self._events = MainEvents(PARTITIONS)
        self._job = LocalJob(stream, key=bytes(range(16)), partitions=PARTITIONS, rows=False)
        self._publisher = StreamPublisher(stream.name)
        self._task = PublishStreamTask(None, stream, Stops.of([stream.name]))  # type: ignore[arg-type]
        self._task._producer = _Producer()
        self._sent = [0] * PARTITIONS
        self._blocks = self._logged = 0
        self._engine_s = 0.0
        _calm_collector()
        step = self._job.stepper.engine.step

        def timed(batch: Batch, noise: NoiseSource) -> Release:
            begun = time.process_time()
            try:
                return step(batch, noise)
            finally:
                self._engine_s = time.process_time() - begun

        self._job.stepper.engine.step = timed  # type: ignore[method-assign]

    def step(self) -> Sequence[float]:
        """Run one step; return its seconds of processor time by part, as in `PARTS`."""
        stepper, machines, name = self._job.stepper, self._job.machines, self._job.stream.name
        step = stepper.step
        fetched = list(self._fetched(step))
        times = [time.process_time()]
        parsed = [_parsed(data) for data in fetched]
        times.append(time.process_time())
        for machine, records in zip(machines, parsed, strict=True):
            machine.take(records)
            machine.tick(step)
        times.append(time.process_time())
        bodies = []
        for at, machine in enumerate(machines):
            machine.snapshots(max(LEAST_SNAPSHOT_BYTES, 24 * machine.pending), most=MOST_SNAPSHOTS)
            block, _ = machine.seal()
            assert block is not None
            bodies.append(block.encode())
            machine.committed(at=self._blocks + at)
        times.append(time.process_time())
        for body in bodies:
            stepper.fold(self._blocks, Block.decode(body))
            self._blocks += 1
        times.append(time.process_time())
        seed = repeated_seed(1, name, step)
        candidate = stepper.compute(seed)
        times.append(time.process_time())
        times.append(times[-1])
        times[-2] = times[-3] + self._engine_s
        release, _ = candidate.encode()
        encoded = [chunk.encode() for chunk in split_into_chunks(release, stream=name, step=step)]
        times.append(time.process_time())
        publication = self._read([Seed(name, step, seed), *map(Chunk.decode, encoded)])
        times.append(time.process_time())
        asyncio.run(self._task._transact([publication]))
        times.append(time.process_time())
        self._publisher.published(step)
        return [after - before for before, after in pairwise(times)]

    def _read(self, records: Sequence[LogRecord]) -> Publication:
        found = None
        for record in records:
            found = self._publisher.on_record(self._logged, record)
            self._logged += 1
        assert found is not None
        return found

    def _fetched(self, step: int) -> Iterator[bytes]:
        """Yield the batches of each partition as a broker sends them."""
        values = self._events.take(step * self._per_step, self._per_step, START_MS + step * STEP_S * 1000)
        for partition, mine in enumerate(values):
            builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 30)
            for at, value in enumerate(mine):
                builder.append(at, timestamp=1, key=None, value=value, headers=[])
            data = builder.build()
            data[:8] = self._sent[partition].to_bytes(8, "big")
            self._sent[partition] += len(mine)
            yield bytes(data)


def _parsed(data: bytes) -> list[Any]:
    parts, records = MemoryRecords(data), list[Any]()
    while parts.has_next():
        records.extend(chain(parts.next_batch()))
    return records


def big_steps(per_step: int, warm: int, rounds: int) -> Mapping[str, Mapping[str, float]]:
    """Return for each engine the seconds of processor time that 10^6 events take in each part.

    Args: per_step: events of a step. warm, rounds: steps before, and steps that count.
    """
    found: dict[str, Mapping[str, float]] = {}
    for engine in ENGINES:
        stream = BigStream(engine, per_step)
        for _ in range(warm):
            stream.step()
        rows = [stream.step() for _ in range(rounds)]
        sums = [1e6 * sum(column) / (rounds * per_step) for column in zip(*rows, strict=True)]
        found[engine] = {**dict(zip(PARTS, sums, strict=True)), "all": sum(sums)}
    return found

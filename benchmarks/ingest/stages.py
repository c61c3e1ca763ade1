"""Where ingest's time goes, ns an event, without a broker: `python -m benchmarks.ingest --stages`.

The parts of `PartitionIngest.take`, on one slice, each the best of many; what is indented is part of what is above it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from agents.protocol.ingest.bounds import Bounds, Groups
from agents.protocol.ingest.events import PureFilter
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.partitioner import partitions_of
from agents.protocol.userhash import IdBytes, UserHash
from agents.worker.ingest.specs import source_specs
from benchmarks.ingest.source import PARTITIONS, SOURCE, USERS, configuration, event

SLICE = 12_500
TIMES = 20


def stages() -> list[tuple[str, float]]:
    """Name and ns an event of each stage."""
    with tempfile.TemporaryDirectory() as folder:
        [spec] = source_specs(
            configuration("nowhere:9092", folder, "stages"), source_partitions={"stages-taxi": PARTITIONS}
        )[SOURCE]
    data = _batches(spec)
    records = _parsed(data)
    machine, events = PartitionIngest(spec, 0), _decoded(spec, records)
    filtered, ticked = PureFilter(spec, 0), np.full(SLICE, -1, np.int64)
    users, times = list(map(attrgetter("user"), events)), list(map(attrgetter("time"), events))
    ids, parser = IdBytes.from_ids(users), spec.time_parser()
    assert spec.key is not None
    hashed = UserHash(spec.key)
    hashes, steps = hashed.of_ids(ids), np.zeros(SLICE, np.int64)
    assert spec.bounds is not None
    bounds = Bounds(spec.bounds)
    reasons = np.zeros(SLICE, np.uint8)
    columns = filtered._columns(events, np.ones(SLICE, np.int8))
    table: list[tuple[str, Callable[[], object]]] = [
        ("parse a batch of Kafka's records", lambda: _parsed(data)),
        ("take them in", lambda: PartitionIngest(spec, 0).take(records)),
        ("  decode JSON", lambda: machine.decoder.decode_unfolded(records)),
        ("  filter", lambda: filtered.run(events, ticked, None)),
        ("    users: partition and hash", lambda: filtered._users(events, reasons, {})),
        ("      partition", lambda: partitions_of(ids, partitioner="murmur2", partitions=PARTITIONS)),
        ("      hash", lambda: hashed.of_ids(ids)),
        ("    times", lambda: parser.parse(times)),
        ("    columns", lambda: filtered._columns(events, np.ones(SLICE, np.int8))),
        ("    encode in the domain", lambda: spec.domain.encode(columns)),
        ("  bounds", lambda: bounds.accept(hashes, steps)),
        ("    sort by user", lambda: Groups.from_hashes(hashes)),
        ("seal and encode a block of these", lambda: _sealed(spec, records)),
    ]
    return [(name, _best(work) / SLICE * 1e9) for name, work in table]


def _best(work: Callable[[], object]) -> float:
    """Seconds of CPU; a function that gives a number has measured itself."""
    best = float("inf")
    for _ in range(TIMES):
        begun = time.thread_time()
        found = work()
        best = min(best, found if isinstance(found, float) else time.thread_time() - begun)
    return best


def _sealed(spec: SourceSpec, records: Any) -> float:
    machine = PartitionIngest(spec, 0)
    machine.take(records)
    begun = time.thread_time()
    machine.snapshots(24 * machine.pending, most=32)
    block, _ = machine.seal()
    assert block is not None
    block.encode()
    return time.thread_time() - begun


def _batches(spec: SourceSpec) -> bytes:
    """Events of partition 0 as a broker sends them, uncompressed."""
    random = np.random.default_rng(7)
    users = random.integers(0, USERS, PARTITIONS * SLICE * 2)
    ids = IdBytes.from_ids([f"u{user:07d}" for user in users.tolist()])
    rows = np.flatnonzero(partitions_of(ids, partitioner="murmur2", partitions=PARTITIONS) == 0)[:SLICE]
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 24)
    for offset, row in enumerate(rows.tolist()):
        builder.append(offset, timestamp=1, key=None, value=event(random, users, row), headers=[])
    return bytes(builder.build())


def _parsed(data: bytes) -> list[Any]:
    parts, records = MemoryRecords(data), list[Any]()
    while parts.has_next():
        records.extend(chain(parts.next_batch()))
    return records


def _decoded(spec: SourceSpec, records: list[Any]) -> list[Any]:
    events, reasons, _ = PartitionIngest(spec, 0).decoder.decode_unfolded(records)
    assert not reasons.any()
    return events

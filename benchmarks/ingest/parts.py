"""What a split costs ingest, CPU us an event, without a broker: `python -m benchmarks.ingest --split`.

The same slices of one source partition, taken in and sealed into blocks, by turns: by one stream; by the parts of it;
by the same parts where each decodes all records for itself; and by as many streams that leave out with `drop` of
`[streams.map]` what is not theirs, which is how one would write parts without `split`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.partitioner import partitions_of
from agents.protocol.userhash import IdBytes
from agents.worker.ingest.specs import source_specs
from benchmarks.ingest.source import PARTITIONS, SOURCE, USERS, configuration, event
from benchmarks.size import sized
from schemas.config import config_from_mapping

PARTS = 4
SLICE = sized(12_500, smallest=100)
SLICES = sized(8, smallest=1)
ROUNDS = sized(5, smallest=1)
ZONES = [f"z{number}" for number in range(PARTS)]


def split_costs() -> dict[str, list[float]]:
    """CPU us an event, of each round."""
    with tempfile.TemporaryDirectory() as folder:
        document = configuration("nowhere:9092", folder, "split").streams[0].explicit
        slices = _slices()
        split = {"split": {"field": "zone", "parts": ZONES}}
        ways: Mapping[str, tuple[list[SourceSpec], bool]] = {
            "one stream": (_specs([document]), False),
            f"split in {PARTS}": (_specs([document | split]), True),
            f"split in {PARTS}, each decodes": (_specs([document | split]), False),
            f"{PARTS} streams with drop": (
                _specs([document | {"name": zone, "map": {"drop": f"zone != '{zone}'"}} for zone in ZONES]),
                False,
            ),
        }
        found: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, (specs, shared) in ways.items():
                found[name].append(_measured(specs, slices, shared=shared))
    return found


def _specs(streams: list[dict[str, Any]]) -> list[SourceSpec]:
    config = config_from_mapping({"kafka": {"bootstrap": "nowhere:9092"}, "streams": streams})
    return source_specs(config, source_partitions={each.name: PARTITIONS for each in config.streams})[SOURCE]


def _measured(specs: list[SourceSpec], slices: list[list[RawRecord]], *, shared: bool) -> float:
    readings: Any = {} if shared else None
    machines = [PartitionIngest(spec, 0, readings) for spec in specs]
    begun = time.process_time()
    for records in slices:
        for machine in machines:
            machine.take(records)
        for machine in machines:
            block, letters = machine.seal()
            assert block is not None
            assert not letters
            block.encode()
    return (time.process_time() - begun) / (SLICE * len(slices)) * 1e6


def _slices() -> list[list[RawRecord]]:
    random = np.random.default_rng(7)
    users = random.integers(0, USERS, PARTITIONS * SLICE * SLICES * 2)
    ids = IdBytes.from_ids([f"u{user:07d}" for user in users.tolist()])
    rows = np.flatnonzero(partitions_of(ids, partitioner="murmur2", partitions=PARTITIONS) == 0)[: SLICE * SLICES]
    zones = random.choice(ZONES, len(rows))
    values = [
        event(random, users, row)[:-1] + b',"zone":"%s"}' % zone.encode()
        for row, zone in zip(rows.tolist(), zones.tolist(), strict=True)
    ]
    records = [RawRecord(at, 1, None, value) for at, value in enumerate(values)]
    return [records[at : at + SLICE] for at in range(0, len(records), SLICE)]

"""What an ingest commits, and what it has counted of it. Operator only: counts of private records are private."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from agents.kafka.lifecycle.refusals import RefusalAlarm, by_reason_and_field
from agents.protocol.ingest.dead_letters import DeadLetter
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.snapshots import Snapshot
from agents.protocol.ingest.spec import Role
from schemas.blocks import Block


@dataclass(slots=True)
class SealedBlock:
    """What one machine gives to a transaction."""

    machine: PartitionIngest
    block: Block
    body: bytes
    letters: list[DeadLetter]
    snapshots: list[Snapshot]


@dataclass(slots=True)
class IngestCounters:
    """What this worker has committed. Operator only: counts are private.

    Attributes:
        records: (stream, role, reason, field) -> records; the field is "" where none is at fault.
        clock_ahead_s: what this worker's clock is ahead of the brokers', None where nobody asked.
        schemas_awaited: that the registry has not told yet.
        refusals: who says so where many records of a stream are refused.
        users: (stream, source partition) -> users held in the bounds.
    """

    records: Counter[tuple[str, Role, str, str]] = field(default_factory=Counter)
    clock_ahead_s: float | None = None
    schemas_awaited: int = 0
    refusals: RefusalAlarm = field(default_factory=RefusalAlarm)
    blocks: int = 0
    block_bytes: int = 0
    transactions: int = 0
    snapshots: int = 0
    users: dict[tuple[str, int], int] = field(default_factory=dict)
    bounds_bytes: dict[tuple[str, int], int] = field(default_factory=dict)

    def count(self, sealed: SealedBlock) -> None:
        """A sealed block is committed."""
        machine, spec = sealed.machine, sealed.machine.spec
        self.blocks += 1
        self.block_bytes += len(sealed.body)
        self.snapshots += len(sealed.snapshots)
        for (reason, at_fault), records in by_reason_and_field(sealed.block).items():
            self.records[spec.stream, spec.role, reason, at_fault] += records
        if spec.role == "blocks":
            self.refusals.take(sealed.block)
        if spec.bounds is not None:
            self.users[spec.stream, machine.partition] = machine.users
            self.bounds_bytes[spec.stream, machine.partition] = machine.bounds_bytes

"""The job of one stream without Kafka, which the library, `simulate`, `tune`, `replay` and `audit` run.

It does no input or output: it turns records into blocks and steps by the state machines of `agents.protocol`, as the
job does. With the same blocks and seeds it releases the same bytes as the job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from agents.protocol.formats.contract import SchemaBook
from agents.protocol.formats.reader import SourceRecord
from agents.protocol.ingest.dead_letters import DeadLetter
from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.release.stepper import Stepper
from agents.protocol.replay import Planned, Progress, Row, clock_of, plan_of, steps_of, times_of
from engines.core.registry import build_domain
from schemas.blocks import Block
from schemas.config import Stream
from schemas.releases import Candidate


class LocalIngest:
    """Ingest of all partitions of a source, by a machine each; `position` is the offset of the next block."""

    def __init__(self, spec: SourceSpec, fold: Callable[[int, Block], None] = lambda offset, block: None) -> None:
        """Begin without records. Args: fold: called with the offset of each block, and the block."""
        self.spec = spec
        self.machines = [PartitionIngest(spec, partition) for partition in range(spec.partitions)]
        self.position = 0
        self._fold = fold

    def take(self, records: Sequence[SourceRecord], *, partition: int = 0) -> tuple[Block | None, list[DeadLetter]]:
        """Ingest the next records of a partition and commit them as a block. Raises: see `PartitionIngest.take`."""
        self.machines[partition].take(records)
        return self.seal(partition=partition)

    def take_planned(self, planned: Sequence[Planned]) -> tuple[Block | None, list[DeadLetter]]:
        """Ingest records that a replay would write to the only partition, as they would be read back from Kafka."""
        first = self.machines[0].next_offset
        return self.take([
            RawRecord(first + index, -1, record.key, record.value, tuple(record.headers))
            for index, record in enumerate(planned)
        ])  # fmt: skip

    def seal(self, *, partition: int = 0) -> tuple[Block | None, list[DeadLetter]]:
        """Return ingested records as a committed block, and dead letters; None if there was no record or tick."""
        block, letters = self.machines[partition].seal()
        if block is not None:
            self.machines[partition].committed(at=self.position)
            self._fold(self.position, block)
            self.position += 1
        return block, letters


class LocalJob(LocalIngest):
    """Ingest and stepper of one stream; `stepper.closable` says whether the next step is over."""

    def __init__(
        self,
        stream: Stream,
        *,
        key: bytes | None,
        partitions: int = 1,
        rows: bool = True,
        schemas: SchemaBook | None = None,
        caveat: str = "",
    ) -> None:
        """Begin a stream. Args: key: of the hash of user ids. rows, schemas, caveat: see `SourceSpec` and `Stepper`."""
        spec = SourceSpec.from_stream(
            stream, build_domain(stream), key=key, partitions=partitions, rows=rows, schemas=schemas
        )
        super().__init__(spec, self._fold_step)
        self.stream = stream
        self._caveat = caveat
        self.stepper = self.new_stepper()

    def new_stepper(self) -> Stepper:
        """Return a stepper before the first step."""
        return Stepper.from_stream(self.stream, self.spec.partitions, caveat=self._caveat)

    def _fold_step(self, offset: int, block: Block) -> None:
        self.stepper.fold(offset, block)  # not a bound method: `stepper` may be replaced

    def restore(
        self, candidate: Candidate | None, blocks: Iterable[bytes], *, first_block: int, snapshots: Mapping[str, bytes]
    ) -> None:
        """Restore the stored state of a stream with one partition, as a worker does that takes over.

        Args: candidate: of the last step. first_block: offset of the first of `blocks`. snapshots: of the bounds.
        Raises: GapError, WireError, if they contradict each other.
        """
        [machine] = self.machines
        machine.load(list(snapshots.values()))
        if candidate is not None:
            self.stepper.restore(candidate)
        self.position = first_block
        for encoded in blocks:
            block = Block.decode(encoded)
            machine.apply(block, at=self.position, trimmed_to=first_block)
            self.stepper.fold(self.position, block)
            self.position += 1
        machine.check_restored(trimmed_to=first_block)
        machine.resume(machine.next_offset)


def planned(stream: Stream, parts: Iterable[Sequence[Row]], *, source: str) -> Iterator[tuple[Sequence[Planned], int]]:
    """Yield the records that a replay writes to a source with one partition, with the number of rows of each part.

    Raises: ReplayError for rows that are not sorted by time.
    """
    clock, times = clock_of(stream), times_of(stream)
    plan = plan_of(stream, {stream.source: 1}, Progress(source=source), written=False)
    for rows in parts:
        yield plan.chunk(rows, steps_of(clock, times.parse(rows))).records[stream.source, 0], len(rows)
    yield plan.finish().records[stream.source, 0], 0

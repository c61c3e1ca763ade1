"""Adding partitions to a source: what must be committed, in which order, so that nobody's bound begins anew. No Kafka.

Users are placed by a hash modulo the number of partitions. Where the new number N' is a multiple of the old one N, the
users of a new partition p' all come from one old partition, its *parent* p' mod N. So p' begins with a copy of all that
its parent remembers, and as far ticked: what the parent forgot is about steps that p' cannot open either. From then on
the parent refuses the users who moved, and p' those who did not: for each user it is as if one table had seen all of
their records, those on the parent up to the copy and those on p' behind it. That holds for whatever a table holds.

Order, which makes a crash between any two of these harmless:

1. the partitions are added: from now on no worker starts, since the topic is not what the stream was started with;
2. each new partition gets its snapshots and then its first block, by its own producer;
3. each parent gets a block that says among how many partitions its users are now placed, by its own producer, the one
   that was fenced before the parent was read. That it is committed proves that the copies were of its last state; and a
   worker with the old number that fences the parent later reads it and stops (`PartitionIngest.check_partitions`);
4. last the stream is said to have so many partitions: workers start.

Whoever begins again does all of it again: as long as 4 has not happened, nobody takes in records on a new partition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.snapshots import Snapshot
from agents.protocol.ingest.spec import SourceSpec
from schemas.blocks import Block

COPIED_BYTES = 4 << 20
"""Of snapshots in one transaction, from which on it takes no further one."""


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Give the source topic so many partitions, before anything else is done."""

    partitions: int


@dataclass(frozen=True, slots=True)
class Commit:
    """One transaction of the producer of a source partition.

    Attributes:
        block: of the stream's role; with it the group's offset of the partition, and the stream's place there.
    """

    partition: int
    spec: SourceSpec
    snapshots: Sequence[Snapshot] = ()
    block: Block | None = None


@dataclass(frozen=True, slots=True)
class StorePartitions:
    """Store that these streams are of so many source partitions from now on, all of them in one transaction."""

    streams: Mapping[str, int]
    """Stream -> partitions that its source had."""
    partitions: int


Effect = AddPartitions | Commit | StorePartitions


def possible(partitions: int, wanted: int, spec: SourceSpec) -> bool:
    """Return whether a stream can go on where its source gets from `partitions` to `wanted`: users keep their table."""
    if wanted < partitions:
        return False
    return spec.bounds is None or wanted == partitions or (spec.partitioner != "none" and wanted % partitions == 0)


def children(parent: int, partitions: int, wanted: int) -> range:
    """Return the new partitions that get users of an old one.

    >>> list(children(1, 2, 6))
    [3, 5]
    """
    return range(parent + partitions, wanted, partitions)


def added(
    parents: Sequence[PartitionIngest],
    partitions: int,
    *,
    truth: Sequence[PartitionIngest] = (),
    unread: Mapping[str, Collection[int]] | None = None,
) -> Iterator[Effect]:
    """Yield all that must be done, in order; each effect is carried out before the next one is asked for.

    Args:
        parents: restored machines of all old partitions of each stream that bounds its users or feeds an engine; the
            producers of their partitions, and of the new ones, were fenced before they were read.
        partitions: that the source is to have.
        truth: of each stream of which the source has held-out events, the restored machine of partition 0.
        unread: name of their role -> partitions on which it has no block. Held-out events are not bounded, so their new
            partitions need to know no more than which steps are over.
    """
    for parent in parents:
        if not possible(parent.spec.partitions, partitions, parent.spec):
            raise ValueError(f"users of {parent.spec.partitions} partitions cannot be kept together on {partitions}")
    yield AddPartitions(partitions)
    for parent in parents:
        spec = replace(parent.spec, partitions=partitions)
        for partition in children(parent.partition, parent.spec.partitions, partitions):
            yield from _first(parent, spec, partition)
    for machine in truth:
        for partition in (unread or {}).get(machine.spec.name, ()):
            yield from _first(machine, machine.spec, partition)
    for parent in parents:
        parent.spread(partitions)
        block, _ = parent.seal()
        if block is not None:  # it was said before
            yield Commit(parent.partition, parent.spec, block=block)
    yield StorePartitions({parent.spec.stream: parent.spec.partitions for parent in parents}, partitions)


def _first(parent: PartitionIngest, spec: SourceSpec, partition: int) -> Iterator[Commit]:
    """Yield the bounds and the first block of a partition added; the block last, since it answers for the bounds."""
    child = PartitionIngest(spec, partition)
    waiting: list[Snapshot] = []
    for snapshot in child.begin_as(parent):
        waiting.append(snapshot)
        if sum(len(each.value) for each in waiting) >= COPIED_BYTES:
            yield Commit(partition, spec, waiting)
            waiting = []
    if waiting:
        yield Commit(partition, spec, waiting)
    block, _ = child.seal()
    if block is not None:  # of held-out events of which no step is over
        yield Commit(partition, spec, block=block)

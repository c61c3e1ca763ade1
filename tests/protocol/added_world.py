"""A source in memory that gets partitions: its records, what workers commit of them, and the command that adds some.

What Kafka gives is here: transactions that commit whole or not at all, and fencing. All else is the product's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agents.protocol.ingest.added import AddPartitions, Commit, Effect, StorePartitions, added
from agents.protocol.ingest.bounds import BoundSpec
from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.partitioner import partitions_of
from agents.protocol.release.merge import BlockMerge
from agents.protocol.userhash import IdBytes
from schemas.blocks import Block
from tests.protocol.ingest_runs import SPEC, Outcome, body, tick_header

Plan = Callable[[Sequence[PartitionIngest], int], Iterator[Effect]]
ALL = 1 << 20  # bytes of snapshots in a transaction: of all buckets


def home(user: str, partitions: int) -> int:
    return int(partitions_of(IdBytes.from_ids([user]), partitioner="murmur2", partitions=partitions)[0])


class FencedError(Exception):
    """A producer of this partition was made since."""


@dataclass(repr=False)
class World:
    """See the module.

    Attributes:
        topic: partitions that the topic has; stored: with which the stream was started, or was raised to.
        sent: (user or None for a tick, record) by partition.
        blocks: (offset, record) of the blocks topic.
    """

    spec: SourceSpec
    stored: int
    body: Callable[..., bytes] = body  # of a record, by its fields
    topic: int = 0
    sent: dict[int, list[tuple[str | None, RawRecord]]] = field(default_factory=dict)
    blocks: list[tuple[int, bytes]] = field(default_factory=list)
    all_blocks: list[tuple[int, Block]] = field(default_factory=list)
    beginning: int = 0
    snapshots: dict[bytes, bytes] = field(default_factory=dict)
    epochs: Counter[int] = field(default_factory=Counter)
    step: int = 0
    cuts: dict[int, int] = field(default_factory=dict)
    """Old partition -> offset at which its users moved."""

    def __post_init__(self) -> None:
        self.topic = self.stored
        self.sent = {partition: [] for partition in range(self.topic)}

    def __repr__(self) -> str:
        return f"World of {self.stored} partitions, {len(self.all_blocks)} blocks"

    # --- producers ------------------------------------------------------------------------------------------------

    def send(self, user: str, *, placed_among: int | None = None, **more: object) -> None:
        partition = home(user, placed_among or self.topic)
        self._append(partition, user, self.body(**{"u": user, "t": self.step + 0.5, **more}), ())

    def tick(self) -> None:
        for partition in range(self.topic):
            self._append(partition, None, b"", tick_header(self.step))
        self.step += 1

    def _append(
        self, partition: int, user: str | None, value: bytes, headers: tuple[tuple[str, bytes | None], ...]
    ) -> None:
        log = self.sent[partition]
        log.append((user, RawRecord(len(log), -1, None, value, headers)))

    # --- workers --------------------------------------------------------------------------------------------------

    def machine(self, partition: int, *, partitions: int | None = None) -> PartitionIngest:
        """Fenced and restored."""
        self.epochs[partition] += 1
        machine = PartitionIngest(replace(self.spec, partitions=partitions or self.stored), partition)
        mine = [value for key, value in self.snapshots.items() if key.decode().split("/")[1] == str(partition)]
        machine.load(mine)
        for offset, value in self.blocks:
            if (block := Block.decode(value)).partition == partition:
                machine.apply(block, at=offset, trimmed_to=self.beginning)
        machine.check_restored(trimmed_to=self.beginning)
        return machine

    def work(self, *, piece: int = 7, budget: int = ALL, at_most: int = 1 << 30, step_by_step: bool = False) -> None:
        """Workers take in what is there, if they may start."""
        if self.topic != self.stored:
            return
        for partition in range(self.stored):
            machine = self.machine(partition)
            machine.check_partitions()
            epoch = self.epochs[partition]
            records = [record for _, record in self.sent[partition]][machine.next_offset :][:at_most]
            for begin in range(0, len(records), piece):
                machine.take(records[begin : begin + piece])
                self.commit(machine, epoch, budget=budget)
                if step_by_step:
                    self.trim()

    def commit(self, machine: PartitionIngest, epoch: int, *, budget: int = ALL) -> None:
        """Raises: FencedError."""
        if epoch != self.epochs[machine.partition]:
            raise FencedError
        for snapshot in machine.snapshots(budget):
            self.snapshots[snapshot.key] = snapshot.value
        block, _ = machine.seal()
        if block is not None:
            machine.committed(at=self._write(block))

    def _write(self, block: Block) -> int:
        offset = 3 * len(self.all_blocks) + 1
        self.blocks.append((offset, block.encode()))
        self.all_blocks.append((offset, Block.decode(block.encode())))
        return offset

    def trim(self) -> None:
        """As the engine does it: below what it has folded, and below the floor of every partition."""
        floors = {block.partition: block.floor for _, block in self.all_blocks}
        if self.all_blocks:
            self.beginning = max(self.beginning, min([self.all_blocks[-1][0], *floors.values()]))
        self.blocks = [(offset, value) for offset, value in self.blocks if offset >= self.beginning]

    # --- the command ----------------------------------------------------------------------------------------------

    def add(self, wanted: int, *, effects: int = 1 << 30, plan: Plan = added) -> bool:
        """Run the command, which dies after so many effects. Returns whether it came to its end."""
        epochs = {}
        parents = []
        for partition in range(self.stored):
            parents.append(self.machine(partition))
            epochs[partition] = self.epochs[partition]
        for partition in range(self.stored, wanted):
            self.epochs[partition] += 1
            epochs[partition] = self.epochs[partition]
        for number, effect in enumerate(plan(parents, wanted)):
            if number == effects:
                return False
            self.carry_out(effect, epochs)
        self.cuts = {parent.partition: parent.next_offset for parent in parents}
        return True

    def carry_out(self, effect: Effect, epochs: dict[int, int]) -> None:
        match effect:
            case AddPartitions(partitions):
                self.topic = max(self.topic, partitions)
                for partition in range(self.topic):
                    self.sent.setdefault(partition, [])
            case Commit(partition, _, snapshots, block):
                if epochs[partition] != self.epochs[partition]:
                    raise FencedError
                self.snapshots.update({each.key: each.value for each in snapshots})
                if block is not None:
                    self._write(block)
            case StorePartitions(_, partitions):
                self.stored = partitions

    # --- what came of it ------------------------------------------------------------------------------------------

    def outcome(self) -> Outcome:
        """All blocks together; that each partition's have no gap is checked."""
        by_partition: dict[int, Outcome] = {}
        for _, block in self.all_blocks:
            by_partition.setdefault(block.partition, Outcome()).add(block)
        return joined(by_partition.values())

    def expected(self, first: int) -> Outcome:
        """One table for each user, which sees the records on the parent and then those on the user's new partition.

        Args: first: partitions before any were added.
        """
        parts = []
        for partition in range(self.stored):
            machine, outcome = PartitionIngest(replace(self.spec, partitions=1), 0), Outcome()
            parent = partition % first
            logs = [self.sent[partition]]
            if partition >= first:
                logs.insert(0, self.sent[parent][: self.cuts[parent]])
            mine = [
                record for log in logs for user, record in log if user is None or home(user, self.stored) == partition
            ]
            machine.take([record._replace(offset=offset) for offset, record in enumerate(mine)])
            block, _ = machine.seal()
            if block is not None:
                outcome.add(block)
            parts.append(outcome)
        return joined(parts)

    def steps_of(self, merge: BlockMerge, *, begin: int = 0) -> dict[int, tuple[dict[tuple, int], int]]:
        """Step -> events and surplus, of all that the blocks from `begin` on close."""
        found: dict[int, tuple[dict[tuple, int], int]] = {}
        step = 0
        for offset, block in self.all_blocks[begin:]:
            merge.fold(offset, block)
            while merge.closed(step):
                events = merge.take(step)
                counted = dict(zip(map(tuple, events.keys.tolist()), events.counts.tolist(), strict=True))
                found[step] = counted, merge.take_surplus(step)
                step += 1
        return found


def joined(parts: Iterable[Outcome]) -> Outcome:
    """Of all partitions: what was accepted and charged, by whom and for which step."""
    whole = Outcome()
    for part in parts:
        whole.charges += part.charges
        whole.surplus += part.surplus
        for step, cells in part.steps.items():
            whole.steps.setdefault(step, Counter()).update(cells)
    return whole


USERS = [f"u{index}" for index in range(9)]


def bounded(**bounds: Any) -> SourceSpec:
    return replace(SPEC, bounds=BoundSpec(**{"max_contributions": 3, **bounds}))


KINDS = {
    "whole stream": bounded(),
    "periods": bounded(period_steps=3),
    "capped": bounded(max_per_step=1, period_steps=4),
    "charged twice": bounded(max_contributions=4, charge=2),
    "surplus": bounded(surplus=2, period_steps=4),
    "pairs": bounded(pairs=1, period_steps=4),
    "pairs, capped": bounded(pairs=2, max_per_step=1),
    "events alone": replace(SPEC, bounds=None, key=None, partitioner=None),
}


def play(world: World, events: Sequence[str], **more: Any) -> None:
    for each in events:
        if each == "tick":
            world.tick()
        else:
            world.send(each, **more)


def check(world: World, first: int) -> None:
    found, expected = world.outcome(), world.expected(first)
    assert found.charges == expected.charges
    assert found.steps == expected.steps
    assert found.surplus == expected.surplus


def full(spec: SourceSpec, first: int = 2, *, drained: bool = True) -> World:
    """Everybody is at the bound, by snapshots and trimmed blocks."""
    world = World(spec, first)
    for _ in range(4):
        play(world, USERS)
    world.work(piece=5, step_by_step=True)
    if not drained:
        play(world, USERS)
    return world

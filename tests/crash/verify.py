"""The invariant of every crash test and of the chaos benchmark: what became public is what the raw topics and the
seeds say.

Everything is computed a second time, in one go and without Kafka: raw records through the pure ingest, its blocks and
the committed seeds through the pure stepper. Then the public topics are read from offset 0, as committed and as
uncommitted readers see them, and compared byte by byte.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.route import place_of
from agents.protocol.partitioner import home_partition
from agents.protocol.release.stepper import Stepper
from agents.worker.ingest.specs import source_specs
from schemas.blocks import Block, Folded
from schemas.config import Config
from schemas.releases import CHANNELS, Channel, Seed, decode_log_record, public_step, unframe_records
from tests.kafka.support import records_of


@dataclass(frozen=True)
class RawRecord:
    """A raw record as `PartitionIngest` reads it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True)
class PublicView:
    """A record of a public topic."""

    step: int | None
    key: bytes
    value: bytes | None


@dataclass
class StreamEvidence:
    """All that the topics hold of one stream. Mutable, so that tests can plant faults.

    Attributes:
        raw: records of each source partition; of each routed one, where the job places users itself.
        misrouted: source records that are not on the routed topic once, or ticks that are not on each partition of it.
        blocks: in the order of the blocks topic.
        seeds: of each step, all that are on the release log.
        committed, uncommitted: public records as the two kinds of readers see them.
    """

    raw: list[list[RawRecord]]
    blocks: list[Block]
    seeds: dict[int, set[bytes]]
    committed: dict[Channel, list[PublicView]]
    uncommitted: dict[Channel, list[PublicView]]
    misrouted: int = 0


@dataclass(frozen=True)
class Verdict:
    """Counts of broken promises; all zero is what must be."""

    steps: int = 0
    lost: int = 0
    double: int = 0
    bytes_differing: int = 0
    events_miscounted: int = 0
    notes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def kept(self) -> bool:
        return not (self.lost or self.double or self.bytes_differing or self.events_miscounted)

    def __add__(self, other: Verdict) -> Verdict:
        return Verdict(**{item.name: getattr(self, item.name) + getattr(other, item.name) for item in fields(self)})

    def __str__(self) -> str:
        return (
            f"steps {self.steps}, lost {self.lost}, double {self.double}, "
            f"bytes differing {self.bytes_differing}, events miscounted {self.events_miscounted}"
        )


async def collect(config: Config, source_partitions: Mapping[str, int]) -> dict[str, StreamEvidence]:
    """Read everything. The job must have run with `keep_private_log`."""
    bootstrap, topics = config.kafka.bootstrap, config.topics
    evidence = {}
    for stream in config.streams:
        partitions = source_partitions[stream.name]
        raw = await _raw(bootstrap, config.read_by(stream), partitions)
        misrouted = 0
        if stream.routed:
            wanted: Counter[tuple[int, int] | None] = Counter(
                {
                    (partition, record.offset): partitions if record.headers else 1
                    for partition, records in enumerate(await _raw(bootstrap, stream.source, partitions))
                    for record in records
                }
            )
            routed = Counter(place_of(record.headers) for records in raw for record in records)
            misrouted = ((wanted - routed) + (routed - wanted)).total()
        home = home_partition(stream.name, config.kafka.partitions)
        blocks = [Block.decode(record.value) for record in await records_of(bootstrap, topics.blocks, partition=home)]
        seeds: dict[int, set[bytes]] = defaultdict(set)
        for record in await records_of(bootstrap, topics.releases, partition=home):
            entry = decode_log_record(record.value)
            if isinstance(entry, Seed) and entry.stream == stream.name:
                seeds[entry.step].add(entry.seed)
        views: list[dict[Channel, list[PublicView]]] = []
        for committed in (True, False):
            view: dict[Channel, list[PublicView]] = {}
            for channel in CHANNELS:
                found = await records_of(bootstrap, f"{stream.name}.{channel}", committed=committed)
                view[channel] = [PublicView(public_step(r.headers), r.key, r.value) for r in found]
            views.append(view)
        mine = [block for block in blocks if block.stream == stream.name]
        evidence[stream.name] = StreamEvidence(raw, mine, dict(seeds), views[0], views[1], misrouted)
    return evidence


async def _raw(bootstrap: str, topic: str, partitions: int) -> list[list[RawRecord]]:
    return [
        [
            RawRecord(record.offset, record.timestamp, record.key, record.value, record.headers)
            for record in await records_of(bootstrap, topic, partition=partition)
        ]
        for partition in range(partitions)
    ]


def judge(
    config: Config, evidence: Mapping[str, StreamEvidence], source_partitions: Mapping[str, int], *, steps: int
) -> Verdict:
    """Compare what is public with what must be, for the first `steps` steps of every stream."""
    verdict = Verdict()
    by_topic = {stream.source: source_partitions[stream.name] for stream in config.streams}
    specs = source_specs(config, source_partitions=source_partitions, topic_partitions=by_topic)
    for stream in config.streams:
        spec = next(spec for spec in specs[config.read_by(stream)] if spec.stream == stream.name)
        found = evidence[stream.name]
        recomputed = [_ingest(PartitionIngest(spec, partition), records) for partition, records in enumerate(found.raw)]
        stepper = Stepper.from_stream(stream, source_partitions[stream.name])
        for offset, block in enumerate(block for blocks in recomputed for block in blocks):
            stepper.fold(offset, block)
        verdict += _events(recomputed, found.blocks, stream.name, steps)
        verdict += _steps(stepper, found, steps)
        notes = (f"{stream.name}: {found.misrouted} records misrouted",) if found.misrouted else ()
        verdict += Verdict(events_miscounted=found.misrouted, notes=notes)
    return verdict


def answered_again(before: Mapping[str, StreamEvidence], after: Mapping[str, StreamEvidence]) -> Verdict:
    """Compare a cluster that was put back and ran again with what readers saw before: it has no answer of its own."""
    verdict = Verdict()
    for name, old in before.items():
        for channel in CHANNELS:
            public, public_now = (_grouped(views.committed[channel]) for views in (old, after[name]))
            shown, shown_now = (_grouped(views.uncommitted[channel]) for views in (old, after[name]))
            for step, records in shown_now.items():
                one, other = set(shown.get(step, ())), set(records)
                # What was interrupted is a part of what became public; of what was public nothing is to come.
                same = bool(one) and (other <= one or (step not in public and one <= other))
                if step in public and step in public_now:
                    same = same and public[step] == public_now[step]
                if not same:
                    note = f"{name}.{channel}: step {step} was answered again by a cluster that was put back"
                    verdict += Verdict(double=1, notes=(note,))
    return verdict


def _ingest(machine: PartitionIngest, records: Sequence[RawRecord]) -> list[Block]:
    """All records of a partition in as few blocks as fit."""
    blocks: list[Block] = []
    at = 0
    while at < len(records):
        batch = records[at : at + machine.room]
        machine.take(batch)
        at += len(batch)
        block, _ = machine.seal()
        if block is not None:
            blocks.append(block)
            machine.committed(at=len(blocks))
    return blocks


def _events(recomputed: Sequence[Sequence[Block]], blocks: Sequence[Block], stream: str, steps: int) -> Verdict:
    """Events that are elsewhere, or not as often, in the job's blocks than in the recomputed ones; gaps count too."""
    wrong = 0
    next_offsets: Counter[int] = Counter()
    for block in blocks:
        wrong += abs(block.lo - next_offsets[block.partition])
        next_offsets[block.partition] = block.hi
    truth, ours = _by_step([block for part in recomputed for block in part]), _by_step(blocks)
    for step in range(steps):
        left, right = truth.get(step), ours.get(step)
        for one, other, sign in ((left, right, 1), (right, left, -1)):
            if one is None:
                continue
            minus = [] if other is None else [Folded(other.keys, -other.counts)]
            difference = Folded.from_keys(
                np.concatenate([one.keys, *(part.keys for part in minus)]),
                np.concatenate([one.counts, *(part.counts for part in minus)]),
            ).counts
            if sign > 0 or other is None:
                wrong += int(np.abs(difference).sum())
    notes = (f"{stream}: {wrong} events miscounted",) if wrong else ()
    return Verdict(events_miscounted=wrong, notes=notes)


def _by_step(blocks: Sequence[Block]) -> dict[int, Folded]:
    found: dict[int, Folded] = {}
    for block in blocks:
        for step, events in block.steps.items():
            found[step] = found[step].merge(events) if step in found else events
    return found


def _steps(stepper: Stepper, found: StreamEvidence, steps: int) -> Verdict:
    verdict = Verdict(steps=steps)
    name = stepper.stream.name
    committed = {channel: _grouped(views) for channel, views in found.committed.items()}
    uncommitted = {channel: _grouped(views) for channel, views in found.uncommitted.items()}
    for step in range(steps):
        seeds = found.seeds.get(step, set())
        if len(seeds) != 1 or step not in committed["ledger"]:
            verdict += Verdict(lost=1, notes=(f"{name}: step {step} has {len(seeds)} seeds or is not public",))
            if len(seeds) != 1:
                return verdict
        candidate = stepper.compute(next(iter(seeds)))
        expected: dict[Channel, list[tuple[bytes, bytes | None]]] = {channel: [] for channel in CHANNELS}
        for record in unframe_records(candidate.payload):
            expected[record.channel].append((record.key, record.value))
        expected["ledger"].append((b"%d" % step, candidate.ledger))
        for channel in CHANNELS:
            verdict += _compare(expected[channel], committed[channel].get(step, []), f"{name}.{channel}", step)
            strange = set(uncommitted[channel].get(step, [])) - set(expected[channel])
            if strange:
                note = f"{name}.{channel}: step {step} shows other bytes to uncommitted readers"
                verdict += Verdict(bytes_differing=len(strange), notes=(note,))
    for channel, views in found.committed.items():
        order = [view.step for view in views]
        if None in order or order != sorted(order, key=lambda step: step or 0):
            verdict += Verdict(bytes_differing=1, notes=(f"{name}.{channel}: records without a step, or out of order",))
    return verdict


def _compare(
    expected: list[tuple[bytes, bytes | None]], seen: list[tuple[bytes, bytes | None]], where: str, step: int
) -> Verdict:
    if seen == expected:
        return Verdict()
    extra = Counter(seen) - Counter(expected)
    copies = sum(count for record, count in extra.items() if record in set(expected))
    strange = sum(extra.values()) - copies
    missing = sum((Counter(expected) - Counter(seen)).values())
    note = f"{where}: step {step} has {copies} copies, {strange} strange and {missing} missing records"
    if not seen:  # nothing at all: counted as lost by the caller where the ledger lacks it
        return Verdict(bytes_differing=0 if where.endswith(".ledger") else 1, notes=(note,))
    return Verdict(double=min(copies, 1), bytes_differing=strange + missing or int(copies == 0), notes=(note,))


def _grouped(views: Sequence[PublicView]) -> dict[int | None, list[tuple[bytes, bytes | None]]]:
    grouped: dict[int | None, list[tuple[bytes, bytes | None]]] = defaultdict(list)
    for view in views:
        grouped[view.step].append((view.key, view.value))
    return grouped

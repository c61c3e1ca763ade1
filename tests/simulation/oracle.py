"""What must be true of a seed, computed a second time from everything that was ever written.

Safety at any time, whatever went wrong: one seed and one answer for each step, public topics in order, no event routed
or counted twice, nobody above the bound. Liveness once faults have stopped: every step that is over is public. The
streams whose private topics somebody deleted may stop, and must then have released nothing wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from agents.protocol.clock import StepClock
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.route import place_of
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.partitioner import home_partition
from agents.protocol.release.stepper import Stepper
from agents.worker.ingest.specs import source_specs
from engines.core.contract import Columns
from schemas.blocks import Block, Folded
from schemas.config import Stream
from schemas.errors import PrivstreamError
from schemas.events import TICK_HEADER, Tick, read_tick
from schemas.releases import CHANNELS, Channel, Seed, decode_log_record, public_step, unframe_records
from tests.simulation.feed import SOURCE_PARTITIONS, STEP_S
from tests.simulation.log import PartitionLog, Record
from tests.simulation.timeline import EPOCH_S

if TYPE_CHECKING:
    from tests.simulation.broker import Broker
    from tests.simulation.world import World

DEAD = "dead to its probe"
"""How a worker ends that a supervisor would restart: only where something in it is frozen."""
BY_CLOCK = -1
"""In place of a step, where the place of its ticks is known to the job alone."""
NOTICED_S = 300.0  # from the end of a step and its grace to its publication, where all is well


Shown = dict[tuple[str, int], dict[str, set[tuple[bytes | None, bytes | None]]]]
"""(stream, step) -> channel -> keys and values that readers of uncommitted records were shown."""


def shown(broker: Broker) -> Shown:
    """What is on the public topics."""
    found: Shown = {}
    for (topic, _), log in broker.logs.items():
        stream, _, channel = topic.rpartition(".")
        if channel in CHANNELS:
            for record in log.records(committed=False):
                if (step := public_step(record.headers)) is not None:
                    channels = found.setdefault((stream, step), {each: set() for each in CHANNELS})
                    channels[channel].add((record.key, record.value))
    return found


def two_answers(histories: Sequence[Shown]) -> Iterator[str]:
    """In all histories that a cluster had, a step has one answer: the ledger's words of it are the same, and where one
    history has its ledger entry, and so all of it, no other shows a record that is not in it.
    """
    for stream, step in sorted({place for history in histories for place in history}):
        versions = [history[stream, step] for history in histories if (stream, step) in history]
        whole = [version for version in versions if version["ledger"]]
        if len({record for version in versions for record in version["ledger"]}) > 1:
            yield f"{stream}: step {step} has several answers"
        elif whole and any(version[channel] - whole[0][channel] for version in versions for channel in CHANNELS):
            yield f"{stream}: of step {step} records were shown that are not in its answer"


def violations(world: World) -> list[str]:
    """One line for each promise that is broken; empty where all are kept. Where the cluster was put back, streams may
    stop at any place, and only what was shown is judged.
    """
    found: list[str] = []
    if world.observed.abandoned:
        return list(two_answers([*world.observed.abandoned, shown(world.broker)]))
    for stream in world.config.streams:
        found += [f"{stream.name}: {what}" for what in _of_stream(world, stream)]
    return found + [told for told in world.observed.refusals if told.startswith(DEAD)]


def _of_stream(world: World, stream: Stream) -> Iterator[str]:
    logs, home = world.broker.logs, home_partition(stream.name, world.config.kafka.partitions)
    specs = source_specs(
        world.config,
        source_partitions=dict.fromkeys([s.name for s in world.config.streams], SOURCE_PARTITIONS),
        topic_partitions=world.broker.partitions,
    )
    read = world.config.read_by(stream)
    spec = next(spec for spec in specs[read] if spec.stream == stream.name)
    sources, copies = (
        [logs[topic, partition] for partition in range(world.broker.partitions[topic])]
        for topic in (stream.source, read)
    )
    blocks = [
        block
        for record in logs["sim.blocks", home].records(committed=True)
        if (block := Block.decode(record.value or b"")).stream == stream.name
    ]
    seeds: dict[int, set[bytes]] = {}
    for record in logs["sim.releases", home].records(committed=True):
        entry = decode_log_record(record.value or b"")
        if isinstance(entry, Seed) and entry.stream == stream.name:
            seeds.setdefault(entry.step, set()).add(entry.seed)
    yield from _blocks(blocks, len(copies))
    yield from _events(spec, copies, blocks, below=_steps_of_history(stream, sources))
    if stream.counts_pairs:
        yield from _pairs(stream, spec, copies, blocks)
    if stream.routed:
        yield from _routed(stream, sources, copies, whole=not world.observed.forbidden)
    if stream.time.clock == "replay":
        yield from _replayed(world, stream, sources)
    for step, drawn in seeds.items():
        if len(drawn) != 1:
            yield f"step {step} has {len(drawn)} seeds on the log"
    for (name, step), used in world.observed.computed.items():
        if name == stream.name and not used <= seeds.get(step, set()):
            yield f"step {step} was computed with a seed that is not its committed one"
    yield from _public(world, stream, blocks, seeds, len(copies))


def _blocks(blocks: Sequence[Block], partitions: int) -> Iterator[str]:
    """Blocks cover the source offsets of each partition once."""
    ends, ticks = [0] * partitions, [-1] * partitions
    for block in blocks:
        if block.lo != ends[block.partition]:
            yield f"source partition {block.partition}: a block from {block.lo}, where {ends[block.partition]} is next"
        if block.tick < ticks[block.partition] or any(step <= ticks[block.partition] for step in block.steps):
            yield f"source partition {block.partition}: a block reopens a closed step"
        ends[block.partition], ticks[block.partition] = block.hi, block.tick


def _is_of(stream: Stream, event: dict[str, Any]) -> bool:
    """Whether an event is of this stream where it is a part of a split; the first part has those of none, too."""
    part = stream.part
    return part is None or part.number == next(
        (at for at, its in enumerate(part.parts.values()) if event["what"] in its), 0
    )


def _counts_in(stream: Stream, event: dict[str, Any]) -> bool:
    """Whether an event is one of this stream's: one of no part is refused by the first."""
    return stream.part is None or event["what"] in stream.part.values


def _routed(
    stream: Stream, sources: Sequence[PartitionLog], copies: Sequence[PartitionLog], *, whole: bool
) -> Iterator[str]:
    """Up to one place in each source partition each record of the stream has been copied once, in order, to the
    partition of its user, and a tick to all; at the end all are, if `whole`.
    """
    ours: list[dict[int, list[tuple[int, bytes | None]]]] = []
    for log in copies:
        of_source: dict[int, list[tuple[int, bytes | None]]] = {partition: [] for partition in range(len(sources))}
        for record in log.records(committed=True):
            partition, offset = place_of(record.headers) or (-1, -1)
            of_source.setdefault(partition, []).append((offset, record.value))
        ours.append(of_source)
    for partition, log in enumerate(sources):
        reach = 1 + max((offset for found in ours for offset, _ in found[partition]), default=-1)
        truth: list[list[tuple[int, bytes | None]]] = [[] for _ in copies]
        for record in log.records(committed=True):
            if record.offset < (log.end if whole else reach):
                event = None if _tick(record) else orjson.loads(record.value or b"")
                if event is not None and not _is_of(stream, event):
                    continue
                home = None if event is None else home_partition(event["user"], len(copies))
                if event is not None and not _counts_in(stream, event):
                    home = record.offset % len(copies)  # what is refused is anywhere
                for each in truth if home is None else (truth[home],):
                    each.append((record.offset, record.value))
        if [found[partition] for found in ours] != truth:
            counts = [[len(each) for each in copied] for copied in ([found[partition] for found in ours], truth)]
            yield f"source partition {partition}: copies by partition {counts[0]}, where {counts[1]} are right"
    if any(found.keys() != set(range(len(sources))) for found in ours):
        yield "there are copies of no record of the source"


def _events(
    spec: SourceSpec, sources: Sequence[PartitionLog], blocks: Sequence[Block], *, below: float
) -> Iterator[str]:
    """Accepted events are those that one calm ingest accepts; those of steps `below` each in its own step.

    Under a wall clock the place of a tick is known to the job alone, so the steps of late events are free, and the
    bound, which is one for the whole stream here, does not depend on them.
    """
    truth: dict[int, Folded] = {}
    ours: dict[int, Folded] = {}
    for partition, log in enumerate(sources):
        done = max((block.hi for block in blocks if block.partition == partition), default=0)
        records = [record for record in log.records(committed=True) if record.offset < done]
        for block in _calm(spec, partition, records):
            _add(truth, block, below=below)
    for block in blocks:
        _add(ours, block, below=below)
    for step in truth.keys() | ours.keys():
        expected, got = _counts(truth.get(step)), _counts(ours.get(step))
        lost, extra = sum((expected - got).values()), sum((got - expected).values())
        if lost or extra:
            where = "all steps by the clock" if step == BY_CLOCK else f"step {step}"
            yield f"{where}: {lost} events lost, {extra} counted too often"


def _pairs(stream: Stream, spec: SourceSpec, sources: Sequence[PartitionLog], blocks: Sequence[Block]) -> Iterator[str]:
    """Of each user the first pairs count, up to the bound, each of them once: by hand, from the raw records."""
    assert spec.bounds is not None
    truth: Counter[str] = Counter()
    for partition, log in enumerate(sources):
        done = max((block.hi for block in blocks if block.partition == partition), default=0)
        of_user: dict[str, set[str]] = {}
        for record in log.records(committed=True):
            event = None if _tick(record) or record.offset >= done else orjson.loads(record.value or b"")
            if event and _counts_in(stream, event) and home_partition(event["user"], len(sources)) == partition:
                mine = of_user.setdefault(event["user"], set())
                if event["what"] not in mine and len(mine) < spec.bounds.max_contributions:
                    mine.add(event["what"])
                    truth[event["what"]] += 1
    names = sorted(truth)
    encoded, _ = spec.domain.encode(Columns({}, {}, np.ones(len(names), np.int8), {"what": names}))
    ours = sum((_counts(events) for block in blocks for events in block.steps.values()), Counter[bytes]())
    if ours != Counter({key.tobytes(): truth[name] for key, name in zip(encoded, names, strict=True)}):
        yield f"keys have {sum(ours.values())} people in all, where {sum(truth.values())} are right"


def _calm(spec: SourceSpec, partition: int, records: Sequence[Record]) -> Iterator[Block]:
    machine = PartitionIngest(spec, partition)
    at = 0
    while at < len(records):
        batch = records[at : at + machine.room]
        if not spec.replay:  # a wall clock closes every step at its end, as far as arrivals tell
            over = spec.clock.last_over(batch[0].timestamp * 1000, grace_us=0) - 2
            machine.tick(over)
            batch = batch[:1]
        machine.take(batch)
        at += len(batch)
        block, _ = machine.seal()
        if block is not None:
            yield block
            machine.committed(at=at)


def _steps_of_history(stream: Stream, sources: Sequence[PartitionLog]) -> float:
    """The first step whose events nobody but the job can tell: none of a replay, all of a stream by the wall clock."""
    if stream.time.clock == "wall":
        return 0
    ticks = [tick for log in sources for record in log.records(committed=True) if (tick := _tick(record)) is not None]
    return min((tick.live_from for tick in ticks if tick.live_from is not None), default=float("inf"))


def _tick(record: Record) -> Tick | None:
    values = [value for name, value in record.headers if name == TICK_HEADER]
    return read_tick(values[-1] or b"") if values else None


def _add(steps: dict[int, Folded], block: Block, *, below: float) -> None:
    for step, events in block.steps.items():
        place = step if step < below else BY_CLOCK
        steps[place] = steps[place].merge(events) if place in steps else events


def _counts(folded: Folded | None) -> Counter[bytes]:
    if folded is None:
        return Counter()
    return Counter({key.tobytes(): int(count) for key, count in zip(folded.keys, folded.counts, strict=True)})


def _replayed(world: World, stream: Stream, sources: Sequence[PartitionLog]) -> Iterator[str]:
    """Each row of the file is in the source topic once, and the topic goes live behind it, or does not."""
    live = stream.name.startswith("live")
    path = world.folder / f"{stream.whole}.jsonl"
    rows = Counter(orjson.dumps(orjson.loads(line)) for line in path.read_bytes().splitlines())
    sent = Counter(
        record.value or b""
        for log in sources
        for record in log.records(committed=True)
        if _tick(record) is None and not (live and orjson.loads(record.value or b"")["at"] >= EPOCH_S)
    )
    if sent - rows:
        yield f"{sum((sent - rows).values())} rows were replayed twice"
    if rows - sent and not world.observed.forbidden:
        yield f"{sum((rows - sent).values())} rows were not replayed"
    went = [[tick.live_from for record in log.records(committed=True) if (tick := _tick(record))] for log in sources]
    begins = [[begin for begin in found if begin is not None] for found in went]
    if any(found != begins[0] for found in begins) or len(set(begins[0])) > 1 or bool(begins[0]) > live:
        yield f"the source goes live at {begins}"
    if live and not begins[0] and not world.observed.forbidden:
        yield "the source has not gone live"
    if any(
        found[found.index(begin) :].count(None) for found, begin in zip(went, (b[0] for b in begins if b), strict=False)
    ):
        yield "there is a tick behind the record with which the source goes live"


def _public(
    world: World, stream: Stream, blocks: Sequence[Block], seeds: dict[int, set[bytes]], partitions: int
) -> Iterator[str]:
    logs = {channel: world.broker.logs[f"{stream.name}.{channel}", 0] for channel in CHANNELS}
    committed = {channel: list(log.records(committed=True)) for channel, log in logs.items()}
    ledger = [int(record.key or b"-1") for record in committed["ledger"]]
    if ledger != list(range(len(ledger))):
        yield f"the ledger shows steps {ledger[-8:]} at its end"
    if len(ledger) < (due := _due(world, stream)) and not world.observed.forbidden:
        why = Counter(world.observed.refusals).most_common(2)
        yield f"stuck: {len(ledger)} steps are public and {due} are due; workers ended with {why}"
    stepper = Stepper.from_stream(stream, partitions)
    waiting = iter(enumerate(blocks))
    expected: dict[Channel, list[tuple[int, bytes | None, bytes | None]]] = {channel: [] for channel in CHANNELS}
    for step in range(max(ledger, default=-1) + 1):
        try:
            while not stepper.closable and (block := next(waiting, None)) is not None:
                stepper.fold(*block)
            if not stepper.closable or len(seeds.get(step, ())) != 1:
                yield f"step {step} is public, without its blocks or its seed"
                return
            candidate = Stepper.compute(stepper, next(iter(seeds[step])))
        except PrivstreamError as error:
            yield f"step {step} cannot be computed again: {error}"
            return
        for public in unframe_records(candidate.payload):
            expected[public.channel].append((step, public.key, public.value))
        expected["ledger"].append((step, b"%d" % step, candidate.ledger))
    for channel in CHANNELS:
        seen = [(public_step(record.headers), record.key, record.value) for record in committed[channel]]
        if seen != expected[channel]:
            right = len(expected[channel])
            yield f"{channel}: {len(seen)} public records are not the {right} that blocks and seeds give"
        known = {(step, key, value) for step, key, value in expected[channel]}
        for record in logs[channel].records(committed=False):
            shown = (public_step(record.headers), record.key, record.value)
            if shown[0] is not None and shown[0] < len(ledger) and shown not in known:
                yield f"{channel}: step {shown[0]} shows other bytes to uncommitted readers"
                break


def _due(world: World, stream: Stream) -> int:
    """Steps that must be public by the end."""
    if stream.time.clock == "replay" and not stream.name.startswith("live"):
        last = orjson.loads((world.folder / f"{stream.whole}.jsonl").read_bytes().splitlines()[-1])
        at = np.array([last["at"]], np.int64) * 1_000_000
        return int(StepClock.from_stream(stream).step_of(at)[0]) + 1
    grace_s = (stream.time.grace_us + stream.publish_delay_us) / 1e6
    before_s = EPOCH_S - StepClock.from_stream(stream).start_of(0) / 1e6
    return int((world.end_s + before_s - grace_s - NOTICED_S) // STEP_S)

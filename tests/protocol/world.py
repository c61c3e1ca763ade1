"""A Kafka of the mind: logs with fencing, a state table with its changelog, public topics, and processes that can die
between any two effects.

The end of a transaction can come late, twice, or after a successor's; its sender is then without an answer.

It does to the state machines what brokers and kernels do to the real job, thousands of times a second. `planted`
names a fault to build in, so that the invariants can be seen to catch it.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Generator, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from agents.protocol.release.candidates import (
    ENOUGH_BYTES,
    Adopted,
    CommitCandidates,
    CommitSeeds,
    Compute,
    StreamCandidates,
)
from agents.protocol.release.merge import BlockMerge
from agents.protocol.release.publisher import Publication, StreamPublisher
from agents.protocol.release.stepper import Stepper
from engines.core.contract import Batch, Release, State
from engines.core.noise import NoiseSource
from schemas.blocks import Block, Folded
from schemas.guarantee import Guarantee
from schemas.releases import LogRecord, PublicRecord, SavedState, Seed, decode_log_record, frame_records

STREAM = "toy"
PARTITIONS = 2
TOGETHER = 2  # steps that a publisher makes public at once, where so many wait


class FencedError(Exception):
    """A newer producer with the same transactional id exists."""


class UnansweredError(Exception):
    """The end of a transaction was sent, and nobody can say whether it arrived."""


class ToyEngine:
    """Publishes the noisy number of events of a step; remembers the running sum, so that a lost or repeated step
    shows.
    """

    def __init__(self) -> None:
        self.total = 0

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        self.total += batch.events.total
        shift = int(noise.child("toy").words(1)[0] % 1000)
        measurement = {"count": batch.events.total + shift, "running": self.total + shift}
        return Release(batch.step, [], [f"id-{batch.step}"], [measurement], 0)

    def state(self) -> State:
        return {"total": np.array([self.total])}

    def restore(self, state: State) -> None:
        self.total = int(state["total"][0])

    def guarantee(self) -> Guarantee:
        from fractions import Fraction

        return Guarantee(epsilon=Fraction(1), mechanisms=())


def toy_stepper() -> Stepper:
    stream: Any = SimpleNamespace(
        name=STREAM,
        engine="toy",
        mode="default",
        contributions=1,
        privacy=SimpleNamespace(unit="event", max_contributions=None, per=None, per_us=None),
        period_steps=None,
        time=SimpleNamespace(field="at", format="s", timezone="UTC"),
        record_times=None,
    )
    clock: Any = SimpleNamespace(start_of=lambda step: step * 10**6, end_of=lambda step: (step + 1) * 10**6)
    return Stepper(stream, ToyEngine(), BlockMerge(STREAM, PARTITIONS, 1), clock)


class Log:
    """One partition of a topic with transactions: offsets jump over a marker after each, and a stale epoch cannot
    commit. One transaction is open at a time; `late` holds the epochs of ends that are still under way.
    """

    def __init__(self) -> None:
        self.records: list[tuple[int, Any]] = []
        self.end = 0
        self.start = 0
        self.epoch = 0
        self.open: list[Any] = []
        self.late: list[int] = []

    def fence(self) -> int:
        self.open = []
        self.epoch += 1
        return self.epoch

    def append(self, epoch: int, records: list[Any]) -> None:
        if epoch != self.epoch:
            raise FencedError
        self.open += records

    def finish(self, epoch: int) -> None:
        """The end of a transaction arrives. Of one that is over already it changes nothing."""
        if epoch != self.epoch:
            raise FencedError
        for record in self.open:
            self.records.append((self.end, record))
            self.end += 1
        self.end += bool(self.open)
        self.open = []

    def commit(self, epoch: int, records: list[Any]) -> None:
        self.append(epoch, records)
        self.finish(epoch)

    def deliver(self) -> None:
        """The oldest end that is under way arrives; nobody waits for its answer any more."""
        if self.late and self.late.pop(0) == self.epoch:
            self.finish(self.epoch)

    def read(self, position: int = 0) -> list[tuple[int, Any]]:
        return [(offset, record) for offset, record in self.records if offset >= max(position, self.start)]

    def trim(self, below: int) -> None:
        self.start = max(self.start, below)


class World:
    def __init__(self, planted: str = "", chunk_bytes: int = 300, enough_bytes: int = ENOUGH_BYTES) -> None:
        self.planted = planted
        self.chunk_bytes = chunk_bytes
        self.enough_bytes = enough_bytes
        self.blocks = Log()
        self.blocks.fence()
        self.releases = Log()
        self.public = Log()
        self.table: SavedState | None = None
        self.stored = -1  # offset up to which the table has its changelog
        self.next_offsets = [0] * PARTITIONS
        self.ticks = [-1] * PARTITIONS
        self.truth: dict[int, int] = defaultdict(int)
        # What read_uncommitted consumers may have seen: of each step, channel and key the values.
        self.seen: dict[tuple[int, str, bytes], set[bytes | None]] = defaultdict(set)
        self.seeds_drawn = 0

    def ingest(self, partition: int, events: dict[int, int], ticks: int) -> None:
        """A block of `partition`: `events` maps a distance from the open step to a number of events."""
        tick = self.ticks[partition]
        steps: dict[int, Folded] = {}
        for ahead, count in events.items():
            step = tick + 1 + ahead
            steps[step] = Folded.from_keys(np.full((count, 1), 7, np.uint64))
            self.truth[step] += count
        lo = self.next_offsets[partition]
        hi = lo + 1 + sum(events.values())
        tick += ticks
        late = {step for step in steps if step <= tick - ticks}
        assert not late
        block = Block(STREAM, partition, lo, hi, tick, steps)
        self.next_offsets[partition], self.ticks[partition] = hi, tick
        self.blocks.commit(self.blocks.epoch, [block.encode()])

    @property
    def closed_steps(self) -> int:
        return min(self.ticks) + 1

    def draw_seed(self) -> bytes:
        self.seeds_drawn += 1
        return hashlib.sha256(b"%d" % self.seeds_drawn).digest()

    def finish(self, log: Log, epoch: int, network: str) -> None:
        """End a transaction over a network that holds this request, or answers it too late and brings it twice."""
        if network != "held":
            log.finish(epoch)
        if network:
            log.late.append(epoch)
            if self.planted != "retry with the same epoch":
                raise UnansweredError
            log.finish(epoch)

    def log_records(self, position: int = 0, *, deleted: bool = False) -> Iterator[tuple[int, LogRecord]]:
        """Of the release log; with those that were `deleted`, for who checks."""
        for offset, data in self.releases.records if deleted else self.releases.read(position):
            if isinstance(data, bytes):
                yield offset, decode_log_record(data)

    def changelog(self) -> Iterator[tuple[int, SavedState]]:
        """Committed states. They stand among the records of the release log, since their transactions are the same; the
        changelog is not trimmed.
        """
        for offset, data in self.releases.records:
            if isinstance(data, SavedState):
                yield offset, data

    def store(self, state: SavedState, offset: int) -> None:
        """Write the table. Unfenced on purpose: a zombie can do this too."""
        self.table, self.stored = state, offset

    def catch_up(self, *, anew: bool = False) -> None:
        """What `DurableTable.catch_up` does."""
        begin = -1 if anew else self.stored
        for offset, state in self.changelog():
            if offset > begin:
                self.store(state, offset)

    def trim(self) -> None:
        """What `agents.worker.trimming` does: below what is published, sparing the newest candidate."""
        settled = self.last_public
        for offset, record in self.log_records():
            if record.step == settled:
                self.releases.trim(offset)
                return

    @property
    def last_public(self) -> int:
        steps = [step for _, (step, record) in self.public.read() if record.channel == "ledger"]
        return max(steps, default=-1)

    def publications(self) -> dict[int, list[list[PublicRecord]]]:
        """Committed publications by step. A record that is there already begins another one."""
        out: dict[int, list[list[PublicRecord]]] = defaultdict(lambda: [[]])
        for _, (step, record) in self.public.read():
            if record in out[step][-1]:
                out[step].append([])
            out[step][-1].append(record)
        return out

    def answers(self) -> dict[int, list[bytes]]:
        """The same as bytes."""
        return {step: [frame_records(each) for each in copies] for step, copies in self.publications().items()}


class EngineProcess:
    """A worker's engine machine. `act` performs the pending effect; dropping the object at any time is a crash."""

    def __init__(self, world: World) -> None:
        self.world = world
        kept = world.releases.epoch if world.planted == "no fencing" else 0
        self.epoch = kept or world.releases.fence()
        self.machine = StreamCandidates(toy_stepper(), chunk_bytes=world.chunk_bytes, enough_bytes=world.enough_bytes)
        log = [] if world.planted == "log not read" else list(world.log_records())
        if world.planted == "seed not reused":
            log = [(offset, record) for offset, record in log if not isinstance(record, Seed)]
        if world.planted == "seed of a bulk not reused":
            answered = max((offset for offset, record in log if not isinstance(record, Seed)), default=-1)
            log = [(offset, record) for offset, record in log if offset > answered or not isinstance(record, Seed)]
        trimmed = world.releases.start > 0
        self.machine.read(log)
        if world.planted != "older state used":
            world.catch_up()
            if self.machine.lacks(world.table):
                world.catch_up(anew=True)
        saved = self._unpinned() if world.planted.endswith("state used") else world.table
        self.effects: Generator[Any, Any, None] | None = self.machine.recover(saved, log_is_trimmed=trimmed)
        self.unstored: tuple[SavedState, int] | None = None
        self.effect: Any = None
        self.sent = 0  # records of the present effect
        self._send(None)
        self.running = self.effects is None

    def _unpinned(self) -> SavedState | None:
        """Whatever the table holds passes for the state that the newest candidate names."""
        view, saved = self.machine._view, self.world.table
        if view.newest is None or saved is None:
            return saved if view.newest is not None else None
        candidate = view.newest = replace(view.newest, state_digest=saved.digest)
        view._states[candidate.step] = saved.digest
        return saved._replace(step=candidate.step)

    def _send(self, result: Any) -> None:
        assert self.effects is not None
        try:
            self.effect = self.effects.send(result)
        except StopIteration:
            self.effects, self.effect = None, None

    def act(self, *, crash: bool = False, network: str = "") -> None:
        """One effect, or one block when none is pending; of a commit of several records the last one is an effect of
        its own. With `crash` the effect happens and its result is never seen.
        """
        world = self.world
        if self.effects is None:
            self._read_block()
            return
        if self.unstored is not None:  # of a transaction that is committed
            if world.planted == "state outside of the transaction":
                self._commit([self.unstored[0]], network)
            world.store(*self.unstored)
            self.unstored = None
            self._send(None)
            return
        if isinstance(self.effect, CommitCandidates) and not self.sent:
            records: list[Any] = [chunk.encode() for chunk in self.effect.chunks]
            state = SavedState(self.effect.steps[-1], self.effect.state.digest, self.effect.state.body)
            if world.planted != "state outside of the transaction":
                records.append(state)
            if world.planted in ("state stored before its commit", "aborted state used"):
                world.store(state, world.releases.end + len(records))
            self.last = records.pop()
            if records:
                self.sent = len(records)
                world.releases.append(self.epoch, records)
                return
        try:
            result = self._perform(self.effect, network)
        except ArithmeticError as error:  # of the toy
            self.effect = self.effects.throw(error)
            return
        self.sent = 0
        if crash:
            self.effects = None
            return
        if isinstance(self.effect, CommitCandidates):
            committed = SavedState(self.effect.steps[-1], self.effect.state.digest, self.effect.state.body)
            self.unstored = committed, world.releases.end - 2  # in front of the mark of its transaction
            return
        self._send(result)

    def _read_block(self) -> None:
        waiting = self.world.blocks.read(self.machine.position)
        if waiting:
            offset, data = waiting[0]
            self.machine.fold(offset, Block.decode(data))
        self.effects = self.machine.advance()
        self._send(None)

    def _perform(self, effect: Any, network: str) -> Any:
        world = self.world
        match effect:
            case CommitSeeds():
                seeds = [world.draw_seed() for _ in effect.steps]
                drawn = zip(effect.steps, seeds, strict=True)
                self._commit([Seed(effect.stream, step, seed).encode() for step, seed in drawn], network)
                return seeds
            case Compute():
                return effect.work()
            case CommitCandidates():
                assert effect.position == self.machine.position
                self._commit([self.last], network)
            case Adopted():
                pass
        return None

    def _commit(self, records: list[Any], network: str) -> None:
        self.world.releases.append(self.epoch, records)
        self.world.finish(self.world.releases, self.epoch, network)


class PublisherProcess:
    def __init__(self, world: World) -> None:
        self.world = world
        self.epoch = world.public.fence()
        self.publisher = StreamPublisher(STREAM)
        if world.planted != "ledger not read":
            public = [each for _, each in world.public.read()]
            self.publisher.recover(record.value for _, record in public if record.channel == "ledger")
            for step, record in public:
                self.publisher.check_end(record.channel, step)
        self.position = 0
        self.due: list[Publication] = []
        self.sent = False  # all but the ledger records

    def act(self, *, crash: bool = False, network: str = "") -> None:
        """Read on to the next steps that are due; send their data; send their ledger records and end the transaction.

        Versions that repeated an end had one step in a transaction.
        """
        together = 1 if self.world.planted == "retry with the same epoch" else TOGETHER
        if not self.due:
            for offset, record in self.world.log_records(self.position):
                self.position = offset + 1
                if publication := self.publisher.on_record(offset, record):
                    self.due.append(publication)
                if len(self.due) == together:
                    break
            return
        records = [(each.step, record) for each in self.due for record in each.records]
        if not self.sent:
            self.see()
            self.world.public.append(self.epoch, [each for each in records if each[1].channel != "ledger"])
            self.sent = True
            return
        self.world.public.append(self.epoch, [each for each in records if each[1].channel == "ledger"])
        self.world.finish(self.world.public, self.epoch, network)
        if crash:
            return
        for each in self.due:
            self.publisher.published(each.step)
        self.due, self.sent = [], False

    def die_half_way(self) -> None:
        """Some records of the open transaction have reached read_uncommitted consumers."""
        self.see()

    def see(self) -> None:
        for each in self.due:
            for record in each.records:
                self.world.seen[each.step, record.channel, record.key].add(record.value)


def golden(world: World) -> dict[int, bytes]:
    """The answers by one process that never crashed, with the seeds that the world committed."""
    seeds = {r.step: r.seed for _, r in world.log_records(deleted=True) if isinstance(r, Seed)}
    stepper = toy_stepper()
    out: dict[int, bytes] = {}
    for offset, data in world.blocks.read():
        stepper.fold(offset, Block.decode(data))
        while stepper.closable and stepper.step in seeds:
            candidate = stepper.compute(seeds[stepper.step])
            ledger = PublicRecord("ledger", b"%d" % candidate.step, candidate.ledger)
            out[candidate.step] = candidate.payload + frame_records([ledger])
    return out

"""One coupled pair of runs, from raw records to what the publisher copies."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import orjson

from agents.local.coupling.adversary import Choosing
from agents.local.coupling.claims import Claim
from agents.local.coupling.declared import check_declared
from agents.local.coupling.inputs import Unit, inputs
from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.spec import SourceSpec
from agents.protocol.release.publisher import StreamPublisher
from agents.protocol.release.stepper import Stepper
from engines.checks.coupling import CouplingBroken, Forced, Losses, OutputAdversary, Recorder, guarded_run
from engines.core.contract import Batch, Engine, Release
from engines.core.noise import NoiseSource
from engines.core.noise.private import PrivateValueRead
from engines.core.noise.witness import Witness, WitnessedSource
from engines.core.registry import build_domain, build_engine
from schemas.blocks import Block
from schemas.config import Stream
from schemas.errors import PrivstreamError
from schemas.releases import Candidate, Chunk, PublicRecord, Seed, cut

STEPS = 44
"""More than the 32 that any horizon, epoch or block of the small streams lasts."""
CROWD = 240
KEY = bytes(range(16))
SEED = b"%32d"
"""Of a step."""
RESTARTS = 0.1
"""Of workers: how often after a step, or a piece of records."""


@dataclass(slots=True)
class Verdict:
    """What a coupled pair showed.

    Attributes:
        setting, seed: run it again by them. broken: what differs or costs too much; empty: nothing.
        share: of the claim that was used. touched: mechanisms that saw a difference.
        events: public things that happened, such as bursts, by the notes of the ledger.
    """

    setting: str
    seed: int
    broken: list[str] = field(default_factory=list)
    share: float = 0.0
    touched: dict[str, int] = field(default_factory=dict)
    events: Counter[str] = field(default_factory=Counter)


def couple(
    name: str,
    stream: Stream,
    seed: int,
    *,
    steps: int = STEPS,
    crowd: int = CROWD,
    sealing: bool = True,
    unit: Unit | None = None,
    adversary: OutputAdversary | None = None,
) -> Verdict:
    """Run neighbouring inputs, drawn by `seed`; the second is forced through what the first one released.

    The unit is removed, added or replaced: by chance the first run has it, or the second. `sealing`: the engine also
    runs once on sealed events, which finds what reads a private value, and cannot find noise that is too small.

    Args:
        unit: as of `inputs`. adversary: of the first run, which then has the unit; None: by chance, as the unit is.
    """
    chance = random.Random(f"{name}/{seed}")
    drawn = inputs(stream, chance, steps=steps, crowd=crowd, unit=unit)
    sides = [drawn.first, drawn.second]
    verdict = Verdict(name, seed)
    if adversary is None:
        # With the unit first, or without: what only a unit that is ADDED does to the second run shows in the latter.
        random.Random(f"sides of {name}/{seed}").shuffle(sides)
        adversary = Choosing(chance) if chance.random() < 0.5 else OutputAdversary()
    recorder = Recorder(adversary)
    forced = Forced(recorder)
    first: list[tuple[PublicRecord, ...]] = []
    try:
        job = JobRun(stream, sides[0], recorder, random.Random(seed), passive=type(adversary) is OutputAdversary)
        first = list(job.releases())
        recorder.check_words()
        check_declared(build_engine(stream).guarantee(), recorder)
        if sealing:
            make = partial(build_engine, stream)
            guarded_run(make, job.batches, lambda step: NoiseSource(SEED % step, "guarded", step))
        for step, (expected, found) in enumerate(
            zip(first, JobRun(stream, sides[1], forced, random.Random(seed + 1)).releases(), strict=True)
        ):
            forced.check_complete(step)
            _compare(step, expected, found)
            _check_account(step, expected, Claim.of(stream), forced)
    except (CouplingBroken, PrivateValueRead) as broken:
        verdict.broken.append(str(broken))
    except PrivstreamError as stopped:
        # Loud, so nothing private left; but no input may stop a stream.
        verdict.broken.append(f"{type(stopped).__name__}: {stopped}")
    verdict.events = _events(first)
    losses = Losses.of(forced.pairs)
    claim = Claim.of(stream)
    verdict.share, verdict.touched = claim.share(losses), dict(losses.touched)
    if not claim.holds(losses):
        verdict.broken.append(f"one unit costs {verdict.share:.6f} of what is claimed ({drawn.arrangement})")
    return verdict


def _events(releases: list[tuple[PublicRecord, ...]]) -> Counter[str]:
    found: Counter[str] = Counter()
    leaves = None
    for records in releases:
        entry = orjson.loads(records[-1].value or b"")
        notes = entry["notes"]
        found["gathered"] += entry["gathered"]
        found["over"] += "over" in notes
        found["burst"] += notes.get("hot", 0) > 0
        found["divided"] += leaves is not None and notes.get("leaves", 0) > leaves
        found["merged"] += leaves is not None and notes.get("leaves", 0) < leaves
        leaves = notes.get("leaves")
    return found


def _compare(step: int, expected: tuple[PublicRecord, ...], found: tuple[PublicRecord, ...]) -> None:
    if expected == found:
        return
    at = next(
        (index for index, (one, other) in enumerate(zip(expected, found, strict=False)) if one != other),
        min(len(expected), len(found)),
    )
    channels = {records[at].channel for records in (expected, found) if at < len(records)}
    raise CouplingBroken(f"step {step}: public record {at} differs ({', '.join(sorted(channels))})")


def _check_account(step: int, records: tuple[PublicRecord, ...], claim: Claim, forced: Forced) -> None:
    """Once all is spent, no step costs more than the ledger says: what is spent then is compared at the end."""
    spent = orjson.loads(records[-1].value or b"")["epsilon_spent"]
    if spent < claim.epsilon and not claim.covers(Losses.of(forced.pairs), spent):
        raise CouplingBroken(f"step {step}: one unit has cost more than the ledger says is spent, {spent:g}")


class Watched:
    """An engine whose batches are noted, so that they can be run again sealed."""

    def __init__(self, engine: Engine, batches: list[Batch]) -> None:
        self._engine, self._batches = engine, batches
        self.state, self.restore, self.guarantee = engine.state, engine.restore, engine.guarantee

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        self._batches.append(batch)
        return self._engine.step(batch, noise)


class JobRun:
    """Ingest of each partition, stepper and publisher of one run, whose workers crash and take over now and then."""

    def __init__(
        self,
        stream: Stream,
        records: list[list[RawRecord]],
        witness: Witness,
        chance: random.Random,
        *,
        passive: bool = False,
    ) -> None:
        """`passive`: mechanisms give what they draw, so that a step can be computed again."""
        self._passive = passive
        self.candidate: Candidate | None = None
        """Of the last step."""
        self._stream, self._records, self._chance = stream, records, chance
        self._spec = SourceSpec.of(stream, build_domain(stream), key=KEY, partitions=len(records), rows=True)
        self._machines = [PartitionIngest(self._spec, partition) for partition in range(len(records))]
        self.batches: list[Batch] = []
        self._stepper, self._publisher = self._new_stepper(), StreamPublisher(stream.name)
        self._expand = partial(WitnessedSource, witness)
        self.blocks: list[Block] = []
        """All that ingest committed."""
        self._log_offset = 0

    def releases(self) -> Iterator[tuple[PublicRecord, ...]]:
        """Yield what the publisher copies for each step. Blocks are cut anywhere."""
        positions = [0] * len(self._records)
        while any(position < len(rows) for position, rows in zip(positions, self._records, strict=True)):
            for partition, rows in enumerate(self._records):
                if self._chance.random() < RESTARTS:
                    self._machines[partition] = self._taken_over(partition)
                piece = rows[positions[partition] : positions[partition] + self._chance.choice([1, 20, 300])]
                positions[partition] += len(piece)
                self._machines[partition].take(piece)
                self._seal(partition)
            while self._stepper.closable:
                yield self._answer()

    def _taken_over(self, partition: int) -> PartitionIngest:
        """Return a new worker's machine, made of the committed blocks alone."""
        machine = PartitionIngest(self._spec, partition)
        for offset, block in enumerate(self.blocks):
            if block.partition == partition:
                machine.apply(block, at=offset)
        return machine

    def _new_stepper(self) -> Stepper:
        stepper = Stepper.of(self._stream, len(self._records))
        stepper.engine = Watched(stepper.engine, self.batches)
        return stepper

    def _seal(self, partition: int) -> None:
        block, _ = self._machines[partition].seal()
        if block is not None:
            offset = len(self.blocks)
            self._machines[partition].committed(at=offset)
            self.blocks.append(Block.decode(block.encode()))
            self._stepper.fold(offset, block)

    def _answer(self) -> tuple[PublicRecord, ...]:
        step = self._stepper.step
        seed = SEED % step
        candidate = self._stepper.compute(seed, expand=self._expand)
        records = self._published(candidate, seed)
        if self._passive and self.candidate is not None and self._chance.random() < RESTARTS:
            self._compute_again(self.candidate, candidate, seed)
        self.candidate = candidate
        if self._chance.random() < RESTARTS:
            self._stepper = self._new_stepper()
            self._stepper.restore(Candidate.decode(*candidate.encode()))
        return records

    def _compute_again(self, last: Candidate, candidate: Candidate, seed: bytes) -> None:
        """Compare with what a worker makes of the step that takes over before its candidate is committed."""
        stepper = Stepper.of(self._stream, len(self._records))
        stepper.restore(Candidate.decode(*last.encode()))
        for offset, block in enumerate(self.blocks):
            if offset >= stepper.merge.position:
                stepper.fold(offset, block)
        if stepper.compute(seed).encode() != candidate.encode():
            raise CouplingBroken(f"step {candidate.step}: computed again from the same seed it is another answer")

    def _published(self, candidate: Candidate, seed: bytes) -> tuple[PublicRecord, ...]:
        log: list[Seed | Chunk] = [Seed(candidate.stream, candidate.step, seed)]
        log += cut(candidate.encode().release, stream=candidate.stream, step=candidate.step)
        for record in log:
            publication = self._publisher.on_record(self._log_offset, record)
            self._log_offset += 1
            if publication is not None:
                self._publisher.published(candidate.step)
                return publication.records
        raise CouplingBroken(f"step {candidate.step} was not published")

"""One coupled pair of runs, from raw records to what the publisher copies; and the streams that are coupled."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import orjson

from agents.local.coupling.claims import Claim, check_declared, check_thresholds
from agents.local.coupling.inputs import Unit, inputs
from agents.local.coupling.written import BOOK, in_rows
from agents.local.job import LocalJob
from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.release.publisher import StreamPublisher
from agents.protocol.release.stepper import Stepper
from engines.checks.contract_case import contract_case
from engines.checks.coupling import CouplingBroken, Forced, Losses, OutputAdversary, Recorder, guarded_run
from engines.core.contract import Batch, Engine, Release
from engines.core.noise import NoiseSource
from engines.core.noise.private import PrivateValueRead
from engines.core.noise.witness import (
    CounterLaw,
    ExceedsLaw,
    ExponentialLaw,
    GaussianLaw,
    LaplaceLaw,
    Law,
    Witness,
    WitnessedSource,
)
from engines.core.registry import build_engine
from schemas.blocks import Block
from schemas.config import ENGINES, Stream
from schemas.errors import PrivstreamError
from schemas.ledger import LedgerEntry
from schemas.releases import Candidate, Chunk, PublicRecord, Seed, split_into_chunks

SELDOM = 0.05


def settings(engine: str | None = None, mode: str | None = None) -> Iterator[tuple[str, Stream]]:
    """Yield name and stream of each variant of every installed engine's contract case, by engine, mode and number."""
    for name, spec in ENGINES.items():
        for each in spec.facts.modes:
            if engine in (None, name) and mode in (None, each):
                case = contract_case(name)
                for number, variant in enumerate(case.coupled(each)):
                    yield f"{name}/{each}/{number}", case.stream(each, variant)


class RareOutputs(OutputAdversary):
    """Chooses outputs far from what is true now and then, as rare noise does: trees grow and die, bursts begin."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def output(self, law: Law, private: Any, drawn: Any) -> Any:
        if isinstance(law, ExceedsLaw) and self._chance.random() < 0.5:
            # Trees as deep as they can be: a unit pays on the whole path.
            return np.ones_like(drawn)
        if self._chance.random() > SELDOM:
            return drawn
        match law:
            case LaplaceLaw(scale):
                return self._moved(drawn, 30 * float(scale))
            case GaussianLaw(sigma_squared):
                return self._moved(drawn, 8 * float(sigma_squared) ** 0.5)
            case ExceedsLaw():
                return drawn ^ (np.array([self._chance.random() < 0.3 for _ in drawn], np.bool_))
            case ExponentialLaw():
                return self._chance.randrange(len(private))
            case CounterLaw():
                return self._moved(drawn, 40.0 * law.resolution)
            case _:
                return drawn

    def _moved(self, values: Any, size: float) -> Any:
        if isinstance(values, int):
            return values + int(self._chance.uniform(-size, size))
        moves = [int(self._chance.uniform(-size, size)) if self._chance.random() < 0.5 else 0 for _ in values]
        return values + np.array(moves, np.int64)


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
    window: bool = False,
) -> Verdict:
    """Run neighbouring inputs, drawn by `seed`; the second is forced through what the first one released.

    The unit is removed, added or replaced: by chance the first run has it, or the second. `sealing`: the engine also
    runs once on sealed events, which finds what reads a private value, and cannot find noise that is too small.

    Args:
        unit: as of `inputs`. window: it is in two periods of a bound that renews, for which the ledger has a claim.
        adversary: of the first run, which then has the unit; None: by chance, as the unit is.
    """
    chance = random.Random(f"{name}/{seed}")
    drawn = inputs(stream, chance, steps=steps, crowd=crowd, unit=unit)
    sides = [drawn.first, drawn.second]
    verdict = Verdict(name, seed)
    if adversary is None:
        # With the unit first, or without: what only a unit that is ADDED does to the second run shows in the latter.
        random.Random(f"sides of {name}/{seed}").shuffle(sides)
        adversary = RareOutputs(chance) if chance.random() < 0.5 else OutputAdversary()
    recorder = Recorder(adversary)
    forced = Forced(recorder)
    first: list[tuple[PublicRecord, ...]] = []
    try:
        job = JobRun(stream, sides[0], recorder, random.Random(seed), passive=type(adversary) is OutputAdversary)
        first = list(job.releases())
        recorder.check_words()
        check_declared(build_engine(stream).guarantee(), recorder)
        check_thresholds(stream, recorder)
        if sealing:
            make = partial(build_engine, stream)
            guarded_run(make, job.batches, lambda step: NoiseSource(SEED % step, "guarded", step))
        for step, (expected, found) in enumerate(
            zip(first, JobRun(stream, sides[1], forced, random.Random(seed + 1)).releases(), strict=True)
        ):
            forced.check_complete(step)
            _compare(step, expected, found)
            if not window:
                _check_account(step, expected, Claim.from_stream(stream), forced)
    except (CouplingBroken, PrivateValueRead) as broken:
        verdict.broken.append(str(broken))
    except PrivstreamError as stopped:
        # Loud, so nothing private left; but no input may stop a stream.
        verdict.broken.append(f"{type(stopped).__name__}: {stopped}")
    verdict.events = _events(first)
    losses = Losses.of(forced.pairs)
    claim = Claim.from_stream(stream)
    if window and first:
        claim = Claim.of_window(LedgerEntry.decode(first[-1][-1].value, stream.name), stream)
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


class BatchRecorder:
    """An engine whose batches are noted, so that they can be run again sealed."""

    def __init__(self, engine: Engine, batches: list[Batch]) -> None:
        self._engine, self._batches = engine, batches
        self.state, self.restore, self.guarantee = engine.state, engine.restore, engine.guarantee

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        self._batches.append(batch)
        return self._engine.step(batch, noise)


class JobRun(LocalJob):
    """The job of one run with its publisher, whose workers crash and take over now and then.

    Attributes:
        blocks: all that ingest committed. batches: that the engine was given. candidate: of the last step.
    """

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
        self.blocks: list[Block] = []
        self.batches: list[Batch] = []
        self.candidate: Candidate | None = None
        super().__init__(stream, key=KEY, partitions=len(records), rows=in_rows(stream), schemas=BOOK)
        self._records, self._chance, self._passive = records, chance, passive
        self._publisher = StreamPublisher(stream.name)
        self._expand = partial(WitnessedSource, witness)
        self._log_offset = 0

    def new_stepper(self) -> Stepper:
        """Return a stepper whose engine notes its batches."""
        stepper = super().new_stepper()
        stepper.engine = BatchRecorder(stepper.engine, self.batches)
        return stepper

    def releases(self) -> Iterator[tuple[PublicRecord, ...]]:
        """Yield what the publisher copies for each step. Blocks are cut anywhere."""
        positions = [0] * len(self._records)
        while any(position < len(rows) for position, rows in zip(positions, self._records, strict=True)):
            for partition, rows in enumerate(self._records):
                if self._chance.random() < RESTARTS:
                    self._take_over(partition)
                piece = rows[positions[partition] : positions[partition] + self._chance.choice([1, 20, 300])]
                positions[partition] += len(piece)
                block, _ = self.take(piece, partition=partition)
                if block is not None:
                    self.blocks.append(Block.decode(block.encode()))
            while self.stepper.closable:
                yield self._answer()

    def _take_over(self, partition: int) -> None:
        """Let a new worker's machine, made of the committed blocks alone, go on with a partition."""
        machine = self.machines[partition] = PartitionIngest(self.spec, partition)
        for offset, block in enumerate(self.blocks):
            if block.partition == partition:
                machine.apply(block, at=offset)

    def _answer(self) -> tuple[PublicRecord, ...]:
        step = self.stepper.step
        seed = SEED % step
        candidate = self.stepper.compute(seed, expand=self._expand)
        records = self._published(candidate, seed)
        if self._passive and self.candidate is not None and self._chance.random() < RESTARTS:
            self._compute_again(self.candidate, candidate, seed)
        self.candidate = candidate
        if self._chance.random() < RESTARTS:
            self.stepper = self.new_stepper()
            self.stepper.restore(Candidate.decode(*candidate.encode()))
        return records

    def _compute_again(self, last: Candidate, candidate: Candidate, seed: bytes) -> None:
        """Compare with what a worker makes of the step that takes over before its candidate is committed."""
        stepper = super().new_stepper()
        stepper.restore(Candidate.decode(*last.encode()))
        for offset, block in enumerate(self.blocks):
            if offset >= stepper.merge.position:
                stepper.fold(offset, block)
        if stepper.compute(seed).encode() != candidate.encode():
            raise CouplingBroken(f"step {candidate.step}: computed again from the same seed it is another answer")

    def _published(self, candidate: Candidate, seed: bytes) -> tuple[PublicRecord, ...]:
        log: list[Seed | Chunk] = [Seed(candidate.stream, candidate.step, seed)]
        log += split_into_chunks(candidate.encode().release, stream=candidate.stream, step=candidate.step)
        for record in log:
            publication = self._publisher.on_record(self._log_offset, record)
            self._log_offset += 1
            if publication is not None:
                self._publisher.published(candidate.step)
                return publication.records
        raise CouplingBroken(f"step {candidate.step} was not published")

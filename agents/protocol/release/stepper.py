"""One stream, step by step: merged blocks and a seed in, a candidate out. Pure; the job, `simulate` and every check
run this.

The same state, blocks and seed give the same candidate, byte for byte, so recomputing a step after a crash is not a
second answer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from agents.protocol.clock import StepClock
from agents.protocol.release.dating import Dating
from agents.protocol.release.merge import BlockMerge
from agents.protocol.release.public_records import framed_release, ledger_entry
from agents.protocol.release.record_formats import JsonRecords, RecordFormat
from engines.core.accounting.accountant import Accountant, paid
from engines.core.contract import Batch, Engine, Release
from engines.core.many_records import RecordColumns
from engines.core.noise import NoiseSource
from engines.core.registry import build_domain, build_engine
from schemas.arrays import below, under
from schemas.blocks import Block
from schemas.config import Stream
from schemas.errors import GapError, WireError
from schemas.releases import GENESIS, Candidate, sha256


class Stepper:
    """A stream's merge and engine together.

    Attributes:
        step: the step that is computed next.
        measured: last step of which there are measurements, -1 before any.
        release: what the last `compute` let out, for callers that show it; None before any.
    """

    def __init__(
        self,
        stream: Stream,
        engine: Engine,
        merge: BlockMerge,
        clock: StepClock,
        *,
        caveat: str = "",
        witness: str = "",
        records: RecordFormat | None = None,
    ) -> None:
        self.stream = stream
        self.engine = engine
        self.merge = merge
        self.clock = clock
        self.caveat = caveat
        self.witness = witness
        self._records = JsonRecords(stream) if records is None else records
        self.step = 0
        self.measured = -1
        self.chain = GENESIS
        self.release: Release | None = None
        self._dating = Dating() if stream.record_times == "dated" else None

    @classmethod
    def from_stream(
        cls,
        stream: Stream,
        source_partitions: int,
        *,
        caveat: str = "",
        witness: str = "",
        records: RecordFormat | None = None,
    ) -> Stepper:
        """Return the stepper of a configured stream. `caveat` says why its releases are not private; empty: they are.
        `witness`: what its ledger entries say in place of a configured witness; empty: nothing. `records`: how the
        job writes synthetic records; None: as JSON, where no registry has a schema.
        """
        words = build_domain(stream).words
        return cls(
            stream,
            build_engine(stream),
            BlockMerge(stream.name, source_partitions, words),
            StepClock.from_stream(stream),
            caveat=caveat,
            witness=witness,
            records=records,
        )

    def fold(self, offset: int, block: Block) -> None:
        """Take in a block. Raises: GapError."""
        self.merge.fold(offset, block)

    @property
    def closable(self) -> bool:
        return self.merge.closed(self.step)

    def compute(self, seed: bytes, *, expand: Callable[..., NoiseSource] = NoiseSource) -> Candidate:
        """Release the next step with the noise that `seed` expands to, and move on.

        Args:
            expand: makes the source from the seed and its labels; tests watch mechanisms by another one.
        Raises: GapError if the step is still open.
        """
        if not self.closable:
            raise GapError(f"stream {self.stream.name}: step {self.step} is still open")
        step = self.step
        noise = expand(seed, self.stream.name, step)
        batch = Batch(step, self.merge.take(step), self.merge.take_surplus(step))
        release = self.engine.step(batch, noise)
        start_us, end_us = self.clock.start_of(step), self.clock.end_of(step)
        payload = framed_release(
            release,
            time_field=self.stream.time.field,
            steps_of=self._steps_of(release),
            time_of=lambda step: self._records.time(self.clock.start_of(step)),
            rows=self._records.rows,
        )
        digest = sha256(payload)
        guarantee = self.engine.guarantee()
        if self.caveat:
            guarantee = dataclasses.replace(guarantee, private=False, note=f"NOT PRIVATE: {self.caveat}")
        state = self.engine.state()
        ledger, chain = ledger_entry(
            release,
            self.stream,
            guarantee,
            spent=paid(Accountant.kept(state).values()),
            start_us=start_us,
            end_us=end_us,
            digest=digest,
            previous_chain=self.chain,
            draw=_draw(expand(seed, "draw", self.stream.name, step)),
            witness=self.witness,
        )
        previous_chain, self.chain, self.step, self.release = self.chain, chain, step + 1, release
        self.measured = step if release.measurements else self.measured
        arrays = under("engine/", state)
        return Candidate(
            stream=self.stream.name,
            step=step,
            previous_chain=previous_chain,
            chain=chain,
            digest=digest,
            payload=payload,
            ledger=ledger,
            progress={**self.merge.progress(), "measured": self.measured},
            arrays=arrays | self.merge.arrays() | (self._dating.arrays() if self._dating is not None else {}),
            kept=self._dating.kept() if self._dating is not None else (),
        )

    def _steps_of(self, release: Release) -> Callable[[RecordColumns], Sequence[int]]:
        """Return what gives the steps of added records: those that they say themselves or stand for, or this one."""
        if self._dating is not None:
            return self._dating.take(release)
        now = release.step

        def steps_of(part: RecordColumns) -> Sequence[int]:
            said = part.steps
            return [now] * len(part.ids) if said is None else [now if step is None else step for step in said]

        return steps_of

    def restore(self, candidate: Candidate) -> None:
        """Go on after `candidate`, exactly as the stepper that computed it."""
        if (arrays := candidate.arrays) is None:
            raise WireError(f"stream {self.stream.name}: the candidate of step {candidate.step} is without its state")
        self.merge.restore(candidate.progress, arrays)
        self.engine.restore(below("engine/", arrays))
        if self._dating is not None:
            self._dating.restore(arrays, candidate.kept)
        self.step, self.measured = candidate.step + 1, candidate.measured
        self.chain = candidate.chain


def _draw(noise: NoiseSource) -> str:
    """Name the noise of a step: whether a second answer is told from the first must not depend on what they say.

    Args: noise: a source of its own, of which no mechanism draws.
    """
    return "".join(f"{word:016x}" for word in noise.words(2))

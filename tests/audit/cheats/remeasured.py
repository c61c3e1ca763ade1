"""Counts re-measured after a crash: a worker that takes over counts the last step's events once more, in the next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agents.protocol.release.stepper import Stepper
from engines.auditor.cases import Case
from engines.noise import NoiseSource
from schemas.blocks import Block
from schemas.releases import Candidate
from tests.audit.small_stream import SmallStream, stream

PAIR = ("insert, early step, empty cell",)
STEPS = 6


class TakenOver(SmallStream):
    """Every step is answered by a worker that takes over from the last one's state."""

    def restored(self, blocks: Sequence[Block], candidate: Candidate) -> Stepper:
        stepper = self.stepper()
        stepper.restore(candidate)
        for offset, block in enumerate(blocks):
            stepper.fold(offset, block)
        return stepper

    def candidates(self, blocks: Sequence[Block], source: NoiseSource) -> Iterator[Candidate]:
        stepper = self.stepper()
        for offset, block in enumerate(blocks):
            stepper.fold(offset, block)
        for step in range(self.steps):
            candidate = stepper.compute(source.child("seed", step).words(4).tobytes())
            yield candidate
            stepper = self.restored(blocks, candidate)


class Remeasures(TakenOver):
    """Reads the blocks of the step that is answered again, and takes their events for new ones."""

    def restored(self, blocks: Sequence[Block], candidate: Candidate) -> Stepper:
        stepper = super().restored(blocks, candidate)
        again = [block.steps[step] for block in blocks for step in block.steps if step <= candidate.step]
        pending = stepper.merge._pending
        following = candidate.step + 1
        if again:
            pending[following] = again[0].merge(*again[1:], *([pending[following]] if following in pending else []))
        return stepper


def cheat() -> Case:
    return Remeasures(stream(name="remeasures"), steps=STEPS).case(units=PAIR, fresh=False)


def honest() -> Case:
    return TakenOver(stream(name="goes-on"), steps=STEPS).case(units=PAIR, fresh=False)

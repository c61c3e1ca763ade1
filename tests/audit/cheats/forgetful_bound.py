"""A contribution bound that a second worker forgets: it restores the offsets of its blocks and not the users."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from agents.offline.audit_units import AUDITED, Sent
from agents.protocol.ingest.partition import PartitionIngest
from engines.auditor.cases import Case
from schemas.blocks import Block
from tests.audit.small_stream import SmallStream, stream

STEPS = 12
UNITS = ("one event in every step",)


class Forgetful(PartitionIngest):
    """Folds blocks without what they charged to whom."""

    def apply(self, block: Block, *, at: int = 0, trimmed_to: int = 0) -> None:
        super().apply(
            replace(block, users=block.users[:0], increments=block.increments[:0]), at=at, trimmed_to=trimmed_to
        )


class Insistent(SmallStream):
    """A user who sends one event in every step, whatever the bound; a worker takes over after every other step."""

    machine: type[PartitionIngest] = PartitionIngest

    def units(self) -> Iterator[tuple[str, list[Sent]]]:
        place = self.places["empty cell"]
        yield UNITS[0], [Sent(step, AUDITED, place) for step in range(self.steps)]

    def ingest(self, partition: int) -> PartitionIngest:
        return self.machine(self._spec, partition)


class ForgottenBounds(Insistent):
    machine = Forgetful


def cheat() -> Case:
    return ForgottenBounds(stream(name="forgets"), steps=STEPS).case(units=UNITS, fresh=False)


def honest() -> Case:
    return Insistent(stream(name="remembers"), steps=STEPS).case(units=UNITS, fresh=False)

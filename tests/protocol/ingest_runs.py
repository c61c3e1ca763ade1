"""What the tests of the ingest machine share: a partition, its records, and what all of its blocks together say."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from zoneinfo import ZoneInfo

from agents.protocol.clock import StepClock
from agents.protocol.ingest.bounds import BoundSpec
from agents.protocol.ingest.dead_letters import DeadLetter
from agents.protocol.ingest.decode import EventFields
from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.spec import SourceSpec
from engines.spatial.domain.box import BoxDomain
from schemas.blocks import Block
from schemas.events import TICK_HEADER, encode_going_live, encode_tick
from schemas.steps import FixedSteps

KEY = b"0123456789abcdef"
STEP_US = 1_000_000
SPEC = SourceSpec(
    stream="s",
    topic="raw",
    role="blocks",
    partitions=1,
    domain=BoxDomain("x", "y", (0.0, 0.0, 1.0, 1.0), depth=4),
    clock=StepClock(FixedSteps(start_us=0, step_us=STEP_US), max_ahead=3),
    format="s",
    zone=ZoneInfo("UTC"),
    fields=EventFields(time="t", time_is_number=True, user="u", operation="op", numbers=("x", "y")),
    replay=True,
    key=KEY,
    partitioner="murmur2",
    bounds=BoundSpec(max_contributions=3),
    max_value_bytes=200,
)
COUNTING = replace(SPEC, bounds=BoundSpec(max_contributions=3, surplus=2))
"""The same, with a count of what the bound refuses."""


def body(**changes: Any) -> bytes:
    return json.dumps({"u": "ann", "t": 0, "x": 0.5, "y": 0.5, "op": "insert", **changes}).encode()


def tick_header(step: int) -> tuple[tuple[str, bytes | None], ...]:
    return ((TICK_HEADER, encode_tick(step, row=0, source="test")),)


def live_header(step: int, live_from: int | None = None) -> tuple[tuple[str, bytes | None], ...]:
    """Of the record with which a partition goes live: up to `step` all is over, before `live_from` it is history."""
    begin = step + 1 if live_from is None else live_from
    return ((TICK_HEADER, encode_going_live(step, live_from=begin, row=0, source="test")),)


def sealed(machine: PartitionIngest) -> tuple[Block, list[DeadLetter]]:
    """Its next block, as it is read back, and the dead letters with it."""
    block, letters = machine.seal()
    assert block is not None
    return Block.decode(block.encode()), letters


def taken(spec: SourceSpec, records: Sequence[RawRecord]) -> tuple[Block, list[DeadLetter]]:
    """What partition 0 makes of these records, in one block."""
    machine = PartitionIngest(spec, 0)
    machine.take(records)
    return sealed(machine)


@dataclass
class Outcome:
    """What all blocks together say; equal for equal records however these were cut."""

    next_offset: int = 0
    tick: int = -1
    live_from: int | None = None
    steps: dict[int, Counter[tuple[int, ...]]] = field(default_factory=dict)
    charges: Counter[tuple[int, ...]] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    surplus: Counter[int] = field(default_factory=Counter)
    letters: list[DeadLetter] = field(default_factory=list)

    def add(self, block: Block, letters: list[DeadLetter] | None = None) -> None:
        assert block.lo == self.next_offset, "blocks cover all offsets once"
        assert block.tick >= self.tick
        assert not any(step <= self.tick for step in (*block.steps, *block.surplus)), (
            "a step that was closed gets no more events"
        )
        assert self.live_from in (None, block.live_from), "a partition that has gone live stays so"
        self.next_offset, self.tick, self.live_from = block.hi, block.tick, block.live_from
        for step, folded in block.steps.items():
            cells = self.steps.setdefault(step, Counter())
            cells.update(dict(zip(map(tuple, folded.keys.tolist()), folded.counts.tolist(), strict=True)))
        for row, charge in zip(map(tuple, block.users.tolist()), block.increments.tolist(), strict=True):
            self.charges[row] += charge
        self.counts.update(block.counts)
        self.surplus.update(block.surplus)
        self.letters += letters or []

    @property
    def accepted(self) -> int:
        return sum(sum(cells.values()) for cells in self.steps.values())


def run(records: list[RawRecord], cuts: list[int], seals: list[bool], *, spec: SourceSpec = SPEC) -> Outcome:
    """Feed records cut at `cuts`; seal after those pieces for which `seals` says so."""
    machine, outcome = PartitionIngest(spec, 0), Outcome()
    edges = sorted({0, *(cut % (len(records) + 1) for cut in cuts), len(records)})
    pieces = [records[begin:end] for begin, end in itertools.pairwise(edges)]
    for index, piece in enumerate(pieces):
        machine.take(piece)
        if index == len(pieces) - 1 or (index < len(seals) and seals[index]):
            machine.snapshots(1 << 20)
            block, letters = machine.seal()
            if block is not None:
                outcome.add(Block.decode(block.encode()), letters)
                machine.committed(at=index)
    return outcome

"""Blocks, contribution bounds and offsets of one earlier moment, beside answers of a later one.

Some of the brokers have lost their newest records, or a copy of some topics was put back. Offsets can fit by chance;
nobody is counted beyond the bound.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest

from agents.protocol.ingest.bounds import BoundSpec
from agents.protocol.ingest.events import RawRecord
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.release.merge import BlockMerge
from schemas.blocks import Block
from schemas.errors import GapError, PromiseError
from tests.protocol.ingest_runs import SPEC, body, sealed

WALL = replace(SPEC, replay=False, bounds=BoundSpec(max_contributions=1))
PLACES = {"ann": 0.1, "bob": 0.9}
"""Of each user: a cell tells whose its events are."""
STEPS = 4


def event(offset: int, user: str, step: int) -> RawRecord:
    return RawRecord(offset, -1, None, body(u=user, t=step, x=PLACES[user]))


class Ingest:
    """What goes on behind the blocks that are there; offsets of blocks are their places in the list."""

    def __init__(self, blocks: list[Block]) -> None:
        self.blocks = blocks
        self.machine = PartitionIngest(WALL, 0)
        for at, block in enumerate(blocks):
            self.machine.apply(block, at=at)
        self.machine.check_restored(trimmed_to=0)
        self.machine.resume(self.machine.next_offset)

    def commit(self, *records: RawRecord, step: int) -> None:
        """Take in records, and close a step."""
        self.machine.take(records)
        self.machine.tick(step)
        self.blocks.append(sealed(self.machine)[0])
        self.machine.committed(at=len(self.blocks) - 1)


def counted(merge: BlockMerge, blocks: list[Block]) -> Counter[tuple[int, ...]]:
    """How many events of each cell the steps have that close now."""
    found: Counter[tuple[int, ...]] = Counter()
    first = merge.closed_to + 1
    for offset, block in enumerate(blocks):
        merge.fold(offset, block)
    for step in range(first, merge.closed_to + 1):
        events = merge.take(step)
        found.update(dict(zip(map(tuple, events.keys.tolist()), events.counts.tolist(), strict=True)))
    return found


def most_counted(kept: int, more: int) -> int:
    """Count ann's event, forget it but for what was answered, and let ann come again: how often anybody is counted.

    Args:
        kept: blocks that are still there. more: steps that end before ann comes.
    Raises: PromiseError if that was noticed.
    """
    blocks: list[Block] = []
    ingest = Ingest(blocks)
    ingest.commit(step=0)
    ingest.commit(event(0, "ann", 1), step=1)
    for step in range(2, STEPS):
        ingest.commit(step=step)
    merge, after = BlockMerge("s", 1, WALL.domain.words), BlockMerge("s", 1, WALL.domain.words)
    found = counted(merge, blocks)
    after.restore(merge.progress(), merge.arrays())
    again = Ingest(blocks[:kept])
    now = STEPS + more
    # The source has lost its tail as well: another record is where that of ann was.
    again.commit(*([event(0, "bob", now)] if kept < 2 else []), step=STEPS)
    for step in range(STEPS + 1, now):
        again.commit(step=step)
    again.commit(event(1, "ann", now), step=now)
    return max((found + counted(after, again.blocks)).values())


MOMENTS = list(product(range(STEPS + 1), range(1, 2 * STEPS)))


@pytest.mark.parametrize(("kept", "more"), MOMENTS)
def test_nobody_is_counted_anew_where_what_was_charged_is_forgotten(kept: int, more: int) -> None:
    if kept == STEPS:  # all of them
        assert most_counted(kept, more) == 1
        return
    try:
        assert most_counted(kept, more) == 1
    except PromiseError:
        return


def test_offsets_that_fit_by_chance_are_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Block, "check_follows", lambda *_: None)
    anew = 0
    for kept, more in MOMENTS:
        try:
            anew += most_counted(kept, more) > 1
        except PromiseError:
            continue
    assert anew


def test_blocks_of_two_histories_are_not_restored() -> None:
    one: list[Block] = []
    ingest = Ingest(one)
    ingest.commit(step=0)
    ingest.commit(event(0, "ann", 1), step=1)
    other = Ingest(one[:1])
    other.commit(event(0, "bob", 1), step=1)
    ingest.commit(step=2)
    with pytest.raises(GapError, match="follows another block"):
        Ingest([*other.blocks, one[-1]])

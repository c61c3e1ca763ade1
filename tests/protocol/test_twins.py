"""Records of a twin of the job among its own, as a mirror brings them: two answers, and nothing is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.release.log import LogView
from agents.protocol.release.merge import BlockMerge
from schemas.blocks import Block
from schemas.errors import ForkError, GapError
from schemas.releases import split_into_chunks
from tests.protocol.added_world import USERS, World, play
from tests.protocol.ingest_runs import SPEC
from tests.protocol.test_publisher import STREAM, candidates


def blocks() -> list[Block]:
    world = World(SPEC, 1)
    for _ in range(3):
        play(world, [*USERS, "tick"])
        world.work()
    return [block for _, block in world.all_blocks]


def merged(taken: list[Block]) -> None:
    merge = BlockMerge("s", 1, SPEC.domain.words)
    for offset, block in enumerate(taken):
        merge.fold(offset, block)


def restored(taken: list[Block]) -> None:
    machine = PartitionIngest(replace(SPEC, partitions=1), 0)
    for offset, block in enumerate(taken):
        machine.apply(block, at=offset)


@pytest.mark.parametrize("reads", [merged, restored])
def test_blocks_of_a_twin_are_two_answers_and_a_hole_is_a_gap(reads) -> None:  # type: ignore[no-untyped-def]
    mine = blocks()
    reads(mine)
    for twin in mine[:2]:
        with pytest.raises(ForkError, match="Another process writes"):
            reads([*mine, twin])
    with pytest.raises(GapError, match="comes next"):
        reads([mine[0], *mine[2:]])


def test_a_candidate_behind_later_ones_is_a_second_answer() -> None:
    """Also of a step that was forgotten, since it was settled."""
    answered = candidates(STREAM)

    def view_of(steps: list[int]) -> None:
        view, offset = LogView(STREAM.name), 0
        for step in steps:
            for chunk in split_into_chunks(answered[step].encode().release, stream=STREAM.name, step=step):
                view.apply(offset, chunk)
                offset += 1
            view.forget(step)

    view_of([0, 1, 2])
    with pytest.raises(ForkError, match="answered on the release log once more"):
        view_of([0, 1, 2, 0])
    with pytest.raises(GapError, match="follows that of step 0"):
        view_of([0, 2])

"""Two blocks for the same source offsets: nothing is missing, and somebody else has answered for them too."""

from __future__ import annotations

from schemas.blocks import Block
from schemas.errors import ForkError


def taken_in_twice(block: Block, expected: int) -> ForkError:
    """What to raise for a block of source offsets below `expected`, which are in blocks before it."""
    return ForkError(
        f"stream {block.stream}, source partition {block.partition}: a block covers offsets {block.lo} to {block.hi}, "
        f"and those below {expected} are in blocks before it. Another process writes blocks of this stream: a copy of "
        "the job, a mirror of its topics, or a copy that was put back"
    )

"""What the engine's state machine asks of the world. A shell carries out one effect at a time, in order, and sends
back the result.

A crash can fall before or after any of them; the machine is written so that neither matters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from schemas.releases import Chunk, Encoded


@dataclass(frozen=True, slots=True)
class CommitSeeds:
    """Draw 32 bytes from the operating system for each step and commit them to the release log in ONE transaction.

    Result: the bytes of each, once committed.
    """

    stream: str
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Compute:
    """Run `work` away from the event loop. Result: what it returns. It touches nothing outside the machine."""

    stream: str
    step: int
    work: Callable[[], Encoded] = field(repr=False)


@dataclass(frozen=True, slots=True)
class CommitCandidates:
    """Commit in ONE transaction all chunks to the release log, and the state after the last step to the changelog of
    the state table. From then on the steps have their answers; then store the state in the table as well.

    Attributes: position: as in `Adopted`.
    """

    stream: str
    steps: tuple[int, ...]
    chunks: tuple[Chunk, ...]
    state: bytes = field(repr=False)
    position: int


@dataclass(frozen=True, slots=True)
class Adopted:
    """The step is settled.

    Attributes:
        position: blocks below this offset are in the committed state and may be acknowledged.
        floor: blocks below this offset are also in the saved contribution bounds, so nothing can need them again.
    """

    stream: str
    step: int
    position: int
    floor: int


Effect = CommitSeeds | Compute | CommitCandidates | Adopted

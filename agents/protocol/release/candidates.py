"""The engine's side of the promise: at most one candidate for each step of a stream, whatever crashes.

Life of a step, every arrow an effect after which a crash may come:

    closed --CommitSeeds--> seeded --Compute--> --CommitCandidates--> answered --Adopted--> next

Where many steps are closed they go together: one transaction holds their seeds, a later one their candidates. Their
events are fixed by then, so a seed is no sooner there than its step could use it. Where one of them cannot be computed,
those before it get their answers all the same; the seeds of the others are committed, and are used after a restart.

The engine's task is the only writer (its producer fences every earlier one), and reads the whole log before it acts. A
committed seed is never drawn again, so the same step always has the same noise; a committed candidate is never
computed again. The state after the last of several candidates is committed with them, and the candidate names it by its
digest: the state table supplies the one that the newest candidate names, or the stream stops.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from agents.protocol.release.log import LogView
from agents.protocol.release.stepper import Stepper
from schemas.blocks import Block
from schemas.errors import ForkError, GapError
from schemas.releases import CHUNK_BYTES, Chunk, Encoded, EncodedState, LogRecord, SavedState, split_into_chunks

MOST_STEPS = 64  # in one transaction
ENOUGH_BYTES = 4 << 20  # of releases, and of what is new in states, after which what was computed is committed


@dataclass(frozen=True, slots=True)
class CommitSeeds:
    """Draw 32 bytes from the operating system for each step and commit them to the release log in ONE transaction.

    Result: the bytes of each, once committed.
    """

    stream: str
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Compute:
    """Run `work`, which may take long. Result: what it returns. It touches nothing outside the machine.

    Attributes: events: of the step. Private.
    """

    stream: str
    step: int
    events: int = field(repr=False)
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
    state: EncodedState = field(repr=False)
    position: int


@dataclass(frozen=True, slots=True)
class Adopted:
    """Take note that the step is settled.

    Attributes:
        position: blocks below this offset are in the committed state and may be acknowledged.
        floor: blocks below this offset are also in the saved contribution bounds, so nothing can need them again.
    """

    stream: str
    step: int
    position: int
    floor: int


Effect = CommitSeeds | Compute | CommitCandidates | Adopted
Effects = Generator[Effect, Any, None]
"""A shell carries out one after the other, and sends back the result of each."""


class StreamCandidates:
    """The state machine of one stream. `read` the log, drive `recover` to its end, then `fold` blocks and drive
    `advance` after each.
    """

    def __init__(self, stepper: Stepper, *, chunk_bytes: int = CHUNK_BYTES, enough_bytes: int = ENOUGH_BYTES) -> None:
        self.stepper = stepper
        self.stream = stepper.stream.name
        self._view = LogView(self.stream)
        self._first: int | None = None
        self._chunk_bytes = chunk_bytes
        self._enough_bytes = enough_bytes
        self._answered = -1

    @property
    def step(self) -> int:
        """The step that is answered next."""
        return self._answered + 1

    @property
    def position(self) -> int:
        """The offset of the blocks topic from which to read on."""
        return self.stepper.merge.position

    def read(self, log: Iterable[tuple[int, LogRecord]]) -> None:
        """Take in what the release log has of this stream, all of it in order, in parts if it is long. Then `recover`.

        Args: log: `(offset, record)`.
        Raises: ForkError, GapError, WireError: the stream must not go on.
        """
        for offset, record in log:
            complete = self._view.apply(offset, record)
            if complete is not None and self._first is None:
                self._first = complete.step

    def lacks(self, saved: SavedState | None) -> bool:
        """Return whether what a state table holds is older than the newest answer on the log, or nothing: then the
        changelog must have a newer one.
        """
        newest = self._view.newest
        return newest is not None and (saved is None or saved.step < newest.step)

    def recover(self, saved: SavedState | None, *, log_is_trimmed: bool) -> Effects:
        """Go on after the newest answer on the log, from the state that it names.

        Args:
            saved: the newest of the state table and its changelog, None if there is none or it is torn.
            log_is_trimmed: whether records before the first were deleted.
        Raises: ForkError, GapError, WireError: the stream must not go on.
        """
        newest = self._view.newest
        if saved is not None and self._view.state_digest(saved.step) not in (None, saved.digest):
            raise ForkError(f"stream {self.stream}: state table and release log differ at step {saved.step}")
        if newest is None:
            if saved is not None:
                raise GapError(f"stream {self.stream}: the release log has lost step {saved.step}, which was answered")
            if self._view.seeded != list(range(len(self._view.seeded))):
                # Trimming spares the newest candidate, so a later seed without one means that records were lost.
                raise GapError(f"stream {self.stream}: the release log starts in mid-stream without a candidate")
            return
        step = newest.step
        if saved is not None and saved.step > step:
            # Both are of one transaction, and a table is written behind its commit.
            raise GapError(f"stream {self.stream}: the release log ends before step {saved.step}, which was answered")
        if self._first != 0 and not log_is_trimmed:
            raise GapError(f"stream {self.stream}: the release log starts at step {self._first}, and nobody trimmed it")
        if saved is None or saved.step != step:
            there = "none" if saved is None else f"that after step {saved.step}"
            raise GapError(
                f"stream {self.stream}: the state after step {step}, its last answer, is lost: the state table and its "
                f"changelog have {there}. Without it the next step cannot be computed. What to do: start a worker on "
                "the machine and data_dir that served the stream last, or put back the changelog as it was at that "
                "step or later; if nobody has either, start the stream anew under another name: what was released "
                "counts for the same people (explain --earlier)"
            )
        self.stepper.restore(newest.with_state(EncodedState.decode(saved.body)))
        yield self._adopted(step)

    def fold(self, offset: int, block: Block) -> None:
        """Take in a block read at `offset`. Raises: GapError."""
        self.stepper.fold(offset, block)

    def advance(self) -> Effects:
        """Answer every step that is complete.

        An error of `Compute` is thrown in: it has no effect. It comes out when the steps before have their answers.
        """
        while self.stepper.closable:
            first = self.stepper.step
            steps = range(first, min(self.stepper.merge.closed_to, first + MOST_STEPS - 1) + 1)
            seeds = {step: seed for step in steps if (seed := self._view.seed(step)) is not None}
            if missing := tuple(step for step in steps if step not in seeds):
                seeds.update(zip(missing, (yield CommitSeeds(self.stream, missing)), strict=True))
            releases: list[bytes] = []
            state: EncodedState | None = None
            size = 0
            for step in steps:
                try:
                    answer = yield Compute(
                        self.stream, step, self.stepper.merge.events(step), partial(self._answer, seeds[step])
                    )
                except Exception:
                    yield from self._commit(releases, state)
                    raise
                releases.append(answer.release)
                state, size = answer.state, size + len(answer.release) + answer.state.own_bytes
                if size >= self._enough_bytes or step == steps[-1]:
                    yield from self._commit(releases, state)
                    releases, size = [], 0

    def _commit(self, releases: Sequence[bytes], state: EncodedState | None) -> Effects:
        """Commit candidates of the steps that are answered next, and the state after the last of them."""
        if state is None or not releases:
            return
        steps = range(self.step, self.step + len(releases))
        chunks: list[Chunk] = []
        for step, release in zip(steps, releases, strict=True):
            chunks += split_into_chunks(release, stream=self.stream, step=step, chunk_bytes=self._chunk_bytes)
        yield CommitCandidates(self.stream, tuple(steps), tuple(chunks), state, self.position)
        yield self._adopted(steps[-1])

    def _answer(self, seed: bytes) -> Encoded:
        return self.stepper.compute(seed).encode()

    def _adopted(self, step: int) -> Adopted:
        self._view.forget(step + 1)
        self._answered = step
        return Adopted(self.stream, step, self.position, self.stepper.merge.floor)

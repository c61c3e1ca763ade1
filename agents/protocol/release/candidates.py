"""The engine's side of the promise: at most one candidate for each step of a stream, whatever crashes.

Life of a step, every arrow an effect after which a crash may come:

    closed --CommitSeeds--> seeded --Compute--> --CommitCandidates--> answered --SaveState--> saved --Adopted--> next

Where many steps are closed they go together: one transaction holds their seeds, a later one their candidates. Their
events are fixed by then, so a seed is no sooner there than its step could use it. Where one of them cannot be computed,
those before it get their answers all the same; the seeds of the others are committed, and are used after a restart.

The engine's task is the only writer (its producer fences every earlier one), and reads the whole log before it acts. A
committed seed is never drawn again, so the same step always has the same noise; a committed candidate is never
computed again. State comes from the newest of the state table and the log; where both have a step they must agree.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from functools import partial
from typing import Any

from agents.protocol.release.effects import Adopted, CommitCandidates, CommitSeeds, Compute, Effect, SaveState
from agents.protocol.release.log import LogView
from agents.protocol.release.stepper import Stepper
from schemas.blocks import Block
from schemas.errors import ForkError, GapError
from schemas.releases import CHUNK_BYTES, Candidate, Chunk, LogRecord, cut, sha256

Effects = Generator[Effect, Any, None]

MOST_STEPS = 64  # in one transaction
ENOUGH_BYTES = 4 << 20  # of candidates in one transaction, from which on it takes no further one


class StreamCandidates:
    """State machine of one stream. `read` the log, drive `recover` to its end, then `fold` blocks and drive `advance`
    after each.
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
        """Offset of the blocks topic from which to read on."""
        return self.stepper.merge.position

    def read(self, log: Iterable[tuple[int, LogRecord]]) -> None:
        """Take in what the release log has of this stream, all of it in order, in parts if it is long. Then `recover`.

        Args: log: `(offset, record)`.
        Raises: ForkError, GapError, WireError: the stream must not go on.
        """
        for offset, record in log:
            complete = self._view.apply(offset, record)
            if complete is not None and self._first is None:
                self._first = complete.candidate.step

    def recover(self, table_body: bytes | None, *, log_is_trimmed: bool) -> Effects:
        """Adopt the newest settled step.

        Args:
            table_body: what the state table holds, None if nothing or torn.
            log_is_trimmed: whether records before the first were deleted.
        Raises: ForkError, GapError: the stream must not go on.
        """
        first = self._first
        saved = None if table_body is None else Candidate.decode(table_body)
        if saved and self._view.digest(saved.step) not in (None, sha256(table_body or b"")):
            # A zombie may still write the table's changelog, but only what it had committed to the log before.
            raise ForkError(f"stream {self.stream}: state table and release log differ at step {saved.step}")
        newest = self._view.newest
        if newest is None:
            if saved is not None:
                raise GapError(f"stream {self.stream}: the release log has lost step {saved.step}, which was answered")
            if self._view.seeded != list(range(len(self._view.seeded))):
                # Trimming spares the newest candidate, so a later seed without one means that records were lost.
                raise GapError(f"stream {self.stream}: the release log starts in mid-stream without a candidate")
            return
        if saved is not None and saved.step > newest.candidate.step:
            raise GapError(f"stream {self.stream}: the release log ends before step {saved.step}, which was answered")
        if first != 0 and not log_is_trimmed:
            raise GapError(f"stream {self.stream}: the release log starts at step {first}, and nobody trimmed it")
        self.stepper.restore(newest.candidate)
        if saved is None or saved.step < newest.candidate.step:
            yield SaveState(self.stream, newest.candidate.step, self.position, newest.body)
        yield self._adopted(newest.candidate.step)

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
            bodies: list[bytes] = []
            size = 0
            for step in steps:
                try:
                    body = yield Compute(self.stream, step, partial(self._answer, seeds[step]))
                except Exception:
                    yield from self._commit(bodies)
                    raise
                bodies.append(body)
                size += len(body)
                if size >= self._enough_bytes or step == steps[-1]:
                    yield from self._commit(bodies)
                    bodies, size = [], 0

    def _commit(self, bodies: Sequence[bytes]) -> Effects:
        """Candidates of the steps that are answered next."""
        if not bodies:
            return
        steps = range(self.step, self.step + len(bodies))
        chunks: list[Chunk] = []
        for step, body in zip(steps, bodies, strict=True):
            chunks += cut(body, stream=self.stream, step=step, chunk_bytes=self._chunk_bytes)
        yield CommitCandidates(self.stream, tuple(steps), tuple(chunks))
        yield SaveState(self.stream, steps[-1], self.position, bodies[-1])
        yield self._adopted(steps[-1])

    def _answer(self, seed: bytes) -> bytes:
        return self.stepper.compute(seed).encode()

    def _adopted(self, step: int) -> Adopted:
        self._view.forget(step + 1)
        self._answered = step
        return Adopted(self.stream, step, self.position, self.stepper.merge.floor)

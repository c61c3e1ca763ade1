"""The public side of the promise: each step of a stream is published once, in order, as the bytes that were committed.

The publisher fences its predecessors, reads the public ledger to its end, and then reads the release log from its
start. It computes nothing: what it publishes it has read back from the log, so even what a read_uncommitted consumer
sees twice is the same bytes twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from agents.protocol.release.log import LogView
from schemas.errors import ForkError, GapError, LostTopicError
from schemas.ledger import LedgerEntry
from schemas.releases import (
    GENESIS,
    Candidate,
    Channel,
    Frames,
    LogRecord,
    PublicRecord,
    frame_records,
    link,
)
from schemas.topics import Topics


@dataclass(frozen=True, slots=True)
class Publication:
    """One step to be published, whole, in one transaction; the ledger record is last.

    Attributes:
        data: synthetic records and measurements.
        ledger: value of the ledger record.
        chain: the digest of all public bytes up to this step, see `link`.
        live: closed by the wall clock after a replay had gone live; see `Candidate.live`.
    """

    stream: str
    step: int
    data: Frames = field(repr=False)
    ledger: bytes = field(repr=False)
    chain: str
    live: bool = False

    @property
    def ledger_record(self) -> Frames:
        return Frames.of(frame_records([PublicRecord("ledger", b"%d" % self.step, self.ledger)]))

    @property
    def records(self) -> tuple[PublicRecord, ...]:
        """All records of the step, in their order."""
        return (*self.data, *self.ledger_record)

    @property
    def size(self) -> int:
        """The size in bytes."""
        return len(self.data.data) + len(self.ledger)


class StreamPublisher:
    """The state machine of one stream's public topics."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.last_step = -1
        self.chain = GENESIS
        self._chains: dict[int, str] = {}
        self._view = LogView(stream)
        self._waiting: deque[Publication] = deque()
        self._measured: int | None = None

    def recover(self, ledger: Iterable[bytes]) -> None:
        """Learn what is already public from the values of the public ledger, from its start; in parts if it is long.

        Raises: ForkError, GapError; WireError where a record is no entry.
        """
        for value in ledger:
            entry = LedgerEntry.decode(value, self.stream)
            step = entry.step
            known = self._chains.get(step)
            before = self.chain if known is None else self._chains.get(step - 1, GENESIS)
            chain = link(before, stream=self.stream, step=step, digest=entry.digest, ledger=value)
            if known is not None:
                if known != chain or entry.chain != chain:
                    raise ForkError(f"stream {self.stream}: the public ledger holds step {step} twice")
                continue
            if step != self.last_step + 1:
                raise GapError(f"stream {self.stream}: the public ledger jumps from step {self.last_step} to {step}")
            if entry.previous_chain != before or entry.chain != chain:
                raise ForkError(f"stream {self.stream}: the public ledger's chain breaks at step {step}")
            self.last_step, self.chain, self._chains[step] = step, chain, chain

    def chain_of(self, step: int) -> str | None:
        """Return the digest of a public step, of any until the release log is read."""
        return self._chains.get(step)

    def check_end(self, channel: Channel, newest: int) -> None:
        """Compare the newest step of another public topic with the ledger. Call after `recover`.

        Raises: GapError if the ledger does not have the step: they are committed together.
        """
        if newest > self.last_step:
            raise GapError(
                f"stream {self.stream}: records of step {newest} are public ({channel}), and the public ledger ends at "
                f"step {self.last_step}: it has lost entries"
            )

    def measured(self, newest: int) -> None:
        """Learn the newest public step of which the measurements topic holds records, -1 if it never held any. Not
        where all of them were deleted since, by retention or a person: then nothing can be told.
        """
        self._measured = newest

    def _check_measured(self, candidate: Candidate) -> None:
        """Check that the measurements are there that the newest public step on the log says were published last."""
        if self._measured is not None and candidate.measured > self._measured:
            raise LostTopicError(
                f"stream {self.stream}: {Topics.measurements(self.stream)} does not hold the measurements of step "
                f"{candidate.measured}, which were published: it was deleted and made again, or is an older copy"
            )

    def on_record(self, offset: int, record: LogRecord) -> Publication | None:
        """Take in a record of the release log; return the step that must now be published, if any.

        A step that is already public, or waits, with the same bytes gives None. The caller publishes what it gets in
        this order, one step or several in one transaction, and then calls `published` for each.
        Raises: ForkError, GapError, LostTopicError, WireError.
        """
        candidate = self._view.apply(offset, record)
        if candidate is None:
            return None
        self._view.forget(candidate.step)
        self._forget(candidate.step)
        waiting = {publication.step: publication.chain for publication in self._waiting}
        last, chain = max(waiting.items(), default=(self.last_step, self.chain))
        if candidate.step <= last:
            if waiting.get(candidate.step, self._chains.get(candidate.step)) != candidate.chain:
                raise ForkError(f"stream {self.stream}: step {candidate.step} is public with other bytes")
            self._check_measured(candidate)
            return None
        if candidate.step != last + 1:
            raise GapError(
                f"stream {self.stream}: the release log goes on at step {candidate.step}, "
                f"but step {last} is the last public one"
            )
        if candidate.previous_chain != chain:
            raise ForkError(f"stream {self.stream}: step {candidate.step} does not continue what is public")
        # Here, where damage stops the stream: its transaction would end the worker.
        what = Frames.of(candidate.payload), candidate.ledger, candidate.chain, candidate.live
        publication = Publication(self.stream, candidate.step, *what)
        self._waiting.append(publication)
        return publication

    def published(self, step: int) -> None:
        """Note that the transaction of `step` is committed. Steps of one transaction in their order."""
        if not self._waiting or self._waiting[0].step != step:
            raise GapError(f"stream {self.stream}: step {step} was not due")
        self.chain = self._waiting.popleft().chain
        self.last_step, self._chains[step] = step, self.chain
        self._forget(step)

    def _forget(self, below: int) -> None:
        """Drop the chains of older steps: on the log, which is read in order, candidates follow one another."""
        if self._chains and next(iter(self._chains)) < below:
            self._chains = {step: chain for step, chain in self._chains.items() if step >= below}

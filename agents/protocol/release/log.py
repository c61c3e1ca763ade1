"""The release log of one stream, read: one seed and one candidate for each step, and an alarm on a second, different
one.

Rules (the log is read committed, in order; `c(s)` is the complete candidate of step s):
  seed(s) twice with other bytes                -> ForkError
  c(s) twice with other bytes                   -> ForkError
  c(s) follows c(r) with s > r + 1              -> GapError
  c(s) follows c(r) with s <= r, r forgotten    -> ForkError
  c(s).previous_chain != c(s-1).chain           -> ForkError
  a chunk that repeats one that is here         -> ignored; chunks without the rest of their candidate -> no candidate
  a record at an offset that was read before    -> ignored: readers may be sent back
"""

from __future__ import annotations

from schemas.errors import ForkError, GapError
from schemas.releases import Candidate, Chunk, LogRecord, Seed, join_chunks


class LogView:
    """Fold of one stream's log records. Keeps the newest candidate only."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.newest: Candidate | None = None  # without its state
        self._next_offset = 0
        self._seeds: dict[int, bytes] = {}
        self._digests: dict[int, str] = {}
        self._states: dict[int, str] = {}
        self._chunks: dict[tuple[int, str], dict[int, Chunk]] = {}

    def seed(self, step: int) -> bytes | None:
        """Return the seed of a step, if it was committed."""
        return self._seeds.get(step)

    def state_digest(self, step: int) -> str | None:
        """Return the digest of the state after a step, if its candidate is complete."""
        return self._states.get(step)

    @property
    def seeded(self) -> list[int]:
        """The steps whose seed is known, ascending."""
        return sorted(self._seeds)

    def apply(self, offset: int, record: LogRecord) -> Candidate | None:
        """Take in a record; return the candidate that it completes, if any. Raises: ForkError, GapError, WireError."""
        if offset < self._next_offset:
            return None
        self._next_offset = offset + 1
        step = record.step
        if isinstance(record, Seed):
            if self._seeds.setdefault(step, record.seed) != record.seed:
                raise ForkError(f"stream {self.stream}: step {step} has two different seeds on the release log")
            return None
        known = self._digests.get(step)
        if known is not None:
            if known != record.digest:
                raise ForkError(f"stream {self.stream}: step {step} has two different candidates on the release log")
            return None
        chunks = self._chunks.setdefault((step, record.digest), {})
        chunks[record.index] = record
        if len(chunks) < record.count:
            return None
        candidate = Candidate.decode(join_chunks([chunks[index] for index in range(record.count)]))
        self._check_link(candidate)
        self._digests[step], self._states[step] = record.digest, candidate.state_digest
        self._chunks = {key: value for key, value in self._chunks.items() if key[0] > step}
        self.newest = candidate
        return self.newest

    def _check_link(self, candidate: Candidate) -> None:
        if self.newest is None:
            return
        last = self.newest
        if candidate.step <= last.step:
            raise ForkError(
                f"stream {self.stream}: step {candidate.step} is answered on the release log once more, behind step "
                f"{last.step}. Another process writes there: a copy of the job, a mirror of its topics, or a copy that "
                "was put back"
            )
        if candidate.step != last.step + 1:
            raise GapError(f"stream {self.stream}: candidate of step {candidate.step} follows that of step {last.step}")
        if candidate.previous_chain != last.chain:
            raise ForkError(f"stream {self.stream}: the digest chain breaks at step {candidate.step}")

    def forget(self, below: int) -> None:
        """Drop what is known of steps under `below`: they are settled."""
        self._seeds = {step: seed for step, seed in self._seeds.items() if step >= below}
        self._digests = {step: digest for step, digest in self._digests.items() if step >= below}
        self._states = {step: digest for step, digest in self._states.items() if step >= below}
        self._chunks = {key: value for key, value in self._chunks.items() if key[0] >= below}

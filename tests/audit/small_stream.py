"""A stream small enough to be run thousands of times, and one whose machine crashes, through the job's own machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents.offline.audit_stream import StreamAudit
from agents.offline.audit_units import Sent
from agents.protocol.release.candidates import StreamCandidates
from agents.protocol.release.effects import CommitCandidates, CommitSeeds, Compute, SaveState
from engines.noise import NoiseSource
from schemas.blocks import Block
from schemas.config import Stream
from schemas.releases import Candidate, LogRecord, Seed, decode_log_record


def stream(*, unit: str = "user", contributions: int | None = 1, name: str = "small", **more: Any) -> Stream:
    """Mode paper with nine tenths of the budget for counting: it releases every event at once, so a step is short."""
    user = {"user": "u", "max_contributions": contributions} if unit == "user" else {}
    return Stream.model_validate(
        {
            "name": name,
            "engine": "spatial",
            "mode": "paper",
            "source": "raw.small",
            "privacy": {"epsilon": 1.5, "unit": unit, **user},
            "time": {"field": "t", "format": "s", "start": "2020-01-01T00:00:00", "step": "1h", "clock": "replay"},
            "domain": {"kind": "box", "x": "x", "y": "y", "bounds": [0.0, 0.0, 1.0, 1.0]},
            "options": {"depth": 2, "initial_steps": 1, "split": 0.1},
            **more,
        }
    )


class SmallStream(StreamAudit):
    """The auditor's own stream audit over fewer steps."""

    def __init__(self, configured: Stream, *, steps: int = 3) -> None:
        super().__init__(configured)
        self.late, self.active, self.steps = 1, 3, steps

    def others(self) -> list[Sent]:
        """Nobody: then the tree is its root, nearly always, and a step takes a millisecond."""
        return []


@dataclass
class Job:
    """What outlives a worker: the release log, the state table, and what has been seen outside."""

    log: list[tuple[int, bytes]] = field(default_factory=list)
    table: bytes | None = None
    answers: list[Candidate] = field(default_factory=list)

    def read(self) -> list[tuple[int, LogRecord]]:
        return [(offset, decode_log_record(data)) for offset, data in self.log]

    def commit(self, records: Sequence[bytes]) -> None:
        for data in records:
            self.log.append((len(self.log), data))


class CrashingStream(SmallStream):
    """Its worker dies `crashes` times after it has computed the answer of the early step, before it commits that.

    Everything computed counts as seen: a publisher that does not wait for the commit would have let it out. The honest
    job answers with the same bytes each time.
    """

    crashes = 7

    def remembered(self, log: list[tuple[int, LogRecord]]) -> list[tuple[int, LogRecord]]:
        """What the next worker makes of the log."""
        return log

    def publish(self, blocks: Sequence[Block], source: NoiseSource) -> Iterator[tuple[int, bytes, bytes]]:
        job, seeds = Job(), self._seeds(source)
        for life in range(self.crashes + 1):
            self.live(job, blocks, seeds, dies=life < self.crashes)
        for answer in job.answers:
            yield answer.step, answer.payload, answer.ledger

    def live(self, job: Job, blocks: Sequence[Block], seeds: Iterator[bytes], *, dies: bool) -> None:
        """One worker: recover, read all blocks, answer what is complete."""
        machine = StreamCandidates(self.stepper())
        machine.read(self.remembered(job.read()))
        self._perform(job, machine.recover(job.table, log_is_trimmed=False), seeds, dies=False)
        for offset, block in enumerate(blocks):
            if offset >= machine.position:
                machine.fold(offset, block)
        self._perform(job, machine.advance(), seeds, dies=dies)

    def _perform(self, job: Job, effects: Any, seeds: Iterator[bytes], *, dies: bool) -> None:
        result: Any = None
        while True:
            try:
                effect = effects.send(result)
            except StopIteration:
                return
            result = None
            match effect:
                case CommitSeeds():
                    result = [next(seeds) for _ in effect.steps]
                    drawn = zip(effect.steps, result, strict=True)
                    job.commit([Seed(effect.stream, step, seed).encode() for step, seed in drawn])
                case Compute():
                    result = effect.work()
                    job.answers.append(Candidate.decode(result))
                    if dies:
                        return
                case CommitCandidates():
                    job.commit([chunk.encode() for chunk in effect.chunks])
                case SaveState():
                    job.table = effect.body

    @staticmethod
    def _seeds(source: NoiseSource) -> Iterator[bytes]:
        drawn = 0
        while True:
            yield source.child("seed", drawn).words(4).tobytes()
            drawn += 1

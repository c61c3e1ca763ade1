"""Public steps of every engine as the job computes them, without Kafka: a stepper, events of the engine's own case."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from functools import lru_cache

import numpy as np

from agents.protocol.release.stepper import Stepper
from engines.checks.contract_case import contract_case
from schemas.blocks import Block, Folded
from schemas.config import ENGINES, Stream
from schemas.releases import Candidate, Channel, PublicRecord, unframe_records


def seed_of(name: object, step: int) -> bytes:
    return hashlib.sha256(f"{name}/{step}".encode()).digest()


WEIGHTED = [f"{name} weighted" for name, spec in ENGINES.items() if spec.facts.weighs_records]
RUNS = [*ENGINES, *WEIGHTED]
"""Every engine, in each form that its records can have."""


@lru_cache(maxsize=32)
def case_run(name: str, *, steps: int = 6, events: int = 300) -> tuple[Stream, tuple[Candidate, ...]]:
    """A stream of an engine's contract case in mode default, and its answers. Args: name: one of `RUNS`."""
    engine, _, form = name.partition(" ")
    case = contract_case(engine)
    stream = case.stream("default", {"records": {"form": form}} if form else None)
    chance = random.Random(7)
    batches = []
    for step in range(steps):
        # A crowd that comes and goes: some of the random keys are deletes.
        keys = [case.keys(chance.randint) for _ in range(events)] + [case.crowd] * (2 * events * (step % 2 == 0))
        batches.append(Folded.from_keys(np.array(keys, np.uint64).reshape(-1, case.words)))
    return stream, tuple(run(stream, batches))


def run(stream: Stream, batches: list[Folded], *, name: object = "run") -> list[Candidate]:
    """What the job would publish of these events, step by step."""
    stepper = Stepper.from_stream(stream, 1)
    found = []
    for step, events in enumerate(batches):
        stepper.fold(step, Block(stream.name, 0, step, step + 1, step, {step: events} if events.total else {}))
        found.append(stepper.compute(seed_of(name, step)))
    return found


def records_of(candidate: Candidate, channel: Channel) -> list[PublicRecord]:
    return [record for record in unframe_records(candidate.payload) if record.channel == channel]


def kept_by_compaction(candidates: list[Candidate]) -> list[list[PublicRecord]]:
    """The synthetic records of each step that are left when Kafka keeps the last one of each key."""
    everything = [records_of(candidate, "synthetic") for candidate in candidates]
    last = {record.key: record for step in everything for record in step}
    left = Counter(id(record) for record in last.values())
    return [[record for record in step if left[id(record)]] for step in everything]

"""Whatever is left of a stream's history after faults of its topics, alone and in pairs, there is no second answer.

The table of docs/operations.md, for what engine and publisher read. Six steps are answered and public; then topics are
lost, cut, compacted or put back from an older copy; then two more steps are over and a new worker starts. Whatever it
publishes continues what readers have seen, or nothing is published and the reason is said.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pytest

from agents.protocol.release.candidates import CommitCandidates, CommitSeeds, Compute, Effects, StreamCandidates
from agents.protocol.release.publisher import StreamPublisher
from agents.protocol.release.stepper import Stepper
from engines.checks.contract_case import contract_case
from schemas.blocks import Block
from schemas.errors import PromiseError, WireError
from schemas.releases import LogRecord, SavedState, Seed

BEFORE, AFTER = 6, 2
STREAM = contract_case("spatial").stream("default")


@dataclass(frozen=True)
class History:
    """Records with their offsets. `trimmed`: whether records before the first of the log are deleted. `table`: what a
    state table has once it has read its changelog.
    """

    blocks: tuple[tuple[int, Block], ...] = ()
    log: tuple[tuple[int, LogRecord], ...] = ()
    trimmed: bool = False
    table: SavedState | None = None
    older_table: SavedState | None = None
    ledger: tuple[bytes, ...] = ()


@dataclass
class Life:
    """One worker on a history: its engine first, then its publisher."""

    history: History
    seeds: itertools.count[int]
    stops: list[Exception] = field(default_factory=list)
    tables: list[SavedState] = field(default_factory=list)
    log: list[tuple[int, LogRecord]] = field(default_factory=list)
    published: list[bytes] = field(default_factory=list)

    def run(self) -> Life:
        self.log = list(self.history.log)
        for part in (self._engine, self._publisher):
            try:
                part()
            except (PromiseError, WireError) as stop:
                self.stops.append(stop)
        return self

    def _engine(self) -> None:
        machine = StreamCandidates(Stepper.from_stream(STREAM, 1))
        machine.read(self.history.log)
        self._drive(machine.recover(self.history.table, log_is_trimmed=self.history.trimmed))
        for offset, block in self.history.blocks:
            machine.fold(offset, block)
            self._drive(machine.advance())

    def _drive(self, effects: Effects) -> None:
        result: Any = None
        while True:
            try:
                effect = effects.send(result)
            except StopIteration:
                return
            result = None
            match effect:
                case CommitSeeds(stream, steps):
                    result = [next(self.seeds).to_bytes(32) for _ in steps]
                    self._append([Seed(stream, step, seed) for step, seed in zip(steps, result, strict=True)])
                case Compute(work=work):
                    result = work()
                case CommitCandidates(_, steps, chunks, state):
                    self._append(chunks)
                    self.tables.append(SavedState(steps[-1], state.digest, state.body))

    def _append(self, records: Sequence[LogRecord]) -> None:
        begin = self.log[-1][0] + 1 if self.log else 0
        self.log += [(begin + at, record) for at, record in enumerate(records)]

    def _publisher(self) -> None:
        publisher = StreamPublisher(STREAM.name)
        publisher.recover(self.history.ledger)
        for offset, record in self.log:
            if (publication := publisher.on_record(offset, record)) is not None:
                assert publication.records[-1].value is not None
                self.published.append(publication.records[-1].value)
                publisher.published(publication.step)


def block(step: int) -> tuple[int, Block]:
    return step, Block(STREAM.name, 0, 10 * step, 10 * step + 10, step, {})


SEEDS = itertools.count(1)


@functools.cache
def answered() -> History:
    blocks = tuple(block(step) for step in range(BEFORE))
    life = Life(History(blocks=blocks), SEEDS).run()
    assert not life.stops
    assert len(life.published) == BEFORE
    return History(blocks, tuple(life.log), False, life.tables[-1], life.tables[2], tuple(life.published))


Fault = Callable[[History], History]


def _replaced(history: History, state: SavedState | None, added: bytes = b"") -> SavedState:
    """The newest state's place in the table, with other bytes under its digest."""
    assert state is not None
    assert history.table is not None
    return history.table._replace(body=state.body + added)


def _another(history: History) -> SavedState:
    """A whole state of the newest step that no candidate names."""
    assert history.older_table is not None
    assert history.table is not None
    return history.older_table._replace(step=history.table.step)


def _step(entry: tuple[int, LogRecord]) -> int:
    return entry[1].step


FAULTS: dict[str, dict[str, Fault]] = {
    "blocks": {
        "whole": lambda h: h,
        "trimmed by the job": lambda h: replace(h, blocks=h.blocks[-1:]),
        "lost": lambda h: replace(h, blocks=()),
        "compacted": lambda h: replace(h, blocks=h.blocks[-1:]),
        "old copy": lambda h: replace(h, blocks=h.blocks[:3]),
    },
    "releases": {
        "whole": lambda h: h,
        "trimmed by the job": lambda h: replace(
            h, log=tuple(entry for entry in h.log if _step(entry) == BEFORE - 1), trimmed=True
        ),
        "lost": lambda h: replace(h, log=()),
        "truncated": lambda h: replace(h, log=(), trimmed=True),
        "compacted": lambda h: replace(h, log=h.log[-1:]),
        "old copy": lambda h: replace(h, log=tuple(entry for entry in h.log if _step(entry) < 3)),
    },
    "state": {
        "whole": lambda h: h,
        "lost": lambda h: replace(h, table=None),
        "old copy": lambda h: replace(h, table=h.older_table),
        "old copy that says it is the newest": lambda h: replace(h, table=_replaced(h, h.older_table)),
        "another": lambda h: replace(h, table=_another(h)),
        "damaged": lambda h: replace(h, table=_replaced(h, h.table, b"x")),
    },
    "ledger": {
        "whole": lambda h: h,
        "lost": lambda h: replace(h, ledger=()),
        "truncated": lambda h: replace(h, ledger=h.ledger[3:]),
        "old copy": lambda h: replace(h, ledger=h.ledger[:3]),
    },
}
ALONE: list[tuple[tuple[str, str], ...]] = [
    ((topic, fault),) for topic, faults in FAULTS.items() for fault in faults if fault != "whole"
]
PAIRS: list[tuple[tuple[str, str], ...]] = [
    (one, other) for (one,), (other,) in itertools.combinations(ALONE, 2) if one[0] != other[0]
]


def after(faults: Sequence[tuple[str, str]]) -> Life:
    history = answered()
    for topic, fault in faults:
        history = FAULTS[topic][fault](history)
    fresh = tuple(block(step) for step in range(BEFORE, BEFORE + AFTER))
    return Life(replace(history, blocks=(*history.blocks, *fresh)), SEEDS).run()


@pytest.mark.parametrize("faults", ALONE + PAIRS, ids=lambda faults: ", ".join(map(" ".join, faults)))
def test_no_step_is_ever_public_with_other_bytes(faults: Sequence[tuple[str, str]]) -> None:
    life = after(faults)
    seen = {orjson.loads(value)["step"]: value for value in answered().ledger}
    for value in life.published:
        step = orjson.loads(value)["step"]
        assert seen.setdefault(step, value) == value
    steps = [orjson.loads(value)["step"] for value in life.published]
    assert steps == sorted(set(steps))
    whole = steps[-AFTER:] == [BEFORE, BEFORE + 1]
    assert whole or life.stops, "it goes on, or says why not"


LOST = "is lost: the state table and its changelog have "
STOPS: dict[tuple[str, str], str] = {
    ("releases", "lost"): "the release log has lost step 5, which was answered",
    ("releases", "truncated"): "the release log has lost step 5, which was answered",
    ("releases", "compacted"): "",
    ("releases", "old copy"): "the release log ends before step 5, which was answered",
    ("state", "lost"): LOST + "none",
    ("state", "old copy"): LOST + "that after step 2",
    ("state", "old copy that says it is the newest"): "",
    ("state", "another"): "state table and release log differ at step 5",
    ("state", "damaged"): "",
    ("ledger", "truncated"): "the public ledger jumps from step -1 to 3",
}
"""What stops the stream, and what it says first. Engine and publisher can do without the rest. Where blocks are lost,
compacted or older, the ingest refuses; with the log whole, a ledger that lacks steps is filled with the same bytes
again."""


@pytest.mark.parametrize("fault", ALONE, ids=lambda faults: " ".join(faults[0]))
def test_what_was_not_needed_is_not_missed_and_what_was_is_named(fault: Sequence[tuple[str, str]]) -> None:
    life = after(fault)
    assert bool(life.stops) == (fault[0] in STOPS), life.stops
    if life.stops:
        assert STOPS[fault[0]] in str(life.stops[0])

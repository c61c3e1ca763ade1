"""A restart goes on from the state that the newest candidate names, and says what it found where it has another."""

from __future__ import annotations

import pytest

from agents.protocol.release.candidates import StreamCandidates
from agents.protocol.release.stepper import Stepper
from engines.checks.contract_case import contract_case
from schemas.blocks import Block
from schemas.errors import ForkError, GapError, PrivstreamError
from schemas.releases import Encoded, SavedState, Seed, cut, sha256

STREAM = contract_case("spatial").stream("default")


def answered(steps: int) -> list[Encoded]:
    """The releases and states of the first steps, each with a seed of its own."""
    stepper = Stepper.of(STREAM, 1)
    stepper.fold(0, Block(STREAM.name, 0, 0, 1, steps - 1, {}))
    found = []
    for step in range(steps):
        candidate = stepper.compute(bytes([step]) * 32)
        found.append(candidate.encode())
        stepper.restore(candidate)
    return found


def restarted(log: list[Encoded], saved: SavedState | None) -> int:
    """Recover from a log with all of these, and return the step that is next."""
    machine = StreamCandidates(Stepper.of(STREAM, 1))
    records = [
        record
        for step, each in enumerate(log)
        for record in (
            Seed(STREAM.name, step, bytes([step]) * 32),
            *cut(each.release, stream=STREAM.name, step=step),
        )
    ]
    machine.read(enumerate(records))
    list(machine.recover(saved, log_is_trimmed=False))
    return machine.step


def test_it_goes_on_from_the_state_that_is_named() -> None:
    log = answered(2)
    assert restarted(log, SavedState(1, sha256(log[1].state), log[1].state)) == 2


@pytest.mark.parametrize(
    ("saved", "error", "message"),
    [
        (None, GapError, "is lost: the state table and its changelog have none"),
        (lambda log: (0, log[0].state), GapError, "is lost: the state table and its changelog have that after step 0"),
        (lambda log: (1, log[0].state), ForkError, "state table and release log differ at step 1"),
        (lambda log: (2, log[1].state), GapError, "the release log ends before step 2, which was answered"),
    ],
    ids=["none", "older", "another", "newer"],
)
def test_another_state_stops_the_stream_and_is_named(saved: object, error: type[PrivstreamError], message: str) -> None:
    log = answered(2)
    step, state = saved(log) if callable(saved) else (None, b"")
    with pytest.raises(error, match=message):
        restarted(log, None if step is None else SavedState(step, sha256(state), state))

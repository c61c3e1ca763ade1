"""The public ledger is a chain: what was said in it cannot be changed afterwards, not even a word."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.publisher import StreamPublisher
from agents.protocol.stepper import Stepper
from engines.contract_case import contract_case
from schemas.blocks import Block
from schemas.errors import ForkError, GapError

STEPS = 4
STREAM = contract_case("spatial").stream("default")


def ledger() -> list[bytes]:
    """Values of the ledger topic after some steps."""
    stepper = Stepper.of(STREAM, 1)
    stepper.fold(0, Block(STREAM.name, 0, 0, 1, STEPS - 1, {}))
    return [stepper.compute(bytes([step]) * 32).ledger for step in range(STEPS)]


LEDGER = ledger()
WORDS = sorted(set(orjson.loads(LEDGER[0])) - {"step"})


def recovered(values: list[bytes]) -> StreamPublisher:
    publisher = StreamPublisher(STREAM.name)
    publisher.recover(values)
    return publisher


def test_an_honest_ledger_is_read_to_its_end_and_twice_is_once() -> None:
    assert recovered(LEDGER).last_step == STEPS - 1
    assert recovered([LEDGER[0], LEDGER[0], *LEDGER[1:], LEDGER[1]]).last_step == STEPS - 1


@given(step=st.integers(0, STEPS - 1), word=st.sampled_from(WORDS))
def test_a_changed_word_breaks_the_chain(step: int, word: str) -> None:
    entry = orjson.loads(LEDGER[step])
    entry[word] = "f" * 64 if entry[word] != "f" * 64 else "e" * 64
    forged = orjson.dumps(entry, option=orjson.OPT_SORT_KEYS)
    with pytest.raises(ForkError):
        recovered([*LEDGER[:step], forged, *LEDGER[step + 1 :]])
    with pytest.raises(ForkError):
        recovered([*LEDGER, forged])


def test_a_missing_step_is_a_gap() -> None:
    with pytest.raises(GapError):
        recovered([LEDGER[0], *LEDGER[2:]])

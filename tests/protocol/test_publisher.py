"""The public ledger is a chain: what was said in it cannot be changed afterwards, not even a word."""

from __future__ import annotations

import contextlib
import dataclasses

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.release.publisher import StreamPublisher
from agents.protocol.release.stepper import Stepper
from engines.checks.contract_case import contract_case
from schemas.blocks import Block
from schemas.config import ENGINES, Stream
from schemas.errors import ForkError, GapError, LostTopicError, WireError
from schemas.releases import Candidate, Channel, link, sha256, split_into_chunks

STEPS = 4
STREAM = contract_case("spatial").stream("default")


def candidates(stream: Stream) -> list[Candidate]:
    """Of the first steps of a stream without events."""
    stepper = Stepper.from_stream(stream, 1)
    stepper.fold(0, Block(stream.name, 0, 0, 1, STEPS - 1, {}))
    return [stepper.compute(bytes([step, 0]) * 16) for step in range(STEPS)]


LEDGER = [candidate.ledger for candidate in candidates(STREAM)]
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
    with pytest.raises((ForkError, WireError)):
        recovered([*LEDGER[:step], forged, *LEDGER[step + 1 :]])
    with pytest.raises((ForkError, WireError)):
        recovered([*LEDGER, forged])


def test_a_second_answer_has_another_chain_even_where_it_says_the_same() -> None:
    """Each step is answered anew from the state before it, as in a cluster that was put back."""
    alike = []
    for engine in ENGINES:
        stream = contract_case(engine).stream("default")
        before: Candidate | None = None
        for first in candidates(stream):
            stepper = Stepper.from_stream(stream, 1)
            if before is None:
                stepper.fold(0, Block(stream.name, 0, 0, 1, STEPS - 1, {}))
            else:
                stepper.restore(before)
            second = stepper.compute(bytes([first.step, 1]) * 16)
            assert (second.step, second.previous_chain) == (first.step, first.previous_chain)
            assert second.chain != first.chain
            if second.digest == first.digest:
                alike.append((engine, first.step))
            before = first
    assert alike  # else nothing was seen here


def test_a_missing_step_is_a_gap() -> None:
    with pytest.raises(GapError):
        recovered([LEDGER[0], *LEDGER[2:]])


@pytest.mark.parametrize("channel", ["synthetic", "measurements"])
def test_records_of_a_step_that_the_ledger_does_not_have_stop_the_stream(channel: Channel) -> None:
    publisher = StreamPublisher("s")
    publisher.check_end(channel, -1)
    with pytest.raises(
        GapError, match=f"records of step 0 are public \\({channel}\\), and the public ledger ends at step -1"
    ):
        publisher.check_end(channel, 0)


def test_half_a_candidate_is_none_and_is_written_again() -> None:
    """Chunks that were committed without the rest; the same seed gives the same ones again."""
    chunks = split_into_chunks(candidates(STREAM)[0].encode().release, stream=STREAM.name, step=0, chunk_bytes=300)
    assert len(chunks) > 3
    publisher, log = StreamPublisher(STREAM.name), [*chunks[:2], *chunks]
    found = [publisher.on_record(offset, chunk) for offset, chunk in enumerate(log)]
    assert [each is not None for each in found] == [False] * (len(log) - 1) + [True]


def test_what_it_remembers_does_not_grow_with_the_steps() -> None:
    log = [
        chunk
        for step, each in enumerate(candidates(STREAM))
        for chunk in split_into_chunks(each.encode().release, stream=STREAM.name, step=step)
    ]
    publisher = recovered(LEDGER[:-1])
    for offset, chunk in enumerate(log):
        due = publisher.on_record(offset, chunk)
        assert (due is not None) == (chunk.step == STEPS - 1)
    publisher.published(STEPS - 1)
    assert list(publisher._chains) == [STEPS - 1]


@pytest.mark.parametrize("framed", [b"\x03" + bytes(8), b"\x00" * 5, b"\x00\x09" + bytes(7)])
def test_records_that_cannot_be_read_stop_the_stream_before_a_transaction(framed: bytes) -> None:
    """As those on a channel of a later version: digests and chain are right."""
    honest = candidates(STREAM)[0]
    digest = sha256(honest.payload + framed)
    chain = link(honest.previous_chain, stream=STREAM.name, step=0, digest=digest, ledger=honest.ledger)
    other = dataclasses.replace(honest, payload=honest.payload + framed, digest=digest, chain=chain)
    for candidate, refused in ((honest, False), (other, True)):
        [chunk] = split_into_chunks(candidate.encode().release, stream=STREAM.name, step=0)
        with pytest.raises(WireError, match="frame of public records") if refused else contextlib.nullcontext():
            assert recovered([]).on_record(0, chunk) is not None


# One engine measures in every step, the other, where nothing happens, in every other one.
OFTEN, SELDOM = candidates(contract_case("markov").stream("default")), candidates(STREAM)


def reading(answered: list[Candidate], *, public: int, newest: int | None) -> StreamPublisher:
    """A publisher that finds so many steps public, and the newest measured one, and reads the release log."""
    publisher = StreamPublisher(answered[0].stream)
    publisher.recover(candidate.ledger for candidate in answered[:public])
    if newest is not None:
        publisher.measured(newest)
    # The log keeps the newest public candidate, and what comes after it.
    for offset, candidate in enumerate(answered[public - 1 :]):
        [chunk] = split_into_chunks(candidate.encode().release, stream=candidate.stream, step=candidate.step)
        publisher.on_record(offset, chunk)
    return publisher


def test_the_last_step_with_measurements_is_handed_on_to_steps_without() -> None:
    assert [candidate.measured for candidate in OFTEN] == [0, 1, 2, 3]
    assert [candidate.measured for candidate in SELDOM] == [0, 0, 2, 2]
    stepper = Stepper.from_stream(STREAM, 1)
    stepper.restore(SELDOM[3])
    assert stepper.measured == 2


@pytest.mark.parametrize(
    ("answered", "newest"), [(OFTEN, -1), (OFTEN, 0), (OFTEN, 2), (SELDOM, -1)], ids=["again", "old", "older", "seldom"]
)
def test_measurements_that_are_public_and_not_there_stop_the_stream(answered: list[Candidate], newest: int) -> None:
    """The topic was made again, or is an older copy."""
    with pytest.raises(LostTopicError, match=rf"does not hold the measurements of step {answered[-1].measured},"):
        reading(answered, public=STEPS, newest=newest)


@pytest.mark.parametrize(("answered", "newest"), [(OFTEN, 3), (SELDOM, 2), (OFTEN, None)])
def test_a_topic_that_lost_its_head_or_all_of_it_is_no_reason_to_stop(
    answered: list[Candidate], newest: int | None
) -> None:
    reading(answered, public=STEPS, newest=newest)


def test_steps_that_come_later_are_not_looked_for_in_what_was_there_before() -> None:
    publisher = reading(OFTEN, public=2, newest=1)
    for step in range(2, STEPS):
        publisher.published(step)
    assert publisher.last_step == STEPS - 1

"""A batch that is written in one go has, byte for byte, what aiokafka's builder makes of the same records."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from aiokafka.producer.message_accumulator import BatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.kafka import batches
from agents.kafka.batches import RecordBatch
from schemas.releases import Frames, PublicRecord, frame_records
from schemas.topics import BATCH_BYTES
from tests.examples import examples

SIZES = st.sampled_from([0, 1, 9, 63, 64, 100, 8_191, 8_192])
RECORDS = st.lists(st.tuples(SIZES, st.none() | SIZES), max_size=30)
STEPS = st.lists(st.tuples(st.integers(0, 2**40), RECORDS), max_size=4)
Steps = Sequence[tuple[int, Sequence[PublicRecord]]]


def ours(steps: Steps) -> list[RecordBatch]:
    batches = [RecordBatch()]
    for number, (time_ms, records) in enumerate(steps):
        left = Frames.of(frame_records(records))
        while len(left):
            taken = batches[-1].extend(left, time_ms=time_ms, header=("step", b"%d" % number))
            if len(left := left.only(slice(taken, None))):
                batches.append(RecordBatch())
    return batches


def theirs(steps: Steps) -> list[BatchBuilder]:
    def new() -> BatchBuilder:
        return BatchBuilder(BATCH_BYTES, 0, is_transactional=1)

    batches = [new()]
    for number, (time_ms, records) in enumerate(steps):
        for _, key, value in records:
            headers = [("step", b"%d" % number)]
            while batches[-1].append(timestamp=time_ms, key=key, value=value, headers=headers) is None:
                batches.append(new())
    return batches


def check(steps: Steps) -> None:
    found, expected = ours(steps), theirs(steps)
    assert [batch.record_count() for batch in found] == [batch.record_count() for batch in expected]
    for one, other in zip(found, expected, strict=True):
        if one.record_count():
            for batch in (one, other):
                batch._set_producer_state(7, 3, 12)
            assert bytes(one._build()) == bytes(other._build()) == bytes(one._build())


@settings(max_examples=examples(0.5))
@given(steps=STEPS, few=st.sampled_from([0, 10, 64]))
def test_a_batch_is_that_of_aiokafka(steps: Sequence[tuple[int, Sequence[tuple[int, int | None]]]], few: int) -> None:
    times = sorted(time_ms for time_ms, _ in steps)
    made = [
        [PublicRecord("synthetic", b"k" * key, None if size is None else b"\0" * size) for key, size in records]
        for _, records in steps
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "FEW_RECORDS", few)
        check([*zip(times, made, strict=True)])


@pytest.mark.parametrize(
    "sizes", [[100] * 30_000, [9] * 10_000 + [900_000] * 3 + [9] * 10_000, [BATCH_BYTES, 2 * BATCH_BYTES]]
)
def test_batches_are_full_before_the_next_begins(sizes: list[int]) -> None:
    """Also where one record is as long as thousands of others, or longer than a batch."""
    check([(1, [PublicRecord("synthetic", b"%d" % at, b"v" * size) for at, size in enumerate(sizes)])])


def test_batches_of_steps_with_few_records_are_full_before_the_next_begins() -> None:
    """Nine of 100 kB fit, and a tenth does not: whether the step before or this one has filled the batch."""
    record = PublicRecord("synthetic", b"k", b"v" * 100_000)
    check([(step, [record] * count) for step, count in enumerate((4, 9, 3, 25, 1))])

"""The short way through aiokafka's fetch results hands out what its own way does, however records are cut."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import READ_COMMITTED, FetchResult, PartitionRecords
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatchBuilder, _DefaultRecordBatchBuilderPy
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from agents.kafka import batches
from agents.kafka.batches import _UNREADABLE, ReadBatches
from agents.worker.ingest import records as short_way
from agents.worker.ingest.records import hand_out_bare_records

SOURCE = TopicPartition("raw", 0)
ABORTED, COMMITTED = 7, 8  # producers
# Of each batch: how many records, the producer if it is of a transaction, and the codec.
BATCHES = st.lists(
    st.tuples(st.integers(1, 9), st.sampled_from([None, ABORTED, COMMITTED]), st.integers(0, 4)), max_size=8
)


class _Position:
    """What a fetch result asks of its assignment."""

    active, paused = True, False

    def __init__(self, position: int) -> None:
        self.position = position

    def state_value(self, _: TopicPartition) -> _Position:
        return self

    def consumed_to(self, position: int) -> None:
        self.position = position


class _Fetcher:
    def __init__(self) -> None:
        self._records: Any = {}


class _Consumer:
    def __init__(self) -> None:
        self._fetcher = _Fetcher()


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "CHUNK_RECORDS", 4)
    monkeypatch.setattr(short_way, "MOST_BYTES", 170)


@given(BATCHES, st.integers(0, 12), st.lists(st.one_of(st.none(), st.integers(1, 12)), min_size=1, max_size=6))
@example([(8, None, 0)], 0, [2])
def test_the_same_records_and_positions(
    batches: list[tuple[int, int | None, int]], begin: int, asked: list[int | None]
) -> None:
    """From within a batch on, transactions aborted or not, and with any number asked for at once."""
    data = _batches(batches)
    aborted = [(ABORTED, 0)]
    expected = _Position(begin)
    plain = _result(data, begin, aborted, position=expected, batches=MemoryRecords)
    theirs = [each for part, _ in _drained(plain, [None]) for each in part]
    position = _Position(begin)
    ours = []
    for part, most in _drained(_short(_result(data, begin, aborted, position=position)), asked):
        ours.append((part, most))
        # Never before what was handed out: that would look like a source that has lost its tail.
        assert not part or position.position > part[-1].offset
    taken = [each for part, _ in ours for each in part]
    assert [_fields(each) for each in taken] == [_fields(each) for each in theirs]
    assert all(most is None or len(part) <= most for (part, most) in ours)
    assert position.position == expected.position


def test_a_torn_batch_is_an_error_and_what_is_before_it_is_not_lost() -> None:
    data = _batches([(6, None, 0)])
    more = bytearray(_batches([(6, None, 0), (3, None, 0)]))
    more[-1] ^= 1
    position = _Position(0)
    result = _short(_result(bytes(more), 0, [], position=position))
    assert len(result.getall(5)) == 5
    with pytest.raises(CorruptRecordException):
        result.getall(5)
    # The client drops the result and asks again from its position, which is behind what was handed out.
    assert position.position == 5
    assert not result.getall(5)
    again = _short(_result(data, 5, [], position=_Position(5)))
    assert [each.offset for each in again.getall(5)] == [5]


def test_a_result_is_dropped_where_the_consumer_was_moved_or_paused() -> None:
    data = _batches([(6, None, 0)])
    position = _Position(0)
    result = _short(_result(data, 0, [], position=position))
    assert len(result.getall(3)) == 3
    position.position = 1
    assert result.getall(3) == []
    assert not result.has_more()


@pytest.mark.parametrize("end", ["drained", "moved"])
def test_what_was_handed_out_is_freed_without_the_collector(end: str) -> None:
    """It runs rarely in a worker: what waits for it is all of the source, for as long as the worker runs."""
    position = _Position(0)
    result = _short(_result(_batches([(6, None, 0), (3, None, 0)]), 0, [], position=position))
    assert len(result.getall(2)) == 2
    kept = weakref.ref(result._partition_records)
    gc.disable()
    try:
        if end == "moved":
            position.position = 5
        while result.has_more():
            result.getall(2)
        assert kept() is None
        dropped = weakref.ref(result)
        del result
        assert dropped() is None
    finally:
        gc.enable()


def _batches(wanted: list[tuple[int, int | None, int]]) -> bytes:
    """Bytes as a broker sends them."""
    data, offset = bytearray(), 0
    for count, producer, codec in wanted:
        builder = DefaultRecordBatchBuilder(2, codec, producer is not None, producer or -1, 0, -1, 1 << 16)
        for row in range(count):
            headers = [("h", b"1")] if row == 1 else []
            builder.append(row, timestamp=1000 + offset + row, key=b"k", value=b"%d" % (offset + row), headers=headers)
        batch = bytearray(builder.build())
        batch[:8] = offset.to_bytes(8, "big")  # a broker's doing; the checksum begins behind it
        data += batch
        offset += count
    return bytes(data)


def _result(
    data: bytes,
    begin: int,
    aborted: list[tuple[int, int]],
    *,
    position: _Position | None = None,
    batches: Callable[[bytes], Any] = ReadBatches,
) -> FetchResult:
    records = PartitionRecords(SOURCE, batches(data), aborted, begin, None, None, True, READ_COMMITTED)
    return FetchResult(SOURCE, assignment=position or _Position(begin), partition_records=records, backoff=0)


def _short(result: FetchResult) -> FetchResult:
    consumer: Any = _Consumer()
    hand_out_bare_records(consumer)
    consumer._fetcher._records[SOURCE] = result
    return result


def _drained(result: FetchResult, asked: list[int | None]) -> Iterator[tuple[list[Any], int | None]]:
    """All parts, each with how many were asked for."""
    turn = 0
    while result.has_more():
        most = asked[turn % len(asked)]
        yield list(result.getall(most)), most
        turn += 1


def _fields(record: Any) -> tuple[Any, ...]:
    return record.offset, record.timestamp, record.key, record.value, tuple(record.headers)


class _Name(str):
    """The name of a header as a producer in C writes it."""

    def encode(self, *_: Any) -> bytes:
        return b"gr\xf6\xdfe"


EACH_WAY = pytest.mark.parametrize("way", [_short, lambda result: result], ids=["short", "of the client"])
Way = Callable[[FetchResult], FetchResult]


@pytest.mark.parametrize("codec", range(5))
@EACH_WAY
def test_a_header_whose_name_is_no_text_ends_nobody(codec: int, way: Way) -> None:
    """Brokers take it."""
    builder = _DefaultRecordBatchBuilderPy(2, codec, False, -1, 0, -1, 1 << 16)
    for row in range(11):
        headers = [("a", b"1"), (_Name("b"), b"\xf6")] if row in (5, 9) else []
        builder.append(row, timestamp=1000 + row, key=b"k", value=b"%d" % row, headers=headers)
    data = bytes(builder.build()) + (11).to_bytes(8, "big") + _batches([(3, None, codec)])[8:]
    found = [each for part, _ in _drained(way(_result(data, 0, [])), [3]) for each in part]
    replaced = (("a", b"1"), ("gr\ufffd\ufffde", b"\xf6"))
    assert [_fields(each)[2:] for each in found[:11]] == [
        (b"k", b"%d" % row, replaced if row in (5, 9) else ()) for row in range(11)
    ]
    assert [each.offset for each in found] == list(range(14))
    assert [each.timestamp for each in found[:11]] == list(range(1000, 1011))


def _crafted(codec: int, values: list[bytes], behind: bytes = b"") -> bytes:
    """A batch with something behind what is compressed, and another batch."""
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, 0, -1, 1 << 30)
    for row, value in enumerate(values):
        builder.append(row, timestamp=1000 + row, key=b"k", value=value, headers=[])
    batch = builder.build() + behind
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[17:21] = calc_crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
    return bytes(batch) + len(values).to_bytes(8, "big") + _batches([(3, None, codec)])[8:]


def _values(way: Way, data: bytes, count: int) -> set[bytes]:
    """Of all records but the last three, which are those of the other batch."""
    found = [each for part, _ in _drained(way(_result(data, 0, [])), [3]) for each in part]
    assert [each.offset for each in found] == list(range(count + 3))
    assert [each.value for each in found[count:]] == [b"0", b"1", b"2"]
    return {each.value for each in found[:count]}


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@EACH_WAY
def test_what_stands_behind_what_is_compressed_ends_nobody(codec: int, way: Way) -> None:
    """Brokers take it where they unpack no more than the records."""
    assert _values(way, _crafted(codec, [b"v"] * 7, b"not compressed"), 7) <= {b"v", _UNREADABLE}


@pytest.mark.parametrize("codec", [1, 3, 4])
@EACH_WAY
def test_a_batch_that_would_take_all_memory_is_not_unpacked(
    codec: int, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "MOST_UNPACKED", 50_000)
    assert _values(way, _crafted(codec, [b" " * 4_000] * 12), 12) == {b" " * 4_000}
    assert _values(way, _crafted(codec, [b" " * 5_000] * 12), 12) == {_UNREADABLE}


@pytest.mark.parametrize("large", ["key", "value", "headers"])
def test_what_is_handed_out_at_once_has_a_bound(large: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mebibyte of batches can hold twenty thousand keys of a mebibyte, as of values."""
    monkeypatch.setattr(short_way, "MOST_BYTES", 10_000)
    sizes = {"key": b"", "value": b"", "headers": []} | {
        large: [("h", b"")] * 15 if large == "headers" else bytes(1_000)
    }
    data = bytearray()
    for batch in range(10):
        builder = DefaultRecordBatchBuilder(2, 4, False, -1, 0, -1, 1 << 20)
        for row in range(4):
            builder.append(row, timestamp=1000, **sizes)
        data += (4 * batch).to_bytes(8, "big") + builder.build()[8:]
    parts = [part for part, _ in _drained(_short(_result(bytes(data), 0, [])), [None])]
    assert [len(part) for part in parts] == [12, 12, 12, 4]

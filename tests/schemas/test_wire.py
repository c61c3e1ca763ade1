"""The wire: what is written is read back, damage is noticed, and old bytes decode for ever (`tests/golden`).

`python -m tests.schemas.golden` rewrites the golden files; the diff is reviewed.
"""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from zstandard import ZstdCompressor, ZstdDecompressor, frame_content_size

from schemas import wire
from schemas.blocks import Block, Folded
from schemas.byte_columns import ByteColumn, Piece
from schemas.errors import EncodedSizeError, RecordError, WireError
from schemas.events import encode_tick, read_tick
from schemas.releases import (
    CHANNELS,
    GENESIS,
    STEP_HEADER,
    STEP_LIMIT,
    Candidate,
    Channel,
    Chunk,
    EncodedState,
    Frames,
    PublicRecord,
    Seed,
    _followed,
    decode_log_record,
    frame_column,
    frame_records,
    join_chunks,
    link,
    public_step,
    sha256,
    split_into_chunks,
    unframe_records,
)
from schemas.wire import Kind, decode, encode
from tests.schemas.golden import FOLDER, SAMPLES, same

KEYS = st.lists(st.integers(0, 2**64 - 1), max_size=40)
RECORDS = st.lists(
    st.builds(PublicRecord, st.sampled_from(CHANNELS), st.binary(max_size=20), st.none() | st.binary(max_size=50)),
    max_size=10,
)


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.integers(-(2**53), 2**53)), KEYS)
def test_encode_and_decode_are_inverse_and_repeatable(header: dict[str, int], keys: list[int]) -> None:
    arrays = {"keys": np.array(keys, np.uint64), "empty": np.zeros((0, 3), np.int64)}
    data = encode(Kind.BLOCK, header, arrays)
    assert data == encode(Kind.BLOCK, dict(reversed(header.items())), dict(reversed(arrays.items())))
    decoded_header, decoded = decode(Kind.BLOCK, data)
    assert decoded_header == header
    for name, array in arrays.items():
        np.testing.assert_array_equal(decoded[name], array)
        assert decoded[name].dtype == array.dtype


@given(st.binary(max_size=60), st.integers(0, 200), st.integers(0, 7))
def test_damaged_bytes_are_refused_and_never_crash(junk: bytes, at: int, bit: int) -> None:
    good = encode(Kind.SEED, {"step": 1}, {"x": np.arange(5)})
    flipped = bytearray(good)
    flipped[at % len(good)] ^= 1 << bit
    for data in (junk, good[: at % len(good)], good + b"x" + junk):
        with pytest.raises(WireError):
            decode(Kind.SEED, data)
    with pytest.raises(WireError):
        decode(Kind.BLOCK, good)
    try:
        header, arrays = decode(Kind.SEED, bytes(flipped))
    except WireError:
        return
    # A bit of zstd's frame header may mean nothing; then the checksum vouches for the content.
    assert header == {"step": 1}
    np.testing.assert_array_equal(arrays["x"], np.arange(5))


@pytest.mark.parametrize("over", [0, 1])
def test_what_is_written_is_never_too_large_to_be_read(monkeypatch: pytest.MonkeyPatch, over: int) -> None:
    array = {"x": np.zeros(1000, np.uint8)}
    whole = frame_content_size(encode(Kind.STATE, {}, array)[5:])
    monkeypatch.setattr(wire, "MAX_DECODED_BYTES", whole - over)
    if over:
        with pytest.raises(EncodedSizeError, match=f"STATE record would have {whole:,} bytes"):
            encode(Kind.STATE, {}, array)
    else:
        assert decode(Kind.STATE, encode(Kind.STATE, {}, array))[1]["x"].size == 1000


def test_a_forged_length_is_refused_before_memory_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(Kind.STATE, {}, {"x": np.zeros(1000, np.uint8)})
    long = b"\x28\xb5\x2f\xfd\xe4" + (2**50).to_bytes(8, "little") + b"\x01\0\0"
    unsized = ZstdCompressor(write_content_size=False).compress(ZstdDecompressor().decompress(data[5:]))
    for body in (long, unsized):
        with pytest.raises(WireError, match="says no size, or more"):
            decode(Kind.STATE, data[:5] + body)
    monkeypatch.setattr(wire, "MAX_DECODED_BYTES", 999)
    with pytest.raises(WireError, match="more than 999"):
        decode(Kind.STATE, data)


def test_an_unknown_version_names_both_versions() -> None:
    data = bytearray(encode(Kind.SEED, {}, {}))
    data[4] = 9
    with pytest.raises(WireError, match="version 9; this release reads version 1"):
        decode(Kind.SEED, bytes(data))


@given(KEYS, KEYS)
def test_folding_counts_every_event_once_in_any_order(first: list[int], second: list[int]) -> None:
    def fold(keys: list[int]) -> Folded:
        return Folded.from_keys(np.array(keys, np.uint64).reshape(-1, 1))

    apart, together = fold(first).merge(fold(second)), fold(second + first)
    np.testing.assert_array_equal(apart.keys, together.keys)
    np.testing.assert_array_equal(apart.counts, together.counts)
    assert apart.total == len(first) + len(second)
    assert np.all(np.diff(apart.keys[:, 0].astype(object)) > 0) if len(apart.keys) > 1 else True


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=30))
def test_folding_wide_keys_agrees_with_a_dictionary(rows: list[tuple[int, int]]) -> None:
    folded = Folded.from_keys(np.array(rows, np.uint64).reshape(-1, 2))
    expected = {row: rows.count(row) for row in set(rows)}
    assert {tuple(map(int, key)): int(n) for key, n in zip(folded.keys, folded.counts, strict=True)} == expected


@given(RECORDS)
def test_frames_are_inverse(records: list[PublicRecord]) -> None:
    framed = frame_records(records)
    assert unframe_records(framed) == records
    assert Frames.of(framed).begins.tolist() == (_followed(framed) + 9).tolist()
    if framed:
        with pytest.raises(WireError):
            unframe_records(framed[:-1])


TEXTS = st.lists(st.tuples(st.text("kö", max_size=300), st.text("vw", max_size=600)), max_size=10)


@given(TEXTS, st.sampled_from(CHANNELS), st.booleans())
def test_frames_of_columns_are_those_of_the_records(
    rows: list[tuple[str, str]], channel: Channel, withdrawn: bool
) -> None:
    keys, values = ([row[at].encode() for row in rows] for at in range(2))
    records = [
        PublicRecord(channel, key, None if withdrawn else b"<%b>" % value)
        for key, value in zip(keys, values, strict=True)
    ]
    value: list[Piece] | None = None if withdrawn else [b"<", ByteColumn.of(values), b">"]
    assert frame_column(channel, ByteColumn.of(keys), value) == frame_records(records)


@given(st.lists(st.sampled_from([0, 1, 2, 3, 9, 255]), max_size=60).map(bytes))
def test_any_bytes_are_frames_that_follow_each_other_or_refused(data: bytes) -> None:
    """Bytes that look like heads within keys and values lead nobody astray."""
    begins, offset = [], 0
    while offset + 9 <= len(data) and data[offset] < len(CHANNELS):
        key, value = (int.from_bytes(data[offset + at : offset + at + 4], "little", signed=at == 5) for at in (1, 5))
        begins.append(offset + 9)
        offset += 9 + key + max(value, 0)
    if offset != len(data):
        with pytest.raises(WireError):
            Frames.of(data)
    else:
        assert Frames.of(data).begins.tolist() == begins


@given(st.binary(min_size=1, max_size=500), st.integers(1, 60))
def test_chunks_join_to_the_body_and_notice_a_change(body: bytes, size: int) -> None:
    chunks = [Chunk.decode(c.encode()) for c in split_into_chunks(body, stream="s", step=3, chunk_bytes=size)]
    assert join_chunks(chunks) == body
    broken = Chunk("s", 3, 0, chunks[0].count, chunks[0].digest, bytes([chunks[0].part[0] ^ 1]) + chunks[0].part[1:])
    with pytest.raises(WireError):
        join_chunks([broken, *chunks[1:]])


def test_a_candidate_that_does_not_match_its_digest_is_refused() -> None:
    def candidate(payload: bytes, digest: str) -> Candidate:
        chain = link(GENESIS, stream="s", step=0, digest=digest, ledger=b"{}")
        return Candidate("s", 0, GENESIS, chain, digest, payload, b"{}", {}, {"engine/x": np.arange(3)})

    release, state = candidate(b"abc", sha256(b"abc")).encode()
    assert Candidate.decode(release).payload == b"abc"
    arrays = Candidate.decode(release, state).arrays
    assert arrays is not None
    assert arrays["engine/x"].tolist() == [0, 1, 2]
    with pytest.raises(WireError, match="does not match"):
        Candidate.decode(candidate(b"abd", sha256(b"abc")).encode().release)


def test_a_state_that_its_candidate_does_not_name_is_refused() -> None:
    chain = link(GENESIS, stream="s", step=0, digest=sha256(b""), ledger=b"{}")
    first, second = (
        Candidate("s", 0, GENESIS, chain, sha256(b""), b"", b"{}", {}, {"engine/x": np.arange(size)}).encode()
        for size in (3, 4)
    )
    assert Candidate.decode(*first).state_digest != Candidate.decode(*second).state_digest
    with pytest.raises(WireError, match="does not match"):
        Candidate.decode(first.release, second.state)
    with pytest.raises(WireError, match="without its state"):
        Candidate.decode(first.release).encode()


@given(st.integers(-1, 10**9), st.integers(0, 10**12), st.text(max_size=9))
def test_ticks(step: int, row: int, source: str) -> None:
    value = encode_tick(step, row=row, source=source)
    assert read_tick(value) == (step, row, source, None)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"1",
        b"{}",
        b"null",
        b'{"step":"1","row":0,"source":"","version":1}',
        b'{"step":-2,"row":0,"source":"","version":1}',
        b'{"step":1,"row":0,"source":"","version":2}',
    ],
)
def test_bad_ticks_are_record_errors(value: bytes) -> None:
    with pytest.raises(RecordError, match="BAD_TICK"):
        read_tick(value)


def test_seeds_and_candidates_do_not_print_what_they_hold() -> None:
    assert "07" * 32 not in repr(Seed("s", 1, b"\x07" * 32))
    assert "payload" not in repr(Candidate("s", 0, GENESIS, GENESIS, GENESIS, b"payload", b"", {}, {}))


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_old_bytes_decode_for_ever(name: str) -> None:
    data = (FOLDER / f"{name}.bin").read_bytes()
    decoder = {
        "block": Block.decode,
        "seed": decode_log_record,
        "chunk": decode_log_record,
        "candidate": lambda data: Candidate.decode(
            data, EncodedState.decode((FOLDER / f"{name}.state.bin").read_bytes())
        ),
    }
    assert same(decoder[name.partition("-")[0]](data), SAMPLES[name])


@given(st.integers(0, STEP_LIMIT - 1))
def test_a_public_record_names_its_step(step: int) -> None:
    assert public_step([("other", b"x"), (STEP_HEADER, b"%d" % step)]) == step


@given(
    st.none()
    | st.binary(max_size=12).filter(lambda text: not text.isdigit())
    | st.integers(STEP_LIMIT).map(b"%d".__mod__)
)
def test_a_header_that_the_job_does_not_write_names_no_step(value: bytes | None) -> None:
    assert public_step([(STEP_HEADER, value)]) is None


@pytest.mark.parametrize(
    "value", [b"-1", b"+1", b"1_0", b" 1", b"1\n", b"", "\u0663".encode(), b"9" * 5000, b"2147483648"]
)
def test_what_python_would_take_for_a_number_is_no_step(value: bytes) -> None:
    assert public_step([(STEP_HEADER, value)]) is None
    assert public_step(None) is None


def test_a_few_of_many_records_are_read_without_a_copy_of_all() -> None:
    """A release has hundreds of megabytes, and a batch of it may end with a few records."""
    many = [PublicRecord("synthetic", b"%d" % at, b"v" * 1000) for at in range(20_000)]
    few = Frames.of(frame_records([*many, PublicRecord("measurements", b"last", None)]))
    tracemalloc.start()
    try:
        assert list(few.of_channel("measurements")) == [PublicRecord("measurements", b"last", None)]
        assert list(few.only(slice(19_998, 20_000))) == many[-2:]
        assert list(few.only(slice(0, 0))) == []
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()

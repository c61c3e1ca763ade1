"""The vectorised SipHash-2-4-128 against its authors' vectors and a slow twin; which ids can be used at all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.userhash import MAX_ID_BYTES, IdBytes, hash_ids, key_id, user_key

KEY = bytes(range(16))
# vectors_sip128 of the reference: the hash of bytes 0, 1, .. n-1 under KEY.
VECTORS = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    15: "5493e99933b0a8117e08ec0f97cfc3d9",
}
MASK = (1 << 64) - 1


def sip128(data: bytes, key: bytes = KEY) -> bytes:
    """SipHash-2-4 with 128 bits of output as the paper and the reference write it, one message at a time."""
    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ 0xEE, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rotate(word: int, bits: int) -> int:
        return ((word << bits) | (word >> (64 - bits))) & MASK

    def rounds(count: int) -> None:
        for _ in range(count):
            v[0] = (v[0] + v[1]) & MASK
            v[1] = rotate(v[1], 13) ^ v[0]
            v[0] = rotate(v[0], 32)
            v[2] = (v[2] + v[3]) & MASK
            v[3] = rotate(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & MASK
            v[3] = rotate(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & MASK
            v[1] = rotate(v[1], 17) ^ v[2]
            v[2] = rotate(v[2], 32)

    tail = len(data) % 8
    words = [data[at : at + 8] for at in range(0, len(data) - tail, 8)]
    words.append(data[len(data) - tail :].ljust(7, b"\0") + bytes([len(data) & 255]))
    for word in words:
        number = int.from_bytes(word, "little")
        v[3] ^= number
        rounds(2)
        v[0] ^= number
    v[2] ^= 0xEE
    rounds(4)
    first = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    rounds(4)
    return first.to_bytes(8, "little") + (v[0] ^ v[1] ^ v[2] ^ v[3]).to_bytes(8, "little")


def raw_ids(*messages: bytes) -> IdBytes:
    """Ids from any bytes, NUL included, which `IdBytes.from_ids` does not let through."""
    lengths = np.array([len(message) for message in messages], np.int64)
    starts = np.cumsum(lengths) - lengths
    data = np.frombuffer(b"".join(messages) + bytes(8), np.uint8)
    return IdBytes(data, starts, lengths, np.ones(len(messages), bool))


@pytest.mark.parametrize("length", VECTORS)
def test_the_authors_vectors(length: int) -> None:
    message = bytes(range(length))
    assert sip128(message).hex() == VECTORS[length]
    assert hash_ids(raw_ids(message), KEY).tobytes().hex() == VECTORS[length]


@given(st.lists(st.binary(max_size=MAX_ID_BYTES), min_size=1, max_size=20), st.binary(min_size=16, max_size=16))
def test_a_batch_is_hashed_as_its_members(messages: list[bytes], key: bytes) -> None:
    hashes = hash_ids(raw_ids(*messages), key)
    assert [row.tobytes() for row in hashes] == [sip128(message, key) for message in messages]


@given(st.lists(st.one_of(st.text(max_size=300), st.integers(), st.none(), st.booleans(), st.floats()), max_size=20))
def test_ids_in_a_batch_mean_what_they_mean_alone(ids: list[object]) -> None:
    together = IdBytes.from_ids(ids)
    hashes = hash_ids(together, KEY)
    for index, each in enumerate(ids):
        alone = IdBytes.from_ids([each])
        assert together.usable[index] == alone.usable[0]
        if alone.usable[0]:
            assert hashes[index].tobytes() == sip128(str(each).encode())


@pytest.mark.parametrize(
    "unusable", ["", "a\0b", "\0", "x" * 257, "é" * 129, "\ud800", None, True, False, 1.0, b"ann", ["ann"], 10**300]
)
def test_unusable_ids(unusable: object) -> None:
    assert IdBytes.from_ids(["ann", unusable, "bob"]).usable.tolist() == [True, False, True]


@pytest.mark.parametrize("usable", ["a", " ", "x" * 256, "é" * 128, 0, -7, 10**30])
def test_usable_ids(usable: object) -> None:
    assert IdBytes.from_ids([usable]).usable.tolist() == [True]


def test_an_integer_is_its_decimal_text() -> None:
    assert hash_ids(IdBytes.from_ids([17]), KEY).tolist() == hash_ids(IdBytes.from_ids(["17"]), KEY).tolist()
    assert hash_ids(IdBytes.from_ids(["017"]), KEY).tolist() != hash_ids(IdBytes.from_ids(["17"]), KEY).tolist()


def test_streams_have_different_keys_and_ids_give_nothing_away() -> None:
    first, second = (user_key(b"secret secret secret", stream=name) for name in ("a", "b"))
    assert len(first) == 16
    assert first != second
    assert key_id(first) != key_id(second)
    assert first.hex()[:8] not in key_id(first)

"""The hashes of user ids against those of another program, and of each id alone; which ids can be used at all."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.userhash import MAX_ID_BYTES, IdBytes, hash_ids, key_id, user_key

KEY = bytes(range(16))
# By `openssl mac -macopt hexkey:000102030405060708090a0b0c0d0e0f -macopt size:16 BLAKE2BMAC`: of bytes 0, 1, .. n-1.
VECTORS = {
    0: "083aac7ba77bc664005d821eb8bfa4d9",
    1: "b8debbaa94db1228c038dc59cdf5731e",
    15: "0c7c9c3922d41a7b2b3b20f92685d560",
    130: "1a77cbcc89dc301d2fe2d09f926ccc21",
}


def blake(data: bytes, key: bytes = KEY) -> bytes:
    return hashlib.blake2b(data, key=key, digest_size=16).digest()


def raw_ids(*messages: bytes) -> IdBytes:
    """Ids from any bytes, NUL included, which `IdBytes.from_ids` does not let through."""
    lengths = np.array([len(message) for message in messages], np.int64)
    starts = np.cumsum(lengths) - lengths
    data = np.frombuffer(b"".join(messages) + bytes(8), np.uint8)
    return IdBytes(data, starts, lengths, np.ones(len(messages), bool))


@pytest.mark.parametrize("length", VECTORS)
def test_the_authors_vectors(length: int) -> None:
    message = bytes(range(length))
    assert blake(message).hex() == VECTORS[length]
    assert hash_ids(raw_ids(message), KEY).tobytes().hex() == VECTORS[length]


@given(st.lists(st.binary(max_size=MAX_ID_BYTES), min_size=1, max_size=20), st.binary(min_size=16, max_size=16))
def test_a_batch_is_hashed_as_its_members(messages: list[bytes], key: bytes) -> None:
    hashes = hash_ids(raw_ids(*messages), key)
    assert [row.tobytes() for row in hashes] == [blake(message, key) for message in messages]


@given(st.lists(st.one_of(st.text(max_size=300), st.integers(), st.none(), st.booleans(), st.floats()), max_size=20))
def test_ids_in_a_batch_mean_what_they_mean_alone(ids: list[object]) -> None:
    together = IdBytes.from_ids(ids)
    hashes = hash_ids(together, KEY)
    for index, each in enumerate(ids):
        alone = IdBytes.from_ids([each])
        assert together.usable[index] == alone.usable[0]
        if alone.usable[0]:
            assert hashes[index].tobytes() == blake(str(each).encode())


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

"""The hashes of user ids against those of another program, and of each id alone; which ids can be used at all."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.cmac import CMAC
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.userhash import MAX_ID_BYTES, PADDING, IdBytes, UserHash, key_id, user_key

KEY = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")
MESSAGE = bytes.fromhex(
    "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
    "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
)
VECTORS = {
    0: "bb1d6929e95937287fa37d129b756746",
    16: "070a16b46b4d4144f79bdd9dd04a287c",
    40: "dfa66747de9ae63030ca32611497c827",
    64: "51f0bebf7e3b9d92fc49741779363cfe",
}
"""By the length of the message: appendix D.1 of [dworkin2005], with `KEY`."""


def cmac(data: bytes, key: bytes = KEY) -> bytes:
    """The digest of one message, as the library has it."""
    each = CMAC(algorithms.AES(key))
    each.update(data)
    return each.finalize()


def raw_ids(*messages: bytes) -> IdBytes:
    """Ids from any bytes, NUL included, which `IdBytes.from_ids` does not let through."""
    lengths = np.array([len(message) for message in messages], np.int64)
    starts = np.cumsum(lengths) - lengths
    data = np.frombuffer(b"".join(messages) + bytes(PADDING), np.uint8)
    return IdBytes(data, starts, lengths, np.ones(len(messages), bool))


@pytest.mark.parametrize("length", VECTORS)
def test_the_vectors_of_the_standard(length: int) -> None:
    message = MESSAGE[:length]
    assert cmac(message).hex() == VECTORS[length]
    assert UserHash(KEY).of_ids(raw_ids(message)).tobytes().hex() == VECTORS[length]


@given(st.lists(st.binary(max_size=MAX_ID_BYTES), min_size=1, max_size=20), st.binary(min_size=16, max_size=16))
def test_a_batch_is_hashed_as_its_members(messages: list[bytes], key: bytes) -> None:
    hashes = UserHash(key).of_ids(raw_ids(*messages))
    assert [row.tobytes() for row in hashes] == [cmac(message, key) for message in messages]


@given(st.binary(min_size=MAX_ID_BYTES, max_size=MAX_ID_BYTES), st.binary(min_size=16, max_size=16))
def test_every_length_of_an_id_is_hashed_as_alone(text: bytes, key: bytes) -> None:
    every = [text[:length] for length in range(MAX_ID_BYTES + 1)]
    assert UserHash(key).of_ids(raw_ids(*every)).tobytes() == b"".join(cmac(each, key) for each in every)


def test_no_hash_begins_with_the_word_of_a_free_slot() -> None:
    """Under a key of which a message is known whose digest begins with a word of 0, found by turning AES back."""
    subkey = int.from_bytes(Cipher(algorithms.AES(KEY), modes.ECB()).encryptor().update(bytes(16)), "big")
    mixed = (subkey << 1 & (1 << 128) - 1) ^ (0x87 if subkey >> 127 else 0)
    wanted = bytes(8) + b"anything"
    plain = int.from_bytes(Cipher(algorithms.AES(KEY), modes.ECB()).decryptor().update(wanted), "big")
    message = (plain ^ mixed).to_bytes(16, "big")
    assert cmac(message) == wanted
    assert UserHash(KEY).of_ids(raw_ids(message)).tolist() == [[1, int.from_bytes(b"anything", "little")]]


@given(st.lists(st.one_of(st.text(max_size=300), st.integers(), st.none(), st.booleans(), st.floats()), max_size=20))
def test_ids_in_a_batch_mean_what_they_mean_alone(ids: list[object]) -> None:
    together = IdBytes.from_ids(ids)
    hashes = UserHash(KEY).of_ids(together)
    for index, each in enumerate(ids):
        alone = IdBytes.from_ids([each])
        assert together.usable[index] == alone.usable[0]
        if alone.usable[0]:
            assert hashes[index].tobytes() == cmac(str(each).encode())


@pytest.mark.parametrize(
    "unusable", ["", "a\0b", "\0", "x" * 257, "é" * 129, "\ud800", None, True, False, 1.0, b"ann", ["ann"], 10**300]
)
def test_unusable_ids(unusable: object) -> None:
    assert IdBytes.from_ids(["ann", unusable, "bob"]).usable.tolist() == [True, False, True]


@pytest.mark.parametrize("usable", ["a", " ", "x" * 256, "é" * 128, 0, -7, 10**30])
def test_usable_ids(usable: object) -> None:
    assert IdBytes.from_ids([usable]).usable.tolist() == [True]


def test_an_integer_is_its_decimal_text() -> None:
    number, text, other = UserHash(KEY).of_ids(IdBytes.from_ids([17, "17", "017"])).tolist()
    assert number == text != other


def test_streams_have_different_keys_and_ids_give_nothing_away() -> None:
    first, second = (user_key(b"secret secret secret", stream=name) for name in ("a", "b"))
    assert len(first) == 16
    assert first != second
    assert key_id(first) != key_id(second)
    assert first.hex()[:8] not in key_id(first)


def test_the_name_of_a_key_says_how_users_are_hashed_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a stream would go on with other hashes of its users, each of whom had a second bound."""
    before = key_id(KEY)
    of_ids = UserHash.of_ids
    monkeypatch.setattr(UserHash, "of_ids", lambda self, ids: of_ids(self, ids) + np.uint64(1))
    assert key_id(KEY) != before

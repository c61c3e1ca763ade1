"""Partitions as producers choose them: against aiokafka's partitioner, zlib, and librdkafka's rule."""

from __future__ import annotations

import zlib

import pytest
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.partitioner import murmur2 as slow_murmur2
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.partitioner import bounds_partition, crc32, home_partition, murmur2, partitions_of
from agents.protocol.userhash import IdBytes

USERS = st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=40))


@given(USERS)
def test_hashes_are_those_of_the_slow_twins(users: list[str]) -> None:
    ids = IdBytes.from_ids(users)
    assert murmur2(ids).tolist() == [slow_murmur2(user.encode()) & 0xFFFFFFFF for user in users]
    assert crc32(ids).tolist() == [zlib.crc32(user.encode()) for user in users]


@given(USERS, st.integers(1, 64))
def test_murmur2_is_where_aiokafka_puts_it(users: list[str], partitions: int) -> None:
    everywhere = list(range(partitions))
    expected = [DefaultPartitioner()(user.encode(), everywhere, everywhere) for user in users]
    assert partitions_of(IdBytes.from_ids(users), partitioner="murmur2", partitions=partitions).tolist() == expected


@given(USERS, st.integers(1, 64))
def test_crc32_is_where_librdkafka_puts_it(users: list[str], partitions: int) -> None:
    expected = [zlib.crc32(user.encode()) % partitions for user in users]
    assert partitions_of(IdBytes.from_ids(users), partitioner="crc32", partitions=partitions).tolist() == expected


@pytest.mark.parametrize(("key", "partition"), [("taxi", 3), ("a", 0), ("privstream", 3)])
def test_homes_stay_where_they_are(key: str, partition: int) -> None:
    """The stored history of a stream is on its home partition: a changed rule would lose it."""
    everywhere = list(range(4))
    assert home_partition(key, 4) == DefaultPartitioner()(key.encode(), everywhere, everywhere) == partition
    assert bounds_partition(key, 2, 4) == (partition + 2) % 4

"""The table of counts by user against a dictionary, whatever the hashes, the batches, and the sizes of its segments."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.ingest import user_table
from agents.protocol.ingest.user_table import BUCKETS, Hashes, UserTable, buckets_of

# Words that crowd together at both ends and in the middle, beside any: bins overflow, first words are shared.
FIRST_WORDS = st.one_of(
    st.integers(0, 40), st.integers((1 << 63) - 20, (1 << 63) + 20), st.integers((1 << 64) - 40, (1 << 64) - 1),
    st.integers(0, (1 << 64) - 1),
)  # fmt: skip
USERS = st.tuples(FIRST_WORDS, st.integers(0, 3))
BATCHES = st.lists(st.dictionaries(USERS, st.integers(0, 255), max_size=40), max_size=12)


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few users are enough to merge, to wait for it, and to split."""
    monkeypatch.setattr(user_table, "SEGMENT_USERS", 16)
    monkeypatch.setattr(user_table, "_LEAST_RECENT", 4)
    monkeypatch.setattr(user_table, "_REWRITTEN", 24)
    monkeypatch.setattr(user_table, "RECENT_SHARE", 3)


@given(BATCHES, st.integers(0, 12))
def test_it_is_a_dictionary(batches: list[dict[tuple[int, int], int]], restored_before: int) -> None:
    table, told = UserTable(largest_count=255), dict[tuple[int, int], int]()
    for index, batch in enumerate(batches):
        if index == restored_before:
            table = UserTable.of_buckets(255, {bucket: table.bucket(bucket) for bucket in range(BUCKETS)})
        found = table.find(_hashes(batch))
        assert found.counts.tolist() == [told.get(user, 0) for user in batch]
        found.write(np.array(list(batch.values()), np.int64))
        told.update(batch)
    held = {user: count for user, count in told.items() if _was_entered(batches, user)}
    assert table.read(_hashes(told)).tolist() == list(told.values())
    strangers = [(first, second + 4) for first, second in told]
    assert not table.read(_hashes(strangers)).any()
    assert len(table) == len(held)
    seen: dict[tuple[int, int], int] = {}
    for bucket in range(BUCKETS):
        members, counts = table.bucket(bucket)
        assert (buckets_of(members) == bucket).all()
        seen |= dict(zip(map(tuple, members.tolist()), counts.tolist(), strict=True))
    assert seen == held


@pytest.mark.parametrize("users", [0, 1, 1_000, 60_000])
def test_a_large_table(users: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_table, "SEGMENT_USERS", 1 << 13)
    hashes = np.random.default_rng(users).integers(0, 1 << 64, (users, 2), dtype=np.uint64)
    table = UserTable(largest_count=100)
    for at in range(0, users, 7_000):
        part = hashes[at : at + 7_000]
        table.find(part).write(np.arange(at, at + len(part)) % 100 + 1)
    assert len(table) == users
    assert table.read(hashes).tolist() == [index % 100 + 1 for index in range(users)]
    assert not table.read(hashes ^ np.uint64(1 << 40)).any()
    if users == 60_000:
        assert table.nbytes / users < 20


def test_one_batch_rewrites_no_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """All segments fill evenly; nobody waits until all are rewritten, and none is forgotten."""
    rewritten: list[int] = []
    merge = user_table._Segment.merge

    def counted(segment: user_table._Segment) -> None:
        rewritten[-1] += len(segment.run)
        merge(segment)

    monkeypatch.setattr(user_table._Segment, "merge", counted)
    table = UserTable(largest_count=1)
    width = (1 << 64) // 512
    for batch in range(60):  # one user in each 512th part of all hashes, so that the segments fill as one
        rewritten.append(0)
        first = np.arange(512, dtype=np.uint64) * np.uint64(width) + np.uint64(batch * (width // 61))
        table.find(np.stack((first, first), axis=1)).write(np.ones(512, np.int64))
    assert len(table._segments) > 1_000
    assert max(rewritten) <= 24 + 2 * 3 * 512
    assert max(each.fullness for each in table._segments) < 4


def test_users_in_ascending_order_are_rewritten_a_few_times_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """One segment gets all that a batch has."""
    monkeypatch.setattr(user_table, "SEGMENT_USERS", 1 << 10)
    monkeypatch.setattr(user_table, "_LEAST_RECENT", 64)
    monkeypatch.setattr(user_table, "_REWRITTEN", 1 << 10)
    monkeypatch.setattr(user_table, "RECENT_SHARE", 32)
    rewritten = 0
    merge = user_table._Segment.merge

    def counted(segment: user_table._Segment) -> None:
        nonlocal rewritten
        rewritten += len(segment.run)
        merge(segment)

    monkeypatch.setattr(user_table._Segment, "merge", counted)
    users = 1 << 16
    words = np.sort(np.random.default_rng(5).integers(0, 1 << 64, users, dtype=np.uint64))
    table = UserTable(largest_count=1)
    for batch in np.array_split(words, BUCKETS):
        table.find(np.stack((batch, batch), axis=1)).write(np.ones(len(batch), np.int64))
    assert len(table) == users
    assert rewritten < 5 * users, "2.3 times each; 26 where a segment is never divided"
    assert max(len(each.run) for each in table._segments) <= 4 << 10


def test_what_snapshots_hold_is_divided_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Into segments as they are where users come by and by; a bucket that has no snapshot has no users."""
    monkeypatch.setattr(user_table, "SEGMENT_USERS", 1 << 10)
    hashes = np.random.default_rng(5).integers(0, 1 << 64, (1 << 15, 2), dtype=np.uint64)
    bucket, counts = buckets_of(hashes), np.arange(1 << 15) % 200
    there = {each: (hashes[bucket == each], counts[bucket == each]) for each in range(BUCKETS) if each % 5}
    table = UserTable.of_buckets(200, there)
    assert (table.read(hashes) == np.where(bucket % 5, counts, 0)).all()
    assert len(table) == (bucket % 5 != 0).sum()
    assert [each.bits for each in table._segments] == [64 - 5] * 32


@pytest.mark.parametrize("bucket", [0, 1, 3, 255])
def test_a_user_among_those_of_another_bucket_is_an_error(bucket: int) -> None:
    """Nobody would find that user there, and it would be counted anew."""
    users = np.array([[(2 << 56) + 5, 7]], np.uint64)
    assert UserTable.of_buckets(9, {2: (users, np.array([9]))}).read(users).tolist() == [9]
    with pytest.raises(ValueError, match="not theirs"):
        UserTable.of_buckets(9, {bucket: (users, np.array([9]))})
    with pytest.raises(ValueError, match="outside 0 to"):
        UserTable.of_buckets(9, {2: (users, np.array([10]))})


@pytest.mark.parametrize("largest", [255, 65_535, 70_000])
def test_a_count_that_does_not_fit_is_an_error_and_no_other_count(largest: int) -> None:
    table = UserTable(largest)
    user = np.array([[7, 7]], np.uint64)
    table.find(user).write(np.array([largest]))
    for wrong in (largest + 1, -1):
        with pytest.raises(ValueError, match="outside 0 to"):
            table.find(user).write(np.array([wrong]))
    assert table.read(user).tolist() == [largest]


def _hashes(users: object) -> Hashes:
    return np.array(list(users), np.uint64).reshape(-1, 2)  # type: ignore[call-overload]


def _was_entered(batches: list[dict[tuple[int, int], int]], user: tuple[int, int]) -> bool:
    """Who once had a count stays, also with 0."""
    return any(batch.get(user, 0) > 0 for batch in batches)

"""The state table writes the pieces that are not there yet, and whoever dies in between leaves the old body."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.worker.table import DurableTable
from schemas.errors import WireError
from schemas.releases import PART_BYTES, Candidate, sha256, split_into_parts, split_state
from schemas.wire import Kind, decode
from tests.examples import examples

PIECES = [bytes([value]) * (value + 1) for value in range(6)]
ALL = 99


class Table:
    """A process with its store and a compacted changelog; the code is that of `DurableTable`."""

    records = DurableTable.records
    load = DurableTable.load
    _head = DurableTable._head

    def __init__(self, changelog: dict[bytes, bytes], store: dict[bytes, bytes] | None = None) -> None:
        self._written: dict[int, set[str]] = defaultdict(set)
        self.changelog = changelog
        self.store = dict(changelog) if store is None else store
        self.log: Any = self

    def warning(self, *_: Any) -> None:
        pass

    def _get(self, _partition: int, key: bytes) -> bytes | None:
        return self.store.get(key)

    def save(self, pieces: Sequence[bytes], step: int, *, dies_after: int = ALL) -> int:
        """Write as many records; return how many there were to write."""
        records = self.records(0, "s", pieces, step=step, position=step)  # type: ignore[misc]
        for key, value in records[:dies_after]:
            self.changelog[key] = self.store[key] = value
        if dies_after >= len(records):
            self._written[0].add("s")
        return len(records)

    def body(self) -> bytes | None:
        saved = self.load(0, "s")  # type: ignore[misc]
        return None if saved is None else saved.body


saves = st.tuples(
    st.lists(st.sampled_from(PIECES), max_size=6),
    st.sampled_from([ALL, ALL, 0, 1, 2, 3]),
    st.sampled_from(["goes on", "goes on", "restarts", "restarts elsewhere", "changelog lost"]),
)


@given(st.lists(saves, max_size=12))
@settings(max_examples=examples(4))
def test_the_newest_whole_body_is_in_the_store_and_in_the_changelog(history: list[Any]) -> None:
    table, there = Table({}), None
    for step, (pieces, dies_after, then) in enumerate(history):
        if table.save(pieces, step, dies_after=dies_after) <= dies_after:
            there = b"".join(pieces)
        elif then == "goes on":
            then = "restarts"
        assert table.body() == there
        match then:
            case "restarts":
                table = Table(table.changelog, table.store)
            case "restarts elsewhere":
                table = Table(table.changelog)
            case "changelog lost":
                # The state comes from the store at hand, and all of it is on the changelog with the next one.
                table = Table({}, table.store)
                table.save([PIECES[0], *pieces], step)
                there = b"".join([PIECES[0], *pieces])
        assert table.body() == Table(table.changelog).body() == there


def test_a_process_writes_what_has_changed_alone() -> None:
    table, first = Table({}), PIECES[:5]
    assert table.save(first, 0) == 6
    assert table.save([*first[:2], PIECES[5], *first[3:]], 1) == 2, "one piece and the head"
    assert Table(table.changelog, table.store).save(first, 2) == 6, "all of it after a start"


def test_a_slot_that_the_head_names_is_not_written_over() -> None:
    """What a slot for each place would do: the old body would be gone before its successor is whole."""
    table = Table({})
    table.save(PIECES[:2], 0)
    table.save(PIECES[2:4], 1, dies_after=1)
    assert table.body() == b"".join(PIECES[:2])
    assert len(table.changelog) == 4


def candidate(**arrays: np.ndarray) -> Candidate:
    return Candidate("s", 3, "0" * 64, "1" * 64, sha256(b""), b"", b"{}", {"measured": -1}, arrays)


def test_an_array_that_has_not_changed_is_the_same_pieces() -> None:
    """Of the first piece nothing is asked: it says the step."""
    chance = np.random.default_rng(0)
    large, other = (chance.integers(0, 2**60, PART_BYTES) for _ in range(2))
    now = split_state(candidate(small=np.arange(3), large=large, other=other).encode().state, 100_000)
    then = split_state(candidate(small=np.arange(4), large=large, other=other + 1).encode().state, 100_000)
    assert max(map(len, now)) <= 100_000
    same = len(set(now) & set(then))
    assert same == len(now) // 2
    assert same > 4


def test_a_state_is_read_back_and_a_torn_one_is_refused() -> None:
    arrays = {"small": np.arange(3), "large": np.arange(PART_BYTES), "none": np.zeros(0)}
    state = candidate(**arrays).encode().state
    assert b"".join(split_state(state)) == state
    found = {
        name: array for part in split_into_parts(state) for name, array in decode(Kind.STATE_PART, part)[1].items()
    }
    assert {name: array.tolist() for name, array in found.items()} == {k: v.tolist() for k, v in arrays.items()}
    for torn in (b"", state[:3], state[:40], state[:-1], state + b"x", state[:12] + b"\xff\xff\xff\xff" + state[16:]):
        with pytest.raises(WireError):
            split_into_parts(torn)

"""The state table writes the pieces that are not there yet, and whoever dies in between leaves the old body."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.worker.table import DurableTable
from schemas import releases
from schemas.errors import WireError
from schemas.releases import PART_BYTES, Candidate, EncodedState, StatePart, StatePiece, sha256, split_body
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
        digested = [StatePiece(piece, sha256(piece)) for piece in pieces]
        records = self.records(  # type: ignore[misc]
            0, "s", digested, digest=sha256(b"".join(pieces)), step=step, position=step
        )
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


def candidate(*kept: StatePart, **arrays: np.ndarray) -> Candidate:
    return Candidate("s", 3, "0" * 64, "1" * 64, sha256(b""), b"", b"{}", {"measured": -1}, arrays, kept=kept)


def test_an_array_that_has_not_changed_is_the_same_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first piece nothing is asked: it says the step."""
    monkeypatch.setattr(releases, "split_body", partial(split_body, chunk_bytes=100_000))
    chance = np.random.default_rng(0)
    large, other = (chance.integers(0, 2**60, PART_BYTES) for _ in range(2))
    now = candidate(small=np.arange(3), large=large, other=other).encode().state.pieces
    then = candidate(small=np.arange(4), large=large, other=other + 1).encode().state.pieces
    assert max(len(piece.body) for piece in now) <= 100_000
    same = len(set(now) & set(then))
    assert same == len(now) // 2
    assert same > 4


def test_a_part_that_is_kept_is_not_encoded_or_hashed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = StatePart.of({"name": "kept"}, {"array": np.arange(PART_BYTES)})
    hashed: list[bytes] = []

    def watched(data: bytes) -> str:
        hashed.append(data)
        return sha256(data)

    monkeypatch.setattr(releases, "sha256", watched)
    state = candidate(kept, small=np.arange(3)).encode().state
    assert state.pieces[1:] == list(kept.pieces)
    assert max(map(len, hashed)) < state.own_bytes + 1 < kept.size


def test_a_state_is_read_back_and_a_torn_one_is_refused() -> None:
    arrays = {"small": np.arange(3), "large": np.arange(PART_BYTES), "none": np.zeros(0)}
    kept = StatePart.of({"name": "kept"}, {"array": np.arange(9)})
    encoded = candidate(kept, **arrays).encode()
    state = encoded.state.body
    assert b"".join(piece.body for piece in encoded.state.pieces) == state
    assert len(state) == encoded.state.size
    assert EncodedState.decode(state) == encoded.state
    read = replace(candidate(), state_digest=encoded.state.digest).with_state(EncodedState.decode(state))
    assert read.arrays is not None
    assert {name: array.tolist() for name, array in read.arrays.items()} == {k: v.tolist() for k, v in arrays.items()}
    assert read.kept == (kept,)
    damaged = (state[:at] + bytes([state[at] ^ 1]) + state[at + 1 :] for at in (len(state) // 2, len(state) - 1))
    torn = (b"", state[:3], state[:40], state[:-1], state + b"x", state[:12] + b"\xff\xff\xff\xff" + state[16:])
    for each in (*torn, *damaged):
        with pytest.raises(WireError):
            EncodedState.decode(each)

"""What `make same` calls a difference, and that decoded values see a change of meaning and none of writing."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from benchmarks.same import Hashes, _add_value, differing
from schemas.blocks import Block, Folded

KEPT: dict[str, Hashes] = {
    "series/dft/0": {"bytes": "1", "decoded": "2"},
    "series/paper/0": {"bytes": "3", "decoded": "4"},
    "taxi": {"bytes": "5"},
}


def hashed(value: object) -> str:
    found = hashlib.sha256()
    _add_value(found, value)
    return found.hexdigest()


def test_a_setting_that_is_gone_differs_unless_it_is_named() -> None:
    now = {name: each for name, each in KEPT.items() if "dft" not in name}
    assert differing(now, KEPT) == (["series/dft/0"], [])
    assert differing(now, KEPT, ["series/dft/*"]) == ([], ["series/dft/0"])


@pytest.mark.parametrize("name", ["series/paper/*", "series/none/*"])
def test_a_name_of_nothing_that_is_gone_is_a_difference(name: str) -> None:
    told, left = differing(KEPT, KEPT, [name])
    assert (len(told), left) == (1, [])


def test_another_way_of_writing_differs_as_bytes_alone() -> None:
    now = KEPT | {"series/paper/0": {"bytes": "9", "decoded": "4"}}
    assert differing(now, KEPT) == (["series/paper/0"], [])
    assert differing(now, KEPT, decoded=True) == ([], [])


@pytest.mark.parametrize("name", ["series/paper/0", "taxi"])
def test_another_meaning_differs_in_either_comparison(name: str) -> None:
    now = KEPT | {name: dict.fromkeys(KEPT[name], "9")}
    assert differing(now, KEPT)[0] == differing(now, KEPT, decoded=True)[0] == [name]


def test_decoded_values_tell_what_is_meant() -> None:
    block = Block("s", 0, 0, 9, 1, {1: Folded(np.array([[3]], np.uint64), np.array([2]))})
    other = Block("s", 0, 0, 9, 1, {1: Folded(np.array([[3]], np.uint64), np.array([1]))})
    assert hashed(Block.decode(block.encode())) == hashed(Block.decode(block.encode()))
    assert hashed(block) != hashed(other)
    assert hashed({"a": 1, "b": [b"x"]}) == hashed({"b": [b"x"], "a": 1})
    assert len({hashed(each) for each in ([1, 2], [[1], 2], [1, "2"], [2, 1], {"1": 2}, np.array([1, 2]))}) == 6

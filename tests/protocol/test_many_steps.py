"""Records cost by how many they are, not by that times the steps that they are of: a producer says what these are.

Counted, and not timed: how many numbers are compared and computed with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.protocol.ingest import bounds
from agents.protocol.ingest.bounds import Bounds, BoundSpec
from agents.protocol.ingest.pair_bounds import PairBounds
from agents.protocol.ingest.partition import PendingBlock
from agents.protocol.ingest.times import HOUR_US, TimeParser
from agents.protocol.ingest.trip_bounds import TripBounds
from schemas.arrays import IntArray, distinct, rows_by

FEW, MANY = 250, 1_000


class Counted(np.ndarray[Any, np.dtype[Any]]):
    """Numbers of which each use counts, and each of what is made of them."""

    __array_priority__ = 1.0
    uses = 0

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **named: Any) -> Any:
        Counted.uses += max(np.size(each) for each in inputs)
        if out is not None:
            named["out"] = tuple(map(_bare, out))
        made = getattr(ufunc, method)(*map(_bare, inputs), **named)
        return made.view(Counted) if isinstance(made, np.ndarray) else made


def _bare(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, Counted) else value


def hashes(count: int, seed: int = 1) -> npt.NDArray[np.uint64]:
    return np.random.default_rng(seed).integers(1, 1 << 63, (count, 2), dtype=np.uint64).view(Counted)


def folded(steps: IntArray) -> None:
    pending = PendingBlock()
    pending.events = [(hashes(len(steps)), steps)]
    assert len(pending.folded()) == len(steps)


def read(steps: IntArray) -> None:
    times = TimeParser("iso", ZoneInfo("Europe/Berlin"))
    times._zone_offsets(steps * HOUR_US, np.ones(len(steps), bool))


def bounded(made: Callable[[], Bounds]) -> Callable[[IntArray], None]:
    def accept(steps: IntArray) -> None:
        """Twice: what is known by then is looked up; and once more as the charges of a block."""
        here = made()
        for _ in range(2):
            found = here.accept(hashes(len(steps)), steps, hashes(len(steps), seed=2))
            made().add(found.rows.view(Counted), found.charges)

    return accept


def spec(**keys: Any) -> BoundSpec:
    return BoundSpec(max_contributions=3, **keys)


WORK: dict[str, Callable[[IntArray], None]] = {
    "a block": folded,
    "local times": read,
    "periods": bounded(lambda: Bounds(spec(period_steps=1, surplus=2))),
    "a cap on steps": bounded(lambda: Bounds(spec(max_per_step=1))),
    "pairs": bounded(lambda: PairBounds(spec(max_per_step=1, pairs=True))),
    "pairs of periods": bounded(lambda: PairBounds(spec(period_steps=1, pairs=True))),
    "trips": bounded(lambda: TripBounds(spec(max_per_step=1, trip_life=2))),
    "trips of periods": bounded(lambda: TripBounds(spec(period_steps=1, trip_life=2))),
}


def growth(work: Callable[[IntArray], None]) -> float:
    """How often more numbers are used where four times as many records are of as many steps."""
    used = []
    for count in (FEW, MANY):
        Counted.uses = 0
        work(np.arange(count).view(Counted))
        used.append(Counted.uses)
    assert used[0] >= FEW
    return used[1] / used[0]


@pytest.mark.parametrize("name", WORK)
def test_each_record_of_a_step_of_its_own_costs_what_one_does(name: str) -> None:
    assert growth(WORK[name]) < MANY / FEW * 1.1


@given(st.lists(st.sampled_from([-(1 << 40), -3, 0, 1, 2, 1 << 8, (1 << 16) - 1, 1 << 16, 1 << 40]), max_size=12))
def test_each_value_has_its_rows_in_their_order(values: list[int]) -> None:
    found = [(value, rows.tolist()) for value, rows in rows_by(np.array(values, np.int64))]
    assert found == [(each, [row for row, value in enumerate(values) if value == each]) for each in sorted({*values})]


def test_looking_for_the_records_of_each_step_in_all_of_them_is_seen() -> None:
    def slow(values: IntArray) -> Any:
        return ((value, np.flatnonzero(values == value)) for value in distinct(values))

    with patch.object(bounds, "rows_by", slow):
        assert growth(WORK["periods"]) > MANY / FEW * 2

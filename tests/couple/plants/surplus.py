"""Faults planted in what counts the events that bounds refuse, and in what measures them."""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import numpy as np

from agents.protocol.ingest.bounds import SURPLUS, Accepted, Bounds
from engines.core.surplus import CorrectedEngine
from schemas.arrays import IntArray, KeyArray
from tests.couple.plants import Plant, peeked
from tests.couple.plants.edits import edited

_accept, _add = Bounds.accept, Bounds.add


def _all_of_it(self: Bounds, hashes: KeyArray, steps: IntArray, trips: KeyArray | None = None) -> Accepted:
    found = _accept(self, hashes, steps, trips)
    return found if found.surplus is None else found._replace(surplus=~found.accepted)


def _bounds_only(self: Bounds, rows: KeyArray, charges: IntArray) -> None:
    of_bounds = rows[:, 2] < np.uint64(SURPLUS)
    _add(self, rows[of_bounds], charges[of_bounds])


def _surplus(name: str, planted: Any, **changes: Any) -> Plant:
    plant = Plant(name=name, engine="spatial", mode="default", variant={"privacy": {"surplus": 1}}, planted=planted)
    return dataclasses.replace(plant, **changes)


def _step(old: str, new: str) -> Any:
    def planted() -> AbstractContextManager[Any]:
        return edited(CorrectedEngine, "step", old, new, peeked=peeked)

    return planted


PLANTS = (
    _surplus("all that a bound refuses is counted", lambda: patch.object(Bounds, "accept", _all_of_it)),
    _surplus(
        "a worker that takes over forgets whose surplus it has counted",
        lambda: patch.object(Bounds, "add", _bounds_only),
    ),
    _surplus("the surplus is measured when there is some", _step("    if due:\n", "    if peeked(pending)[0]:\n")),
    _surplus(
        "the surplus is measured again and again", _step("pending, last = np.zeros(1, np.int64), now", "last = now")
    ),
    _surplus(
        "the engine is told the surplus itself",
        _step("surplus=0, beyond=beyond", "surplus=0, beyond=float(peeked(batch.surplus))"),
        shown_by=13,
    ),
)

"""What is patched in engine `tabular` to break its promise; `tabular.py` says where each fault is planted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np

from engines.core.noise import NoiseSource, exponential_mechanism
from engines.tabular.marginals import EventRows
from engines.tabular.papers.rounds import QUANTUM, Selection
from schemas.arrays import BoolArray, IntArray
from tests.couple.plants import peeked
from tests.couple.plants.edits import edited


def sees_the_best(self: Selection, scores: IntArray, allowed: BoolArray, noise: NoiseSource) -> int:
    among = np.flatnonzero(allowed)
    return int(among[np.argmax(scores[among])])


def sees_the_best_unsealed(self: Selection, scores: IntArray, allowed: BoolArray, noise: NoiseSource) -> int:
    return sees_the_best(self, peeked(scores), allowed, noise)


def over_its_cells(self: Selection, scores: IntArray, allowed: BoolArray, noise: NoiseSource) -> int:
    """[kumar2024c], section 7.2: a pair of attributes has four cells or more; a single attribute has two."""
    among = np.flatnonzero(allowed)
    divided = (scores // self.layout.lengths)[among]
    sensitivity = self.sensitivity / 4
    return int(
        among[
            exponential_mechanism(divided, quantum=QUANTUM, sensitivity=sensitivity, epsilon=self.epsilon, source=noise)
        ]
    )


def choice_costs_twice() -> AbstractContextManager[Any]:
    honest = Selection.choose

    def choose(self: Selection, scores: IntArray, allowed: BoolArray, noise: NoiseSource) -> int:
        return honest(Selection(self.layout, self.weights, 2 * self.epsilon), scores, allowed, noise)

    return mock.patch.object(Selection, "choose", choose)


def lightest_weight() -> AbstractContextManager[Any]:
    light = property(lambda self: Fraction(int(self.weights.min())))
    return mock.patch.object(Selection, "sensitivity", light)


def since_the_start(engine: Any, counts: IntArray) -> IntArray:
    engine._waiting = counts + getattr(engine, "_waiting", 0)
    return engine._waiting  # type: ignore[no-any-return]


def with_the_last_step(engine: Any, counts: IntArray) -> IntArray:
    both: IntArray = counts + getattr(engine, "_before", 0)
    engine._before = counts
    return both


@contextmanager
def together(*faults: AbstractContextManager[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for fault in faults:
            stack.enter_context(fault)
        yield


def parity_of_inserts(
    owner: Any, method: str, old: str, new: Callable[[str], str], **names: Any
) -> AbstractContextManager[Any]:
    """The parity of a step's inserts, kept aside by an aggregate, in the real code as `ODD["now"]`."""
    odd = {"now": False}

    def remember(inserts: Any) -> Any:
        odd["now"] = bool(int(inserts) % 2)
        return inserts

    inserts = "self.signs[self.signs > 0].sum()"
    return together(
        edited(EventRows, "totals", inserts, f"remember({inserts})", remember=remember),
        edited(owner, method, old, new(old), ODD=odd, **names),
    )

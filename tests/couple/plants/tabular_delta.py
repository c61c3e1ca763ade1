"""Faults of synthetic tables with a delta: noise that is too small, and a user's events that are added up wrongly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from engines.core.shares import GaussianCells, GaussianShares
from engines.tabular.growing.config import GrowingConfig
from tests.couple.plants import Plant
from tests.couple.plants.edits import edited
from tests.couple.plants.tabular_faults import together

DELTA = {"privacy": {"delta": 1e-6}, "options": {"records": False}}
SEVERAL = {"privacy": {"delta": 1e-5, "epsilon": 1.0, "max_contributions": 10}, "options": {"records": False}}


def _plant(name: str, planted: Callable[[], AbstractContextManager[Any]], variant: Mapping[str, Any] = DELTA) -> Plant:
    return Plant(name=name, engine="tabular", mode="default", planted=planted, variant=variant)


def _edit(name: str, owner: Any, method: str, old: str, new: str) -> Plant:
    return _plant(name, partial(edited, owner, method, old, new))


def divided_delta() -> AbstractContextManager[Any]:
    """Each event at (epsilon, delta) over the number of a user's events, and an account that agrees with it."""
    return together(
        edited(
            GaussianShares,
            "whole",
            "event_mu_squared(self.epsilon, self.delta, self.changes, self.together)",
            "event_mu_squared(self.epsilon / self.changes, self.delta / self.changes, 1)",
        ),
        edited(GaussianShares, "mu_squared_of", "share * self._times", "share"),
    )


def events_in_squares() -> AbstractContextManager[Any]:
    """As if each of a user's events moved counts of its own, and an account that agrees with it."""
    return together(
        edited(
            GaussianShares,
            "whole",
            "event_mu_squared(self.epsilon, self.delta, self.changes, self.together)",
            "event_mu_squared(self.epsilon, self.delta, self.changes) * self.changes",
        ),
        edited(GaussianShares, "mu_squared_of", "share * self._times", "share * self.changes"),
    )


PLANTS: tuple[Plant, ...] = (
    _edit(
        "with a delta, marginals have half of their noise",
        GaussianShares,
        "cells",
        "GaussianCells(share, unit)",
        "GaussianCells(4 * share, unit)",
    ),
    _edit(
        "with a delta, totals have half of their noise",
        GaussianShares,
        "counter",
        "share * COUNTED / 2",
        "share * COUNTED * 2",
    ),
    _edit(
        "with a delta, each marginal has all of its line's budget",
        GrowingConfig,
        "laws",
        "self.shares.cells(part)",
        "self.shares.cells(share)",
    ),
    _edit(
        "counts are refined once more than their noise",
        GaussianCells,
        "added",
        "counts * (1 << self.refined)",
        "counts * (2 << self.refined)",
    ),
    _plant("delta is divided by the events of a user", divided_delta, SEVERAL),
    _plant("mu of a user's events adds up in squares", events_in_squares, SEVERAL),
)

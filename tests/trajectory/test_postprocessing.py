"""Synthetic trips are made of released values alone: other private trips under the same releases give the same trips.

What a mode released is noted, and handed out again while it runs on trips that have nothing in common with the first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from engines.core.noise import seeded
from engines.core.noise.split import laplace_exceeds
from engines.core.shares import PureShares
from engines.trajectory.default import points as dwell
from engines.trajectory.default.mode import Default
from engines.trajectory.default.questions import Questions
from engines.trajectory.engine import Limits, TripMode
from engines.trajectory.ground import ground_of
from engines.trajectory.histograms import measure
from engines.trajectory.papers.paper_trees import Paper
from engines.trajectory.trips import Trips
from tests.trajectory.trips import ways

MEASURED = [
    f"engines.trajectory.{name}.measure" for name in ("default.questions", "papers.paper_trees", "papers.pair_tree")
]
DECIDED = [f"engines.trajectory.{name}.laplace_exceeds" for name in ("papers.hierarchy", "papers.pair_tree")]
LINES = {"type": "MultiLineString", "coordinates": [[[8.02, 47.03], [8.9, 47.93]], [[8.1, 47.9], [8.95, 47.1]]]}
GROUND = ground_of(json.dumps(LINES).encode(), (8.0, 47.0, 9.0, 48.0), ("x", "y"), 500.0)
MODES: dict[str, TripMode] = {
    "default": Default(),
    "default, on a map": Default(ground=GROUND),
    "paper": Paper(),
    "paper, exponential": Paper(spread="exponential"),
}


def drives(count: int, *, seed: int, most: int) -> Trips:
    """Ways between places that the seed chooses."""
    rng = np.random.default_rng(seed)
    towns = rng.uniform(0.1, 0.9, (3, 2))
    sizes = rng.integers(1, most, count)
    start, end = (towns[rng.integers(0, 3, count)] + rng.normal(0, 0.02, (count, 2)) for _ in range(2))
    return ways(start, end, sizes)


@contextmanager
def releases(wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Each function that adds noise is wrapped."""
    with ExitStack() as stack:
        for names, function in ((MEASURED, measure), (DECIDED, laplace_exceeds)):
            for name in names:
                stack.enter_context(patch(name, wrap(function)))
        yield


def same_under_the_same_releases(mode: TripMode, count: int) -> bool:
    """Whether trips of another kind, number and length give the same synthetic trips under what the first released."""
    noted: list[Any] = []

    def note(function: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*given: Any, **named: Any) -> Any:
            noted.append(function(*given, **named))
            return noted[-1]

        return noting

    def synthesised(trips: Trips) -> Trips:
        return mode.synthesise(trips, shares=PureShares(Fraction(1)), limits=Limits(), noise=seeded(7)).trips

    with releases(note):
        first = synthesised(drives(count, seed=1, most=30))
    again = iter(noted)
    with releases(lambda function: lambda *given, **named: next(again)):
        second = synthesised(drives(count // 3, seed=2, most=300))
    assert next(again, None) is None
    assert len(first)
    return all(
        np.array_equal(left, right)
        for left, right in ((first.x, second.x), (first.y, second.y), (first.offsets, second.offsets))
    )


@pytest.mark.parametrize(("name", "count"), [*((name, 900) for name in MODES), ("default", 6000), ("paper", 6000)])
def test_other_trips_under_the_same_releases_give_the_same_synthetic_trips(name: str, count: int) -> None:
    assert same_under_the_same_releases(MODES[name], count)


def test_a_use_of_the_longest_true_trip_would_be_caught() -> None:
    """The check above can fail: here the true number of points of the longest trip caps the synthetic ones."""
    longest: list[int] = []
    original, sizes_of = Questions.of, dwell.sizes_of

    def noting(trips: Trips, *given: Any, **named: Any) -> Any:
        longest.append(int(trips.sizes.max()))
        return original(trips, *given, **named)

    def capped(per_cell: Any, visits: Any, *, most: int) -> Any:
        return sizes_of(per_cell, visits, most=min(most, longest[-1]))

    with (
        patch("engines.trajectory.default.mode.Questions.of", noting),
        patch("engines.trajectory.default.mode.sizes_of", capped),
        patch("engines.trajectory.default.points.sizes_of", capped),
    ):
        assert not same_under_the_same_releases(Default(), 900)

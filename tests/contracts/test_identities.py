"""Identities of stored states: as they are written down here, whatever classes are called."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import pytest

from engines.core.shares import GaussianShares, PureShares
from engines.core.state import written
from engines.markov.domain import StatesDomain
from engines.markov.engine import MarkovConfig
from engines.markov.leakage import Allocation
from engines.series.bank import Clock
from engines.series.budget import Presence
from engines.series.config import SeriesConfig
from engines.series.fields import SeriesDomain, SeriesField
from engines.trajectory.default.mode import Default
from engines.trajectory.domain import Closing, TripDomain
from engines.trajectory.engine import Limits, TrajectoryConfig, TripMode
from engines.trajectory.papers.paper_trees import Paper

SERIES = SeriesConfig(
    name="test",
    domain=SeriesDomain(
        (SeriesField(name="n"), SeriesField(name="km", of="sum", limits=(-3.0, 10.0), share=Fraction(3)))
    ),
    epsilon=Fraction(1),
    delta=1e-6,
    presence=Presence(events=6, per_step=2, steps=12),
    horizon=12,
    clock=Clock(period=24, phase=3, weekday=2),
)
MARKOV = MarkovConfig(
    name="test",
    domain=StatesDomain("s", ("a", "b")),
    epsilon=Fraction(1),
    population=10,
    horizon=5,
    allocation=Allocation(Fraction(1, 2), Fraction(1, 4), Fraction(1, 2), 5),
)


def trips(mode: TripMode) -> TrajectoryConfig:
    domain = TripDomain("x", "y", (0.0, 0.0, 1.0, 2.0), end_field="end")
    return TrajectoryConfig(
        name="test", domain=domain, closing=Closing(idle=2, life=9), shares=PureShares(Fraction(1)), mode=mode
    )


STORED = (
    (SERIES, "5f046de93c52ab70c76532de382e6681eb8080930e946d3dd17e9d67fc223d12"),
    (MARKOV, "514bc98639fcc4930507a78b6872f44beeb4497f691f1eaa9fec8502136d132a"),
    (trips(Default()), "5aac15905695b5dda7e2e5812145c0166cd9b652cbe30fbc433ef7aabe2e028d"),
    (trips(Paper(spread="exponential")), "c6fad6b5f930b837ac43088f3cc73fd86309e48cbc7724b286e47444e1fb07f4"),
)
NAMED: tuple[type, ...] = (
    *(SeriesConfig, SeriesDomain, SeriesField, Presence, Clock, Allocation),
    *(TripDomain, Closing, Limits, Default, Paper, GaussianShares),
)


def check() -> None:
    for config, stored in STORED:
        assert config.identity.tobytes().hex() == stored


def test_states_that_were_stored_are_taken() -> None:
    check()


def test_what_the_noise_of_trips_depends_on_is_in_their_identity() -> None:
    """Without a delta it is not: epsilon is in the budgets of a state."""
    honest = trips(Default())
    noises = [(1, 1e-6, 4, 2), (2, 1e-6, 4, 2), (1, 1e-5, 4, 2), (1, 1e-6, 5, 2), (1, 1e-6, 4, 3), (1, 1e-6, 4, None)]
    others = [
        replace(honest, shares=GaussianShares(Fraction(epsilon), delta, most, together))
        for epsilon, delta, most, together in noises
    ]
    assert len({config.identity.tobytes() for config in (honest, *others)}) == 1 + len(others)


def test_a_class_may_be_renamed() -> None:
    names = [named.__qualname__ for named in NAMED]
    try:
        for named in NAMED:
            named.__qualname__ = "Renamed"
        assert repr(SERIES).startswith("Renamed(")
        check()
    finally:
        for named, name in zip(NAMED, names, strict=True):
            named.__qualname__ = name


@dataclass(frozen=True)
class Nameless:
    side: int = 1


@pytest.mark.parametrize("value", [Nameless(), [1], object(), (1, Nameless())])
def test_what_has_no_stable_text_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="no stable text"):
        written(value)

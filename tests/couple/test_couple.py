"""Coupled pairs of runs of every engine, mode and variant, by registration alone.

False alarms: none, nothing is sampled but inputs and outputs, for any of which the promise holds. Seeds are fixed here;
`make couple` draws fresh ones.
"""

from __future__ import annotations

import functools

import pytest

from benchmarks.couple.runs import Verdict, couple
from benchmarks.couple.settings import modes, settings
from schemas.config import ENGINES
from schemas.config.discovery import DOMAINS

pytestmark = pytest.mark.seconds(1)

SETTINGS = list(settings())


def in_ci(name: str) -> bool:
    """All variants of `default` modes, and a third of those of each other mode; `make couple` runs all of them."""
    engine, mode, number = name.split("/")
    modes_of = ENGINES[engine].facts.modes
    return mode == "default" or int(number) % 3 == modes_of.index(mode) % 3


TRIED = [(name, stream) for name, stream in SETTINGS if in_ci(name)]
TIGHT = 0.9
"""Share of a claim that some pair of an engine must use: where no noise is met, none is tested."""


@functools.cache
def coupled(name: str, seed: int) -> Verdict:
    return couple(name, dict(SETTINGS)[name], seed)


@pytest.mark.parametrize("name", [name for name, _ in TRIED])
def test_neighbours_cannot_be_told_apart(name: str) -> None:
    verdict = coupled(name, 1)
    assert not verdict.broken
    assert verdict.share <= 1 + 1e-9


def test_every_engine_mode_and_domain_is_coupled() -> None:
    assert {name.split("/")[0] for name, _ in SETTINGS} == set(ENGINES)
    assert {tuple(name.split("/")[:2]) for name, _ in TRIED} == {tuple(name.split("/")[:2]) for name, _ in SETTINGS}
    assert len({tuple(name.split("/")[:2]) for name, _ in SETTINGS}) == modes()
    assert {stream.domain.kind for _, stream in TRIED} == set(DOMAINS)


@pytest.mark.parametrize("engine", list(ENGINES))
def test_a_unit_can_use_up_its_claim(engine: str) -> None:
    """Otherwise noise that is too small would not show."""
    pairs = ((name, seed) for seed in range(1, 6) for name, _ in settings(engine, "default"))
    assert any(coupled(*pair).share >= TIGHT for pair in pairs)


def test_bursts_merges_and_divisions_happen() -> None:
    happened = couple("spatial/default/0", dict(SETTINGS)["spatial/default/0"], 0).events
    assert happened["burst"]
    assert happened["merged"]
    assert happened["divided"]

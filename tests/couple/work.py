"""What a process of `make couple` is asked for: a pair of runs, a planted fault, half the noise at a site."""

from __future__ import annotations

from agents.local.coupling.dearest import ADVERSARIES, dearest, window_of
from agents.local.coupling.mutants import Site
from agents.local.coupling.runs import Verdict, couple, settings
from engines.checks.contract_case import contract_case
from tests.couple.planted import found_mutant, found_plant
from tests.couple.plants.all import PLANTS
from tests.couple.wide import couple_wide, wide

CALM = (0, 4, 6)
"""Of `ADVERSARIES`, which pairs with a unit in two periods have: trees as deep as can be take gigabytes there."""
WINDOWS = len(CALM)
"""Such pairs, of each setting whose bound renews."""


def pair(number: int, begin: int, only: str) -> Verdict:
    """The pair of a number: settings whose names begin with `only` in turn, each time with another seed."""
    every = [each for each in settings() if each[0].startswith(only)]
    name, stream = every[number % len(every)]
    return couple(name, stream, begin + number)


def dearest_pair(name: str) -> tuple[Verdict, float]:
    """The dearest pair of a setting, and the share of its claim that it has to reach."""
    stream = dict(settings())[name]
    return dearest(name, stream), contract_case(stream.engine).reach(stream)


def window_pair(name: str, begin: int) -> list[Verdict]:
    """Pairs of a setting whose bound renews, with a unit in two periods."""
    stream = dict(settings())[name]
    first = begin - begin % len(ADVERSARIES)
    return [window_of(name, stream, first + number) for number in CALM]


def wide_pair(name: str, begin: int) -> Verdict:
    """A pair of a wide setting."""
    return couple_wide(name, dict(wide())[name], begin)


def plant(index: int) -> tuple[str, str]:
    """A planted fault, and what finds it."""
    return PLANTS[index].name, found_plant(PLANTS[index])


def mutant(site: Site) -> tuple[str, str]:
    """Half the noise at a site, and what finds it."""
    return f"half the noise: {site.name}", found_mutant(site)

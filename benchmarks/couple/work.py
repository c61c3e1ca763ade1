"""What a process of `make couple` is asked for: a pair of runs, a planted fault, half the noise at a site."""

from __future__ import annotations

from benchmarks.couple.mutants import Site
from benchmarks.couple.planted import found_mutant, found_plant
from benchmarks.couple.runs import Verdict, couple
from benchmarks.couple.settings import settings
from tests.couple.plants.all import PLANTS


def pair(number: int, begin: int) -> Verdict:
    """The pair of a number: settings in turn, each time with another seed."""
    every = list(settings())
    name, stream = every[number % len(every)]
    return couple(name, stream, begin + number)


def plant(index: int) -> tuple[str, str]:
    """A planted fault, and what finds it."""
    return PLANTS[index].name, found_plant(PLANTS[index])


def mutant(site: Site) -> tuple[str, str]:
    """Half the noise at a site, and what finds it."""
    return f"half the noise: {site.name}", found_mutant(site)

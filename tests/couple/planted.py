"""Whether planted faults and scale mutants are found, and by how many pairs of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial

from agents.local.coupling.dearest import ADVERSARIES, dearest_of
from agents.local.coupling.mutants import Site, mutated
from agents.local.coupling.runs import STEPS, Verdict, couple, settings
from engines.checks.contract_case import contract_case
from schemas.config import Stream
from schemas.errors import PrivstreamError
from tests.couple.counters import check_counters
from tests.couple.plants import Plant
from tests.couple.wide import couple_wide

TRIES = 60
"""Pairs of runs for a fault, every other one of them short: those with odd seeds."""
WIDE_TRIES = 6
SHORT = 8
"""Steps of a short pair, which takes a fifth of the time of one of `STEPS`."""
DEAREST = frozenset({"GaussianShares.counter"})
"""Functions of which half the noise shows on the dearest pairs: the totals of a table have a twelfth of its budget, and
random pairs seldom use enough of the rest."""


def found_plant(plant: Plant) -> str:
    """Return what finds a planted fault; empty if nothing does. Short pairs are tried first."""
    case, fault = contract_case(plant.engine), plant.fault
    wide = fault.wide is not None
    stream = case.stream(plant.mode, fault.variant if fault.wide is None else case.coupled_wide(plant.mode)[fault.wide])
    name = f"{plant.engine}/{plant.mode}/{plant.name}"
    tries = WIDE_TRIES if wide else 2 * len(ADVERSARIES) if fault.dearest else TRIES
    seeds = list(range(tries)) if fault.dearest else [*range(1, tries, 2), *range(0, tries, 2)]
    if fault.shown_by is not None:
        seeds = list(dict.fromkeys((fault.shown_by, *seeds)))
    run = couple_wide if wide else dearest_of if fault.dearest else _random_pair
    return _found(fault.planted(), ((name, stream, seed) for seed in seeds), run)


def found_mutant(site: Site) -> str:
    """Return what finds half the noise at a site; empty if nothing does."""
    if site.engine == "counters":
        with mutated(site):
            return check_counters(site.module)
    run = dearest_of if site.function in DEAREST else partial(_random_pair, sealing=False)
    return _found(mutated(site), _attempts(site), run)


def _attempts(site: Site) -> Iterator[tuple[str, Stream, int]]:
    """Settings of the site's engine, or those with a surplus where no engine is the site's.

    First those with a delta where it draws Gaussian noise, without one where it draws Laplace noise, then those of
    `FIRST` and of modes that the site's module is named after, then one of each mode. Each is tried in short pairs
    first.
    """
    every = list(settings(SHARED.get(site.engine, site.engine))) or [each for each in settings() if each[1].surplus]
    module = site.module.rpartition(".")[2]
    first = next((first for part, first in FIRST.items() if part in site.module), "/")
    gaussian, laplace = "gaussian" in site.name, site.called in ("laplace_mechanism", "scale_for")

    def last(name: str, stream: Stream) -> tuple[bool, bool, bool]:
        named = name.startswith(first) or name.split("/")[1] in module
        return (laplace if stream.privacy.delta else gaussian), not named, not _longer(name)

    every.sort(key=lambda each: last(*each))
    tries = max(2, TRIES // len(every))
    for seed in (*range(1, tries, 2), *range(0, tries, 2)):
        for name, stream in every:
            yield name, stream, seed


SHARED = {"shares.py": "tabular"}
"""Modules that several engines draw through, and the engine that is tried."""
FIRST = {
    "series.papers": "series/paper-binomial/8",
    "tabular.papers": "tabular/paper",
    "trajectory.papers": "trajectory/paper",
    "spatial.papers": "spatial/paper",
    "spatial.split": "spatial/paper",
    "shares": "tabular/default/9",
    "growing.config": "tabular/default/9",
    "surplus": "tabular/default/7",
}
"""How the names of settings begin that are tried first, by a part of the module's name; the others come in turn."""


def _longer(name: str) -> bool:
    engine, mode, number = name.split("/")
    return int(number) >= len(contract_case(engine).tried(mode))


def _random_pair(name: str, stream: Stream, seed: int, *, sealing: bool = True) -> Verdict:
    return couple(name, stream, seed, steps=SHORT if seed % 2 else STEPS, sealing=sealing)


def _found(
    fault: AbstractContextManager[object],
    attempts: Iterable[tuple[str, Stream, int]],
    run: Callable[[str, Stream, int], Verdict],
) -> str:
    with fault:
        for name, stream, seed in attempts:
            try:
                verdict = run(name, stream, seed)
            except (PrivstreamError, ValueError, AssertionError) as error:
                return f"{name} {seed}: {type(error).__name__}: {error}"
            if verdict.broken:
                return f"{name} {seed}: {verdict.broken[0]}"
    return ""

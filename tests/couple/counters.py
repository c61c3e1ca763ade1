"""Every registered counter, watched: the noise that it draws is what its strategy says, and costs what it claims."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache, partial

import numpy as np

from engines.checks.coupling import CouplingBroken, Recorder
from engines.core.counters import Counter, spent
from engines.core.counters.by_name import COUNTERS
from engines.core.counters.epochs import COARSE, EpochsCounter
from engines.core.noise.witness import WitnessedSource

ACTIVATIONS = 70
COST = Fraction(1, 3)


def builders() -> dict[str, Callable[[], Counter]]:
    """Return what builds each counter, by name: also those that engines take where rho is very small."""
    every: dict[str, Callable[[], Counter]] = {
        name: partial(build, ACTIVATIONS, COST) for name, build in COUNTERS.items()
    }
    return every | {family: partial(EpochsCounter, cost=COST, family=family) for family in COARSE}


@cache
def modules() -> dict[str, str]:
    """Return the module of each counter's class."""
    return {name: type(build()).__module__ for name, build in builders().items()}


def check_counters(first: str = "") -> str:
    """Return what is wrong with a counter; empty if nothing is. Those of the module `first` are built and looked at
    before the others.
    """
    for name, build in sorted(builders().items(), key=lambda each: modules()[each[0]] != first):
        counter = build()
        try:
            _run(counter)
        except CouplingBroken as broken:
            return f"counter {name}: {broken}"
        if spent(counter, ACTIVATIONS) > COST:
            return f"counter {name} spends more than its cost"
    return ""


def _run(counter: Counter) -> None:
    recorder, state = Recorder(), counter.initial(3)
    for step in range(ACTIVATIONS):
        source = WitnessedSource(recorder, bytes(32), "counter", step)
        _, state = counter.step(np.zeros(3, np.int64), state, source)

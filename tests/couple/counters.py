"""Every registered counter, watched: the noise that it draws is what its strategy says, and costs what it claims."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from engines.checks.coupling import CouplingBroken, Recorder
from engines.core.counters import Counter, spent
from engines.core.counters.by_name import COUNTERS
from engines.core.counters.epochs import COARSE, EpochsCounter
from engines.core.noise.witness import WitnessedSource

ACTIVATIONS = 70
COST = Fraction(1, 3)


def check_counters(first: str = "") -> str:
    """Return what is wrong with a counter; empty if nothing is. Those of the module `first` are looked at first."""
    every = {name: build(ACTIVATIONS, COST) for name, build in COUNTERS.items()}
    # Those that engines take where rho is very small.
    every |= {family: EpochsCounter(cost=COST, family=family) for family in COARSE}
    for name, counter in sorted(every.items(), key=lambda each: type(each[1]).__module__ != first):
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

"""Every counter of `engines.counters.COUNTERS` as a case: registering a new one gets it audited.

A vector of counters shares nothing between its coordinates, so every coordinate is a run of its own.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import inf, log, sqrt

import numpy as np

from engines.auditor.cases import Case, Claim, Exact, Fresh, Neighbours, Observe
from engines.auditor.engines import SEEDS
from engines.auditor.observations import Observations
from engines.counters import COUNTERS, Counter, CounterConfig, SelectiveCounting, SimpleConfig, spent
from engines.noise import NoiseSource

HORIZON = 16
"""Activations that are watched; a counter with a horizon is built for as many."""
COST = {"epsilon": Fraction(1), "rho": Fraction(1, 8)}
DELTA = 1e-2
"""At which zCDP is audited as (epsilon, delta)-DP: larger than any claim worth making, so that runs can show it."""
HORIZONS = (1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 64)


def zcdp_epsilon(rho: Fraction | float, delta: float) -> float:
    """What rho-zCDP promises at `delta`: rho + 2 sqrt(rho ln(1/delta)) ([bun2016]). Increasing in rho."""
    return float(rho) + 2 * sqrt(float(rho) * log(1 / delta))


def case(name: str, config: CounterConfig, *, watched: int = HORIZON) -> Case:
    """The case of one recipe, whatever the law of its noise."""
    probe = _calibrated(config)
    pure = probe.measure == "epsilon"
    claim = Claim(probe.cost) if pure else Claim(Fraction(zcdp_epsilon(probe.cost, DELTA)), DELTA)
    counter = probe
    last = watched if counter.horizon is None else min(watched, counter.horizon)
    moments = dict.fromkeys((0, last // 2, last - 1))
    return Case(
        f"counter {name}",
        "counter",
        claim,
        neighbours=tuple(
            Neighbours(f"{verb} at activation {at + 1} of {last}", _observe(counter, at=at, change=change, last=last))
            for at in moments
            for verb, change in (("insert", 1), ("delete", -1))
        ),
        exact=(Exact("dearest column of the strategy", lambda: exact_loss(counter, last)),),
        fresh=(
            Fresh(lambda source: _released(counter, np.zeros((last, 64), np.int64), source).tobytes(), 1e-20, SEEDS),
        ),
    )


def exact_loss(counter: Counter, last: int) -> Fraction | float:
    """What one event costs by the counter's own matrices; infinite where these do not give running sums."""
    strategy, decoder = counter.strategy(last), counter.decoder(last)
    if not np.allclose(decoder @ strategy, np.tri(last), atol=1e-6):
        return inf
    cost = spent(counter, last)
    return cost if counter.measure == "epsilon" else zcdp_epsilon(cost, DELTA)


def horizons(name: str) -> Exact:
    """Exact loss over many horizons, short ones above all: that is where a level is missed."""

    def worst() -> Fraction | float:
        shares = []
        for horizon in HORIZONS:
            built = _calibrated(COUNTERS[name](horizon))
            shares.append(spent(built, horizon) / built.cost)
        measure = _calibrated(COUNTERS[name](HORIZON)).measure
        cost = max(shares) * COST[measure]
        return cost if measure == "epsilon" else zcdp_epsilon(cost, DELTA)

    return Exact(f"dearest column, horizons {HORIZONS[0]} to {HORIZONS[-1]}", worst)


def _calibrated(config: CounterConfig) -> Counter:
    """At the cost that its measure asks for; which one that is only a calibrated counter knows."""
    counter = config.calibrate(COST["epsilon"])
    return counter if counter.measure == "epsilon" else config.calibrate(COST["rho"])


def _observe(counter: Counter, *, at: int, change: int, last: int) -> Observe:
    def run(side: int, runs: int, source: NoiseSource) -> Observations:
        values = np.full((last, runs), 3, np.int64)
        values[at] += side * change
        released = _released(counter, values, source)
        columns = {f"increment {t + 1}": row for t, row in enumerate(released)}
        # Sums from the event on: half-lines of these are what a reader of running sums would look at.
        sums = np.cumsum(released, axis=0)
        columns |= {f"sum {at + 1} to {t + 1}": sums[t] - (sums[at - 1] if at else 0) for t in range(at, last)}
        return Observations.of_arrays(**columns)

    return run


def _released(counter: Counter, values: np.ndarray, source: NoiseSource) -> np.ndarray:
    state = counter.initial(values.shape[1])
    released = []
    for t, row in enumerate(values):
        increment, state = counter.step(row, state, source.child("activation", t))
        released.append(increment)
    return np.stack(released)


def selective() -> Case:
    """Two counters that take turns; what is selected is public here, so one event costs the dearer of them."""
    each = SimpleConfig().calibrate(COST["epsilon"])
    both = SelectiveCounting(counters=(each, each), selection_cost=Fraction(0))

    def observe(side: int, runs: int, source: NoiseSource) -> Observations:
        states, columns = both.initial([runs, runs]), {}
        for t in range(4):
            values = np.full(runs, 3 + (side and t == 2), np.int64)
            columns[f"increment {t + 1}"], states = both.step(t % 2, values, states, source.child("step", t))
        return Observations.of_arrays(**columns)

    return Case(
        "counter, selective", "counter", Claim(both.cost), neighbours=(Neighbours("insert at step 3 of 4", observe),)
    )


def cases() -> list[Case]:
    """One case for each registered counter, and selective counting over two of them."""
    made = [case(name, make(HORIZON)) for name, make in COUNTERS.items()]
    made = [replace(built, exact=(*built.exact, horizons(name))) for built, name in zip(made, COUNTERS, strict=True)]
    return [*made, selective()]

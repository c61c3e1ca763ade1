"""Pairs of runs of one engine on neighbouring batches: the second is forced through what the first released."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engines.checks.contract_checks import contents
from engines.checks.coupling import CouplingBroken, Forced, Losses, OutputAdversary, Recorder, Used
from engines.core.contract import Batch, Engine
from engines.core.counters.linear import spent
from engines.core.noise.witness import BinomialLaw, CounterLaw, ExceedsLaw, ExponentialLaw, Law, WitnessedSource
from schemas.guarantee import Guarantee

SEED = bytes(range(32))
SLACK = 1e-9
"""Of sums of logarithms in floats."""


class Watching(OutputAdversary):
    """An adversary that knows the state of the run that it chooses for, public and private."""

    engine: Any = None


class Wild(OutputAdversary):
    """Chooses outputs that noise gives, but hardly ever: far off, and indices whatever the scores."""

    def __init__(self, seed: int, reach: int) -> None:
        self._chance, self._reach = random.Random(seed), reach

    def _far(self, shape: tuple[int, ...]) -> Any:
        far = [self._chance.choice([0, 0, 1, -1, self._reach, -self._reach]) for _ in range(int(np.prod(shape)))]
        return np.array(far, np.int64).reshape(shape)

    def output(self, law: Law, private: Any, drawn: Any) -> Any:
        match law:
            case ExponentialLaw():
                return self._chance.randrange(len(private))
            case ExceedsLaw():
                return np.array([self._chance.random() < 0.5 for _ in drawn])
            case CounterLaw(counter):
                return drawn + self._far(drawn.shape) * counter.resolution
            case BinomialLaw():
                return drawn
        return drawn + (int(self._far((1,))[0]) if np.ndim(drawn) == 0 else self._far(np.shape(drawn)))


def couple(
    make_engine: Callable[[], Engine],
    batches: Sequence[Batch],
    neighbour: Sequence[Batch],
    *,
    adversary: OutputAdversary | None = None,
    restarts: Collection[int] = (),
) -> list[tuple[Used, Used]]:
    """What both runs' mechanisms saw.

    Args:
        restarts: steps before which a new engine goes on from the state.
    Raises: CouplingBroken if a release of the neighbour differs, or its mechanisms do.
    """
    recorder = Recorder(adversary)
    releases = _run(make_engine, batches, recorder, restarts, adversary)
    forced = Forced(recorder)
    engine = make_engine()
    for batch, expected in zip(neighbour, releases, strict=True):
        engine = _restarted(make_engine, engine) if batch.step in restarts else engine
        release = engine.step(batch, WitnessedSource(forced, SEED, "s", batch.step))
        if contents(release) != expected:
            raise CouplingBroken(f"step {batch.step}: releases of neighbouring inputs differ")
        forced.check_complete(batch.step)
    return forced.pairs


def _run(
    make_engine: Callable[[], Engine],
    batches: Sequence[Batch],
    recorder: Recorder,
    restarts: Collection[int],
    adversary: OutputAdversary | None,
) -> list[Any]:
    engine, releases = make_engine(), []
    for batch in batches:
        engine = _restarted(make_engine, engine) if batch.step in restarts else engine
        if isinstance(adversary, Watching):
            adversary.engine = engine
        releases.append(contents(engine.step(batch, WitnessedSource(recorder, SEED, "s", batch.step))))
    return releases


def _restarted(make_engine: Callable[[], Engine], engine: Engine) -> Engine:
    other = make_engine()
    other.restore(engine.state())
    return other


def pure_loss(pairs: Sequence[tuple[Used, Used]]) -> float:
    """Epsilon that the forced outputs cost, each counter's noise read off its strategy.

    Raises: CouplingBroken if a counter has less noise than its cost says.
    """
    _check_counters(pairs)
    return Losses.of(pairs).pure


@dataclass(frozen=True, slots=True)
class Cost:
    """Epsilon that ANY forced outputs could cost: `choices` by how far apart they move scores, whatever was chosen."""

    choices: float
    counts: float

    @property
    def total(self) -> float:
        return self.choices + self.counts


def certain_cost(pairs: Sequence[tuple[Used, Used]]) -> Cost:
    """What a coupled pair costs. Raises: as `pure_loss`."""
    _check_counters(pairs)
    choices = sum(_choice(*pair) for pair in pairs if isinstance(pair[0].law, ExponentialLaw))
    return Cost(choices, Losses.of(pair for pair in pairs if not isinstance(pair[0].law, ExponentialLaw)).pure)


def claimed_cost(guarantee: Guarantee) -> Cost:
    """What a guarantee says of one event, in the same two parts."""
    parts = {True: 0.0, False: 0.0}
    for mechanism in guarantee.mechanisms:
        parts[mechanism.distribution == "exponential mechanism"] += float(mechanism.epsilon * mechanism.uses)
    return Cost(parts[True], parts[False])


def _choice(first: Used, second: Used) -> float:
    """The most that a log-ratio of probabilities can be: it is a difference of scores' moves, weighted or not."""
    law = first.law
    assert isinstance(law, ExponentialLaw)
    moved = second.private - first.private
    return float(law.epsilon * law.quantum * int(moved.max() - moved.min()) / (2 * law.sensitivity))


def _check_counters(pairs: Sequence[tuple[Used, Used]]) -> None:
    counters: dict[Any, int] = {}
    for used, _ in pairs:
        if isinstance(used.law, CounterLaw):
            latest = int(used.law.activations.max(initial=0))
            counters[used.law.counter] = max(latest, counters.get(used.law.counter, 1))
    for counter, latest in counters.items():
        if spent(counter, latest) > counter.cost:
            raise CouplingBroken(f"{counter} has less noise than its cost of {counter.cost} needs")

"""One canary an engine, from outside: a user is in a small stream or not, and what is released must not tell more of it
than is claimed.

Of the default mode of every installed engine, with no knowledge of how it works. Null hypothesis: the claim holds.
False alarms: 1e-6 an engine; seeds are fixed. The planted fault is the same engine without noise. Smaller faults, for
which there are too few runs here, coupled runs find (`tests/couple`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import pytest

from engines.checks.contract_case import EngineCase, Key, contract_case
from engines.core.contract import Batch, Release
from engines.core.noise import NoiseSource, fresh_seed, seeded
from engines.core.noise.witness import Drawn, ExceedsLaw, ExponentialLaw, Law, WitnessedSource
from engines.core.registry import build_engine
from schemas.arrays import WordArray
from schemas.blocks import Folded
from schemas.config import ENGINES, Stream
from tests.sampling import coins, sampled

pytestmark = pytest.mark.seconds(5)

RUNS = 160
EPSILON = 1.0
"""Of the user: so small that few runs can refute it."""
FAINT = 0.001
"""Of the user, where noise is all there is."""
CROWD = 400
"""Events of others in each step."""
MANY = 10**6
"""As many where noise is all there is, and only what many have is shown."""
STEPS = 2
"""Of the stream; the user has as many events, in as few steps as may be."""


class NoNoise:
    """A witness that takes all noise away, and lets every decision be the one that private numbers are for."""

    def released(self, source: WitnessedSource, law: Law, private: Any, mechanism: Callable[[Any], Any]) -> Any:
        match law:
            case ExceedsLaw():
                return private < 0
            case ExponentialLaw():
                return int(np.argmax(private))
        return mechanism(private)

    def drawn(self, source: WitnessedSource, law: Drawn, sample: Callable[[NoiseSource], Any]) -> Any:
        return 0 * sample(source)

    def gave(self, source: WitnessedSource, words: WordArray) -> None:
        """It does not matter."""


@dataclass(frozen=True)
class Canary:
    """A small stream of an engine, and a user in it who sends all that the bounds let through, or is not there.

    Attributes:
        there, away: key of the user's events, and of those that are in their place where the user is away, if any.
    """

    case: EngineCase
    stream: Stream
    there: Key
    away: Key | None
    crowd: int = CROWD

    @staticmethod
    @cache
    def of(engine: str) -> Canary:
        """The first user drawn by chance who moves anything that is measured."""
        case, chance = contract_case(engine), random.Random(engine)
        options: dict[str, Any] = {}
        if "records" in ENGINES[engine].options.model_fields:
            # They are made of what is measured, and take most of a step's time.
            options["records"] = False
        if "horizon" in case.tables.get("options", {}):
            # A user may be in all of its steps.
            options["horizon"] = STEPS
        privacy = {"epsilon": EPSILON, "max_contributions": STEPS}
        stream = case.stream("default", {"privacy": privacy, "options": options})
        for _ in range(100):
            there, away = case.keys(chance.randint), case.keys(chance.randint)
            found = Canary(case, stream, there, away if stream.privacy.unit == "replace" else None)
            # Where keys have several words they name trips: not one of the crowd's.
            if (case.words == 1 or there[0] != case.crowd[0]) and found.direction:
                return found
        raise AssertionError("no user moves anything that is measured")

    def batches(self, there: bool) -> Iterator[Batch]:
        left = 1 if self.stream.counts_pairs else STEPS  # a key counts once
        for step in range(STEPS):
            sent = min(left, self.stream.privacy.max_per_step or left)
            left -= sent
            key = self.there if there else self.away
            rows = [(self.case.crowd, self.crowd), *([(key, sent)] if key is not None and sent else [])]
            keys = np.array([key for key, _ in rows], np.uint64).reshape(-1, self.case.words)
            yield Batch(step, Folded.from_keys(keys, np.array([count for _, count in rows], np.int64)))

    def released(self, there: bool, source: NoiseSource) -> dict[Any, float]:
        """Numbers of all measurements, by their place."""
        engine = build_engine(self.stream)
        found: dict[Any, float] = {}
        for batch in self.batches(there):
            release = engine.step(batch, source.child(batch.step))
            found |= {(batch.step, *place): number for place, number in numbers(self.measured(release))}
        return found

    @cached_property
    def bare(self) -> tuple[dict[Any, float], dict[Any, float]]:
        """Numbers without noise where the user is away, and where it is there: they are the same in every run."""
        away, there = (self.released(bit, WitnessedSource(NoNoise(), bytes(32), "canary")) for bit in (False, True))
        return away, there

    @cached_property
    def direction(self) -> dict[Any, float]:
        """By how much the user moves each number where there is no noise."""
        away, there = self.bare
        moved = {place: there.get(place, 0.0) - away.get(place, 0.0) for place in away.keys() | there.keys()}
        return {place: by for place, by in moved.items() if by}

    def measured(self, release: Release) -> Any:
        return release.measurements if self.case.measured is None else self.case.measured(release)


def numbers(content: Any) -> Iterator[tuple[tuple[Any, ...], float]]:
    """All numbers in a nest of mappings and lists, with where they are."""
    if isinstance(content, bool | str) or content is None:
        return
    if isinstance(content, int | float):
        yield (), float(content)
        return
    for place, value in content.items() if hasattr(content, "items") else enumerate(content):
        for inner, number in numbers(value):
            yield (place, *inner), number


def score(canary: Canary, found: dict[Any, float]) -> float:
    """How far a release lies in the direction in which the user moves it."""
    return sum(by * found.get(place, 0.0) for place, by in canary.direction.items())


@pytest.mark.parametrize("engine", ENGINES)
def test_a_user_is_hidden_as_claimed_and_without_noise_is_not(engine: str) -> None:
    canary, there = Canary.of(engine), coins(RUNS, seeded(1).child("coins"))
    delta = canary.stream.privacy.delta
    noisy = [score(canary, canary.released(bool(bit), seeded(2).child(engine, run))) for run, bit in enumerate(there)]
    honest = sampled(noisy, there, delta=delta)
    assert honest.epsilon <= EPSILON < honest.ceiling
    bare = [score(canary, found) for found in canary.bare]
    planted = sampled([bare[int(bit)] for bit in there], there, delta=delta)
    assert planted.epsilon > EPSILON


@pytest.mark.parametrize("engine", ENGINES)
def test_fresh_seeds_give_other_noise_and_a_repeated_one_the_same(engine: str) -> None:
    """Seeds of the operating system, for which no generator in an engine may stand in. False alarms: at so small an
    epsilon noise has a scale of 1,000 or more, so that a number is equal in two runs with probability 1/4,000 at most,
    and there are two numbers or more with noise of their own: below 1e-7.
    """
    canary = Canary.of(engine)
    privacy = canary.stream.privacy.model_copy(update={"epsilon": FAINT})
    stream = canary.stream.model_copy(update={"privacy": privacy})
    faint = replace(canary, stream=stream, crowd=MANY if stream.counts_pairs else CROWD)
    seed = fresh_seed()
    first, again, other = (faint.released(True, NoiseSource(each, engine)) for each in (seed, seed, fresh_seed()))
    assert len(first) >= 2
    # A generator with a seed of its own would give this for other seeds, too.
    assert first == again
    assert first != other

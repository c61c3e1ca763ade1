"""The contract of every registered engine and mode. A new engine is tested by being registered."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines import contract_checks as checks
from engines.contract import Batch, Engine, Release, State
from engines.noise import NoiseSource, seeded
from engines.registry import ENGINES, build_domain, build_engine, build_evaluator
from engines.spatial import BoxDomain, PHDStream, PHDStreamConfig
from schemas.blocks import Folded
from schemas.config import ENGINE_MODES, Stream
from schemas.errors import EngineInputError

CASES = [(name, mode) for name in sorted(ENGINES) for mode in ENGINE_MODES[name]]
DEPTH = 6
EASY = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def stream(name: str, mode: str, *, ttl: str | None = None, initial_steps: int = 1, max_leaves: int = 16) -> Stream:
    domain: dict[str, Any] = {"kind": "box", "x": "lon", "y": "lat", "bounds": [-1.0, 40.0, 1.0, 41.0]}
    if ttl is not None:
        domain["ttl"] = ttl
    return Stream.model_validate(
        {
            "name": "s",
            "engine": name,
            "mode": mode,
            "source": "raw.s",
            "privacy": {"epsilon": 2.0, "unit": "user", "user": "u", "max_contributions": 2},
            "time": {"field": "t", "format": "s", "start": "2020-01-01T00:00:00", "step": "1h", "clock": "replay"},
            "domain": domain,
            "options": {"depth": DEPTH, "initial_steps": initial_steps, "max_leaves": max_leaves},
        }
    )


@st.composite
def batches(draw: st.DrawFn) -> list[Batch]:
    """Steps with clusters, one cell only, deletes only, or nothing."""
    steps = []
    for step in range(draw(st.integers(1, 4))):
        rows = draw(st.lists(st.tuples(st.integers(0, 2 ** (DEPTH + 1) - 1), st.integers(1, 60)), max_size=8))
        if draw(st.booleans()):
            rows = [(key | 1, count) for key, count in rows]
        keys = np.array([key for key, _ in rows], np.uint64).reshape(-1, 1)
        steps.append(Batch(step, Folded.of(keys, np.array([count for _, count in rows], np.int64))))
    return steps


def test_every_mode_that_can_be_configured_is_built() -> None:
    assert set(ENGINES) == set(ENGINE_MODES)


@pytest.mark.parametrize(("name", "mode"), CASES)
@EASY
@given(
    steps=batches(), initial_steps=st.integers(1, 3), seed=st.integers(0, 99), ttl=st.sampled_from([None, "1h", "2h"])
)
def test_contract(name: str, mode: str, steps: list[Batch], initial_steps: int, seed: int, ttl: str | None) -> None:
    configured = stream(name, mode, ttl=ttl, initial_steps=initial_steps)
    checks.check_engine(lambda: build_engine(configured), steps, seed=seed)


def each_measurement(release: Release) -> dict[str, int]:
    """Noisy integers by cell and round: later rounds of a step look at what earlier ones released."""
    return {f"{m['cell']} {m.get('round', 0)}": int(m["increment"]) for m in release.measurements}


@pytest.mark.parametrize(("name", "mode"), CASES)
@EASY
@given(
    steps=batches(),
    key=st.integers(0, 2 ** (DEPTH + 1) - 1),
    seed=st.integers(0, 99),
    ttl=st.sampled_from([None, "1h", "2h"]),
)
def test_one_event_moves_no_more_than_declared(
    name: str, mode: str, steps: list[Batch], key: int, seed: int, ttl: str | None
) -> None:
    extra = Folded.of(np.array([[key]], np.uint64))
    configured = stream(name, mode, ttl=ttl)
    checks.check_sensitivity(lambda: build_engine(configured), steps, extra, seed=seed, measured=each_measurement)


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_most_neighbours_can_be_compared(name: str, mode: str) -> None:
    steps = [Batch(0, Folded.of(np.array([[8]], np.uint64), np.array([400])))]
    extra = Folded.of(np.array([[9]], np.uint64))
    configured = stream(name, mode)
    seen = [
        checks.check_sensitivity(lambda: build_engine(configured), steps, extra, seed=i, measured=each_measurement)
        for i in range(30)
    ]
    assert sum(seen) >= 15


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_states_and_keys_of_others_are_refused(name: str, mode: str) -> None:
    engine = build_engine(stream(name, mode))
    other = build_engine(stream(name, mode, initial_steps=3))
    other.restore(engine.state())  # gathering is no part of what a state means
    for broken in ("header", "identity"):
        state = engine.state()
        state[broken] = state[broken] + np.array(1, state[broken].dtype)
        with pytest.raises(EngineInputError):
            engine.restore(state)
        del state[broken]
        with pytest.raises(EngineInputError):
            engine.restore(state)
    with pytest.raises(EngineInputError, match="outside"):
        engine.step(Batch(0, Folded.of(np.array([[2 ** (DEPTH + 1)]], np.uint64))), seeded(1))


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_domain_and_evaluator_speak_the_raw_fields(name: str, mode: str) -> None:
    configured = stream(name, mode)
    assert build_domain(configured).number_fields == configured.domain.fields
    evaluator = build_evaluator(configured)
    metrics = evaluator.measure(Folded.empty(evaluator.domain.words), {field: [] for field in configured.domain.fields})
    assert set(metrics.values()) == {0.0}
    assert build_engine(configured).guarantee().epsilon == configured.event_epsilon == Fraction(1)


class Broken(PHDStream):
    """Base of planted faults: each must be caught, or the checks check nothing."""

    def __init__(self) -> None:
        super().__init__(
            PHDStreamConfig(
                name="b", domain=BoxDomain("x", "y", (0, 0, 1, 1), DEPTH), epsilon=Fraction(1), initial_steps=2
            )
        )


class DrawsWhileGathering(Broken):
    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        noise.words(1)
        return super().step(batch, noise)


class ForgetsPending(Broken):
    def state(self) -> State:
        return super().state() | {"pending/keys": np.zeros((0, 1), np.uint64), "pending/counts": np.zeros(0, np.int64)}


class HoldsObjects(Broken):
    def state(self) -> State:
        return super().state() | {"more": np.array([None])}


class DependsOnTheProcess(Broken):
    runs = 0

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        type(self).runs += 1
        return super().step(batch, noise.child(self.runs))


class CountsTwice(Broken):
    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        return super().step(Batch(batch.step, Folded(batch.events.keys, batch.events.counts * 2)), noise)


@pytest.mark.parametrize("fault", [DrawsWhileGathering, ForgetsPending, HoldsObjects, DependsOnTheProcess])
def test_a_planted_fault_is_caught(fault: type[Engine]) -> None:
    events = Folded.of(np.array([[8], [20]], np.uint64), np.array([300, 200]))
    with pytest.raises(checks.ContractBroken):
        checks.check_engine(fault, [Batch(step, events) for step in range(3)])


def test_too_much_sensitivity_is_caught() -> None:
    events = Folded.of(np.array([[8]], np.uint64), np.array([300]))
    extra = Folded.of(np.array([[8]], np.uint64))

    def every_seed() -> None:
        for seed in range(20):
            checks.check_sensitivity(CountsTwice, [Batch(0, events), Batch(1, events)], extra, seed=seed)

    with pytest.raises(checks.ContractBroken):
        every_seed()

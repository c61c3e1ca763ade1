"""The contract checks catch planted faults, or they would check nothing."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from engines.checks import contract_checks as checks
from engines.core.contract import Batch, Engine, Release, State, SyntheticRecord
from engines.core.noise import NoiseSource, seeded
from engines.spatial.domain.box import BoxDomain
from engines.spatial.papers.phdstream import PHDStream, PHDStreamConfig
from schemas.blocks import Folded
from schemas.config.engines.spec import INTEGER, NUMBER, TEXT, RecordFields
from schemas.guarantee import Guarantee
from tests.couple.plants import anew

DEPTH = 6


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


class HoldsFewBytes(Broken):
    def state(self) -> State:
        state = super().state()
        return state | {"pending/counts": state["pending/counts"].astype(np.int32)}


class ReadsFewBytes(Broken):
    def restore(self, state: State) -> None:
        super().restore(state | {"pending/counts": state["pending/counts"] & 0xFFFFFFFF})


class DependsOnTheProcess(Broken):
    runs = 0

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        type(self).runs += 1
        return super().step(batch, noise.child(self.runs))


class DrawsTheSameNoiseAgain(Broken):
    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        noise.child("again").words(1)
        anew(noise).child("again").words(2)
        return super().step(batch, noise)


class ClaimsLess(Broken):
    """Says of itself half of what its budgets hold."""

    def __init__(self) -> None:
        super().__init__()
        self.claims_less = True

    def guarantee(self) -> Guarantee:
        honest = super().guarantee()
        return replace(honest, epsilon=honest.epsilon / 2) if hasattr(self, "claims_less") else honest


class ChargesNothing(Broken):
    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        full = self._budgets
        release = super().step(batch, noise)
        self._budgets = full
        return release


class ChargesMore(Broken):
    """Takes twice of what its mechanisms are said to cost from budgets that are twice as large."""

    def guarantee(self) -> Guarantee:
        honest = super().guarantee()
        if hasattr(self, "_budgets"):
            return honest
        twice = tuple(replace(each, epsilon=2 * each.epsilon) for each in honest)
        return replace(honest, epsilon=2 * honest.epsilon, mechanisms=twice)


class DatesSome(Broken):
    """Some of its records are of a step, and the others of nothing."""

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        release = super().step(batch, noise)
        return replace(release, added=[replace(each, step=0 if i else None) for i, each in enumerate(release.added)])


class DatesAhead(Broken):
    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        release = super().step(batch, noise)
        return replace(release, added=[replace(each, step=batch.step + 1) for each in release.added])


class SpansNothing(Broken):
    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        return replace(super().step(batch, noise), spans=[(batch.step, 1.0)])


@pytest.mark.parametrize("fault", [DatesSome, DatesAhead, SpansNothing])
def test_records_of_no_time_or_a_wrong_one_are_caught(fault: type[Engine]) -> None:
    batches = [
        Batch(step, Folded.from_keys(np.array([[8], [20]], np.uint64), np.array([300, 200]))) for step in range(3)
    ]
    assert not checks.check_records_are_dated(checks.run(Broken(), batches, seed=1))
    with pytest.raises(checks.ContractBroken, match=r"every record says its step|step that is over|spans begin"):
        checks.check_engine(fault, batches)


@pytest.mark.parametrize("fault", [ClaimsLess, ChargesNothing, ChargesMore])
def test_a_charge_that_is_not_the_claim_is_caught(fault: type[Engine]) -> None:
    batches = [
        Batch(step, Folded.from_keys(np.array([[8], [20]], np.uint64), np.array([300, 200]))) for step in range(3)
    ]
    checks.check_charges(Broken, batches)
    with pytest.raises(checks.ContractBroken):
        checks.check_charges(fault, batches)


@pytest.mark.parametrize("fault", [DrawsWhileGathering, ForgetsPending, HoldsObjects, DependsOnTheProcess])
def test_a_planted_fault_is_caught(fault: type[Engine]) -> None:
    events = Folded.from_keys(np.array([[8], [20]], np.uint64), np.array([300, 200]))
    with pytest.raises(checks.ContractBroken):
        checks.check_engine(fault, [Batch(step, events) for step in range(3)])


def test_a_width_that_is_too_small_is_caught() -> None:
    engine = Broken()
    engine.step(Batch(0, Folded.from_keys(np.array([[8], [20]], np.uint64), np.array([300, 200]))), seeded(1))
    checks.check_state_is_arrays(engine.state())
    assert checks.check_state_is_kept(Broken, engine.state())
    with pytest.raises(checks.ContractBroken, match="pending/counts"):
        checks.check_state_is_kept(ReadsFewBytes, engine.state())
    narrow = HoldsFewBytes()
    with pytest.raises(checks.ContractBroken, match="eight bytes"):
        checks.check_state_is_arrays(narrow.state())


def test_noise_used_twice_is_caught() -> None:
    batches = [
        Batch(step, Folded.from_keys(np.array([[8], [20]], np.uint64), np.array([300, 200]))) for step in range(3)
    ]
    checks.check_words_are_used_once(Broken, batches)
    with pytest.raises(checks.ContractBroken, match="drawn twice"):
        checks.check_words_are_used_once(DrawsTheSameNoiseAgain, batches)


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"x": NUMBER}, "no field that the spec does not name"),
        ({"x": NUMBER, "y": NUMBER, "z": NUMBER}, "field z"),
        ({"x": NUMBER, "y": INTEGER}, "field y"),
        ({"x": TEXT, "y": NUMBER}, "field x"),
    ],
)
def test_records_other_than_the_spec_says_are_caught(fields: RecordFields, match: str) -> None:
    record = SyntheticRecord("0", {"x": 0.5, "y": 1.5})
    releases = [Release(step=0, added=[record], removed=(), measurements=(), total=1)]
    checks.check_record_fields(releases, {"x": NUMBER, "y": NUMBER})
    with pytest.raises(checks.ContractBroken, match=match):
        checks.check_record_fields(releases, fields)


def test_an_id_that_tables_would_cut_is_caught() -> None:
    plain, cut = (
        [Release(step=0, added=[SyntheticRecord(name, {})], removed=(), measurements=(), total=1)]
        for name in ("0", "0\0")
    )
    checks.check_releases_add_up(plain)
    with pytest.raises(checks.ContractBroken, match="NUL"):
        checks.check_releases_add_up(cut)

"""PHDStream as a whole: what its mechanisms see, gathering and expiry."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from engines.core.contract import Batch
from engines.core.counters.simple import SimpleCounter
from engines.core.noise import NoiseSource, seeded
from engines.spatial.papers import tree as partition
from engines.spatial.papers.phdstream import PHDStream, PHDStreamConfig
from engines.spatial.split import SplitRule, split_bits
from schemas.blocks import Folded
from schemas.errors import EngineInputError
from tests.spatial.streams import BOX, city, encode


def config(**changes: Any) -> PHDStreamConfig:
    return PHDStreamConfig(**({"name": "s", "domain": BOX, "epsilon": Fraction(1)} | changes))


class Seen:
    """What the two mechanisms are given, with a partition that is the same for both neighbours."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.changes: list[np.ndarray] = []
        self.net: list[np.ndarray] = []

        def bits(prior: np.ndarray, changes: np.ndarray, *, depth: int, **rest: Any) -> np.ndarray:
            self.changes.append(changes)
            split_bits(prior, changes, depth=depth, **rest)
            return np.arange(len(prior)) % 3 != 1 if depth < 6 else np.zeros(len(prior), bool)

        counter = SimpleCounter

        def count(values: np.ndarray, state: Any, source: NoiseSource) -> Any:
            self.net.append(values)
            return values, state

        monkeypatch.setattr(partition, "split_bits", bits)
        monkeypatch.setattr(counter, "step", lambda _, values, state, source: count(values, state, source))


@pytest.mark.parametrize("ttl", [None, 2])
@pytest.mark.parametrize("delete", [False, True])
def test_one_event_adds_one_to_one_cell_of_each_level(
    monkeypatch: pytest.MonkeyPatch, ttl: int | None, delete: bool
) -> None:
    seen = Seen(monkeypatch)
    random = np.random.default_rng(5)
    events = [encode(*city(random, 300)) for _ in range(5)]
    extra = encode(np.array([0.3]), np.array([0.4]), delete=delete)
    runs: list[Any] = []
    kept: dict[int, Any] = {}
    for with_extra in (False, True):
        seen.changes, seen.net = [], []
        engine = PHDStream(config(ttl_steps=ttl))
        per_step = []
        for step, batch in enumerate(events):
            engine.step(Batch(step, batch.merge(extra) if with_extra and step == 1 else batch), seeded(step))
            # Later releases build on this one. To see what later events add, both runs go on from the first run's.
            if step == 1:
                engine._tree = kept.setdefault(step, engine._tree)
            per_step.append((seen.changes, seen.net))
            seen.changes, seen.net = [], []
        runs.append(per_step)
    charged = {1} | ({3} if ttl and not delete else set())
    for step, (without, with_event) in enumerate(zip(*runs, strict=True)):
        expected = int(step in charged)
        for before, after in zip(without[0], with_event[0], strict=True):
            difference = after - before
            assert difference.min(initial=0) >= 0
            assert difference.sum() <= expected
        assert (with_event[0][0] - without[0][0]).tolist() == [expected]
        assert np.abs(with_event[1][0] - without[1][0]).sum() == expected


def test_gathered_steps_are_one_release() -> None:
    random = np.random.default_rng(1)
    batches = [encode(*city(random, 400)) for _ in range(4)]
    patient, prompt = PHDStream(config(initial_steps=4)), PHDStream(config())
    for step in range(3):
        release = patient.step(Batch(step, batches[step]), seeded(step))
        assert release.gathered
        assert (len(release.added), release.total) == (0, 0)
    release = patient.step(Batch(3, batches[3]), seeded(9))
    at_once = prompt.step(Batch(0, batches[0].merge(*batches[1:])), seeded(9))
    assert not release.gathered
    assert list(release.added) == list(at_once.added)
    assert patient.state()["pending/keys"].size == 0


def test_a_ttl_empties_the_city_again() -> None:
    random = np.random.default_rng(2)
    engine = PHDStream(config(ttl_steps=3, epsilon=Fraction(4)))
    totals = []
    for step in range(8):
        events = encode(*city(random, 3000)) if step < 2 else Folded.empty(1)
        totals.append(engine.step(Batch(step, events), seeded(step)).total)
    assert totals[1] > 5500
    assert totals[3] < 3500
    assert totals[7] < 500
    assert engine.state()["expiry/keys"].size == 0


def test_deletes_of_what_never_was_leave_an_empty_city() -> None:
    random = np.random.default_rng(3)
    engine = PHDStream(config())
    for step in range(3):
        release = engine.step(Batch(step, encode(*city(random, 5000), delete=True)), seeded(step))
        assert release.total < 500


def test_measurements_say_what_was_measured() -> None:
    random = np.random.default_rng(6)
    release = PHDStream(config()).step(Batch(0, encode(*city(random, 4000))), seeded(1))
    areas = [(m["cell"][2] - m["cell"][0]) * (m["cell"][3] - m["cell"][1]) for m in release.measurements]
    assert sum(areas) == pytest.approx(1)
    assert all(area == 2.0 ** -m["depth"] for area, m in zip(areas, release.measurements, strict=True))
    assert all(m["variance"] == pytest.approx(2 * 2**2, rel=0.05) for m in release.measurements)


def test_the_guarantee_is_exact() -> None:
    guarantee = PHDStream(config(epsilon=Fraction(1, 3), split=Fraction(1, 7))).guarantee()
    assert guarantee.epsilon == Fraction(1, 3) == sum(mechanism.epsilon for mechanism in guarantee)
    # 2.6067, rounded up, by theorem P.
    assert [mechanism.scale for mechanism in guarantee] == [21 * Fraction(1_366_659, 2**19), Fraction(7, 2)]


@pytest.mark.parametrize("change", [{"epsilon": Fraction(0)}, {"split": Fraction(1)}])
def test_unusable_configurations_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(EngineInputError):
        PHDStream(config(**change))


@pytest.mark.parametrize(
    "events",
    [
        Folded(np.zeros((1, 2), np.uint64), np.ones(1, np.int64)),
        Folded(np.zeros((1, 1), np.int64), np.ones(1, np.int64)),
        Folded(np.zeros((1, 1), np.uint64), np.zeros(1, np.int64)),
        Folded(np.zeros((2, 1), np.uint64), np.ones(2, np.int64)),
        Folded(np.array([[1 << 15]], np.uint64), np.ones(1, np.int64)),
    ],
)
def test_unusable_events_are_refused(events: Folded) -> None:
    with pytest.raises(EngineInputError):
        PHDStream(config()).step(Batch(0, events), seeded(1))


def test_split_bits_name_the_argument_and_no_value() -> None:
    rule = SplitRule(epsilon=Fraction(1))
    with pytest.raises(EngineInputError, match="changes") as error:
        split_bits(np.array([5]), np.array([-77]), depth=0, threshold=0, rule=rule, noise=seeded(1))
    assert "77" not in str(error.value)

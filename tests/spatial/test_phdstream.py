"""PHDStream, with any counter: what its mechanisms see, promise and release; gathering, totals, and errors."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any, get_args

import numpy as np
import pytest

from engines.checks.contract_checks import check_engine
from engines.core.contract import Batch
from engines.core.counters.by_name import COUNTERS
from engines.core.counters.simple import SimpleCounter
from engines.core.noise import seeded
from engines.spatial.papers import tree as consistency
from engines.spatial.papers.phdstream import PHDStream, PHDStreamConfig
from engines.spatial.papers.tree import Tree, counted
from engines.spatial.points import Placement, TreeOrder
from engines.spatial.split import SplitRule, split_bits
from schemas.blocks import Folded
from schemas.config.engines.spatial import NEED_HORIZON, CounterName
from schemas.errors import EngineInputError
from tests.spatial.streams import BOX, city, encode

NAMES = get_args(CounterName)


def engine(**changes: Any) -> PHDStream:
    told: dict[str, Any] = {"name": "s", "domain": BOX, "epsilon": Fraction(1)} | changes
    return PHDStream(PHDStreamConfig(**told))


def batches(count: int, events: int, *, seed: int = 5) -> list[Folded]:
    random = np.random.default_rng(seed)
    return [encode(*city(random, events)) for _ in range(count)]


# --- counters ---


def test_the_counters_of_the_configuration_are_those_of_pure_noise() -> None:
    made = {name: make(16, Fraction(1)) for name, make in COUNTERS.items()}
    pure = {name for name, counter in made.items() if counter.measure == "epsilon"}
    assert set(NAMES) == pure
    assert {name for name in pure if made[name] != COUNTERS[name](1024, Fraction(1))} == NEED_HORIZON


@pytest.mark.parametrize("counter", NAMES)
def test_any_counter_keeps_the_contract(counter: str) -> None:
    steps = [Batch(step, events) for step, events in enumerate(batches(3, 60))]
    made = engine(counter=partial(COUNTERS[counter], 4), ttl_steps=2)
    check_engine(lambda: PHDStream(made.config), steps)
    assert made.guarantee().spent == 1


def test_gaussian_counters_are_refused() -> None:
    with pytest.raises(EngineInputError, match="never epsilon-DP"):
        engine(counter=partial(COUNTERS["blt"], 8))


class _ObliviousCounter(SimpleCounter):
    """It does not promise anything where its activation depends on releases."""

    adaptive = False


def test_a_counter_that_is_not_adaptive_is_refused() -> None:
    with pytest.raises(EngineInputError, match="releases decide"):
        engine(counter=lambda epsilon: _ObliviousCounter(epsilon=epsilon))


def test_a_horizon_ends_the_stream_and_nothing_is_drawn() -> None:
    made = engine(counter=partial(COUNTERS["kary"], 2))
    events = batches(3, 50)
    for step in range(2):
        made.step(Batch(step, events[step]), seeded(step))
    before = made.state()
    with pytest.raises(EngineInputError, match="horizon"):
        made.step(Batch(2, events[2]), seeded(2))
    assert all(np.array_equal(before[key], array) for key, array in made.state().items())


# --- what comes out ---


def totals(events: list[Folded], **changes: Any) -> list[int]:
    made = engine(epsilon=Fraction(40), **changes)
    return [made.step(Batch(step, batch), seeded(step)).total for step, batch in enumerate(events)]


def test_with_little_noise_the_totals_are_true() -> None:
    assert totals(batches(4, 500)) == pytest.approx([500, 1000, 1500, 2000], abs=60)


def test_expired_and_deleted_events_are_gone() -> None:
    grown = batches(2, 500)
    gone = [Folded(grown[0].keys | np.uint64(1), grown[0].counts)]
    # Each leaf is clipped at zero, which lifts the total where other cells were counted before.
    about = pytest.approx(500, abs=150)
    assert totals([*grown, *gone])[-1] == about
    assert totals([*grown, Folded.empty(1)], ttl_steps=2)[-1] == about


# --- promises, and what is refused ---


def test_measurements_say_what_was_measured() -> None:
    random = np.random.default_rng(6)
    release = engine().step(Batch(0, encode(*city(random, 4000))), seeded(1))
    areas = [(m["cell"][2] - m["cell"][0]) * (m["cell"][3] - m["cell"][1]) for m in release.measurements]
    assert sum(areas) == pytest.approx(1)
    assert all(area == 2.0 ** -m["depth"] for area, m in zip(areas, release.measurements, strict=True))
    assert all(m["variance"] == pytest.approx(2 * 2**2, rel=0.05) for m in release.measurements)


def test_the_guarantee_is_exact() -> None:
    guarantee = engine(epsilon=Fraction(1, 3), split=Fraction(1, 7)).guarantee()
    assert guarantee.epsilon == Fraction(1, 3) == sum(mechanism.epsilon for mechanism in guarantee)
    # 2.6067, rounded up, by theorem P.
    assert [mechanism.scale for mechanism in guarantee] == [21 * Fraction(1_366_659, 2**19), Fraction(7, 2)]


@pytest.mark.parametrize("change", [{"epsilon": Fraction(0)}, {"split": Fraction(1)}])
def test_unusable_configurations_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(EngineInputError):
        engine(**change)


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
        engine().step(Batch(0, events), seeded(1))


def test_split_bits_name_the_argument_and_no_value() -> None:
    rule = SplitRule(epsilon=Fraction(1))
    with pytest.raises(EngineInputError, match="changes") as error:
        split_bits(np.array([5]), np.array([-77]), depth=0, threshold=0, rule=rule, noise=seeded(1))
    assert "77" not in str(error.value)


# --- standard errors ---


def test_standard_errors_are_those_of_the_estimates() -> None:
    """Estimates are linear in what was measured: unit changes, one by one, give the coefficients."""
    nodes = np.array([1, 2, 3, 4, 5, 6, 7, 10, 11, 14, 15, 20, 21])
    live = ~np.isin(nodes, [14, 15, 20, 21])  # measured once, no part of this release
    variances = np.array([2.0, 0.5, 3.0, 1.0, 0.0, 2.0, 5.0, 4.0, 1.5, 1.0, 2.0, 0.25, 8.0])

    def tree(own: np.ndarray) -> Tree:
        zero = np.zeros(len(nodes), np.int64)
        return Tree(nodes, own, consistency.gathered_from_below(own, zero, TreeOrder.of(nodes)), zero, zero)

    def estimates(own: np.ndarray) -> np.ndarray:
        order = TreeOrder.of(nodes[live])
        below = consistency.gathered_from_below(own[live], tree(own).below[live], order)
        return consistency.shared_from_above(own[live], order) + own[live] + below

    unit = 64  # halves stay whole
    coefficients = np.stack([estimates(unit * row) / unit for row in np.eye(len(nodes), dtype=np.int64)], axis=1)
    expected = (coefficients**2 * variances).sum(axis=1)
    nothing = tree(np.zeros(len(nodes), np.int64))
    _, _, found = counted(nothing, live, variances, placement=Placement("s"), depth=8, resolution=1)
    assert found[live] == pytest.approx(expected)

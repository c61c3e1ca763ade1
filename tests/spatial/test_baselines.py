"""The papers' baselines and other counters: one engine in other parts. What its mechanisms see, promise and release."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, get_args

import numpy as np
import pytest
import shapely

from engines.contract import Batch, Columns
from engines.contract_checks import check_engine
from engines.counters import COUNTERS, KaryConfig, SimpleConfig, SimpleCounter
from engines.noise import seeded
from engines.spatial import partition
from engines.spatial.papers import consistency
from engines.spatial.papers.config import FIXED_TREE, OFFLINE, OFFLINE_INCREMENTS, PAPER, PARTS, PHDStreamConfig
from engines.spatial.papers.phdstream import PHDStream
from engines.spatial.papers.tree_counts import counted
from engines.spatial.placement import Placement
from engines.spatial.tree import Levels, Tree
from schemas.blocks import Folded
from schemas.config.options.spatial import NEED_HORIZON, CounterName
from schemas.errors import EngineInputError
from tests.spatial.shapes import lines, polygons
from tests.spatial.streams import BOX, alive, city, encode

NAMES = get_args(CounterName)
COMBINATIONS = {
    "paper": {"parts": PAPER},
    "offline": {"parts": OFFLINE},
    "offline-increments": {"parts": OFFLINE_INCREMENTS},
    "fixed-tree": {"parts": FIXED_TREE},
    "fixed-tree, grid": {"parts": FIXED_TREE, "grid": 5},
}
PRIVATE = [name for name in COMBINATIONS if name != "offline"]


def engine(name: str, **changes: Any) -> PHDStream:
    return PHDStream(
        PHDStreamConfig(**({"name": "s", "domain": BOX, "epsilon": Fraction(1)} | COMBINATIONS[name] | changes))
    )


def batches(count: int, events: int, *, seed: int = 5) -> list[Folded]:
    random = np.random.default_rng(seed)
    return [encode(*city(random, events)) for _ in range(count)]


# --- counters ---


def test_the_counters_of_the_configuration_are_those_of_pure_noise() -> None:
    made = {name: make(16) for name, make in COUNTERS.items()}
    pure = {name for name, config in made.items() if config.calibrate(Fraction(1, 2)).measure == "epsilon"}
    assert set(NAMES) == pure
    assert {name for name in pure if made[name] != COUNTERS[name](1024)} == NEED_HORIZON


@pytest.mark.parametrize("counter", NAMES)
@pytest.mark.parametrize("name", PRIVATE)
def test_any_counter_keeps_the_contract(name: str, counter: str) -> None:
    steps = [Batch(step, events) for step, events in enumerate(batches(3, 60))]
    made = engine(name, counter=COUNTERS[counter](4), ttl_steps=2)
    check_engine(lambda: PHDStream(made.config), steps)
    assert made.guarantee().spent == 1


@pytest.mark.parametrize("name", PRIVATE)
def test_gaussian_counters_are_refused(name: str) -> None:
    with pytest.raises(EngineInputError, match="never epsilon-DP"):
        engine(name, counter=COUNTERS["toeplitz"](8))


@dataclass(frozen=True)
class Oblivious(SimpleConfig):
    """A recipe of a counter that does not promise anything where its activation depends on releases."""

    def calibrate(self, epsilon: Fraction, /) -> SimpleCounter:
        return _ObliviousCounter(epsilon=epsilon)


class _ObliviousCounter(SimpleCounter):
    adaptive = False  # type: ignore[misc]


def test_a_counter_that_is_not_adaptive_may_only_count_in_cells_that_stay() -> None:
    for name in ("paper", "offline-increments"):
        with pytest.raises(EngineInputError, match="releases decide"):
            engine(name, counter=Oblivious())
    assert engine("fixed-tree", counter=Oblivious()).guarantee().private


def test_a_horizon_ends_the_stream_and_nothing_is_drawn() -> None:
    made = engine("fixed-tree, grid", counter=KaryConfig(horizon=2))
    events = batches(3, 50)
    for step in range(2):
        made.step(Batch(step, events[step]), seeded(step))
    before = made.state()
    with pytest.raises(EngineInputError, match="horizon"):
        made.step(Batch(2, events[2]), seeded(2))
    assert all(np.array_equal(before[key], array) for key, array in made.state().items())


# --- what one event moves ---


class Spy:
    """What the mechanisms of each step are given. The partition is forced, the same for both neighbours."""

    def __init__(self, patch: pytest.MonkeyPatch, made: PHDStream) -> None:
        self.bits: list[np.ndarray] = []
        self.counts: list[tuple[int, np.ndarray]] = []

        def bits(prior: np.ndarray, changes: np.ndarray, *, depth: int, **rest: Any) -> np.ndarray:
            self.bits.append(changes)
            return np.arange(len(prior)) % 3 != 1 if depth < 5 else np.zeros(len(prior), bool)

        patch.setattr(partition, "split_bits", bits)
        for counter in {type(made._counters.counter), type(made._first_counter or made._counters.counter)}:
            honest = counter.step

            def step(self_: Any, values: Any, state: Any, source: Any, honest: Any = honest) -> Any:
                self.counts.append((int(self_.cost * 1000), np.asarray(values)))
                return honest(self_, values, state, source)

            patch.setattr(counter, "step", step)

    def taken(self) -> tuple[list[np.ndarray], list[tuple[int, np.ndarray]]]:
        seen = self.bits, self.counts
        self.bits, self.counts = [], []
        return seen


@pytest.mark.parametrize("delete", [False, True])
@pytest.mark.parametrize("ttl", [None, 2])
@pytest.mark.parametrize("name", COMBINATIONS)
def test_one_event_pays_once_for_each_mechanism_of_its_step(
    monkeypatch: pytest.MonkeyPatch, name: str, ttl: int | None, delete: bool
) -> None:
    """At the first step, at a later one; with counters that remember. Offline it pays at each step that it is alive."""
    # In a crowd, so that offline a delete is seen too.
    crowd = encode(np.full(3, 0.3), np.full(3, 0.2))
    events = [batch.merge(crowd) for batch in batches(5, 300)]
    extra = encode(np.array([0.3]), np.array([0.2]), delete=delete)
    counter = SimpleConfig() if name == "offline" else KaryConfig(horizon=9)
    for place in (0, 1):
        runs = []
        for there in (False, True):
            with monkeypatch.context() as patch:
                made = engine(name, ttl_steps=ttl, counter=counter)
                spy = Spy(patch, made)
                run = []
                for step, batch in enumerate(events):
                    made.step(Batch(step, batch.merge(extra) if there and step == place else batch), seeded(step))
                    run.append(spy.taken())
                runs.append(run)
        expires = {place + ttl} if ttl is not None and not delete else set()
        again = set(range(place, place + ttl if expires and ttl else 5))
        charged = again if name == "offline" else {place} | expires
        paid = []
        for step, (without, with_event) in enumerate(zip(*runs, strict=True)):
            expected = int(step in charged)
            for before, after in zip(without[0], with_event[0], strict=True):
                assert np.abs(after - before).sum() <= expected
            assert [cost for cost, _ in without[1]] == [cost for cost, _ in with_event[1]]
            moved = [int(np.abs(b - a).sum()) for (_, a), (_, b) in zip(without[1], with_event[1], strict=True)]
            assert moved == [expected]
            cost = Fraction(without[1][0][0], 1000) + (made.config.partition_epsilon if without[0] else 0)
            paid.append(expected * cost)
        steps_paid = len(charged)
        assert sum(paid) == steps_paid * made.config.epsilon


# --- what comes out ---


def totals(name: str, events: list[Folded], **changes: Any) -> list[int]:
    made = engine(name, epsilon=Fraction(40), **changes)
    return [made.step(Batch(step, batch), seeded(step)).total for step, batch in enumerate(events)]


@pytest.mark.parametrize("name", COMBINATIONS)
def test_with_little_noise_the_totals_are_true(name: str) -> None:
    assert totals(name, batches(4, 500)) == pytest.approx([500, 1000, 1500, 2000], abs=60)


@pytest.mark.parametrize("name", COMBINATIONS)
def test_expired_and_deleted_events_are_gone(name: str) -> None:
    grown = batches(2, 500)
    gone = [Folded(grown[0].keys | np.uint64(1), grown[0].counts)]
    # Mode `paper` clips each leaf at zero, which lifts the total where other cells were counted before.
    about = pytest.approx(500, abs=150 if name == "paper" else 60)
    assert totals(name, [*grown, *gone])[-1] == about
    assert totals(name, [*grown, Folded.empty(1)], ttl_steps=2)[-1] == about


def test_offline_forgets_what_it_released() -> None:
    """A step depends on what is alive and on its seed: not on how it came to be alive."""
    events = batches(3, 400)
    slow, fast = engine("offline"), engine("offline")
    for step, batch in enumerate(events):
        last = slow.step(Batch(step, batch), seeded(9))
    once = fast.step(Batch(0, events[0].merge(*events[1:])), seeded(9))
    assert list(last.measurements) == list(once.measurements)
    assert last.total == once.total


def test_fixed_cells_stay_and_a_grid_is_one() -> None:
    made, grid = engine("fixed-tree"), engine("fixed-tree, grid")
    cells = []
    for step, batch in enumerate(batches(3, 400)):
        cells.append([m["cell"] for m in made.step(Batch(step, batch), seeded(step)).measurements])
        measured = grid.step(Batch(step, batch), seeded(step)).measurements
        assert {m["depth"] for m in measured} == {5}
        assert len(measured) == 32
    assert cells[0] == cells[1] == cells[2]
    assert len(cells[0]) > 4


def test_increments_are_released_in_all_cells_that_ever_were() -> None:
    made = engine("offline-increments", epsilon=Fraction(40))
    releases = [made.step(Batch(step, batch), seeded(step)) for step, batch in enumerate(batches(3, 400))]
    cells = [release.notes["cells"] for release in releases]
    assert cells[0] < cells[1] <= cells[2]
    assert cells[2] > releases[2].notes["leaves"]
    assert len(alive(releases)) == releases[-1].total


# --- promises ---


@pytest.mark.parametrize("name", COMBINATIONS)
@pytest.mark.parametrize("counter", ["simple", "unbounded-kary"])
def test_the_guarantee_is_exact(name: str, counter: str) -> None:
    if name == "offline" and counter != "simple":
        with pytest.raises(EngineInputError, match="anew at each step"):
            engine(name, counter=COUNTERS[counter](1))
        return
    made = engine(name, epsilon=Fraction(1, 3), split=Fraction(1, 7), counter=COUNTERS[counter](1))
    guarantee = made.guarantee()
    assert guarantee.spent == guarantee.epsilon == Fraction(1, 3)
    assert guarantee.private == (name != "offline")
    assert ("price of ONE step" in " ".join(guarantee.note.split())) == (name == "offline")
    early = [m.epsilon for m in guarantee if m.events in ("", "events of the first release")]
    assert sum(early) == Fraction(1, 3) or name == "fixed-tree, grid"
    assert set(PARTS) == {name.partition(",")[0] for name in COMBINATIONS}


@pytest.mark.parametrize("change", [{"grid": 3}, {"grid": 0, "parts": FIXED_TREE}, {"grid": 15, "parts": FIXED_TREE}])
def test_unusable_grids_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(EngineInputError, match="grid"):
        PHDStreamConfig(**({"name": "s", "domain": BOX, "epsilon": Fraction(1)} | change))


# --- standard errors ---


def test_standard_errors_are_those_of_the_estimates() -> None:
    """Estimates are linear in what was measured: unit changes, one by one, give the coefficients."""
    nodes = np.array([1, 2, 3, 4, 5, 6, 7, 10, 11, 14, 15, 20, 21])
    live = ~np.isin(nodes, [14, 15, 20, 21])  # measured once, no part of this release
    variances = np.array([2.0, 0.5, 3.0, 1.0, 0.0, 2.0, 5.0, 4.0, 1.5, 1.0, 2.0, 0.25, 8.0])
    levels = Levels.of(nodes)

    def tree(own: np.ndarray) -> Tree:
        zero = np.zeros(len(nodes), np.int64)
        below = consistency.gathered_from_below(levels.cut(own), levels.cut(zero), levels.splits)
        return Tree(nodes, own, np.concatenate(below), zero, zero)

    def estimates(own: np.ndarray) -> np.ndarray:
        full = tree(own)
        part = Levels.of(nodes[live])
        parts = part.cut(own[live])
        below = consistency.gathered_from_below(parts, part.cut(full.below[live]), part.splits)
        above = consistency.shared_from_above(parts, part.splits)
        return np.concatenate([a + n + d for a, n, d in zip(above, parts, below, strict=True)])

    unit = 64  # halves stay whole
    coefficients = np.stack([estimates(unit * row) / unit for row in np.eye(len(nodes), dtype=np.int64)], axis=1)
    expected = (coefficients**2 * variances).sum(axis=1)
    found = counted(
        tree(np.zeros(len(nodes), np.int64)), live, variances, placement=Placement("s"), depth=8, resolution=1
    )
    assert found.variances[live] == pytest.approx(expected)


# --- on a map ---


@pytest.mark.parametrize("name", COMBINATIONS)
@pytest.mark.parametrize("kind", ["polygons", "lines"])
def test_a_domain_need_not_be_a_box(name: str, kind: str) -> None:
    """Events in a triangle and on two roads: points come out there, and nowhere else."""
    triangle = shapely.Polygon([(10.0, 50.0), (11.0, 50.0), (10.0, 51.0)])
    roads = lines([[(10.0, 50.0), (11.0, 50.7)], [(10.0, 50.5), (11.0, 50.5)]], 12, reach_m=2_000)
    domain = polygons(triangle, 12) if kind == "polygons" else roads
    random = np.random.default_rng(3)
    made = PHDStream(PHDStreamConfig(**({"name": "s", "domain": domain, "epsilon": Fraction(20)} | COMBINATIONS[name])))
    releases = []
    for step in range(3):
        u, v = random.random((2, 3000))
        columns = Columns({"x": 10 + u, "y": 50 + v}, {}, np.ones(3000, np.int8))
        keys, reasons = domain.encode(columns)
        events = Folded.of(keys[reasons == 0])
        releases.append(made.step(Batch(step, events), seeded(step)))
        assert releases[-1].total == pytest.approx((step + 1) * events.total, rel=0.1)
    points = np.array([list(fields.values()) for fields in alive(releases).values()])
    columns = Columns({"x": points[:, 0], "y": points[:, 1]}, {}, np.ones(len(points), np.int8))
    assert not domain.encode(columns)[1].any()

"""The first steps of held leaf counters, and how expectations follow the watch afterwards."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.checks.contract_checks import contents
from engines.core.contract import Batch, Release
from engines.core.noise import seeded
from engines.spatial.domain.base import SpatialDomain
from engines.spatial.domain.box import BoxDomain
from engines.spatial.held import engine as held
from engines.spatial.held.engine import SPREAD, TRUST, UNBELIEVED, HeldConfig, HeldLeaves
from engines.spatial.held.measure import Watch
from engines.spatial.held.pace import CELL, WHOLE, follow, unknown
from engines.spatial.held.tree import HeldTree
from schemas.blocks import Folded
from schemas.errors import EngineInputError
from tests.examples import examples
from tests.spatial.shapes import polygons
from tests.spatial.streams import BOX, city, encode

pytestmark = pytest.mark.seconds(0.5)

SQUARE = BoxDomain("x", "y", (0.0, 0.0, 1.0, 1.0), 8)
# The islet is one finest cell after one turn: of the watch's places below it all but the first are missing.
ISLET = polygons(shapely.union(shapely.box(-10, 50, -9.9999, 50.0001), shapely.box(10, 50, 11.5, 50.9)), 8)


def engine(**changes: Any) -> HeldLeaves:
    told: dict[str, Any] = {"name": "s", "domain": BOX, "epsilon": Fraction(1)} | changes
    return HeldLeaves(HeldConfig(**told))


def run(subject: HeldLeaves, steps: list[Folded], *, first: int = 0) -> list[Release]:
    return [subject.step(Batch(step, steps[step]), seeded(step)) for step in range(first, len(steps))]


def alike(steps: int, each: int) -> list[Folded]:
    random = np.random.default_rng(3)
    return [encode(*city(random, each)) for _ in range(steps)]


@pytest.mark.parametrize(
    ("changes", "gathered"), [({}, 1), ({"initial_steps": 4}, 4), ({"initial_steps": 4, "ttl_steps": 2}, 2)]
)
def test_a_new_leaf_is_expected_to_go_on_as_far_as_it_can_be_believed(changes: dict[str, int], gathered: int) -> None:
    subject = engine(**changes)
    run(subject, alike(4, 2000)[: changes.get("initial_steps", 1)])
    tree, unit = subject._tree, subject.config.counter.variance
    work = subject._work(subject._next - 1, seeded(0))
    for leaf, count in zip(tree.leaves.tolist(), work.estimates().values[tree.leaves].tolist(), strict=True):
        noise = float(TRUST * unit * tree.parts[leaf])
        believed = count * (count * count / (count * count + noise))
        assert tree.rate[leaf] == pytest.approx(believed / gathered)
        doubt = max(SPREAD * tree.rate[leaf], UNBELIEVED * (count / gathered - tree.rate[leaf]))
        assert tree.rate_variance[leaf] >= doubt * doubt * (1 - 1e-9)
    assert subject._doubts.tolist() == [WHOLE] + [CELL] * 64


def off(subject: HeldLeaves, steps: list[Folded]) -> float:
    """The largest error of the total after step 0, in steps' events."""
    totals = [release.total for release in run(subject, steps)]
    truth = np.cumsum(
        [int(np.where(events.keys[:, 0] & np.uint64(1), -events.counts, events.counts).sum()) for events in steps]
    )
    return float(np.abs(totals - truth)[1:].max()) / steps[0].total


def test_few_events_in_many_cells_are_not_held_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """No leaf's count stands out of its noise, and yet a third of all events would be missed for a dozen steps."""
    random = np.random.default_rng(3)
    steps = [encode(random.random(300), random.random(300)) for _ in range(9)]
    changes: dict[str, Any] = {"epsilon": Fraction(1, 2)}
    assert off(engine(**changes), steps) < 2.3
    monkeypatch.setattr(held, "UNBELIEVED", 0.0)
    assert off(engine(**changes), steps) > 3.3


@pytest.mark.parametrize("each", [400, 3000])
def test_the_first_steps_do_not_lag(each: int, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = alike(9, each)
    assert off(engine(), steps) < 1.0
    # Nothing believed, nothing followed: what is held is missed until it is counted.
    monkeypatch.setattr(held, "TRUST", 1e12)
    monkeypatch.setattr(held, "UNBELIEVED", 0.0)
    monkeypatch.setattr(held, "follow", lambda *told, **now: told[-1])
    assert off(engine(), steps) > 1.5


def test_a_stream_of_deletes_follows_one_of_inserts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As all of it is deleted again, rates turn negative: what is held is not expected to be more inserts."""
    random = np.random.default_rng(3)
    people = [city(random, 8000) for _ in range(5)]
    steps = [*(encode(*each) for each in people), *(encode(*each, delete=True) for each in people[:4])]
    assert off(engine(), steps) < 0.6
    monkeypatch.setattr(held, "follow", lambda *told, **now: told[-1])
    assert off(engine(), steps) > 0.8


def test_a_restart_amid_the_first_steps_changes_nothing() -> None:
    steps = alike(7, 400)
    through, before = engine(), engine()
    whole = run(through, steps)
    run(before, steps[:3])
    state = before.state()

    def after(state: dict[str, np.ndarray]) -> tuple[list[Any], dict[str, np.ndarray]]:
        again = engine()
        again.restore(state)
        return [contents(release) for release in run(again, steps, first=3)], dict(again.state())

    released, last = after(dict(state))
    assert released == [contents(release) for release in whole[3:]]
    assert all(np.array_equal(array, last[name]) for name, array in through.state().items())
    forgotten = dict(state) | {"watch/doubts": unknown(before.config.watch)}
    assert after(forgotten)[0] != released
    with pytest.raises(EngineInputError, match="one for each cell"):
        after(dict(state) | {"watch/doubts": state["watch/doubts"][1:]})


Grown = tuple[HeldTree, Watch]


def grown(domain: SpatialDomain, *, depth: int, splits: int, seed: int) -> Grown:
    """A tree some of whose leaves are coarser than cells of the watch, and some finer."""
    watch = HeldConfig(name="p", domain=domain, epsilon=Fraction(1), max_leaves=8 << depth).watch
    assert watch.depth == depth
    tree, random = HeldTree.full(domain, 0), np.random.default_rng(seed)
    for _ in range(splits):
        at = np.sort(tree.leaves)
        at = at[tree.room(at) > 0]
        chosen = np.sort(random.choice(at, min(2, len(at)), replace=False))
        tree.split(chosen, np.ones(len(chosen), np.int64), now=0)
    return tree, watch


def parts(tree: HeldTree, watch: Watch) -> list[tuple[list[int], list[int]]]:
    """Leaves and cells that belong together, by what each covers: positions, and numbers among the cells there."""
    places = np.flatnonzero(watch.there).tolist()
    ends = [*tree.starts[1:].tolist(), 1 << tree.depth]
    width = 1 << (tree.depth - watch.depth)
    found: dict[tuple[int, ...], list[int]] = {}
    for leaf, start, end in zip(tree.leaves.tolist(), tree.starts.tolist(), ends, strict=True):
        cells = tuple(i for i, place in enumerate(places) if place * width < end and start < (place + 1) * width)
        found.setdefault(cells, []).append(leaf)
    return [(leaves, list(cells)) for cells, leaves in found.items()]


@settings(max_examples=examples(0.8))
@given(
    domain=st.sampled_from([SQUARE, ISLET]),
    depth=st.integers(0, 4),
    splits=st.integers(0, 7),
    seed=st.integers(0, 999),
    hot=st.booleans(),
)
def test_each_part_follows_its_own_cells(domain: SpatialDomain, depth: int, splits: int, seed: int, hot: bool) -> None:
    """With so many events that noise is nothing, each part has the pace of its counts, and hot ones the common one."""
    tree, watch = grown(domain, depth=depth, splits=splits, seed=seed)
    random = np.random.default_rng(seed)
    tree.rate[tree.leaves] = 1e7
    there = np.flatnonzero(watch.there)
    counts, is_hot = np.zeros(len(there), np.int64), np.zeros(1 << depth, np.bool_)
    together = parts(tree, watch)
    assert sorted(cell for _, cells in together for cell in cells) == list(range(len(there)))
    calm, left_out = [], []
    for leaves, cells in together:
        pace = float(random.choice([-2.0, 0.5, 1.0, 3.0]))
        # Which of a leaf's cells they are in is no matter.
        counts[cells] = (pace * 1e7 * len(leaves) * random.dirichlet(np.ones(len(cells)))).astype(np.int64)
        if hot and random.random() < 0.3:
            is_hot[there[random.choice(cells)]] = True
            left_out.append((leaves, cells))
        else:
            calm.append((leaves, cells, pace))
    doubts = follow(tree, watch, counts, is_hot, unknown(watch), now=1)
    for leaves, cells, pace in calm:
        assert tree.rate[leaves] == pytest.approx(np.full(len(leaves), pace * 1e7), rel=0.01)
        assert (doubts[1:][cells] < CELL / 10).all()
    common = {rate for leaves, _ in left_out for rate in tree.rate[leaves].tolist()}
    assert len(common) == bool(left_out)
    assert all((doubts[1:][cells] > CELL).all() for _, cells in left_out)


def quiet(rate: float) -> Grown:
    tree, watch = grown(SQUARE, depth=2, splits=3, seed=1)
    tree.rate[tree.leaves] = rate
    return tree, watch


def test_noise_moves_next_to_nothing_and_a_whole_domain_more_than_a_cell() -> None:
    tree, watch = quiet(0.01)
    follow(tree, watch, np.full(4, 100), np.zeros(4, np.bool_), unknown(watch), now=1)
    assert np.abs(tree.rate[tree.leaves] / 0.01 - 1).max() < 0.01
    # A common pace is found by all cells together, where a single one would tell little.
    tree, watch = quiet(20.0)
    expected = float(tree.rate[tree.leaves].sum())
    doubts = unknown(watch)
    after = follow(tree, watch, np.full(4, round(expected / 2)), np.zeros(4, np.bool_), doubts, now=1)
    assert 1.2 * expected < tree.rate[tree.leaves].sum() < 2.2 * expected
    assert after[0] < 0.7 * doubts[0]


@pytest.mark.parametrize("hot", [[True] * 4, [True, False, False, False]])
def test_what_is_in_hot_cells_says_nothing(hot: list[bool]) -> None:
    """Neither how much is counted in them, nor, where all are hot, that anything is."""
    found = []
    for burst in (0, 10**6):
        tree, watch = quiet(20.0)
        counts = np.where(hot, burst, 500)
        doubts = follow(tree, watch, counts, np.array(hot), unknown(watch), now=1)
        found.append((tree.rate.tolist(), doubts.tolist()))
    assert found[0] == found[1]
    assert (tree.rate[tree.leaves] == 20.0).all() == all(hot)
    assert (doubts > unknown(watch)).all() == all(hot)


@pytest.mark.parametrize(("doubt", "past"), [(0.0, 1.0), (1e6, 3.0)])
def test_steps_before_are_corrected_by_what_is_no_news(doubt: float, past: float) -> None:
    """Where all was known, a new pace is that of this step alone; where nothing was, it was the pace all along."""
    tree, watch = quiet(1e7)
    expected = np.bincount(tree.starts >> 6, tree.rate[tree.leaves], minlength=4)
    follow(tree, watch, (3 * expected).astype(np.int64), np.zeros(4, np.bool_), np.full(5, doubt), now=5)
    held = (tree.forecast + 5 * tree.rate)[tree.leaves]
    assert held == pytest.approx(np.full(len(tree.leaves), (4 * past + 3) * 1e7), rel=1e-3)


@pytest.mark.parametrize("count", [0, -(10**9)])
def test_steps_without_end_stay_finite(count: int) -> None:
    """Nothing, or deletes alone: rates come near nothing, and what is doubted does not go beyond measure."""
    tree, watch = quiet(1000.0)
    doubts = unknown(watch)
    for step in range(1, 400):
        doubts = follow(tree, watch, np.full(4, count), np.zeros(4, np.bool_), doubts, now=step)
        assert np.isfinite(doubts).all()
        assert (doubts <= 1.0).all()
        assert np.isfinite(tree.rate).all()
        assert np.isfinite(tree.forecast).all()


def test_first_steps_on_a_map_do_not_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the events are on an islet, below whose cell places are missing from the watch."""
    random = np.random.default_rng(4)
    ends = ISLET.tree.start.astype(np.uint64) << np.uint64(1)

    def events() -> Folded:
        return Folded.from_keys(np.append(np.full(2000, ends[0]), random.choice(ends[1:], 2000)).reshape(-1, 1))

    steps = [events() for _ in range(6)]
    changes: dict[str, Any] = {"domain": ISLET, "epsilon": Fraction(1, 4), "max_leaves": 1024}
    assert engine(**changes).config.watch.missing[:2] == (1, 2)
    assert off(engine(**changes), steps) < 0.2
    monkeypatch.setattr(held, "TRUST", 1e12)
    monkeypatch.setattr(held, "UNBELIEVED", 0.0)
    monkeypatch.setattr(held, "follow", lambda *told, **now: told[-1])
    assert off(engine(**changes), steps) > 0.4

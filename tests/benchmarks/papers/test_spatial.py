"""The papers' baselines of spatial streams: what one event moves and pays in them, and what they release."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
import shapely

from benchmarks.papers import spatial as papers
from engines.core.contract import Columns
from engines.core.counters.by_name import COUNTERS
from engines.core.counters.kary import KaryCounter
from engines.core.noise import NoiseSource, laplace_mechanism, seeded
from engines.spatial.domain.base import SpatialDomain
from engines.spatial.papers import tree as partition
from engines.spatial.points import Counts, Placement, difference
from schemas.blocks import Folded
from tests.spatial.shapes import lines, polygons
from tests.spatial.streams import BOX, city, encode

Run = Callable[..., papers.Released]


def noise(step: int) -> NoiseSource:
    return seeded(step)


def offline(
    batches: Iterable[Folded], placement: Placement, epsilon: Fraction, noise: papers.Noise, *, ttl: int | None = None
) -> Iterator[tuple[int, Counts]]:
    """PrivTree at every step, on what is alive then."""
    come: list[Folded] = []
    for step, batch in enumerate(batches):
        come.append(batch)
        alive = Folded.empty(1).merge(*(come if ttl is None else come[-ttl:]))
        yield step, papers.privtree(alive, placement, epsilon, noise(step))


def counters(*given: Any, **options: Any) -> papers.Released:
    return papers.fixed_tree(*given, **options, counter=partial(COUNTERS["kary"], 9))


def grid(*given: Any, **options: Any) -> papers.Released:
    return papers.fixed_tree(*given, **options, counter=partial(COUNTERS["kary"], 9), grid=5)


RUNS: dict[str, Run] = {
    "offline": offline, "increments": papers.increments, "fixed tree": papers.fixed_tree, "counters": counters,
    "grid": grid,
}  # fmt: skip


def batches(count: int, events: int) -> list[Folded]:
    random = np.random.default_rng(5)
    return [encode(*city(random, events)) for _ in range(count)]


def released(
    name: str, events: list[Folded], *, epsilon: int = 40, domain: SpatialDomain = BOX, **options: Any
) -> list[Counts]:
    found = RUNS[name](events, Placement("s", domain), Fraction(epsilon), noise, **options)
    return [counts for _, counts in found]


class Spy:
    """What the mechanisms are given, and at which epsilon. The partition is forced, the same for both neighbours."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.bits: list[tuple[Fraction, np.ndarray]] = []
        self.counts: list[tuple[Fraction, np.ndarray]] = []
        laplace, kary = laplace_mechanism, KaryCounter.step

        def bits(prior: np.ndarray, changes: np.ndarray, *, depth: int, rule: Any, **rest: Any) -> np.ndarray:
            self.bits.append((rule.epsilon, changes))
            return np.arange(len(prior)) % 3 != 1 if depth < 5 else np.zeros(len(prior), bool)

        def count(values: Any, scale: Fraction, source: NoiseSource) -> Any:
            self.counts.append((1 / scale, np.asarray(values)))
            return laplace(values, scale, source)

        def step(counter: KaryCounter, values: Any, state: Any, source: NoiseSource) -> Any:
            self.counts.append((counter.cost, np.asarray(values)))
            return kary(counter, values, state, source)

        patch.setattr(partition, "split_bits", bits)
        patch.setattr(papers, "laplace_mechanism", count)
        patch.setattr(KaryCounter, "step", step)

    def taken(self) -> tuple[list[tuple[Fraction, np.ndarray]], list[tuple[Fraction, np.ndarray]]]:
        seen = self.bits, self.counts
        self.bits, self.counts = [], []
        return seen


@pytest.mark.parametrize("delete", [False, True])
@pytest.mark.parametrize("ttl", [None, 2])
@pytest.mark.parametrize("name", ["offline", "increments", "counters", "grid"])
def test_one_event_pays_once_for_each_mechanism_of_its_step(
    monkeypatch: pytest.MonkeyPatch, name: str, ttl: int | None, delete: bool
) -> None:
    """At the first step, and at a later one. Offline it pays at each step that it is alive."""
    # In a crowd, so that offline a delete is seen too.
    crowd = encode(np.full(3, 0.3), np.full(3, 0.2))
    events = [batch.merge(crowd) for batch in batches(5, 300)]
    extra = encode(np.array([0.3]), np.array([0.2]), delete=delete)
    for place in (0, 1):
        runs = []
        for there in (False, True):
            with monkeypatch.context() as patch:
                spy = Spy(patch)
                given = [batch.merge(extra) if there and at == place else batch for at, batch in enumerate(events)]
                found = RUNS[name](given, Placement("s", BOX), Fraction(1), noise, ttl=ttl)
                runs.append([spy.taken() for _ in found])
        if name == "offline":
            charged = set(range(place, 5 if ttl is None else place + ttl))
        else:
            charged = {place} | ({place + ttl} if ttl is not None and not delete else set())
        paid = Fraction(0)
        for step, (without, with_event) in enumerate(zip(*runs, strict=True)):
            expected = int(step in charged)
            for (_, before), (_, after) in zip(without[0], with_event[0], strict=True):
                assert np.abs(after - before).sum() <= expected
            ((epsilon, before),), ((same, after),) = without[1], with_event[1]
            assert epsilon == same
            assert np.abs(after - before).sum() == expected
            paid += expected * (epsilon + (without[0][0][0] if without[0] else 0))
        assert paid == len(charged)


@pytest.mark.parametrize("name", RUNS)
def test_with_little_noise_the_totals_are_true(name: str) -> None:
    assert [each.total for each in released(name, batches(4, 500))] == pytest.approx([500, 1000, 1500, 2000], abs=60)


@pytest.mark.parametrize("name", RUNS)
def test_expired_and_deleted_events_are_gone(name: str) -> None:
    grown = batches(2, 500)
    gone = [Folded(grown[0].keys | np.uint64(1), grown[0].counts)]
    assert released(name, [*grown, *gone])[-1].total == pytest.approx(500, abs=60)
    assert released(name, [*grown, Folded.empty(1)], ttl=2)[-1].total == pytest.approx(500, abs=60)


@pytest.mark.parametrize("name", ["increments", "fixed tree", "counters", "grid"])
def test_the_first_steps_are_one_release(name: str) -> None:
    events = batches(4, 300)
    placement, joined = Placement("s", BOX), [events[0].merge(*events[1:3]), events[3]]
    found = RUNS[name](events, placement, Fraction(1), lambda step: seeded(9), initial_steps=3)
    at_once = RUNS[name](joined, placement, Fraction(1), lambda step: seeded(9))
    steps, counts = zip(*found, strict=True)
    assert steps == (2, 3)
    for one, (_, other) in zip(counts, at_once, strict=True):
        assert one.nodes.tolist() == other.nodes.tolist()
        assert one.counts.tolist() == other.counts.tolist()


def test_fixed_cells_stay_and_a_grid_is_one() -> None:
    fixed, cells = released("fixed tree", batches(3, 400), epsilon=1), released("grid", batches(3, 400), epsilon=1)
    assert fixed[0].nodes.tolist() == fixed[1].nodes.tolist() == fixed[2].nodes.tolist()
    assert len(fixed[0].nodes) > 4
    assert all(sorted(each.nodes.tolist()) == list(range(32, 64)) for each in cells)


def test_increments_are_released_in_all_cells_that_ever_were() -> None:
    before, *later = [set(each.nodes.tolist()) for each in released("increments", batches(3, 400))]
    for after in later:
        assert len(after) > len(before)
        assert not any(leaf >> up in after for leaf in before for up in range(1, leaf.bit_length())), "none is merged"
        before = after


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("kind", ["polygons", "lines"])
def test_a_domain_need_not_be_a_box(name: str, kind: str) -> None:
    """Events in a triangle and on two roads: points come out there, and nowhere else."""
    triangle = shapely.Polygon([(10.0, 50.0), (11.0, 50.0), (10.0, 51.0)])
    roads = lines([[(10.0, 50.0), (11.0, 50.7)], [(10.0, 50.5), (11.0, 50.5)]], 12, reach_m=2_000)
    domain = polygons(triangle, 12) if kind == "polygons" else roads
    random, events = np.random.default_rng(3), []
    for _ in range(3):
        u, v = random.random((2, 3000))
        keys, reasons = domain.encode(Columns({"x": 10 + u, "y": 50 + v}, {}, np.ones(3000, np.int8)))
        events.append(Folded.from_keys(keys[reasons == 0]))
    for step, counts in enumerate(released(name, events, epsilon=20, domain=domain)):
        assert counts.total == pytest.approx(sum(each.total for each in events[: step + 1]), rel=0.1)
        points, _ = difference(domain, Placement("s", domain), before=Counts.nothing(), after=counts)
        x, y = points.coordinates()
        assert not domain.encode(Columns({"x": x, "y": y}, {}, np.ones(len(x), np.int8)))[1].any()

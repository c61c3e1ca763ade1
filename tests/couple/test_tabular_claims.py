"""What synthetic tables claim, under forced outputs: neighbours release the same, and it costs what the guarantee says.

Users have several events, in one cell, in one step or spread. Streams go on from their states now and then, and outputs
are what noise gives, or far from it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from engines.checks.coupling import CouplingBroken, OutputAdversary, check_guarded
from engines.core.counters import COUNTERS
from engines.core.noise import NoiseSource
from engines.core.noise.witness import CounterLaw, Drawn, ExponentialLaw, LaplaceLaw, Law, WitnessedSource
from engines.core.registry import build_engine
from engines.tabular.batches import EventRows
from engines.tabular.growing.learn import Learning
from schemas.config.options.spatial import NEED_HORIZON
from tests.couple.table_pairs import SEED, SLACK, Watching, Wild, certain_cost, claimed_cost, couple, pure_loss
from tests.couple.table_streams import DELETES, EPSILON, Event, batches, random_events, random_user, stream

STEPS, RESTARTS, CONTRIBUTIONS = 42, {3, 17, 30}, 3
QUICK: Mapping[str, Any] = {"rounds": 2, "records": False}
SCENES: tuple[tuple[str, Mapping[str, Any], int | None], ...] = (
    ("default", {}, None),
    ("default", {}, 40),
    ("default", {"domain": {"ttl": "3h"}}, None),
    ("default", {"domain": {"ttl": "3h"}, "options": {"records": False}}, 1000),
    ("default", {**DELETES, "options": {"ways": [1, 2, 3], "records": False}}, 1000),
    ("default", {"options": {"records": False, "marginals": [{"of": ["age", "smokes"], "weight": 3}]}}, 1000),
    ("paper", {"options": {"rounds": 2}}, 40),
    ("paper", {"domain": {"ttl": "3h"}, "options": QUICK}, 1000),
    ("paper", {**DELETES, "options": {**QUICK, "counter": "tree", "horizon": STEPS}}, 40),
    ("paper", {**DELETES, "options": {**QUICK, "counter": "kary", "horizon": STEPS}}, 40),
)


@pytest.mark.parametrize(("mode", "variant", "reach"), SCENES)
def test_neighbours_release_the_same_at_no_more_than_the_claim(
    mode: str, variant: Mapping[str, Any], reach: int | None
) -> None:
    """Args: reach: how far outputs are from what noise gave; None leaves them."""
    configured = stream(mode, variant)
    make, deletes = partial(build_engine, configured), "op" in variant.get("domain", {})
    chance = random.Random(f"{mode} {variant}")
    events = random_events(chance, STEPS, deletes=deletes)
    user = random_user(chance, STEPS, CONTRIBUTIONS, deletes=deletes)
    adversary = None if reach is None else Wild(1, reach)
    pairs = couple(
        make, batches(events, STEPS), batches([*events, *user], STEPS), adversary=adversary, restarts=RESTARTS
    )
    changes = CONTRIBUTIONS * configured.insert_charge
    cost, claim = certain_cost(pairs), claimed_cost(make().guarantee())
    assert pure_loss(pairs) <= cost.total * (1 + SLACK)
    assert 0 < cost.counts <= changes * claim.counts * (1 + SLACK)
    assert cost.choices <= changes * claim.choices * (1 + SLACK)
    assert claim.total == pytest.approx(float(configured.event_epsilon))


class Chooses(OutputAdversary):
    """Marginals are chosen by their places among those that may be, in this order, step after step."""

    def __init__(self, *places: int) -> None:
        self._places = list(places)

    def output(self, law: Law, private: Any, drawn: Any) -> Any:
        return self._places.pop(0) if isinstance(law, ExponentialLaw) and self._places else drawn


MANY = 1000
UNDONE: list[Event] = [(0, (0, 0, 0), -MANY), (0, (1, 0, 0), MANY + 100)]
"""In `smokes`, which leads by far, one more row of the first kind undoes a delete; elsewhere it adds to a row."""
SKEWED: list[Event] = [(0, (1, 0, 0), 700), (0, (1, 1, 0), 200), (0, (1, 2, 0), 100)]
"""Beside an even model `smokes` is furthest off, and one more row of its absent value brings it nearer."""
SINGLE: Mapping[str, Any] = {"ways": [1], "records": False}


@pytest.mark.parametrize("step", [0, 1, 5, 12])
@pytest.mark.parametrize("variant", [{}, {"domain": {"ttl": "3h"}}, {"domain": {"op": "what"}}])
def test_default_spends_its_whole_budget_on_one_event(variant: Mapping[str, Any], step: int) -> None:
    """Tight: an event is in the totals, and in one block of each line, in a cell of each of its marginals."""
    configured = stream("default", {**variant, "options": {"records": False}})
    events = [(at, (at % 2, at % 3, 0), 40) for at in range(18)]
    both = batches(events, 18), batches([*events, (step, (1, 0, 1), 1)], 18)
    pairs = couple(partial(build_engine, configured), *both)
    assert pure_loss(pairs) == pytest.approx(EPSILON, rel=1e-6)


@pytest.mark.parametrize(
    ("variant", "events", "places", "share"),
    [
        ({**DELETES, "options": {**SINGLE, "rounds": 1}}, UNDONE, [1], 1),
        ({**DELETES, "options": {**SINGLE, "rounds": 2}}, UNDONE, [1, 1], 1),
        # Not tight: inserts alone move all scores of a first round alike, since there is no model beside them yet.
        ({"options": {**SINGLE, "rounds": 1}}, SKEWED, [2], Fraction(1, 2)),
        ({"options": {**SINGLE, "rounds": 2}}, SKEWED, [2, 1], Fraction(3, 4)),
    ],
)
def test_rounds_spend_their_whole_budget_on_one_event(
    variant: Mapping[str, Any], events: list[Event], places: list[int], share: Fraction
) -> None:
    """Each round chooses a marginal of which the score rises while that of the leading one falls, and counts it."""
    make = partial(build_engine, stream("paper", variant, epsilon=1.0))
    both = batches(events, 2), batches([*events, (0, (0, 0, 0), 1)], 2)
    pairs = couple(make, *both, adversary=Chooses(*places))
    assert pure_loss(pairs) == pytest.approx(float(share), rel=1e-6)
    assert certain_cost(pairs).total == pytest.approx(float(share), rel=1e-6)
    _laws_are_the_declared_ones(make().guarantee(), pairs)


def _laws_are_the_declared_ones(guarantee: Any, pairs: Any) -> None:
    """Scales, budgets and uses of a public promise are those of the mechanisms that ran."""
    choice, counts = guarantee.mechanisms
    choices = [used for used, _ in pairs if isinstance(used.law, ExponentialLaw)]
    counters = [used for used, _ in pairs if isinstance(used.law, CounterLaw)]
    assert len(choices) == len(counters)
    assert len(choices) % (choice.uses * len({used.step for used in choices})) == 0
    for used in choices:
        law = used.law
        assert (law.epsilon, 2 * law.sensitivity / law.epsilon) == (choice.epsilon, choice.scale * law.sensitivity)
    for used in counters:
        counter = used.law.counter
        scales = {noise / counter.resolution for noise in counter.node_noise(1)}
        assert (counter.cost, scales) == (counts.epsilon, {counts.scale})
    moved = max(int(np.abs(a.private - b.private).max()) for a, b in pairs if isinstance(a.law, ExponentialLaw))
    assert {moved * used.law.quantum for used in choices} == {used.law.sensitivity for used in choices}


def test_scales_of_growing_blocks_are_the_declared_ones() -> None:
    configured = stream("default", {**DELETES, "options": {"records": False}})
    make, events = partial(build_engine, configured), [(at, (at % 2, at % 3, 0), 300) for at in range(6)]
    pairs = couple(make, batches(events, 6), batches(events, 6))
    totals, *lines = make().guarantee().mechanisms
    laws = [used.law for used, _ in pairs if isinstance(used.law, CounterLaw)]
    assert len(laws) == 6
    assert {(law.counter.cost, *set(law.counter.node_noise(1))) for law in laws} == {(totals.epsilon, totals.scale)}
    for line, place, cells in ((lines[0], "ones", (2, 3, 2)), (lines[1], "larger", (6, 4, 6))):
        closed = [used for used, _ in pairs if isinstance(used.law, LaplaceLaw) and used.place.startswith(place)]
        steps = sorted({used.step for used in closed})
        assert len(steps) > 1
        for step in steps:
            spent, seen = Fraction(0), 0
            for used in closed:
                if used.step == step:
                    # A group holds marginals of one scale; all of them together hold every cell once.
                    spent += _marginals(used.private.size, place) / used.law.scale
                    seen += used.private.size
            assert seen == sum(cells)
            assert spent == line.epsilon


def _marginals(cells: int, place: str) -> int:
    """How many marginals make up a group of so many cells."""
    return {"ones": {2: 1, 3: 1, 4: 2, 5: 2, 7: 3}, "larger": {4: 1, 6: 1, 10: 2, 12: 2, 16: 3}}[place][cells]


class Boundary(Watching):
    """Releases totals that are the least for a block to close, or one event less."""

    def __init__(self) -> None:
        self.hit: list[tuple[bool, bool]] = []

    def output(self, law: Law, private: Any, drawn: Any) -> Any:
        if not isinstance(law, CounterLaw):
            return drawn
        number = len(self.hit)
        larger, closes = number % 4 < 2, number % 2 == 0
        low, high = -(10**9), 10**9
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._due(middle, law.resolution)[larger] else (middle, high)
        inserts = high if closes else low
        self.hit.append(self._due(inserts, law.resolution))
        assert self.hit[-1][larger] == closes
        return _released(inserts, law.resolution)

    def _due(self, inserts: int, resolution: int) -> tuple[bool, bool]:
        """What would be due if this were released; asked of the real code, with no rows."""
        engine = self.engine
        source = WitnessedSource(_Gives(_released(inserts, resolution)), SEED, "s", engine._next)
        work = Learning(engine._parts, engine._learnt, engine._next, source)
        nothing = np.zeros((0, len(engine._parts.active)), np.int64)
        work.arrive(EventRows(nothing, np.zeros(0, np.int64)))
        return work.due()


def _released(inserts: int, resolution: int) -> Any:
    return np.array([inserts * resolution, 0])


class _Gives:
    """A witness under which the noise of every mechanism is this: of numbers that are zero."""

    def __init__(self, noise: Any) -> None:
        self._noise = noise

    def released(self, source: WitnessedSource, law: Law, private: Any, mechanism: Any) -> Any:
        return mechanism(private)

    def drawn(self, source: WitnessedSource, law: Drawn, sample: Any) -> Any:
        return self._noise

    def gave(self, source: WitnessedSource, words: Any) -> None:
        raise AssertionError("nothing is drawn")


@pytest.mark.parametrize("variant", [{}, {"domain": {"ttl": "5h"}}, DELETES])
def test_what_is_due_at_a_released_threshold_is_due_for_neighbours(
    variant: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks close where released totals just reach what the schedule asks for, or miss it by one event."""
    configured = stream("default", {**variant, "options": {"records": False}})
    asked: list[tuple[bool, bool]] = []
    due = Learning.due

    def heard(self: Learning) -> tuple[bool, bool]:
        asked.append(due(self))
        return asked[-1]

    chance = random.Random(7)
    events, user = random_events(chance, STEPS), random_user(chance, STEPS, CONTRIBUTIONS)
    boundary = Boundary()
    with monkeypatch.context() as patch:
        patch.setattr(Learning, "due", heard)
        couple(
            partial(build_engine, configured),
            batches(events, STEPS),
            batches([*events, *user], STEPS),
            adversary=boundary,
            restarts=RESTARTS,
        )
    assert asked[-STEPS:] == boundary.hit
    assert all(boundary.hit.count(kind) >= 8 for kind in [(True, True), (True, False)])


@pytest.mark.parametrize("counter", [name for name in sorted(COUNTERS) if "blt" not in name])
def test_paper_reads_nothing_with_any_counter(counter: str) -> None:
    options = {**QUICK, "counter": counter, "horizon": 8 if counter in NEED_HORIZON else None}
    configured = stream("paper", {**DELETES, "options": options})
    steps = batches(random_events(random.Random(counter), 6, deletes=True), 6)
    check_guarded(partial(build_engine, configured), steps, lambda step: NoiseSource(SEED, "s", step))


def test_forced_runs_tell_releases_and_mechanisms_apart() -> None:
    """The harness itself: other events with other releases are no neighbours that it lets pass."""
    with_deletes = stream("default", {**DELETES, "options": QUICK})
    make = iter([partial(build_engine, with_deletes)(), partial(build_engine, stream("paper", {"options": QUICK}))()])
    with pytest.raises(CouplingBroken):
        couple(lambda: next(make), batches([], 1), batches([], 1))

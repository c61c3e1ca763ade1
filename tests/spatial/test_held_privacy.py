"""The privacy of held leaf counters, without statistics: what one event can move, over whole streams.

The proof (docs/notes/0030) says: give both neighbours the SAME released values; then both have the same cells,
measured at the same times, and the noise must make up for one unit in one count of the watch and one unit in one leaf
measurement. `shifts` does just that: it runs an engine, then its neighbour on what the first released, and adds up the
differences of all private counts that were measured. That sum times 1/scale IS the exact loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.checks.contract_checks import contents
from engines.core.contract import Batch, Release
from engines.core.noise import seeded
from engines.spatial.changes import Changes, group_counts
from engines.spatial.domain.box import BoxDomain
from engines.spatial.held import engine as held_module
from engines.spatial.held import measure as held_measure
from engines.spatial.held.engine import ROUNDS, HeldConfig, HeldLeaves
from engines.spatial.held.estimate import project
from engines.spatial.held.measure import LeafCounter, Watch, Windows
from engines.spatial.held.tree import HeldTree
from engines.spatial.points import Placement
from schemas.blocks import Folded
from tests.examples import examples

pytestmark = pytest.mark.seconds(1.5)

DEPTH = 9
BOX = BoxDomain("x", "y", (0.0, 0.0, 1.0, 1.0), DEPTH)


def engine(**changes: Any) -> HeldLeaves:
    told: dict[str, Any] = {"name": "p", "domain": BOX, "epsilon": Fraction(8), "max_leaves": 128} | changes
    return HeldLeaves(HeldConfig(**told))


@dataclass
class Tape:
    """Everything that a run's mechanisms were given and let out, in order."""

    given: dict[str, list[np.ndarray]] = field(default_factory=lambda: {"leaves": [], "watch": []})
    out: dict[str, list[np.ndarray]] = field(default_factory=lambda: {"leaves": [], "watch": []})

    def listen(self, patch: pytest.MonkeyPatch, *, replay: Tape | None = None) -> None:
        for name, owner in (("leaves", LeafCounter), ("watch", Watch)):
            patch.setattr(owner, "noisy", self._heard(name, owner.noisy, replay))

    def _heard(self, name: str, original: Callable[..., np.ndarray], replay: Tape | None) -> Callable[..., np.ndarray]:
        def noisy(mechanism: Any, values: np.ndarray, noise: Any) -> np.ndarray:
            out = original(mechanism, values, noise) if replay is None else replay.out[name][len(self.out[name])]
            self.given[name].append(values.copy())
            self.out[name].append(out)
            return out

        return noisy


def run(tape: Tape, steps: list[Folded], *, replay: Tape | None = None, **changes: Any) -> list[Release]:
    subject = engine(**changes)
    with pytest.MonkeyPatch.context() as patch:
        tape.listen(patch, replay=replay)
        return [subject.step(Batch(i, events), seeded(3).child(i)) for i, events in enumerate(steps)]


Ran = tuple[Tape, list[Release], list[Any]]


def without(steps: list[Folded], **changes: Any) -> Ran:
    """A run, to be compared with those of its neighbours."""
    tape = Tape()
    releases = run(tape, steps, **changes)
    return tape, releases, list(map(contents, releases))


def shifts(steps: list[Folded], extra: Folded, at: int, *, ran: Ran | None = None, **changes: Any) -> dict[str, int]:
    """How far all measured counts move, over the whole stream, when `extra` joins step `at`. `ran`: without it."""
    first, _, shown = ran or without(steps, **changes)
    second = Tape()
    neighbour = [events.merge(extra) if i == at else events for i, events in enumerate(steps)]
    same = run(second, neighbour, replay=first, **changes)
    assert shown == list(map(contents, same)), "a release shows more than what was measured"
    return {
        name: sum(int(np.abs(a - b).sum()) for a, b in zip(first.given[name], second.given[name], strict=True))
        for name in ("leaves", "watch")
    }


@st.composite
def schedules(draw: st.DrawFn) -> list[Folded]:
    """Places that fill, burst, empty and fall silent; deletes of what never was."""
    places = draw(st.lists(st.integers(0, 2**DEPTH - 1), min_size=1, max_size=6))
    steps = []
    for _ in range(draw(st.integers(1, 14))):
        rows = draw(
            st.lists(
                st.tuples(st.sampled_from(places), st.booleans(), st.sampled_from([1, 2, 7, 40, 300, 2000])), max_size=4
            )
        )
        keys = np.array([place << 1 | gone for place, gone, _ in rows], np.uint64).reshape(-1, 1)
        steps.append(Folded.from_keys(keys, np.array([count for _, _, count in rows], np.int64)))
    return steps


TTL = st.sampled_from([None, 1, 2, 5])


@settings(max_examples=examples(1.2))
@given(
    steps=schedules(),
    key=st.integers(0, 2 ** (DEPTH + 1) - 1),
    at=st.integers(0, 13),
    ttl=TTL,
    initial_steps=st.integers(1, 4),
)
def test_one_event_moves_one_measurement_and_one_watch_by_one(
    steps: list[Folded], key: int, at: int, ttl: int | None, initial_steps: int
) -> None:
    extra = Folded.from_keys(np.array([[key]], np.uint64))
    moved = shifts(steps, extra, at % len(steps), ttl_steps=ttl, initial_steps=initial_steps)
    assert moved["leaves"] <= 1
    assert moved["watch"] <= int(at % len(steps) >= initial_steps)


def stress() -> list[Folded]:
    """A schedule on which everything happens: splits, merges, hot cells, silence, deletes."""
    random = np.random.default_rng(0)
    steps = []
    for step in range(26):
        keys = random.integers(0, 2**DEPTH, 60).astype(np.uint64) << np.uint64(1)
        counts = np.full(60, 30)
        if step in (6, 7):  # a burst in a quiet corner
            keys, counts = np.append(keys, np.uint64(0)), np.append(counts, 3000)
        if step > 12:
            keys |= np.uint64(1)
        if step > 20:
            keys, counts = keys[:0], counts[:0]
        steps.append(Folded.from_keys(keys.reshape(-1, 1), counts))
    return steps


@pytest.mark.parametrize("ttl", [None, 13])
def test_everything_happens_and_still_one_unit(ttl: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    happened = {"split": 0, "merge": 0, "held": 0, "retired": 0}
    split, merge, retired = HeldTree.split, HeldTree.merge, Windows.retired

    def count_split(tree: HeldTree, at: Any, halvings: Any, *, now: int) -> None:
        happened["split"] += len(at)
        split(tree, at, halvings, now=now)

    def count_merge(tree: HeldTree, parents: Any, left: Any, *, now: int) -> None:
        happened["merge"] += len(parents)
        happened["held"] += int((tree.pending[left] != 0).sum())
        merge(tree, parents, left, now=now)

    def count_retired(windows: Any, tree: HeldTree, *, now: int, ttl: int) -> Any:
        happened["retired"] += 1
        return retired(windows, tree, now=now, ttl=ttl)

    monkeypatch.setattr(HeldTree, "split", count_split)
    monkeypatch.setattr(HeldTree, "merge", count_merge)
    monkeypatch.setattr(Windows, "retired", count_retired)
    ran = without(stress(), ttl_steps=ttl, max_leaves=512)
    assert sum(release.notes["hot"] for release in ran[1]) > 0
    assert happened["split"] > 10
    assert happened["merge"] > 0
    assert happened["held"] > 0
    assert (happened["retired"] > 0) == (ttl is not None)
    total = {"leaves": 0, "watch": 0}
    keys = [0, 1, 2, 300, 301, 777, 1023]
    for at in range(0, 26, 4):
        extra = Folded.from_keys(np.array([[keys[at // 4]]], np.uint64))
        moved = shifts(stress(), extra, at, ran=ran, ttl_steps=ttl, max_leaves=512)
        assert moved["leaves"] <= 1
        assert moved["watch"] == int(at > 0)
        total = {name: total[name] + moved[name] for name in total}
    assert total["leaves"] >= 4  # what is still held at the end was not measured


def test_events_that_are_held_show_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wide noise lets nearly every release stand beside events that no measurement has seen."""
    held: list[int] = []

    def watched(tree: HeldTree, *rest: Any, **named: Any) -> Any:
        held.append(int(np.abs(tree.pending).sum()))
        return project(tree, *rest, **named)

    monkeypatch.setattr(held_module, "project", watched)
    random = np.random.default_rng(5)
    steps = [
        Folded.from_keys(random.integers(0, 2**DEPTH, (60, 1)).astype(np.uint64) << np.uint64(1)) for _ in range(12)
    ]
    for at in range(1, 12, 2):
        extra = Folded.from_keys(random.integers(0, 2**DEPTH, (1, 1)).astype(np.uint64) << np.uint64(1))
        moved = shifts(steps, extra, at, epsilon=Fraction(1, 4))
        assert moved["leaves"] <= 1
        assert moved["watch"] == 1
    assert np.mean(np.array(held) > 0) > 0.5


@given(steps=schedules(), ttl=TTL, initial_steps=st.integers(1, 3))
def test_every_event_is_in_one_measurement(steps: list[Folded], ttl: int | None, initial_steps: int) -> None:
    """What each measurement is given is what came to its cell since it was last counted; the rest is held."""
    subject = engine(ttl_steps=ttl, initial_steps=initial_steps)
    true, came, waiting = (np.zeros(2**DEPTH, np.int64) for _ in range(3))
    measure, hold = held_measure.measure, held_measure.hold

    def held(tree: HeldTree, changes: Changes) -> None:
        for events in (came, waiting):
            np.add.at(events, changes.codes, np.diff(changes.gains))
        hold(tree, changes)

    def cells(node: int) -> slice:
        height = DEPTH + 1 - node.bit_length()
        return slice((node << height) - 2**DEPTH, (node + 1 << height) - 2**DEPTH)

    def noted(tree: HeldTree, which: Any, *rest: Any, **more: Any) -> Any:
        at = np.sort(tree.leaves[which])
        for node, count in zip(tree.nodes[at].tolist(), tree.pending[at].tolist(), strict=True):
            assert count == waiting[cells(node)].sum()
            waiting[cells(node)] = 0
        return measure(tree, which, *rest, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held_module, "measure", noted)
        patch.setattr(held_module, "hold", held)
        for i, events in enumerate(steps):
            # Gathered events that grow too old are never looked at.
            if i >= initial_steps or ttl is None or i > min(initial_steps, len(steps)) - 1 - ttl:
                codes = (events.keys[:, 0] >> np.uint64(1)).astype(np.int64)
                np.add.at(true, codes, np.where(events.keys[:, 0] & np.uint64(1), -events.counts, events.counts))
            subject.step(Batch(i, events), seeded(5).child(i))
    state = subject.state()
    if not state["header"][2]:
        assert not came.any()
        return
    assert np.array_equal(came, true)
    for node, pending in zip(state["tree/nodes"].tolist(), state["tree/pending"].tolist(), strict=True):
        if pending:
            assert pending == waiting[cells(node)].sum()
            waiting[cells(node)] = 0
    for node in state["tree/nodes"].tolist():
        if 2 * node not in state["tree/nodes"]:
            assert waiting[cells(node)].sum() == 0


def forgets_to_forget(tree: HeldTree, which: Any, *rest: Any, **more: Any) -> Any:
    pending = tree.pending.copy()
    result = held_measure.measure(tree, which, *rest, **more)
    tree.pending[:] = pending
    tree.pending[tree.inner] = 0
    return result


def measures_twice(tree: HeldTree, which: Any, *rest: Any, **more: Any) -> Any:
    pending = tree.pending.copy()
    held_measure.measure(tree, which, *rest, **more)
    tree.pending[:] = pending
    return held_measure.measure(tree, which, *rest, **more)


def measures_the_even(tree: HeldTree, counter: LeafCounter, **when: int) -> Any:
    """Chooses by the private counts."""
    return held_measure.due(tree, counter, **when) & (tree.pending[tree.leaves] % 2 == 0)


@pytest.mark.parametrize("fault", [forgets_to_forget, measures_twice, measures_the_even])
def test_a_planted_fault_is_caught(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_module, "due" if fault is measures_the_even else "measure", fault)
    monkeypatch.setattr(HeldTree, "split", lambda tree, at, halvings, *, now: None)

    def every_key() -> None:
        for key in range(0, 2 ** (DEPTH + 1), 37):
            steps = [Folded.from_keys(np.array([[key & ~1]], np.uint64), np.array([100 + 3 * i])) for i in range(6)]
            moved = shifts(steps, Folded.from_keys(np.array([[key & ~1]], np.uint64)), 2)
            assert moved["leaves"] <= 1

    # A choice by private counts shows as another number of measurements, the others as larger shifts.
    with pytest.raises((AssertionError, ValueError, IndexError)):
        every_key()


SIZES = st.sampled_from([(1,), (1, 1), (1,) * 8, ROUNDS])


@given(counts=st.lists(st.integers(1, 50), min_size=1, max_size=6), sizes=SIZES, data=st.data())
def test_groups_have_sensitivity_one(counts: list[int], sizes: tuple[int, ...], data: st.DataObject) -> None:
    keys = np.arange(5, 5 + len(counts), dtype=np.uint64).reshape(-1, 1)
    events = Folded(keys, np.array(counts))
    cut = group_counts(events, sizes=sizes, placement=Placement("g"))
    assert cut.sum(axis=0).tolist() == counts
    shares = np.outer(sizes, counts) // sum(sizes)
    assert (cut >= np.outer(sizes, np.array(counts) // sum(sizes))).all()
    assert (np.abs(cut - shares) <= np.array(sizes)[:, None]).all()
    row = data.draw(st.integers(0, len(counts) - 1))
    more = events.merge(Folded.from_keys(keys[row : row + 1]))
    assert np.abs(group_counts(more, sizes=sizes, placement=Placement("g")) - cut).sum() == 1

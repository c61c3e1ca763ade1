"""Where events of held leaf counters are until a release: each is in one measurement, or held; and in one group."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.core.contract import Batch
from engines.core.noise import seeded
from engines.spatial.changes import Changes, group_counts
from engines.spatial.domain.box import BoxDomain
from engines.spatial.held import engine as held_module
from engines.spatial.held import measure as held_measure
from engines.spatial.held.engine import ROUNDS, HeldConfig, HeldLeaves
from engines.spatial.held.tree import HeldTree
from engines.spatial.points import Placement
from schemas.blocks import Folded

pytestmark = pytest.mark.seconds(1.5)

DEPTH = 9
BOX = BoxDomain("x", "y", (0.0, 0.0, 1.0, 1.0), DEPTH)


def engine(**changes: Any) -> HeldLeaves:
    told: dict[str, Any] = {"name": "p", "domain": BOX, "epsilon": Fraction(8), "max_leaves": 128} | changes
    return HeldLeaves(HeldConfig(**told))


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

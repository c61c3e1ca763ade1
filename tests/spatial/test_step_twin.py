"""The plain-Python twin of `benchmarks.step` and the engine release the same, record by record."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from benchmarks.step.__main__ import beside_twin
from benchmarks.step.city import DOMAIN, City
from benchmarks.step.twin import Twin
from engines.core.contract import Batch
from engines.core.noise import seeded
from engines.spatial.held.engine import HeldConfig, HeldLeaves

STEPS = 7


def test_the_twin_releases_what_the_engine_releases() -> None:
    """With divisions, merges every fifth step and a full tree: more leaves are wanted than there may be."""
    config = HeldConfig(name="bench", domain=DOMAIN, epsilon=Fraction(1, 2), max_leaves=192)
    engine, city = HeldLeaves(config), City(3)
    engine.step(Batch(0, city.events(10_000)), seeded(0))
    before = set(engine.state()["tree/nodes"].tolist())
    _, same = beside_twin(engine, config, 1, city, STEPS, events=500)
    after = set(engine.state()["tree/nodes"].tolist())
    assert same
    assert after - before
    assert before - after


@pytest.mark.parametrize(
    ("max_leaves", "events", "steps"),
    [
        pytest.param(192, 500, 7, id="a full tree, with merges"),
        # By the noise of a fifth step a cell turns hot.
        pytest.param(4096, 15, 4, id="leaves coarser than cells of the watch"),
    ],
)
def test_the_twin_expects_what_the_engine_expects(max_leaves: int, events: int, steps: int) -> None:
    config = HeldConfig(name="bench", domain=DOMAIN, epsilon=Fraction(1), max_leaves=max_leaves)
    engine, city = HeldLeaves(config), City(6)
    engine.step(Batch(0, city.events(20 * events if events > 100 else events)), seeded(0))
    twin = Twin(config, engine.state())
    for step in range(1, 1 + steps):
        batch = Batch(step, city.events(events))
        twin.step(step, np.repeat(batch.events.keys[:, 0], batch.events.counts).tolist(), seeded(step))
        engine.step(batch, seeded(step))
    state, tree = engine.state(), engine._tree
    assert [twin.whole_doubt, *twin.doubts] == state["watch/doubts"].tolist()
    beliefs = np.stack([tree.rate, tree.rate_variance, tree.forecast], axis=1)
    for leaf in tree.leaves.tolist():
        node = twin.nodes[int(tree.nodes[leaf])]
        assert [node.rate, node.rate_variance, node.forecast] == beliefs[leaf].tolist()
    assert (len(tree.leaves) < 1 << config.start_depth) == (max_leaves == 4096)

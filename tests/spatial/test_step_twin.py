"""The plain-Python twin of `benchmarks.step` and the engine release the same, record by record."""

from __future__ import annotations

from fractions import Fraction

from benchmarks.step.__main__ import beside_twin
from benchmarks.step.city import DOMAIN, City
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

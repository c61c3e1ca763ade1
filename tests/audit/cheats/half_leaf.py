"""Half the noise of a leaf's count in spatial mode `default`: the loss is nearly twice what is claimed."""

from __future__ import annotations

from dataclasses import fields, replace

from engines.auditor.cases import Case
from engines.noise import NoiseSource, discrete_laplace
from engines.registry import build_engine
from engines.spatial.held.engine import HeldLeaves
from engines.spatial.held.measure import LeafCounter
from engines.spatial.life import living, stream
from schemas.arrays import IntArray

MODE = "default"


class HalfScale(LeafCounter):
    def noisy(self, values: IntArray, noise: NoiseSource) -> IntArray:
        return values + discrete_laplace(len(values), self.scale / 2, noise)


def make() -> HeldLeaves:
    engine = build_engine(stream(MODE))
    assert isinstance(engine, HeldLeaves)
    counter = engine._rules.counter
    engine._rules = replace(
        engine._rules, counter=HalfScale(**{each.name: getattr(counter, each.name) for each in fields(counter)})
    )
    return engine


def _beginning(case: Case, name: str) -> Case:
    """The first release alone: it measures every leaf, and takes two steps."""
    return replace(case, name=name, canaries=case.canaries[1:], fresh=())


def cheat() -> Case:
    return _beginning(living(MODE, make=make), "half the noise of a leaf")


def honest() -> Case:
    return _beginning(living(MODE), "all the noise of a leaf")

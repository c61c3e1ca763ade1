"""The watch of spatial mode `default` without any noise: true counts decide which cells are hot.

It has a twentieth of the budget, so nothing is seen of it where no cell is near the alarm.
"""

from __future__ import annotations

from dataclasses import fields, replace

from engines.auditor.cases import Case
from engines.noise import NoiseSource
from engines.registry import build_engine
from engines.spatial.held.engine import HeldLeaves
from engines.spatial.held.watch import Watch
from engines.spatial.life import living, stream
from schemas.arrays import IntArray

MODE = "default"


class Noiseless(Watch):
    def noisy(self, values: IntArray, noise: NoiseSource) -> IntArray:
        return values


def make() -> HeldLeaves:
    engine = build_engine(stream(MODE))
    assert isinstance(engine, HeldLeaves)
    watch = engine._rules.watch
    engine._rules = replace(
        engine._rules, watch=Noiseless(**{each.name: getattr(watch, each.name) for each in fields(watch)})
    )
    return engine


def cheat() -> Case:
    case = living(MODE, make=make)
    return replace(case, name="watch without noise", canaries=case.canaries[:1])


def honest() -> Case:
    case = living(MODE)
    return replace(case, name="watch with its noise", canaries=case.canaries[:1])

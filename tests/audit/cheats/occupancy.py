"""Occupancy with the sensitivity of one count, in the engine itself: a user who is elsewhere moves two."""

from __future__ import annotations

from fractions import Fraction

from engines.auditor.cases import Case, Claim, Neighbours
from engines.auditor.engines import SharedRuns, observe
from engines.markov.engine import Markov
from engines.markov.fixture import fixture as markov
from engines.registry import build_engine

SCENE = markov("default", epsilon=1.0)


class OneCount(Markov):
    """Noise for a user who comes or goes, where one is replaced."""

    _sensitivity = 1


def _case(name: str, kind: type[Markov]) -> Case:
    engine = build_engine(SCENE.stream)
    assert isinstance(engine, Markov)
    config = engine.config

    def make() -> Markov:
        return kind(config)

    focuses = {place: focus for place, (_, _, focus) in SCENE.places.items()}
    ((what, keys),) = SCENE.replaced.items()
    taken, put = (observe(make, SCENE.base, [(0, key)], focuses, steps=1) for key in keys)
    pair = Neighbours(what, SharedRuns(taken).beside(put), times=1)
    return Case(name, "engine", Claim(Fraction(1)), neighbours=(pair,))


def cheat() -> Case:
    return _case("occupancy, sensitivity 1", OneCount)


def honest() -> Case:
    return _case("occupancy, sensitivity 2", Markov)

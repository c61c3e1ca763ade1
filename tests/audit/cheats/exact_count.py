"""An exact |grad f_t|: the number of events of a step, published because it "is only a count"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from engines.auditor import engines
from engines.auditor.cases import Case
from engines.auditor.scenes import Scene, spatial
from engines.contract import Batch, Engine, Release
from engines.noise import NoiseSource
from engines.registry import build_engine


class CountsAloud:
    """An engine whose public notes hold the true number of events."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        release = self._engine.step(batch, noise)
        return replace(release, notes={**release.notes, "events": batch.events.total})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def one_pair(name: str, scene: Scene, make: Callable[[], Engine]) -> Case:
    """Only the first neighbours: enough for a cheat."""
    case = engines.case(name, scene, make=make)
    return replace(case, neighbours=case.neighbours[:1])


def cheat() -> Case:
    scene = spatial("paper", epsilon=1.0)
    return one_pair(
        "engine that publishes its number of events", scene, lambda: CountsAloud(build_engine(scene.stream))
    )


def honest() -> Case:
    scene = spatial("paper", epsilon=1.0)
    return one_pair("engine that does not", scene, lambda: build_engine(scene.stream))

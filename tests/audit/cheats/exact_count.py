"""An exact |grad f_t|: the number of events of a step, published because it "is only a count"."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engines.auditor import engines
from engines.auditor.cases import Case
from engines.contract import Batch, Engine, Release
from engines.noise import NoiseSource
from engines.registry import build_engine
from engines.spatial.fixture import fixture as spatial


class CountsAloud:
    """An engine whose public notes hold the true number of events."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        release = self._engine.step(batch, noise)
        return replace(release, notes={**release.notes, "events": batch.events.total})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def cheat() -> Case:
    scene = spatial("paper", epsilon=1.0)
    return engines.case(
        "engine that publishes its number of events", scene, make=lambda: CountsAloud(build_engine(scene.stream))
    )


def honest() -> Case:
    return engines.case("engine that does not", spatial("paper", epsilon=1.0))

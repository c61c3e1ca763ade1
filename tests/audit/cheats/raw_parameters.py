"""Parameters learnt from raw values: a filter whose mean and variance come from what it should hide.

A series that stands still has no variance, so the filter takes its mean for certain and releases it, with next to no
noise. The honest one learns from what was released, whose noise it has to take out of the variance first.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from engines.auditor.cases import Case, Claim, Neighbours
from engines.auditor.observations import Observations
from engines.noise import NoiseSource
from engines.series.config import SeriesConfig
from engines.series.fields import SeriesDomain, SeriesField
from engines.series.modes import FixedChannel, Measuring, SeriesOutcome
from engines.series.papers.releaser import Releaser
from engines.series.presence import Presence

STEPS = 5
CONFIG = SeriesConfig(
    name="audit",
    domain=SeriesDomain((SeriesField(name="n"),)),
    epsilon=Fraction(1),
    delta=1e-3,
    presence=Presence(steps=STEPS),
)
_NEW = 1e-6
"""Squared part of a release that is the measurement; the rest is what was expected."""


class Learns(Releaser):
    """From releases, as it is in the engine."""

    seen = 0

    def __init__(self) -> None:
        super().__init__(lambda step: _NEW if step > 1 else 1.0, positive=False)


class LearnsFromRaw(Learns):
    """From the totals, since they say more."""

    def update(self, value: float, variance: float) -> tuple[float, float]:
        self._moments.add(float(self.seen), 0.0)
        kept, self._moments.add = self._moments.add, lambda *_: None  # type: ignore[method-assign]
        released = super().update(value, variance)
        self._moments.add = kept  # type: ignore[method-assign]
        return released


class Looking(Measuring):
    """Tells its estimator the total; the honest one does not listen."""

    def step(self, step: int, totals: Sequence[int], present: bool, noise: NoiseSource) -> SeriesOutcome:
        for estimator, total in zip(self._estimators, totals, strict=True):
            estimator.seen = total  # type: ignore[attr-defined]
        return super().step(step, totals, present, noise)


def _case(name: str, estimator: type[Learns]) -> Case:
    def run(side: int, runs: int, source: NoiseSource) -> Observations:
        rows = []
        for index in range(runs):
            engine, row = Looking(FixedChannel(CONFIG.fixed), [estimator()]), {}
            for step in range(STEPS):
                outcome = engine.step(step, [100 + side], True, source.child("run", index, step))
                row[f"released {step}"] = outcome.values[0].value
            rows.append(row)
        return Observations.of_rows(rows)

    return Case(
        name, "engine", Claim(CONFIG.epsilon, CONFIG.delta), neighbours=(Neighbours("in every step", run, times=1),)
    )


def cheat() -> Case:
    return _case("parameters from raw values", LearnsFromRaw)


def honest() -> Case:
    return _case("parameters from measurements", Learns)

"""Faults that show only where there is much: rows in a step, states, cells of a marginal, or a limit below zero."""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager
from typing import Any

from engines.core.noise import mechanisms
from engines.markov.engine import Markov
from engines.series.fields import SeriesField
from engines.spatial.changes import Changes
from tests.couple.plants import Plant
from tests.couple.plants.edits import edited


def _sampled() -> AbstractContextManager[Any]:
    """Every second row, above 1,000 of them: one more moves all behind it."""
    old = "keys = events.keys[:, 0]\n"
    new = (
        "few = len(events.keys) > 1000\n    events = Folded(events.keys[::2], events.counts[::2]) if few else events\n"
    )
    return edited(Changes, "of", old, f"{new}    {old}")


def _upper_limit() -> AbstractContextManager[Any]:
    return edited(SeriesField, "shift", "max(map(abs, self.bounds))", "max(1, self.bounds[1])")


def _quiet_states() -> AbstractContextManager[Any]:
    old = "scale = scale_for(self._sensitivity, budget)"
    return edited(Markov, "step", old, f"{old} / (16 if config.states > 128 else 1)")


def _bare_marginals() -> AbstractContextManager[Any]:
    """At the door itself, so that no law shows it."""
    old = "whole + (int(noise[0]) if isinstance(values, int) else noise)"
    return edited(mechanisms, "released", old, f"whole if np.size(values) > 4096 else {old}")


_SPATIAL = Plant(
    name="steps of many rows are sampled", engine="spatial", mode="default", planted=_sampled, wide=0, shown_by=1
)
PLANTS = (
    _SPATIAL,
    dataclasses.replace(_SPATIAL, name="noise for the upper limit alone", engine="series", planted=_upper_limit),
    dataclasses.replace(
        _SPATIAL, name="a sixteenth of the noise for many states", engine="markov", planted=_quiet_states
    ),
    dataclasses.replace(
        _SPATIAL, name="marginals above 4,096 cells get no noise", engine="tabular", planted=_bare_marginals, wide=1
    ),
)

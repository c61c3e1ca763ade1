"""All planted faults, and those that coupled runs from raw records must find."""

from __future__ import annotations

from tests.couple.plants import (
    Plant,
    job,
    markov,
    noise,
    series,
    spatial,
    surplus,
    tabular,
    tabular_delta,
    trajectory,
    wide,
)

OWN_SCENES = frozenset(
    {
        "one-way blocks keep the share of early ones",
        "bounds forgotten at a period's end",
        "cell pairs of truly heavy block pairs",
        "points off the map counted with the crowd",
        "delta is divided by the events of a user",
    }
)
"""Faults that show on inputs made for them only: the tests of their engines find them, on such inputs."""
EVERY: tuple[Plant, ...] = (
    *spatial.PLANTS,
    *job.PLANTS,
    *noise.PLANTS,
    *surplus.PLANTS,
    *tabular.PLANTS,
    *tabular_delta.PLANTS,
    *series.PLANTS,
    *markov.PLANTS,
    *trajectory.PLANTS,
    *wide.PLANTS,
)
PLANTS = tuple(plant for plant in EVERY if plant.name not in OWN_SCENES)
NAMED = frozenset(
    {
        "a larger block is closed by a true count",
        "the model is fed true counts from 500 rows on",
    }
)
"""Of engines whose own tests find all of theirs: what is tried here as well."""
_OWN_TESTS = (*tabular.PLANTS, *tabular_delta.PLANTS, *trajectory.PLANTS)
QUICK = tuple(plant for plant in PLANTS if plant not in _OWN_TESTS or plant.name in NAMED)

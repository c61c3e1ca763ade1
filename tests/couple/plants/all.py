"""All planted faults, and those that coupled runs from raw records must find."""

from __future__ import annotations

from tests.couple.plants import Plant, job, keys, markov, noise, series, spatial, tabular, trajectory

OWN_SCENES = frozenset({"bounds forgotten at a period's end", "points off the map counted with the crowd"})
"""Faults that show on inputs made for them only: tests/trajectory/test_{assembly,ground}.py find them."""
EVERY: tuple[Plant, ...] = (
    *spatial.PLANTS,
    *job.PLANTS,
    *noise.PLANTS,
    *tabular.PLANTS,
    *series.PLANTS,
    *markov.PLANTS,
    *trajectory.PLANTS,
    *keys.PLANTS,
)
PLANTS = tuple(plant for plant in EVERY if plant.name not in OWN_SCENES)

"""All planted faults."""

from __future__ import annotations

from tests.couple.plants import Plant, markov, series, spatial, tabular, trajectory

PLANTS: tuple[Plant, ...] = (
    *spatial.PLANTS,
    *tabular.PLANTS,
    *series.PLANTS,
    *markov.PLANTS,
    *trajectory.PLANTS,
)

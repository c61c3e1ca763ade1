"""All planted faults."""

from __future__ import annotations

from tests.couple.plants import Plant, spatial

PLANTS: tuple[Plant, ...] = (*spatial.PLANTS,)

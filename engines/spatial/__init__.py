"""Synthetic points in the plane. Parts first; `held` (mode `default`) and `phdstream` (mode `paper`) compose them."""

from engines.spatial.domain import BoxDomain
from engines.spatial.held import HeldLeaves
from engines.spatial.held_config import HeldConfig
from engines.spatial.phdstream import PHDStream, PHDStreamConfig
from engines.spatial.queries import SpatialEvaluator

__all__ = [
    "BoxDomain",
    "HeldConfig",
    "HeldLeaves",
    "PHDStream",
    "PHDStreamConfig",
    "SpatialEvaluator",
]

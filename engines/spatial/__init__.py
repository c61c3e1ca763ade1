"""Synthetic points in the plane. Parts first; `held` (mode `default`) and `papers` compose them."""

from engines.spatial.domain import BoxDomain
from engines.spatial.held.config import HeldConfig
from engines.spatial.held.engine import HeldLeaves
from engines.spatial.queries import SpatialEvaluator

__all__ = [
    "BoxDomain",
    "HeldConfig",
    "HeldLeaves",
    "SpatialEvaluator",
]

"""What spatial events can be, and the cells that they lie in."""

from engines.spatial.domain.box import MAX_DEPTH, BoxDomain, FloatArray, spread_table

__all__ = ["MAX_DEPTH", "BoxDomain", "FloatArray", "spread_table"]

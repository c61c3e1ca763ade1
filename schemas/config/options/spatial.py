"""`[streams.options]` of engine `spatial`."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

from pydantic import Field

from schemas.config.options.common import NotNegative, OptionsSection, Share
from schemas.config.values import Whole


class SpatialOptions(OptionsSection):
    """`[streams.options]` of engine `spatial`."""

    depth: Whole = Field(18, ge=2, le=30, examples=[18])
    """Levels of the tree below its root."""
    initial_steps: Whole = Field(1, ge=1, le=1_000_000, examples=[20])
    """Steps 0 .. initial_steps - 1 are gathered into the release of step initial_steps - 1."""
    split: Share = Field(Decimal("0.5"), examples=[0.5])
    """Mode `paper`: share of the event budget that decides the partition; the rest counts. Exact."""
    threshold: NotNegative = Field(0.0, examples=[0])
    """Mode `paper`: biased count, in events, above which a cell is divided."""
    max_leaves: Whole = Field(4096, ge=2, le=1_048_576, examples=[4096])
    """Mode `default`: leaves of the tree; work and memory of a step are proportional to it."""

    @property
    def split_fraction(self) -> Fraction:
        """`split` as an exact fraction."""
        return Fraction(self.split)

    def fingerprint_fields(self) -> dict[str, Any]:
        return {
            "depth": self.depth,
            "initial_steps": self.initial_steps,
            "split": str(self.split_fraction),
            "threshold": self.threshold,
            "max_leaves": self.max_leaves,
        }

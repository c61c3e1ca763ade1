"""`[streams.options]`: each engine's own options, and the table of engines. `schemas` never imports an engine."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Annotated

from pydantic import AfterValidator, Field

from schemas.config.section import Section, refusal
from schemas.config.values import ExactDecimal, Number, Whole

ENGINE_NAMES = ("spatial",)
PLANNED_ENGINES = ("tabular", "series", "markov", "trajectory")
ENGINE_MODES: Mapping[str, tuple[str, ...]] = {"spatial": ("default", "paper")}
PURE_ENGINES = ("spatial",)  # epsilon-DP with delta = 0
MEASURED_EXPIRY = frozenset({("spatial", "paper")})
"""Engine and mode where a `ttl` expiry is measured as a delete; elsewhere it is post-processing and costs nothing."""


def _share(value: Decimal) -> Decimal:
    if not 0 < value < 1:
        raise refusal("must lie between 0 and 1, both excluded", "write 0.5 to give either half of the budget")
    return value


def _not_negative(value: float) -> float:
    if value < 0:
        raise refusal("must be at least 0", "write 0 or more")
    return value


class SpatialOptions(Section):
    """`[streams.options]` of engine `spatial`."""

    depth: Whole = Field(18, ge=2, le=30, examples=[18])
    """Levels of the tree below its root."""
    initial_steps: Whole = Field(1, ge=1, le=1_000_000, examples=[20])
    """Steps 0 .. initial_steps - 1 are gathered into the release of step initial_steps - 1."""
    split: Annotated[ExactDecimal, AfterValidator(_share)] = Field(Decimal("0.5"), examples=[0.5])
    """Mode `paper`: share of the event budget that decides the partition; the rest counts. Exact."""
    threshold: Annotated[Number, AfterValidator(_not_negative)] = Field(0.0, examples=[0])
    """Mode `paper`: biased count, in events, above which a cell is divided."""
    max_leaves: Whole = Field(4096, ge=2, le=1_048_576, examples=[4096])
    """Mode `default`: leaves of the tree; work and memory of a step are proportional to it."""

    @property
    def split_fraction(self) -> Fraction:
        """`split` as an exact fraction."""
        return Fraction(self.split)


# Becomes a union, chosen by `engine`, with the second engine.
Options = SpatialOptions

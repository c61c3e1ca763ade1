"""`[streams.options]` of engine `spatial`."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Literal

from pydantic import Field

from schemas.config.domain.common import DomainSection
from schemas.config.options.common import OptionsSection, Share
from schemas.config.privacy import Privacy
from schemas.config.timing import Timing
from schemas.config.values import NotNegative, Whole
from schemas.errors import ConfigProblem

CounterName = Literal[
    "simple",
    "block8",
    "block",
    "tree",
    "kary",
    "hybrid",
    "unbounded-block-paper",
    "unbounded-block",
    "unbounded-kary",
]
"""Counters of pure DP, by their names in `engines.core.counters`; a test compares the two lists."""
NEED_HORIZON = frozenset({"block", "tree", "kary"})


def horizon_problems(counter: CounterName, horizon: int | None) -> Iterator[ConfigProblem]:
    """What is wrong with the horizon of a counter: missing, or of no use."""
    if counter in NEED_HORIZON and horizon is None:
        yield ConfigProblem(
            "horizon",
            f'counter = "{counter}" must know for how many releases',
            'set horizon = 1000, say, or take counter = "unbounded-kary", which goes on for ever',
        )
    if horizon is not None and counter not in NEED_HORIZON:
        yield ConfigProblem("horizon", f'counter = "{counter}" goes on for ever', "remove the key")


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
    counter: CounterName = Field("simple", examples=["simple"])
    """Mode `paper`: the continual counter of each leaf."""
    horizon: Whole | None = Field(None, ge=1, le=1_000_000_000)
    """Releases that a counter is calibrated for, where it needs to know; the stream stops after them."""
    max_leaves: Whole = Field(4096, ge=2, le=1_048_576, examples=[4096])
    """Mode `default`: leaves of the tree; work and memory of a step are proportional to it."""

    @property
    def split_fraction(self) -> Fraction:
        """`split` as an exact fraction."""
        return Fraction(self.split)

    def problems(self) -> Iterator[ConfigProblem]:
        """What the options say against each other."""
        yield from horizon_problems(self.counter, self.horizon)

    def in_stream(
        self, mode: str, privacy: Privacy | None, time: Timing | None, domain: DomainSection | None
    ) -> Iterator[ConfigProblem]:
        """Yield what they say against the mode."""
        if self.counter != "simple" and mode == "default":
            yield ConfigProblem(
                "options.counter",
                'mode "default" counts each event once and has no counters',
                'remove the key, or set mode = "paper"',
            )

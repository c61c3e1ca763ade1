"""`[streams.options]` of engine `series`."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from schemas.config.domain.common import DomainSection
from schemas.config.domain.series import SeriesDomainSection
from schemas.config.options.common import OptionsSection, Share
from schemas.config.privacy import Privacy
from schemas.config.section import refusal
from schemas.config.timing import Timing
from schemas.config.values import ExactDecimal, Flag, Whole
from schemas.errors import ConfigProblem


def _weight(value: Decimal) -> Decimal:
    if not 0 < value <= 1:
        raise refusal("must lie in (0, 1]", "write 0.3, say: the part of each release that is new")
    return value


class SeriesOptions(OptionsSection):
    """`[streams.options]` of engine `series`."""

    horizon: Whole | None = Field(None, ge=1, le=100_000_000, examples=[1000])
    """Steps, public. After them nothing is released: the stream goes on with empty releases that say so."""
    decay: Share | None = Field(None, examples=[0.999])
    """r of weights w_t^2 in proportion to r^t: a finite total without a horizon, and noise that grows for ever."""
    seasonal: Flag = Field(True, examples=[True])
    """Mode `default`: the clock's days and weeks are looked at."""
    weight: Annotated[ExactDecimal, AfterValidator(_weight)] = Field(Decimal("0.3"), examples=[0.3])
    """Modes `paper` and `paper-binomial`: w_t after the first two steps."""
    correlation: Literal["unknown", "positive"] = Field("unknown", examples=["unknown"])
    """Modes `paper` and `paper-binomial`: whether the series is known to be positively correlated."""

    def in_mode(self, mode: str) -> Iterator[ConfigProblem]:
        """Weights that decay are for Gaussian noise."""
        if self.decay is not None and mode == "paper-binomial":
            yield ConfigProblem("decay", f'mode "{mode}" has no weights that could decay', "remove the key")

    def in_stream(
        self, mode: str, privacy: Privacy | None, time: Timing | None, domain: DomainSection | None
    ) -> Iterator[ConfigProblem]:
        """Whether the promise can be kept for as long as the stream lives."""
        if privacy is None or not isinstance(domain, SeriesDomainSection):
            return
        if privacy.per is not None or self.horizon is not None:
            if self.decay is not None:
                yield ConfigProblem("options.decay", "is for streams without an end", "remove decay, or the horizon")
            return
        if domain.readings and self.decay is None:
            yield ConfigProblem(
                "options.horizon",
                "missing: every user may be in every reading, so each step costs, and for ever costs everything",
                'add horizon = 1000 (steps), or per = "30d" to [streams.privacy]: a bound that renews, or, for noise '
                "that grows for ever, decay = 0.999",
            )

    def draws_as_first(self, mode: str, *, one_a_step: bool) -> bool:
        return mode == "paper-binomial" and one_a_step

    @property
    def weight_fraction(self) -> Fraction:
        """`weight`, exact."""
        return Fraction(self.weight)

    @property
    def decay_fraction(self) -> Fraction | None:
        """`decay`, exact."""
        return None if self.decay is None else Fraction(self.decay)

    def fingerprint_fields(self) -> dict[str, Any]:
        return {
            "horizon": self.horizon,
            "decay": None if self.decay is None else str(self.decay_fraction),
            "seasonal": int(self.seasonal),
            "weight": str(self.weight_fraction),
            "correlation": self.correlation,
        }

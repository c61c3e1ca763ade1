"""`[streams.options]` of engine `markov`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from schemas.config.domain.common import DomainSection
from schemas.config.domain.states import StatesDomainSection
from schemas.config.options.common import OptionsSection
from schemas.config.privacy import Privacy
from schemas.config.timing import Timing
from schemas.config.values import Whole
from schemas.errors import ConfigProblem
from schemas.steps.lengths import steps_in


class MarkovOptions(OptionsSection):
    """`[streams.options]` of engine `markov`."""

    horizon: Whole | None = Field(None, ge=1, le=1_000_000_000, examples=[1000])
    """Steps that are released; nothing is, after them. Needed unless `privacy.per` renews the bound."""
    lag: Whole = Field(5, ge=0, le=50, examples=[5])
    """Mode `default` with a declared chain: a step is revised once, when it is so many steps old."""
    prior: Literal["frequency", "uniform"] = Field("frequency", examples=["frequency"])
    """Mode `paper`: the first step's distribution, its released frequencies or an even one."""
    allocation: Literal["even", "leakage"] = Field("even", examples=["even"])
    """`leakage`: with `per` = one step, budgets that keep temporal privacy leakage at epsilon or below (alpha-DP_T)."""

    def in_stream(
        self, mode: str, privacy: Privacy | None, time: Timing | None, domain: DomainSection | None
    ) -> Iterator[ConfigProblem]:
        """A chain that is missing, and occupancy that nothing bounds in time."""
        learnt = isinstance(domain, StatesDomainSection) and domain.transition is None
        if learnt and mode == "paper":
            yield ConfigProblem(
                "domain.transition",
                'missing: mode "paper" rests on a declared chain',
                'name a CSV file with the transition matrix, or set mode = "default", which learns one',
            )
        if privacy is None or time is None:
            return
        if self.horizon is None and privacy.per is None:
            yield ConfigProblem(
                "options.horizon",
                "missing: occupancy charges every user in every step, so something must end or renew the bound",
                'set horizon = 1000 (steps), or privacy.per = "1d" for a bound that renews',
            )
        elif privacy.max_contributions is not None:
            yield from self._steps(privacy, time, domain)
        if self.allocation == "leakage":
            if privacy.per is None or steps_in(privacy.per, time.step) != 1:
                yield ConfigProblem(
                    "options.allocation",
                    '"leakage" bounds what ONE step loses to somebody who knows the chain: epsilon must be of a step',
                    "set privacy.per to time.step and max_contributions = 1",
                )
            if learnt:
                yield ConfigProblem(
                    "domain.transition", 'missing: allocation = "leakage" needs the chain', "name a CSV file"
                )

    def _steps(self, privacy: Privacy, time: Timing, domain: DomainSection | None) -> Iterator[ConfigProblem]:
        """Whether a user may speak in every step that there is, and in no more."""
        assert privacy.max_contributions is not None
        steps = (steps_in(privacy.per, time.step) or 0) if privacy.per is not None else self.horizon or 1
        if self.horizon is not None:
            steps = min(steps, self.horizon)
        if steps < 1:
            return  # `per` is no multiple of the step, which is refused elsewhere
        if privacy.max_contributions > steps:
            yield ConfigProblem(
                "privacy.max_contributions",
                f"{privacy.max_contributions} is more than the {steps} steps there are, and each takes one",
                f"set max_contributions = {steps}: every record then gets a larger share of epsilon",
            )
        elif privacy.max_contributions < steps and not (isinstance(domain, StatesDomainSection) and domain.unseen):
            yield ConfigProblem(
                "privacy.max_contributions",
                f"users would no longer be counted after {privacy.max_contributions} of {steps} steps, and the "
                "declared population would be wrong",
                f"set max_contributions = {steps}, shorten the horizon, or set domain.unseen = true",
            )

    def fingerprint_fields(self) -> dict[str, Any]:
        return {"horizon": self.horizon, "lag": self.lag, "prior": self.prior, "allocation": self.allocation}

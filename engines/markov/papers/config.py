"""The recipe of the paper's estimator and of those that it was compared with: modes paper, prior, mle and raw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from engines.markov.config import MarkovConfig
from engines.markov.estimate import CountsEstimator
from engines.markov.papers.prior import Map, NoPrior


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperMarkovConfig(MarkovConfig):
    """See `engines.markov.config.MarkovConfig`. Raises: EngineInputError."""

    modes: ClassVar[frozenset[str]] = frozenset({"paper", "prior", "mle", "raw"})

    def estimator(self) -> CountsEstimator:
        """See `MarkovConfig.estimator`."""
        total = float(self.population)
        if self.mode in ("mle", "raw"):
            return NoPrior(total, self.unseen, raw=self.mode == "raw")
        assert self.transition is not None
        return Map(self.transition, total, self.first, len(self.domain.values), alone=self.mode == "prior")

"""The recipe of mode `paper`, which selects, measures and fits in rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from engines.core.counters import Counter
from engines.core.counters.by_name import COUNTERS
from engines.core.state import identity_of
from engines.tabular.config import TableConfig
from engines.tabular.domain import TableDomain
from engines.tabular.marginals import Clique, Marginals
from engines.tabular.papers.fitting import JointFit, ModelFitter
from engines.tabular.papers.rounds import Rounds, Selection, whole_weights
from schemas.errors import EngineInputError

_HALF = Fraction(1, 2)


def fitter_of(fit: str, domain: TableDomain, wanted: Sequence[Clique], max_cells: int) -> ModelFitter:
    """Return the fitter of this name, over marginals that are wanted, of a model with so many cells at most."""
    if fit == "joint":
        return JointFit.over(domain, wanted, max_cells=max_cells)
    # JAX takes seconds and hundreds of megabytes: only a process that fits with it imports it.
    from engines.tabular.papers.pgm import PrivatePgm

    return PrivatePgm.over(domain, wanted, max_cells=max_cells)


@dataclass(frozen=True, kw_only=True)
class RoundsConfig(TableConfig):
    """The recipe; see `TableConfig`. An insert that a ttl deletes is measured once more, like any other delete.

    Args:
        rounds: marginals that are chosen and measured in a step, or as many as the model holds.
        counter: name in `engines.core.counters.by_name` of one with Laplace noise.
        horizon: steps that the stream has at most, where the counter has to know.
        fit: `pgm` or `joint`.
        model_cells: of the model's tables; a step's work is proportional to them.
        penalty: share of the expected noise that a marginal's score loses.
    Raises: EngineInputError if the marginals have too many cells, or the model holds none of them.
    """

    BYTES_PER_CELL = 64
    """Counts, scores, the model's marginals and the counters' states."""
    rounds: int = 4
    counter: str = "simple"
    horizon: int | None = None
    fit: str = "pgm"
    model_cells: int = 4096
    penalty: Fraction = Fraction(1)

    @property
    def queries(self) -> dict[Clique, Fraction]:
        """Marginals to choose from, with weights: those of the workload that no larger one contains."""
        weights = self.wanted
        return {c: w for c, w in weights.items() if not any(set(c) < set(larger) for larger in weights)}

    @property
    def larger_cliques(self) -> tuple[Clique, ...]:
        kept = {self.reduced(clique) for clique in self.wanted}
        return tuple(sorted((c for c in kept if len(c) > 1), key=lambda clique: (len(clique), clique)))

    @property
    def released(self) -> Marginals:
        """Marginals that the release speaks of, over all attributes."""
        return Marginals(self.domain.sizes, self.cliques)

    @property
    def parts(self) -> Rounds:
        """Half of epsilon chooses, half counts; each round has an equal share of both."""
        queries = self.queries
        fitter = fitter_of(self.fit, self.domain, tuple(queries), self.model_cells)
        if not fitter.marginals:
            least = min(math.prod(self.domain.sizes[a] for a in clique) for clique in queries)
            raise EngineInputError(
                f"a model of model_cells = {self.model_cells:,} holds no marginal of the workload, the smallest of "
                f"which has {least:,} cells: use coarser bins or fewer values, or raise model_cells"
            )
        rounds = min(self.rounds, len(fitter.marginals))
        share = self.epsilon * _HALF / rounds
        weights = whole_weights([queries[clique] for clique in fitter.marginals])
        layout = Marginals(self.domain.sizes, fitter.marginals)
        return Rounds(fitter, Selection(layout, weights, share), self.calibrated(share), rounds, float(self.penalty))

    def calibrated(self, epsilon: Fraction) -> Counter:
        return COUNTERS[self.counter](self.horizon or 1, epsilon)

    @property
    def identity(self) -> np.ndarray:
        queries = [(clique, str(weight)) for clique, weight in self.queries.items()]
        parts = ("tabular", "paper", self.name, self.domain.names, self.domain.sizes, queries, self.deletable)
        model = (self.counter, self.horizon, self.fit, self.model_cells, self.ttl_steps)
        return identity_of(repr((*parts, *model)))

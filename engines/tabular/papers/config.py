"""The recipe of mode `paper`, which selects, measures and fits in rounds."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from engines.core.counters import Counter
from engines.core.counters.by_name import COUNTERS
from engines.tabular.domain import TableDomain
from engines.tabular.marginals import Clique, Marginals, Workload, check_memory, every_marginal
from engines.tabular.papers.fitting import JointFit, ModelFitter
from engines.tabular.papers.rounds import Rounds, Selection, whole_weights
from schemas.errors import EngineInputError

BYTES_PER_CELL = 64
"""Of memory: counts, scores, the model's marginals and the counters' states."""
_HALF = Fraction(1, 2)


def fitter_of(fit: str, domain: TableDomain, wanted: Sequence[Clique], max_cells: int) -> ModelFitter:
    """Return the fitter of this name, over marginals that are wanted, of a model with so many cells at most."""
    if fit == "joint":
        return JointFit.over(domain, wanted, max_cells=max_cells)
    # JAX takes seconds and hundreds of megabytes: only a process that fits with it imports it.
    from engines.tabular.papers.pgm import PrivatePgm

    return PrivatePgm.over(domain, wanted, max_cells=max_cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsConfig:
    """The recipe. All of it is public.

    Args:
        name: of the stream.
        domain: what a row is.
        epsilon: of ONE event, over the whole stream.
        workload: marginals that matter; None: all of one and two attributes.
        rounds: marginals that are chosen and measured in a step, or as many as the model holds.
        counter: name in `engines.core.counters.by_name` of one with Laplace noise.
        horizon: steps that the stream has at most, where the counter has to know.
        fit: `pgm` or `joint`.
        model_cells: of the model's tables; a step's work is proportional to them.
        penalty: share of the expected noise that a marginal's score loses.
        deletable: rows may be deleted by events.
        ttl_steps: steps after which an insert is deleted by itself; the delete is measured like any other.
        max_cells: of all marginals together.
        records: False releases measurements only.
        churn: rows that a step may change, as a share of the table, beyond twice the events that it is thought to have.
    Raises: EngineInputError if the marginals have too many cells, or the model holds none of them.
    """

    name: str
    domain: TableDomain
    epsilon: Fraction
    workload: Workload | None = None
    rounds: int = 4
    counter: str = "simple"
    horizon: int | None = None
    fit: str = "pgm"
    model_cells: int = 4096
    penalty: Fraction = Fraction(1)
    deletable: bool = False
    ttl_steps: int | None = None
    max_cells: int = 4_000_000
    records: bool = True
    churn: Fraction = Fraction(1, 50)

    def __post_init__(self) -> None:
        sizes, names = self.domain.sizes, self.domain.names
        cliques = self.released.cliques
        check_memory(sizes, cliques, names, max_cells=self.max_cells, bytes_per_cell=BYTES_PER_CELL)

    @property
    def _workload(self) -> Workload:
        return every_marginal(len(self.domain.sizes)) if self.workload is None else self.workload

    @property
    def queries(self) -> dict[Clique, Fraction]:
        """Marginals to choose from, with weights: those of the workload that no larger one contains."""
        weights = self._workload
        return {c: w for c, w in weights.items() if not any(set(c) < set(larger) for larger in weights)}

    @property
    def active(self) -> tuple[int, ...]:
        """Attributes with two values or more: of the others nothing is to be learnt."""
        return tuple(a for a, size in enumerate(self.domain.sizes) if size > 1)

    @property
    def released(self) -> Marginals:
        """Marginals that the release speaks of: those of each active attribute, then the workload's larger ones."""
        kept = [self.reduced(clique) for clique in self._workload]
        larger = sorted({clique for clique in kept if len(clique) > 1}, key=lambda clique: (len(clique), clique))
        return Marginals(self.domain.sizes, (*((attribute,) for attribute in self.active), *larger))

    @property
    def layouts(self) -> tuple[Marginals, Marginals]:
        """`released` in two parts, one-way and larger, over the places of active attributes."""
        place = {attribute: index for index, attribute in enumerate(self.active)}
        sizes = tuple(self.domain.sizes[attribute] for attribute in self.active)
        cliques = tuple(tuple(place[a] for a in clique) for clique in self.released.cliques)
        return Marginals(sizes, cliques[: len(sizes)]), Marginals(sizes, cliques[len(sizes) :])

    def reduced(self, clique: Clique) -> Clique:
        """A marginal without attributes that have one value: the same cells."""
        return tuple(attribute for attribute in clique if self.domain.sizes[attribute] > 1)

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
        """`(32,)` uint8: states of configurations with another one mean something else."""
        queries = [(clique, str(weight)) for clique, weight in self.queries.items()]
        parts = ("tabular", "paper", self.name, self.domain.names, self.domain.sizes, queries, self.deletable)
        model = (self.counter, self.horizon, self.fit, self.model_cells, self.ttl_steps)
        return np.frombuffer(hashlib.sha256(repr((*parts, *model)).encode()).digest(), np.uint8)

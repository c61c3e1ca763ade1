"""The recipe of growing blocks, and what follows from it: which marginals are measured, and with what budgets."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from engines.core.counters.linear import Counter
from engines.core.shares import CellNoise, GaussianShares, PureShares, Shares
from engines.tabular.domain import TableDomain
from engines.tabular.growing.fit import MarginalFitter
from engines.tabular.growing.measure import split
from engines.tabular.growing.recipe import Recipe, pure_epsilons
from engines.tabular.growing.schedule import BlockSchedule
from engines.tabular.marginals import Marginals, check_memory
from engines.tabular.records import Keeper
from engines.tabular.rows_out import stream_key
from engines.tabular.workload import Clique, Workload
from schemas.arrays import FloatArray, IntArray
from schemas.errors import EngineInputError

BYTES_PER_CELL = 96
"""Of memory: private counts, evidence, a fit and what making them takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowingConfig:
    """The recipe. All of it is public.

    Args:
        name: of the stream.
        domain: what a row is.
        workload: marginals that matter; a marginal of three brings its pairs. None: all of one and two attributes.
        epsilon: of ONE event, over the whole stream; where there is a delta, of the unit.
        delta: of the unit; 0 for pure DP. changes: by one event that a unit may make, where there is a delta.
        deletable: rows may be deleted by events.
        ttl_steps: steps after which an insert is gone by itself, at no further cost. Not with `deletable`.
        max_cells: of all marginals together; memory and a step's work are proportional to them.
        records: False releases measurements only.
        churn: rows that a step may change, as a share of the table, beyond twice the events that it is thought to have.
    Raises: EngineInputError.
    """

    name: str
    domain: TableDomain
    epsilon: Fraction
    delta: float = 0.0
    changes: int = 1
    workload: Workload | None = None
    deletable: bool = False
    ttl_steps: int | None = None
    max_cells: int = 4_000_000
    records: bool = True
    churn: Fraction = Fraction(1, 50)

    def __post_init__(self) -> None:
        if self.epsilon <= 0:
            raise EngineInputError("epsilon must be positive")
        if self.delta:
            _ = self.shares
        elif self.changes != 1:
            raise EngineInputError("changes are counted where there is a delta: without, epsilon is of one event")
        if self.ttl_steps is not None and (self.ttl_steps < 1 or self.deletable):
            raise EngineInputError("ttl_steps must be at least 1, and rows with a ttl are not deleted otherwise")
        if not 0 <= self.churn <= 1 or self.max_cells < 1:
            raise EngineInputError("churn must be from 0 to 1, max_cells at least 1")
        if self.workload is not None and self.workload.attributes != len(self.domain.attributes):
            raise EngineInputError("the workload is of another table")
        sizes, names = self.domain.sizes, self.domain.names
        check_memory(sizes, self._cliques, names, max_cells=self.max_cells, bytes_per_cell=BYTES_PER_CELL)

    @property
    def active(self) -> tuple[int, ...]:
        """Attributes with two values or more: of the others nothing is to be learnt."""
        return tuple(a for a, size in enumerate(self.domain.sizes) if size > 1)

    @property
    def larger_weights(self) -> dict[Clique, Fraction]:
        """Larger marginals of active attributes, with their weights; every marginal of three comes with its pairs."""
        workload = self.workload or Workload.all(len(self.domain.attributes))
        active = set(self.active)
        weights: dict[Clique, Fraction] = {}
        for clique, weight in zip(workload.cliques, workload.weights, strict=True):
            kept = tuple(attribute for attribute in clique if attribute in active)
            if len(kept) > 1:
                weights[kept] = max(weight, weights.get(kept, weight))
        for clique in [clique for clique in weights if len(clique) == 3]:
            for pair in (clique[:2], clique[1:], (clique[0], clique[2])):
                weights.setdefault(pair, weights[clique])
        return dict(sorted(weights.items(), key=lambda item: (len(item[0]), item[0])))

    @property
    def _cliques(self) -> list[Clique]:
        return [*((attribute,) for attribute in self.active), *self.larger_weights]

    @property
    def shares(self) -> Shares:
        """What one event may spend."""
        return GaussianShares(self.epsilon, self.delta, self.changes) if self.delta else PureShares(self.epsilon)

    @property
    def parts(self) -> GrowingParts:
        return GrowingParts.of(self)

    @property
    def identity(self) -> np.ndarray:
        """`(32,)` uint8: states of configurations with another one mean something else."""
        cliques = [(clique, str(weight)) for clique, weight in self.larger_weights.items()]
        parts = ("tabular", "growing", self.name, self.domain.names, self.domain.sizes, cliques, self.deletable)
        # Absent without a delta, so that streams of old go on.
        noise = (str(self.epsilon), self.delta, self.changes) if self.delta else ()
        return np.frombuffer(hashlib.sha256(repr((*parts, self.ttl_steps, *noise)).encode()).digest(), np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class GrowingParts:
    """What follows from a configuration, made once. Marginals name active attributes by their place among them."""

    active: IntArray
    ones: Marginals
    larger: Marginals
    weights: FloatArray
    fitter: MarginalFitter
    schedule: BlockSchedule
    shares: Shares
    recipe: Recipe
    totals_share: Fraction
    ones_share: Fraction
    larger_share: Fraction
    keeper: Keeper
    key: int
    sampled: bool
    """Rows only come, or go by age: every block is a sample of the same table."""
    names: tuple[tuple[str, ...], ...]
    """Of the attributes of each marginal, one-way ones first."""

    @staticmethod
    def of(config: GrowingConfig) -> GrowingParts:
        active, domain = config.active, config.domain
        place = {attribute: index for index, attribute in enumerate(active)}
        sizes = tuple(domain.sizes[attribute] for attribute in active)
        cliques = tuple(tuple(place[a] for a in clique) for clique in config.larger_weights)
        ones = Marginals(sizes, tuple((index,) for index in range(len(active))))
        larger = Marginals(sizes, cliques)
        possible = [_possible(domain, tuple(active[a] for a in clique)).ravel() for clique in cliques]
        everything = not domain.impossible or all(mask.all() for mask in possible)
        shares = config.shares
        recipe = Recipe.of(shares)
        totals = shares.whole * recipe.totals
        first = shares.whole * recipe.ones if cliques else shares.whole - totals
        rest = shares.whole - totals - first
        ones_epsilon, larger_epsilon = pure_epsilons(shares, first, rest, (len(ones), len(larger)))
        return GrowingParts(
            active=np.array(active, np.int64),
            ones=ones,
            larger=larger,
            weights=np.array([float(weight) for weight in config.larger_weights.values()]),
            fitter=MarginalFitter(
                ones, larger, None if everything else np.concatenate(possible), kurtosis=recipe.kurtosis
            ),
            schedule=BlockSchedule(
                ones_epsilon=ones_epsilon,
                larger_epsilon=larger_epsilon,
                few=recipe.early,
                attributes=len(active),
                deletable=config.deletable,
                windowed=config.ttl_steps is not None,
                larger=len(cliques),
            ),
            shares=shares,
            recipe=recipe,
            totals_share=totals,
            ones_share=first,
            larger_share=rest,
            keeper=Keeper(domain, active, ones, larger),
            key=stream_key(config.name),
            sampled=not config.deletable,
            names=tuple(tuple(domain.names[active[a]] for a in clique) for clique in (*ones.cliques, *cliques)),
        )

    @property
    def totals_counter(self) -> Counter:
        """What counts inserts and deletes."""
        return self.shares.counter(self.totals_share)

    @property
    def marginals_share(self) -> Fraction:
        """Of both lines."""
        return self.ones_share + self.larger_share

    def line_shares(self, *, early: bool) -> tuple[Fraction, Fraction]:
        """Of the one-way line and of the larger one; they always add up to the same."""
        larger = self.larger_share * (self.schedule.early_share if early else 1)
        return self.marginals_share - larger, larger

    def laws(self, share: Fraction, weights: FloatArray) -> tuple[CellNoise, ...]:
        """Noise of each marginal of a line, which share its budget nearly by these weights."""
        return tuple(self.shares.cells(part) for part in split(share, weights))


def _possible(domain: TableDomain, clique: Clique) -> np.ndarray:
    """A mask of what can be, of a marginal's shape."""
    mask = np.ones(tuple(domain.sizes[a] for a in clique), np.bool_)
    for left in range(len(clique)):
        for right in range(left + 1, len(clique)):
            pair = domain.possible_pairs(clique[left], clique[right])
            shape = [1] * len(clique)
            shape[left], shape[right] = pair.shape
            mask &= pair.reshape(shape)
    return mask

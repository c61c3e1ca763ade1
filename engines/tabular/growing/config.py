"""The recipe of growing blocks: which marginals are measured, at what cost, and what that promises."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import sqrt

import numpy as np
import numpy.typing as npt

from engines.core.counters.linear import Counter
from engines.core.noise import scale_for
from engines.core.shares import CellNoise, GaussianShares, PureShares, Shares
from engines.core.state import identity_of, written
from engines.tabular.config import TableConfig
from engines.tabular.contrasts import Contrasts
from engines.tabular.domain import Discovered, TableDomain
from engines.tabular.growing.finding import FindingRule
from engines.tabular.growing.fit import MarginalFitter
from engines.tabular.growing.schedule import BlockSchedule, Recipe, pure_epsilons
from engines.tabular.growing.usual import UsualValues, usual_values
from engines.tabular.marginals import Clique
from schemas.arrays import FloatArray, IntArray
from schemas.config.engines.tabular import FINDING_DELTA, FINDING_SHARE, FINDING_TESTS
from schemas.guarantee import Guarantee, Mechanism

STEPS_PER_OCTAVE = 4
"""Shares are rounded to so many values per factor of two: few different scales are drawn faster."""
_UNIT, _SHORT = 1 << 20, 1 << 20


@dataclass(frozen=True, kw_only=True)
class GrowingConfig(TableConfig):
    """The recipe; see `TableConfig`. A marginal of three brings its pairs. Expiry by a ttl costs nothing.

    Args:
        epsilon: of one event; where there is a delta, of the unit.
        delta: of the unit; 0 for pure DP. changes: by one event that a unit may make, where there is a delta.
        finding: of the attribute whose values nobody listed, if there is one; what it costs, and its part of delta, is
            not for blocks.
    Raises: EngineInputError if the marginals have too many cells, or the noise would be too small.
    """

    BYTES_PER_CELL = 96
    """Private counts, evidence, a fit and what making them takes."""
    delta: float = 0.0
    changes: int = 1
    finding: FindingRule | None = None

    def __post_init__(self) -> None:
        _ = self.shares
        super().__post_init__()

    @cached_property
    def larger_weights(self) -> dict[Clique, Fraction]:
        """Larger marginals of active attributes, with their weights; every marginal of three comes with its pairs."""
        weights: dict[Clique, Fraction] = {}
        for clique, weight in self.wanted.items():
            kept = self.reduced(clique)
            if len(kept) > 1:
                weights[kept] = max(weight, weights.get(kept, weight))
        for clique in [clique for clique in weights if len(clique) == 3]:
            for pair in (clique[:2], clique[1:], (clique[0], clique[2])):
                weights.setdefault(pair, weights[clique])
        return dict(sorted(weights.items(), key=lambda item: (len(item[0]), item[0])))

    @property
    def larger_cliques(self) -> tuple[Clique, ...]:
        return tuple(self.larger_weights)

    @property
    def identity(self) -> np.ndarray:
        cliques = [(clique, str(weight)) for clique, weight in self.larger_weights.items()]
        parts = ("tabular", "growing", self.name, self.domain.names, self.domain.keys.sizes, cliques, self.deletable)
        noise = (str(self.epsilon), self.delta, self.changes) if self.delta else ()
        found = () if self.finding is None else (written(self.finding),)
        return identity_of(repr((*parts, self.ttl_steps, *noise, *found)))

    def with_found(self, texts: Sequence[str]) -> GrowingConfig:
        """Return the recipe of the table in which these values have codes of their own, too."""
        return replace(self, domain=self.domain.with_found(texts))

    @cached_property
    def of_ones(self) -> Contrasts:
        """What is measured of the one-way marginals."""
        return Contrasts(self.ones, self.binary)

    @cached_property
    def of_larger(self) -> Contrasts:
        """What is measured of the larger ones."""
        return Contrasts(self.larger, self.binary)

    @cached_property
    def binary(self) -> tuple[bool, ...]:
        """Whether each active attribute has two values for ever."""
        return tuple(self.domain.attributes[attribute].binary for attribute in self.active)

    @cached_property
    def columns(self) -> IntArray:
        """The active attributes as an index of columns, `(active,)`."""
        return np.array(self.active, np.int64)

    @cached_property
    def weights(self) -> FloatArray:
        """How much each larger marginal matters, `(larger marginals,)`."""
        return np.array([float(weight) for weight in self.larger_weights.values()])

    @cached_property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """Names of the attributes of each marginal, one-way ones first."""
        return tuple(tuple(self.domain.names[a] for a in clique) for clique in self.cliques)

    @property
    def sampled(self) -> bool:
        """Rows only come, or go by age: every block is a sample of the same table."""
        return not self.deletable

    @property
    def leaves_out(self) -> bool:
        """Whether larger marginals may leave rows with usual values out.

        Not where rows are deleted by events, so that a block may add up to nothing; nor beside marginals of three,
        since of what these leave out nothing else is known.
        """
        return self.sampled and bool(self.larger_weights) and len(self.larger_cliques[-1]) == 2

    @cached_property
    def fitter(self) -> MarginalFitter:
        possible = [_possible(self.domain, clique).ravel() for clique in self.larger_weights]
        everything = not self.domain.impossible or all(mask.all() for mask in possible)
        return MarginalFitter(
            self.ones, self.larger, None if everything else np.concatenate(possible), kurtosis=self.recipe.kurtosis
        )

    @cached_property
    def shares(self) -> Shares:
        """What one event may spend."""
        if not self.delta:
            return PureShares(self.epsilon)
        delta = self.delta if self.finding is None else noise_delta(self.delta)
        return GaussianShares(self.epsilon, delta, self.changes)

    @cached_property
    def whole(self) -> Fraction:
        """Budget of one event for what is counted."""
        return self.shares.whole - (0 if self.finding is None else self.finding.mu_squared)

    @cached_property
    def recipe(self) -> Recipe:
        return Recipe.of(self.shares)

    @cached_property
    def totals_share(self) -> Fraction:
        """Share of the budget for inserts and deletes."""
        return self.whole * self.recipe.totals

    @cached_property
    def ones_share(self) -> Fraction:
        """Share of the budget for the one-way line."""
        return self.whole * self.recipe.ones if self.larger_weights else self.whole - self.totals_share

    @cached_property
    def larger_share(self) -> Fraction:
        """Share of the budget for the line of larger marginals."""
        return self.whole - self.totals_share - self.ones_share

    @cached_property
    def schedule(self) -> BlockSchedule:
        """When blocks close."""
        counts = len(self.ones), len(self.larger)
        ones_epsilon, larger_epsilon = pure_epsilons(self.shares, self.ones_share, self.larger_share, counts)
        return BlockSchedule(
            ones_epsilon=ones_epsilon,
            larger_epsilon=larger_epsilon,
            few=self.recipe.early,
            attributes=len(self.active),
            deletable=self.deletable,
            windowed=self.ttl_steps is not None,
            larger=len(self.larger),
        )

    @cached_property
    def totals_counter(self) -> Counter:
        """What counts inserts and deletes."""
        return self.shares.counter(self.totals_share)

    @property
    def marginals_share(self) -> Fraction:
        """Share of the budget for both lines."""
        return self.ones_share + self.larger_share

    def line_shares(self, *, early: bool) -> tuple[Fraction, Fraction]:
        """Return shares of the one-way line and of the larger one; they always add up to the same."""
        larger = self.larger_share * (self.schedule.early_share if early else 1)
        return self.marginals_share - larger, larger

    def laws(self, share: Fraction, parts: Sequence[int], limit: int | None = None) -> tuple[CellNoise, ...]:
        """Return the noise of each marginal of a line, which share its budget by these parts.

        Args: limit: that the parts of marginals that count one row add up to at most; None if all of them may.
        """
        whole = sum(parts) if limit is None else limit
        return tuple(self.shares.cells(share * part / whole) for part in parts)

    def usual(self, shares: FloatArray, parts: Sequence[int]) -> UsualValues | None:
        """Return usual values of the attributes, whose rows the next block of larger marginals leaves out.

        Args: see `usual_values`.
        """
        if not self.leaves_out:
            return None
        tables = [self.ones.table(shares, attribute) for attribute in range(len(self.ones))]
        return usual_values(tables, parts, self.larger, self.binary, pure=isinstance(self.shares, PureShares))


def parts_of(weights: npt.ArrayLike) -> tuple[int, ...]:
    """Return whole numbers nearly in proportion to positive weights.

    >>> one, same, twice = parts_of([1.0, 1.0, 2.0])
    >>> one == same, twice == 2 * one
    (True, True)
    """
    octaves = np.rint(np.log2(np.asarray(weights, np.float64)) * STEPS_PER_OCTAVE) / STEPS_PER_OCTAVE
    return tuple(max(1, round(math.ldexp(2.0 ** (each % 1), int(each // 1)) * _UNIT)) for each in octaves.tolist())


def noise_delta(delta: float) -> float:
    """Return the part of a unit's delta for noise, where values are found; rounded down."""
    return float(Fraction(delta) * (1 - FINDING_DELTA)) * (1 - 1e-12)


def finding_of(attribute: Discovered, shares: GaussianShares, delta: float, **times: int | None) -> FindingRule:
    """Return how values of an attribute are found by a unit's share of its budget.

    Args: shares: of the part of `delta` for noise. times: see `FindingRule`.
    """
    period = times.get("period")
    return FindingRule(
        mu_squared=shares.whole * FINDING_SHARE,
        delta=float(Fraction(delta) * FINDING_DELTA) * (1 - 1e-12),
        changes=shares.changes,
        tests=FINDING_TESTS if period is None else min(FINDING_TESTS, period),
        least_count=attribute.least_count,
        max_keys=attribute.max_keys,
        **times,
    )


def _possible(domain: TableDomain, clique: Clique) -> np.ndarray:
    """Return a mask of what can be, of a marginal's shape."""
    mask = np.ones(tuple(domain.sizes[a] for a in clique), np.bool_)
    for left in range(len(clique)):
        for right in range(left + 1, len(clique)):
            pair = domain.possible_pairs(clique[left], clique[right])
            shape = [1] * len(clique)
            shape[left], shape[right] = pair.shape
            mask &= pair.reshape(shape)
    return mask


def guarantee(config: GrowingConfig) -> Guarantee:
    """Return what the engine proves. Costs of the mechanisms add up to the whole budget exactly."""
    lines = (
        ("one-way marginals, in growing blocks", len(config.ones), config.ones_share),
        ("larger marginals, in growing blocks", len(config.larger), config.larger_share),
    )
    mechanisms = [_totals(config)]
    if config.finding is not None:
        mechanisms.append(_found(config, config.finding))
    mechanisms += [_line(config, name, marginals, share) for name, marginals, share in lines if marginals and share > 0]
    note = "An event is in the totals when it arrives, and then in one block of each line of marginals."
    if config.schedule.early(0.0) and len(config.larger):
        note += " While the stream is early the one-way line has more of the budget of both lines, or all of it."
    if config.ttl_steps is not None:
        note += " Expiry by ttl is post-processing."
    if config.leaves_out:
        note += " Where most events have the same values, later larger marginals leave those out and have less noise."
    if config.finding is not None:
        note += (
            f" An event is in one value that is tested, in one period of {config.finding.tests} tests. Of delta, "
            f"{config.finding.delta:.3g} is for values that are found though one unit alone decides whether enough "
            "records have them, over all tests and values."
        )
    if config.delta:
        note += (
            f" Gaussian noise: what adds up is mu^2, over all that a unit of {config.changes} "
            f"event{'s' if config.changes > 1 else ''} is measured in."
        )
    return Guarantee(epsilon=config.epsilon, delta=config.delta, mechanisms=tuple(mechanisms), note=note)


def _totals(config: GrowingConfig) -> Mechanism:
    counter, shares = config.totals_counter, config.shares
    (noise,) = set(counter.node_noise(1))
    name = "inserts and deletes of every step (continual counters; scale of the first epoch)"
    if isinstance(shares, PureShares):
        return Mechanism(
            name=name,
            distribution="discrete Laplace",
            l1_sensitivity=round(noise * config.totals_share),
            scale=noise,
            epsilon=config.totals_share,
            account="totals",
        )
    return Mechanism(
        name=name,
        distribution="discrete Gaussian",
        l1_sensitivity=1,
        scale=Fraction(sqrt(noise) / counter.resolution).limit_denominator(_SHORT),
        epsilon=shares.epsilon_of(config.totals_share),
        account="totals",
        mu_squared=shares.mu_squared_of(config.totals_share),
    )


def _found(config: GrowingConfig, finding: FindingRule) -> Mechanism:
    shares = config.shares
    return Mechanism(
        name="values that nobody listed (a counter each)",
        distribution="discrete Gaussian",
        l1_sensitivity=1,
        scale=Fraction(sqrt(1 / finding.counter.mu_squared)).limit_denominator(_SHORT),
        epsilon=shares.epsilon_of(finding.mu_squared),
        account="values",
        mu_squared=shares.mu_squared_of(finding.mu_squared),
    )


def _line(config: GrowingConfig, name: str, marginals: int, share: Fraction) -> Mechanism:
    shares = config.shares
    even = share / marginals
    pure = isinstance(shares, PureShares)
    deviation = scale_for(marginals, share) if pure else Fraction(shares.cells(even).variance ** 0.5)
    return Mechanism(
        name=f"{name} (scale on average: shares of the budget differ)",
        distribution="discrete Laplace" if pure else "discrete Gaussian",
        l1_sensitivity=marginals,
        scale=deviation if pure else deviation.limit_denominator(_SHORT),
        epsilon=shares.epsilon_of(share),
        account="marginals",
        mu_squared=shares.mu_squared_of(share),
        # One in a cell of each marginal.
        shift=Fraction(marginals),
    )

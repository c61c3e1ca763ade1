"""Markov counts: how many users are in each public state, step by step, under pure differential privacy.

Every step all states' counts get discrete Laplace noise, once. Everything else - the filter, its smoother, MAP - works
on the noisy counts alone.
Guarantee (`unit = "replace"`): epsilon-DP for one record replaced by another one of the same or of another step, or by
    none. A record adds one to one count of one step. Taking it away moves the vector of all counts of all steps by 1 in
    L1 norm, putting another one in by 1 more: 2 in all, whatever the other records are, and whether or not they add up
    to the declared population, which is never compared with the data. So scale 2 / epsilon_t at step t costs
    (epsilon_t + epsilon_t') / 2 at most, where t and t' are the steps of the two records. A user of at most c accepted
    records pays c times that. Nobody is counted among the unseen: their number is a result, never measured.
Source: Laplace release as in [cao2023], section 3.2, whose sensitivity is left open; estimators: see their modules.
Units: counts, in users.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from engines.core.accounting import Accountant, Cost
from engines.core.contract import Batch, Release, State, SyntheticRecord
from engines.core.intervals import NORMAL_90
from engines.core.noise import DiscreteLaplace, NoiseSource, laplace_mechanism, scale_for
from engines.core.state import check_step, head, identity_of, numbers_of, written
from engines.markov.chain import SPARSE_ABOVE, CountsEstimator, Estimate, Transition
from engines.markov.domain import StatesDomain
from schemas.arrays import below, under
from schemas.errors import EngineInputError
from schemas.guarantee import Guarantee, Mechanism

if TYPE_CHECKING:
    from engines.markov.leakage import Allocation
    from engines.markov.paper import First


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkovConfig:
    """The recipe. All of it is public.

    Args:
        name: of the stream. domain: the states.
        population: users; declared, never counted.
        epsilon: what ONE record costs that is replaced by another, of any step, or by none.
        mode: "default" or "paper".
        transition: how users move; None: unknown, mode default learns it.
        unseen: whether users may be in no state in a step; then the last row and column of `transition` are theirs.
        first: mode paper: the first step's distribution.
        lag: mode default with a transition: a step is revised once when it is so many steps old.
        horizon: steps that are released; None: no end.
        allocation: epsilon of each step where they differ; None: `epsilon` in every one.
    Raises: EngineInputError.
    """

    name: str
    domain: StatesDomain
    population: int
    epsilon: Fraction
    mode: str = "default"
    transition: Transition | None = None
    unseen: bool = False
    first: First = "frequency"
    lag: int = 5
    horizon: int | None = None
    allocation: Allocation | None = None

    def __post_init__(self) -> None:
        if self.mode not in ("default", "paper"):
            raise EngineInputError("mode must be default or paper")
        if self.epsilon <= 0:
            raise EngineInputError("epsilon must be positive")
        if self.population < 1 or self.lag < 0 or (self.horizon is not None and self.horizon < 1):
            raise EngineInputError("population and horizon must be at least 1, lag at least 0")
        if self.transition is None and self.mode == "paper":
            raise EngineInputError('mode "paper" needs a transition matrix; mode "default" can learn one')
        if self.transition is not None and self.transition.states != self.states:
            raise EngineInputError(
                f"the transition matrix has {self.transition.states} rows, and there are {self.states} states"
                + (", the last one for users who are in none" if self.unseen else "")
            )
        if self.allocation is not None:
            if self.allocation.horizon != self.horizon:
                raise EngineInputError("the allocation must be of the same horizon")
            if self.allocation.largest > self.epsilon:
                raise EngineInputError("a step of the allocation costs more than epsilon")

    @property
    def states(self) -> int:
        """Counted ones, and one more for the unseen."""
        return len(self.domain.values) + self.unseen

    def budget(self, step: int) -> Fraction:
        """Return the epsilon of a step, for one replaced record."""
        return self.epsilon if self.allocation is None else self.allocation.at(step)

    def estimator(self) -> CountsEstimator:
        """Return what makes counts of noisy ones in this mode."""
        total = float(self.population)
        # A worker loads what its mode draws on.
        if self.transition is None:
            from engines.markov.learning import Learner

            return Learner(len(self.domain.values), total, self.unseen)
        if self.mode == "paper":
            from engines.markov.paper import Map

            return Map(self.transition, total, self.first, len(self.domain.values))
        from engines.markov.filters import BeliefFilter, Collective, DenseFilter, DiagonalFilter

        measured = np.arange(self.states) < len(self.domain.values)
        beliefs: BeliefFilter
        if self.states > SPARSE_ABOVE:
            beliefs = DiagonalFilter(self.transition, total, measured)
        else:
            beliefs = DenseFilter(self.transition.dense, total, measured)
        return Collective(beliefs, self.transition, self.lag)

    @property
    def identity(self) -> np.ndarray:
        matrix = b""
        if self.transition is not None:
            chain = self.transition.matrix
            matrix = chain.indptr.tobytes() + chain.indices.tobytes() + chain.data.tobytes()
        words = (self.name, self.domain.field_name, self.domain.values, self.population, self.mode, self.unseen)
        budget = (self.first, self.lag, self.horizon, str(self.epsilon), written(self.allocation))
        return identity_of(repr(("markov", *words, *budget)), matrix)


STATE_FORMAT = 1
L1_SENSITIVITY = 2
"""Of all counts of all steps, to one replaced record."""
UNSEEN = "unseen"
"""Kind of the record that tells how many users are in no state."""
_ESTIMATE = "estimate/"
_DIGITS = 3


class Markov:
    """See the module; implements `engines.core.contract.Engine`.

    | case | what happens |
    |---|---|
    | a step without records | a release like any other: counts of 0 with noise |
    | more records than the population | released like any others; estimates still add up to the population |
    | beyond the horizon | empty releases with a note, no noise |

    >>> from fractions import Fraction
    >>> from engines.core.noise import seeded
    >>> from engines.markov.chain import Transition
    >>> from engines.markov.domain import StatesDomain
    >>> from schemas.blocks import Folded
    >>> zones = StatesDomain("zone", ("a", "b"))
    >>> chain = Transition.from_matrix(np.array([[0.9, 0.1], [0.2, 0.8]]))
    >>> engine = Markov(MarkovConfig(name="docs", domain=zones, population=100, epsilon=Fraction(1), transition=chain))
    >>> release = engine.step(Batch(0, Folded(np.array([[0], [1]], np.uint64), np.array([70, 30]))), seeded(1))
    >>> abs(release.added[0].fields["count"] - 70) < 20
    True
    """

    _sensitivity = L1_SENSITIVITY

    def __init__(self, config: MarkovConfig) -> None:
        self.config = config
        self._estimator = config.estimator()
        self._estimate = self._estimator.begin()
        self._budget = Accountant(epsilon=config.epsilon)
        self._next = 0

    def step(self, batch: Batch, noise: NoiseSource) -> Release:
        config, now = self.config, batch.step
        check_step(batch, self._next)
        counts = config.domain.counts(batch.events)
        if config.horizon is not None and now >= config.horizon:
            self._next += 1
            over = f"the horizon of {config.horizon} steps is reached and the budget used up: nothing is released"
            return Release(now, (), (), (), self._alive(config.horizon), notes={"over": over})
        budget = config.budget(now)
        # A replaced record is in one count, of one step: the charges of different steps do not add up for it.
        charged = self._budget.charged(Cost.pure_dp(budget), step=now)
        scale = scale_for(self._sensitivity, budget)
        noisy = laplace_mechanism(counts, scale, noise.child("counts"))
        last = config.horizon is not None and now == config.horizon - 1
        state, estimates = self._estimator.observe(self._estimate, now, noisy.astype(np.float64), scale, last=last)
        self._estimate, self._budget, self._next = state, charged, now + 1
        variance = DiscreteLaplace(scale).variance
        revised = [estimate for estimate in estimates if estimate.revised]
        return Release(
            step=now,
            added=[record for estimate in estimates for record in self._records(estimate)],
            removed=[self._id(estimate.step, state) for estimate in revised for state in range(config.states)],
            measurements=[
                {"state": value, "count": int(count), "variance": variance}
                for value, count in zip(config.domain.values, noisy, strict=True)
            ],
            total=self._alive(self._next),
            notes={"epsilon": float(budget), "revises": [estimate.step for estimate in revised]},
        )

    def _alive(self, released: int) -> int:
        return released * self.config.states

    @staticmethod
    def _id(step: int, state: int) -> str:
        return f"{step}.{state}"

    def _records(self, estimate: Estimate) -> list[SyntheticRecord]:
        """Return one for each state: its count, standard error, and 90 % interval."""
        config = self.config
        most = float(config.population)
        records = []
        for state, (count, variance) in enumerate(zip(estimate.counts, estimate.variances, strict=True)):
            seen = state < len(config.domain.values)
            error = sqrt(variance)
            fields: dict[str, Any] = {
                config.domain.field_name: config.domain.values[state] if seen else None,
                "step": estimate.step,
                "count": round(float(count), _DIGITS),
                "standard_error": round(error, _DIGITS),
                "low": round(max(float(count) - NORMAL_90 * error, min(0.0, float(count))), _DIGITS),
                "high": round(min(float(count) + NORMAL_90 * error, max(most, float(count))), _DIGITS),
                "revised": estimate.revised,
            }
            if not seen:
                fields["kind"] = UNSEEN
            name = self._id(estimate.step, state)
            records.append(SyntheticRecord(f"{name}.r" if estimate.revised else name, fields, estimate.step))
        return records

    def state(self) -> State:
        """See `engines.core.contract.Engine.state`. Released values only, so it is no more private than the
        releases.
        """
        return {
            **head(STATE_FORMAT, self.config.identity, self._next),
            **under(_ESTIMATE, {name: array.copy() for name, array in self._estimate.items()}),
            **self._budget.state(),
        }

    def restore(self, state: State) -> None:
        (step,) = numbers_of(state, STATE_FORMAT, self.config.identity, count=1)
        held = below(_ESTIMATE, state)
        if held.keys() != self._estimator.begin().keys():
            raise EngineInputError("state lacks parts of its estimate")
        budget = self._budget.restore(state)
        self._estimate = {name: array.copy() for name, array in held.items()}
        self._budget, self._next = budget, step

    def guarantee(self) -> Guarantee:
        """See `engines.core.contract.Engine.guarantee`: of one replaced record."""
        config = self.config
        largest = config.epsilon if config.allocation is None else config.allocation.largest
        note = "One record replaced by another moves two counts by one each, in one step or in two."
        if config.allocation is not None:
            note += " Steps have budgets that keep their temporal privacy leakage at epsilon or below (alpha-DP_T)."
        if config.horizon is not None:
            note += f" After {config.horizon} steps nothing is released any more."
        return Guarantee(
            epsilon=config.epsilon,
            mechanisms=(
                Mechanism(
                    name="counts of users in each state",
                    distribution="discrete Laplace",
                    l1_sensitivity=L1_SENSITIVITY,
                    scale=scale_for(L1_SENSITIVITY, largest),
                    epsilon=largest,
                ),
            ),
            neighbouring="replace",
            note=note,
            kept_back=config.epsilon - largest,
        )

"""What a markov engine is made of: public constants, and the estimator of each mode."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from engines.core.identity import written
from engines.markov.chain import SPARSE_ABOVE, Transition
from engines.markov.domain import StatesDomain
from engines.markov.estimate import CountsEstimator
from engines.markov.filters.collective import BeliefFilter, Collective
from engines.markov.filters.diagonal import DiagonalFilter
from engines.markov.filters.gaussian import DenseFilter
from engines.markov.leakage_budget import Allocation
from engines.markov.learning.learner import Learner
from engines.markov.paper import First, Map
from schemas.errors import EngineInputError


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
        """Epsilon of a step, for one replaced record."""
        return self.epsilon if self.allocation is None else self.allocation.at(step)

    def estimator(self) -> CountsEstimator:
        """What makes counts of noisy ones in this mode."""
        total = float(self.population)
        if self.transition is None:
            return Learner(len(self.domain.values), total, self.unseen)
        if self.mode == "paper":
            return Map(self.transition, total, self.first, len(self.domain.values))
        measured = np.arange(self.states) < len(self.domain.values)
        beliefs: BeliefFilter
        if self.states > SPARSE_ABOVE:
            beliefs = DiagonalFilter(self.transition, total, measured)
        else:
            beliefs = DenseFilter.of(self.transition, total, measured)
        return Collective(beliefs, self.transition, self.lag)

    @property
    def identity(self) -> np.ndarray:
        """`(32,)` uint8: states of configurations with another one mean something else."""
        matrix = b""
        if self.transition is not None:
            chain = self.transition.matrix
            matrix = chain.indptr.tobytes() + chain.indices.tobytes() + chain.data.tobytes()
        words = (self.name, self.domain.field_name, self.domain.values, self.population, self.mode, self.unseen)
        budget = (self.first, self.lag, self.horizon, str(self.epsilon), written(self.allocation))
        text = repr(("markov", *words, *budget)).encode()
        return np.frombuffer(hashlib.sha256(text + matrix).digest(), np.uint8)

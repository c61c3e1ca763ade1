"""Mode `default` without a declared chain: a bank of coarse chains beside one that is learnt in full.

Each foresees the next noisy counts; the released estimate is their mean, weighted by how well they did so far. Where
nothing can be learnt (epsilon .01 a step) that is the average of all that was released.
Post-processing of released values: costs no privacy. Source: ours; parts in `learning.bank`, `learning.em`.
Units: counts. State: the bank, and for few states a window of released counts and the learnt matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from engines.core.contract import State
from engines.markov.estimate import Estimate
from engines.markov.filters.gaussian import Belief, DenseFilter
from engines.markov.laplace import matched_scale
from engines.markov.learning.bank import Bank
from engines.markov.learning.em import filtered, learn
from engines.markov.simplex import likeliest, project
from schemas.arrays import FloatArray

LEARNT_STATES = 24
"""More states have too many moves to be learnt one by one."""
WINDOW = 256
FIRST_LEARNING, SWEEPS = 8, 4
LEARN_EVERY, LEARN_GROWTH = 8, 1.15
_GUESS = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class Learner:
    """Implements `estimate.CountsEstimator`.

    Args: states: counted ones. total: users. unseen: whether people may be in no state.
    """

    states: int
    total: float
    unseen: bool

    @property
    def _bank(self) -> Bank:
        return Bank(self.states, self.total, not self.unseen, self.states > LEARNT_STATES)

    @property
    def _learns(self) -> bool:
        """A full chain is learnt where everyone is counted and states are few."""
        return not self.unseen and 2 <= self.states <= LEARNT_STATES

    @property
    def _prior(self) -> FloatArray:
        return _GUESS * np.eye(self.states) + (1 - _GUESS) / self.states

    def begin(self) -> State:
        bank = self._bank
        state = {f"bank/{name}": array for name, array in bank.begin().items()}
        state["weights"] = np.zeros(len(bank.members[0]) + self._learns)
        if self._learns:
            belief = DenseFilter(self._prior, self.total, np.ones(self.states, np.bool_)).start(float(self.states))
            state |= {"chain/matrix": self._prior, "chain/mean": belief.mean, "chain/spread": belief.spread}
            state |= {"chain/window": np.zeros((0, self.states)), "chain/next": np.array([FIRST_LEARNING], np.int64)}
        return state

    def observe(
        self, state: State, step: int, noisy: FloatArray, scale: Fraction, *, last: bool
    ) -> tuple[State, tuple[Estimate, ...]]:
        matched = matched_scale(scale)
        held = {name.removeprefix("bank/"): array for name, array in state.items() if name.startswith("bank/")}
        held, counts, variances, evidence = self._bank.observe(held, step, noisy, matched)
        after = {f"bank/{name}": array for name, array in held.items()}
        if self._learns:
            chain, belief, foreseen = self._chain(state, step, noisy, matched)
            after |= chain
            counts = np.concatenate([counts, belief.mean[None]])
            variances = np.concatenate([variances, np.maximum(np.diag(belief.spread), 0.0)[None]])
            evidence = np.append(evidence, foreseen)
        weights = state["weights"] + evidence
        after["weights"] = weights - weights.max()
        shares = np.exp(after["weights"])
        shares /= shares.sum()
        mean = shares @ counts
        spread = shares @ (variances + (counts - mean) ** 2)
        if self.unseen:
            return after, (Estimate(step, likeliest(mean, self.total, unseen=True), np.append(spread, spread.sum())),)
        return after, (Estimate(step, project(mean, self.total), spread),)

    def _chain(self, state: State, step: int, noisy: FloatArray, scale: float) -> tuple[State, Belief, float]:
        """The learnt chain's state, belief and log evidence after this step; learns at growing intervals."""
        matrix, window, due = state["chain/matrix"], state["chain/window"], int(state["chain/next"][0])
        everyone = np.ones(self.states, np.bool_)
        engine = DenseFilter(matrix, self.total, everyone)
        belief = Belief(state["chain/mean"], state["chain/spread"])
        belief, evidence = engine.update(engine.predict(belief) if step else belief, noisy, scale)
        window = np.concatenate([window, noisy[None]])[-WINDOW:]
        if step + 1 >= due:
            matrix = learn(matrix, self._prior, window, scale, self.total, sweeps=SWEEPS)
            belief = filtered(DenseFilter(matrix, self.total, everyone, exact=False), window, scale)[-1]
            due = max(step + 1 + LEARN_EVERY, int((step + 1) * LEARN_GROWTH))
            due = min(due, step + 1 + WINDOW // 4)
        after = {"chain/matrix": matrix, "chain/mean": belief.mean, "chain/spread": belief.spread}
        return after | {"chain/window": window, "chain/next": np.array([due], np.int64)}, belief, evidence

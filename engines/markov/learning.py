"""Mode `default` without a declared chain: a bank of coarse chains beside one that is learnt in full.

`Bank` knows the chain coarsely: each state's count is a slow level plus a deviation that fades at an unknown speed. A
bank of members over (persistence, liveliness), each a two-part Gaussian belief for every state, weighted by how well
they foresee the noisy counts. With persistence 0 and much noise its estimate is the average of everything released.
Post-processing of released values: costs no privacy.
Source: ours. It is the chain `P = persistence I + (1 - persistence) 1 pi'` with `pi` learnt as the levels.
Units: counts. Cost and state: O(members * states).

`learn` makes a transition matrix of released counts, by expectation maximisation over a window of them. Counts alone,
nobody's path: a smoother gives the expected products of neighbouring steps' counts, and the matrix that explains them
best in least squares, its rows on the simplex, is the next guess.
Source: [shumway1982] for the recursion; constraint and
    prior are ours.
Cost: O(sweeps * window * states^3).

`Learner` joins them. Each foresees the next noisy counts; the released estimate is their mean, weighted by how well
they did so far. Where nothing can be learnt (epsilon .01 a step) that is the average of all that was released.
State: the bank, and for few states a window of released counts and the learnt matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from engines.core.contract import State
from engines.markov.chain import Estimate, laplace_moments, likeliest, matched_scale, project
from engines.markov.filters import Belief, DenseFilter
from schemas.arrays import FloatArray, below, under

PERSISTENCE = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.998)
LIVELINESS = (0.3, 1.0, 3.0)
"""Variance of deviations over that of independent users."""
FEW_PERSISTENCE = (0.0, 0.8, 0.95, 0.99, 0.998)
"""For many states, with liveliness 1 alone."""


@dataclass(frozen=True, slots=True, eq=False)
class Bank:
    """Args: states: counted ones. total: users, at most that many are in them. closed: all are. many: fewer members."""

    states: int
    total: float
    closed: bool
    many: bool

    @property
    def members(self) -> tuple[FloatArray, FloatArray]:
        """Persistence and liveliness of each, `(members, 1)`."""
        pairs = [(p, 1.0) for p in FEW_PERSISTENCE] if self.many else [(p, c) for p in PERSISTENCE for c in LIVELINESS]
        # One member expects anything at each step: it carries the estimate while the others are still wrong.
        anything = (self.total + self.states) / (1 + self.states)
        grid = np.array([*pairs, (0.0, anything)])
        return grid[:, :1], grid[:, 1:]

    def begin(self) -> State:
        persistence, _ = self.members
        shape = (len(persistence), self.states)
        mean = self.total / self.states
        return {
            "level": np.full(shape, mean),
            "deviation": np.zeros(shape),
            "level_variance": np.full(shape, mean * mean),
            "covariance": np.zeros(shape),
            "deviation_variance": self._stationary(np.full(shape, mean)),
        }

    def _stationary(self, level: FloatArray) -> FloatArray:
        share = np.clip(level / self.total, 1e-4, 1 - 1e-4)
        return self.members[1] * np.maximum(self.total * share * (1 - share), 0.5)

    def observe(
        self, state: State, step: int, noisy: FloatArray, scale: float
    ) -> tuple[State, FloatArray, FloatArray, FloatArray]:
        """Return the next state, and counts, variances and log evidence of each member: `(members, states)` twice,
        `(members,)`.

        Args: noisy: `(states,)`. scale: of the continuous law.
        """
        level, deviation = state["level"], state["deviation"]
        ll, ld, dd = state["level_variance"], state["covariance"], state["deviation_variance"]
        if step:
            fade = self.members[0]
            deviation, ld = fade * deviation, fade * ld
            dd = fade * fade * dd + (1 - fade * fade) * self._stationary(level)
        mean, variance = level + deviation, ll + 2 * ld + dd
        after, left, evidence = laplace_moments(mean, variance, np.broadcast_to(noisy, mean.shape), scale)
        gain_l, gain_d = (ll + ld) / variance, (ld + dd) / variance
        level, deviation = level + gain_l * (after - mean), deviation + gain_d * (after - mean)
        lost = variance - left
        ll, ld, dd = ll - gain_l**2 * lost, ld - gain_l * gain_d * lost, dd - gain_d**2 * lost
        counts = after
        if self.closed:
            share = left / left.sum(axis=1, keepdims=True)
            counts = after + (self.total - after.sum(axis=1, keepdims=True)) * share
        state = {
            "level": level,
            "deviation": deviation,
            "level_variance": ll,
            "covariance": ld,
            "deviation_variance": dd,
        }
        return state, counts, left, evidence.sum(axis=1)


PRIOR_STEPS = 1.0
"""Weight of the first guess, in steps."""
_DESCENTS = 30


def learn(
    guess: FloatArray, prior: FloatArray, noisy: FloatArray, scale: float, total: float, *, sweeps: int
) -> FloatArray:
    """Return a better transition matrix `(states, states)`.

    Args:
        guess: to start from. prior: what holds without data. noisy: `(steps, states)` released counts of consecutive
            steps, which everyone is in. scale: of the continuous Laplace law with the noise's variance.
    """
    states = len(guess)
    even = total / states * (np.eye(states) - 1 / states) + (total / states) ** 2
    for _ in range(sweeps):
        products, moves = PRIOR_STEPS * even, PRIOR_STEPS * even @ prior
        engine = DenseFilter(guess, total, np.ones(states, np.bool_), exact=False)
        beliefs, foreseen = filtered(engine, noisy, scale)
        later = beliefs[-1]
        for belief, ahead in zip(beliefs[-2::-1], foreseen[:0:-1], strict=True):
            now, both = engine.smoothed(belief, ahead, later)
            products = products + now.spread + np.outer(now.mean, now.mean)
            moves = moves + both.T + np.outer(now.mean, later.mean)
            later = now
        guess = _least_squares(guess, products, moves)
    return guess


def filtered(engine: DenseFilter, noisy: FloatArray, scale: float) -> tuple[list[Belief], list[Belief]]:
    """Return the beliefs after each of the steps `(steps, states)`, and those before them."""
    foreseen = [engine.start(float(len(engine.matrix)))]
    beliefs = [engine.met(foreseen[0], noisy[0], scale)]
    for row in noisy[1:]:
        foreseen.append(engine.predict(beliefs[-1]))
        beliefs.append(engine.met(foreseen[-1], row, scale))
    return beliefs, foreseen


def _least_squares(guess: FloatArray, products: FloatArray, moves: FloatArray) -> FloatArray:
    """Minimise tr(P' products P) / 2 - tr(P' moves) over row-stochastic P, by accelerated projected gradient."""
    steepest = float(np.linalg.eigvalsh(products)[-1])
    matrix, ahead, momentum = guess, guess, 1.0
    for _ in range(_DESCENTS):
        after = project(ahead - (products @ ahead - moves) / steepest, 1.0)
        faster = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        ahead = after + (momentum - 1) / faster * (after - matrix)
        matrix, momentum = after, faster
    return matrix


LEARNT_STATES = 24
"""More states have too many moves to be learnt one by one."""
WINDOW = 256
FIRST_LEARNING, SWEEPS = 8, 4
LEARN_EVERY, LEARN_GROWTH = 8, 1.15
_GUESS = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class Learner:
    """The `CountsEstimator` of mode `default` without a declared chain.

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
        """Whether a full chain is learnt: where everyone is counted and states are few."""
        return not self.unseen and 2 <= self.states <= LEARNT_STATES

    @property
    def _prior(self) -> FloatArray:
        return _GUESS * np.eye(self.states) + (1 - _GUESS) / self.states

    def begin(self) -> State:
        bank = self._bank
        state = under("bank/", bank.begin())
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
        held, counts, variances, evidence = self._bank.observe(below("bank/", state), step, noisy, matched)
        after = under("bank/", held)
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
        """Return the learnt chain's state, belief and log evidence after this step; learns at growing intervals."""
        matrix, window, due = state["chain/matrix"], state["chain/window"], int(state["chain/next"][0])
        everyone = np.ones(self.states, np.bool_)
        engine = DenseFilter(matrix, self.total, everyone)
        belief = Belief(state["chain/mean"], state["chain/spread"])
        belief, evidence = engine.update(engine.predict(belief) if step else belief, noisy, scale)
        window = np.concatenate([window, noisy[None]])[-WINDOW:]
        if step + 1 >= due:
            matrix = learn(matrix, self._prior, window, scale, self.total, sweeps=SWEEPS)
            belief = filtered(DenseFilter(matrix, self.total, everyone, exact=False), window, scale)[0][-1]
            due = max(step + 1 + LEARN_EVERY, int((step + 1) * LEARN_GROWTH))
            due = min(due, step + 1 + WINDOW // 4)
        after = {"chain/matrix": matrix, "chain/mean": belief.mean, "chain/spread": belief.spread}
        return after | {"chain/window": window, "chain/next": np.array([due], np.int64)}, belief, evidence

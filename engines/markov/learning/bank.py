"""An unknown chain, coarsely: each state's count is a slow level plus a deviation that fades at an unknown speed.

A bank of members over (persistence, liveliness), each a two-part Gaussian belief for every state, weighted by how well
they foresee the noisy counts. With persistence 0 and much noise its estimate is the average of everything released.
Post-processing of released values: costs no privacy.
Source: ours. It is the chain `P = persistence I + (1 - persistence) 1 pi'` with `pi` learnt as the levels.
Units: counts. Cost and state: O(members * states).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engines.core.contract import State
from engines.markov.laplace import laplace_moments
from schemas.arrays import FloatArray

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
        variance: FloatArray = self.members[1] * np.maximum(self.total * share * (1 - share), 0.5)
        return variance

    def observe(
        self, state: State, step: int, noisy: FloatArray, scale: float
    ) -> tuple[State, FloatArray, FloatArray, FloatArray]:
        """The next state; counts, variances and log evidence of each member: `(members, states)` twice, `(members,)`.

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

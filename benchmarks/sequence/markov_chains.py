"""Chains and users for the markov benchmark, and how each method is run on one and the same noisy counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from benchmarks.papers.markov import kalman, likeliest_counts, prior_mean
from engines.core.noise import discrete_laplace, scale_for, seeded
from engines.markov.chain import Transition
from engines.markov.domain import StatesDomain
from engines.markov.engine import L1_SENSITIVITY, MarkovConfig

PAPER = np.array([[0.0, 0.0, 1.0], [0.5, 0.0, 0.5], [0.0, 1.0, 0.0]])
"""[cao2023]'s chain, before it is smoothed (its eq. 11)."""


@dataclass(frozen=True)
class World:
    """A chain, its users and the steps; users start where a Dirichlet(1) draw says, evenly, or in one state."""

    name: str
    matrix: np.ndarray
    users: int
    steps: int = 120
    start: str = "random"

    def counts(self, seed: int) -> np.ndarray:
        """True counts `(steps, states)`."""
        rng = np.random.default_rng([seed, len(self.matrix)])
        shares = rng.dirichlet(np.ones(len(self.matrix)))
        if self.start == "even":
            shares = np.full(len(self.matrix), 1 / len(self.matrix))
        elif self.start == "one state":
            shares = np.eye(len(self.matrix))[0]
        rows = [rng.multinomial(self.users, shares)]
        for _ in range(self.steps - 1):
            rows.append(rng.multinomial(rows[-1], self.matrix).sum(axis=0))
        return np.array(rows)


def smoothed(s: float) -> np.ndarray:
    """The paper's chain at level `s`: small is strong."""
    return (PAPER + s) / (PAPER + s).sum(axis=1, keepdims=True)


def ring(states: int, stay: float = 0.9) -> np.ndarray:
    return stay * np.eye(states) + (1 - stay) / 2 * (
        np.roll(np.eye(states), 1, axis=1) + np.roll(np.eye(states), -1, axis=1)
    )


WORLDS = (
    World("strong (s=.01), m=3", smoothed(0.01), 200),
    World("medium (s=.1), m=3", smoothed(0.1), 200),
    World("weak (s=1), m=3", smoothed(1.0), 200),
    World("sticky, m=3", 0.95 * np.eye(3) + 0.05 / 3, 200),
    World("ring, m=20, stay .9", ring(20), 2000),
    World("random, m=20", np.random.default_rng(5).dirichlet(np.full(20, 0.3), 20), 2000),
)
STRONG = WORLDS[0].name

Method = Callable[[World, np.ndarray, Sequence[Fraction]], dict[str, np.ndarray]]
"""World, noisy counts and each step's scale to the estimates `(steps, states)` by name."""


def method(name: str, *, mode: str = "default", known: bool = True, **changes: object) -> Method:
    """A mode of the engine, on noisy counts that were drawn already; what it revises comes as `<name>, lag L`."""

    def run(world: World, noisy: np.ndarray, scales: Sequence[Fraction]) -> dict[str, np.ndarray]:
        states = len(world.matrix)
        config = MarkovConfig(
            mode=mode,
            name="bench",
            domain=StatesDomain("state", tuple(str(at) for at in range(states))),
            population=world.users,
            epsilon=Fraction(1),
            transition=Transition.from_matrix(world.matrix) if known else None,
            horizon=world.steps,
            **changes,  # type: ignore[arg-type]
        )
        estimator = config.estimator()
        state = estimator.begin()
        first, final = np.zeros(noisy.shape), np.zeros(noisy.shape)
        revisions = False
        for step, (row, scale) in enumerate(zip(noisy, scales, strict=True)):
            last = step == world.steps - 1
            state, estimates = estimator.observe(state, step, row.astype(np.float64), scale, last=last)
            for estimate in estimates:
                revisions |= estimate.revised
                final[estimate.step] = estimate.counts
                if not estimate.revised:
                    first[estimate.step] = estimate.counts
        return {name: first} | ({f"{name}, lag {config.lag}": final} if revisions else {})

    return run


def compared(name: str, estimate: Callable[[World, np.ndarray, Sequence[Fraction]], np.ndarray]) -> Method:
    """What the engine is compared with."""
    return lambda world, noisy, scales: {name: estimate(world, noisy.astype(np.float64), scales)}


METHODS: dict[str, Method] = {
    "raw": compared("raw", lambda world, noisy, scales: noisy),
    "MLE": compared("MLE", lambda world, noisy, scales: likeliest_counts(noisy, world.users)),
    "prior mean": compared("prior mean", lambda world, noisy, scales: prior_mean(noisy, world.users, world.matrix)),
    "prior mean, even": compared(
        "prior mean, even", lambda world, noisy, scales: prior_mean(noisy, world.users, world.matrix, even=True)
    ),
    "MAP": method("MAP", mode="paper"),
    "MAP, even": method("MAP, even", mode="paper", first="uniform"),
    "kalman": compared("kalman", lambda world, noisy, scales: kalman(noisy, world.users, world.matrix, scales)),
    "default": method("default"),
}
LEARNT = method("default, P unknown", known=False)


def errors(world: World, seed: int, budgets: Sequence[Fraction], methods: Sequence[Method]) -> dict[str, float]:
    """MSE of each method on one draw of users and noise."""
    truth = world.counts(seed)
    scales = [scale_for(L1_SENSITIVITY, budget) for budget in budgets]
    source = seeded(seed)
    noise = [discrete_laplace(truth.shape[1], scale, source.child(step)) for step, scale in enumerate(scales)]
    noisy = truth + np.array(noise)
    found: dict[str, float] = {}
    for run in methods:
        for name, estimate in run(world, noisy, scales).items():
            found[name] = float(((estimate - truth) ** 2).mean())
    return found

"""The table of each step by itself, [kumar2024c]'s algorithm 2: what it adds up, and how its noise does."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from benchmarks.papers.tabular import streaming_mwem
from engines.core.noise import NoiseSource, seeded
from engines.tabular.marginals import Marginals
from engines.tabular.papers.config import RoundsConfig
from schemas.arrays import FloatArray, IntArray
from tests.tabular.tables import table

DOMAIN = table(3, 2, 4)
PAIRS = Marginals(DOMAIN.sizes, ((0, 1), (0, 2), (1, 2)))
STEPS = 12


def rows(*, deletes: bool) -> list[tuple[IntArray, IntArray]]:
    """In each step 300 rows, of which two thirds go again in the next one with `deletes`."""
    random, made = np.random.default_rng(1), []
    before = np.zeros((0, len(DOMAIN.sizes)), np.int64)
    for _ in range(STEPS):
        come = random.integers(0, np.array(DOMAIN.sizes), (300, len(DOMAIN.sizes)))
        gone = before[:200] if deletes else before[:0]
        made.append((np.concatenate([come, gone]), np.repeat([1, -1], [len(come), len(gone)])))
        before = come
    return made


def released(epsilon: Fraction, *, deletes: bool = False, seed: int = 0) -> Iterator[tuple[FloatArray, FloatArray]]:
    """What is released and what is true, after each step."""
    parts = RoundsConfig(name="t", domain=DOMAIN, epsilon=epsilon, rounds=3, fit="joint").parts
    changes = rows(deletes=deletes)

    def steps() -> Iterator[tuple[IntArray, IntArray, NoiseSource]]:
        yield from ((*change, seeded(seed).child(step)) for step, change in enumerate(changes))

    true = np.zeros(PAIRS.cells)
    for change, found in zip(changes, streaming_mwem(parts, PAIRS, steps(), deletes=deletes), strict=True):
        true = true + PAIRS.counts(*change)
        yield found, true


def test_much_budget_follows_the_table_with_and_without_deletes() -> None:
    for deletes in (False, True):
        for found, true in released(Fraction(1000), deletes=deletes):
            assert np.abs(found - true).sum() < 0.1 * true.sum()
            assert found.min() >= 0


def test_the_noise_of_the_steps_adds_up() -> None:
    """Twelve steps' noise is 3.5 times that of one step; 10 seeds."""
    errors = np.array(
        [[np.abs(found - true).mean() for found, true in released(Fraction(1, 4), seed=seed)] for seed in range(10)]
    ).mean(axis=0)
    assert 2 < errors[-1] / errors[0] < 6

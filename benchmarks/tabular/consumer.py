"""A consumer who never sees a real row: gradient boosting trained on the synthetic table, tested on real rows.

Income of randomised Adult. A fifth of the rows is kept for the test; the others come in batches of 200, and the
synthetic records alive after the last step are the training set, as a downstream database has them. Beside it the
same on the real training rows, and on as many rows with independent attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from benchmarks.results import Run
from benchmarks.size import sized
from benchmarks.tabular.modes import growing
from benchmarks.tabular.streams import INCOME, StreamData, adult
from engines.core.noise import seeded

ROWS = 200
TEST = 5
"""One row out of so many is kept for the test."""


PART = "training"
REAL, INDEPENDENT, SYNTHETIC = "real rows", "independent attributes", "synthetic rows, epsilon "
Score = tuple[Run, dict[str, float]]
"""On real rows that nobody trained on: accuracy, and `auc`, the area under the ROC curve."""


def scores(epsilons: tuple[float, ...], seeds: int, *, steps: int | None, advance: Callable[[], None]) -> list[Score]:
    """Args: steps: of the stream at most. advance: called after each model."""
    made = []
    for seed in range(seeds):
        table = adult()
        order = np.random.default_rng(2000 + seed).permutation(len(table.codes))
        test, train = table.codes[order[::TEST]], np.delete(table.codes[order], slice(None, None, TEST), axis=0)
        count = min(len(train) // ROWS, steps or len(train))
        train = train[: count * ROWS]
        shuffled = np.random.default_rng(seed).permuted(train, axis=0)
        made.append(_score(REAL, seed, train, test))
        advance()
        made.append(_score(INDEPENDENT, seed, shuffled, test))
        advance()
        for epsilon in epsilons:
            synthetic = _synthetic(train, count, epsilon, seed)
            made.append(_score(f"{SYNTHETIC}{epsilon:g}", seed, synthetic, test))
            advance()
    return made


def _synthetic(train: np.ndarray, steps: int, epsilon: float, seed: int) -> np.ndarray:
    """Codes of the records alive, built up from what is added and removed."""
    domain = adult().domain
    batches = [train[at * ROWS : (at + 1) * ROWS] for at in range(steps)]
    data = StreamData(domain, batches, [train[:0]] * steps)
    engine = growing(data, Fraction(epsilon), records=True)
    alive: dict[str, list[Any]] = {}
    for step in range(steps):
        release = engine.step(data.batch(step), seeded(seed).child("consumer", step))
        for gone in release.removed:
            del alive[gone]
        alive |= {record.id: [record.fields[name] for name in domain.names] for record in release.added}
    return np.array(list(alive.values()), np.int64)


def _score(trained_on: str, seed: int, train: np.ndarray, test: np.ndarray) -> Score:
    accuracy, auc = trained(train, test, adult().domain.names.index(INCOME))
    return Run(PART, "adult", trained_on, seed), {"accuracy": accuracy, "auc": auc}


def trained(train: np.ndarray, test: np.ndarray, target: int) -> tuple[float, float]:
    """Accuracy and area under the ROC curve on test rows, of gradient boosting for an attribute with codes 0 and 1."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    model = HistGradientBoostingClassifier(max_iter=sized(100, smallest=1), random_state=0)
    model.fit(np.delete(train, target, axis=1), train[:, target])
    chances = model.predict_proba(np.delete(test, target, axis=1))[:, 1]
    truth = test[:, target]
    return float(((chances > 0.5) == truth).mean()), float(roc_auc_score(truth, chances))

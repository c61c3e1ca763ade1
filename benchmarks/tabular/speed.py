"""How long steps take, with and without rows, and how long mbi takes to refit the same measurements.

Randomised Adult, 15 attributes, all pairs, batches of 200, epsilon 1. Once in one process, in this order: `default`
without rows, `default` with rows, and mbi's own mirror descent on the pairs that `default` has measured by then: those
that a junction tree of 4,096 cells holds, from the potentials of an earlier fit, 1,000 iterations. Times are of the
processor, all threads together: other work on the machine does not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from benchmarks.results import Run
from benchmarks.size import sized
from benchmarks.tabular.modes import growing
from benchmarks.tabular.streams import STREAMS, StreamData
from engines.core.noise import seeded
from engines.tabular.growing.engine import GrowingBlocks
from engines.tabular.marginals import Marginals
from engines.tabular.papers.model import JunctionTree

STREAM = "adult-randomised-200"
SPEED = Run("speed", "adult", "default", 0)
MODEL_CELLS = sized(4096, smallest=250)
EPSILON = sized(Fraction(1), smallest=Fraction(1000))
"""At the smallest size so much that pairs are measured in the few steps that there are: else nothing is refitted."""
ITERATIONS, REFITS = sized((1000, 5), smallest=(2, 1))


@dataclass(frozen=True)
class Speed:
    """Milliseconds of the processor.

    `early` and `late` are medians of steps without rows of the second quarter and of the last; `early_with_rows` and
    `late_with_rows` the same with rows, whose number grows. `changed` is how many rows beyond twice the step's true
    events and 2 % of the table were changed in a step, at most: the engine knows the events by its noisy totals only.
    """

    worst: float
    worst_with_rows: float
    median: float
    median_with_rows: float
    early: float
    late: float
    early_with_rows: float
    late_with_rows: float
    changed: float
    refit: float
    pairs_refitted: float

    @property
    def speedup(self) -> float:
        """Of the WORST step over the median of warm refits. Neither makes rows."""
        return self.refit / self.worst

    @property
    def speedup_with_rows(self) -> float:
        return self.refit / self.worst_with_rows


def measure(*, row_steps: int | None, advance: Callable[[], None]) -> Speed:
    """Args: row_steps: of the stream with rows, at most. advance: called after each step."""
    data = STREAMS[STREAM](0, None)
    bare, engine, _ = _run(data, records=False, advance=advance)
    with_rows, _, changed = _run(STREAMS[STREAM](0, row_steps), records=True, advance=advance)
    refit, refitted = _refit(engine, data)
    return Speed(
        worst=bare.max(),
        worst_with_rows=with_rows.max(),
        median=float(np.median(bare)),
        median_with_rows=float(np.median(with_rows)),
        early=_quarter(bare, 1),
        late=_quarter(bare, 3),
        early_with_rows=_quarter(with_rows, 1),
        late_with_rows=_quarter(with_rows, 3),
        changed=max(0.0, changed),
        refit=refit,
        pairs_refitted=refitted,
    )


def _quarter(took: np.ndarray, index: int) -> float:
    return float(np.median(np.array_split(took, 4)[index]))


def _run(data: StreamData, *, records: bool, advance: Callable[[], None]) -> tuple[np.ndarray, GrowingBlocks, float]:
    """Milliseconds of each step, the engine, and the most rows changed beyond what is allowed (0: it is kept)."""
    engine = growing(data, EPSILON, records=records)
    took, beyond, rows = [], 0.0, 0
    for step in range(len(data.inserts)):
        batch = data.batch(step)
        start = time.process_time()
        release = engine.step(batch, seeded(step))
        took.append((time.process_time() - start) * 1e3)
        allowed = 2 * len(data.inserts[step]) + 0.02 * rows
        beyond = max(beyond, len(release.added) + len(release.removed) - allowed)
        rows = release.total
        advance()
    return np.array(took), engine, beyond


def _refit(engine: GrowingBlocks, data: StreamData) -> tuple[float, int]:
    """Median milliseconds of a warm refit by mbi, and of how many pairs."""
    import jax

    # From there, since that module sets JAX's precision before it imports mbi.
    from engines.tabular.papers.pgm import mbi  # type: ignore[attr-defined]

    evidence = engine._learnt.evidence.sums(len(data.inserts) - 1)[0]
    layout: Marginals = engine.config.larger
    rows = max(engine._learnt.totals.alive, 1.0)
    tree = JunctionTree.largest(layout.sizes, layout.cliques, max_cells=MODEL_CELLS)
    domain = mbi.Domain(range(len(layout.sizes)), layout.sizes)
    held = [index for index, clique in enumerate(layout.cliques) if tree.holds(clique)]
    if evidence is None or not evidence.complete:
        return float("nan"), 0
    scale = rows / evidence.larger_net
    measured = [
        mbi.LinearMeasurement(
            layout.table(evidence.larger, index).ravel() * scale[index],
            layout.cliques[index],
            float(np.sqrt(evidence.larger_variance[index])) * scale[index],
        )
        for index in held
    ]
    estimator: Any = mbi.estimation.MirrorDescent()

    def fit(warm: Any, iterations: int) -> Any:
        model = estimator.estimate(domain, measured, known_total=rows, iters=iterations, warm_start=warm)
        return jax.block_until_ready(model)

    # The first compiles, the second compiles what a warm start adds.
    warm = fit(fit(None, ITERATIONS), ITERATIONS)
    took = []
    for _ in range(REFITS):
        start = time.process_time()
        warm = fit(warm, ITERATIONS)
        took.append((time.process_time() - start) * 1e3)
    return float(np.median(took)), len(held)

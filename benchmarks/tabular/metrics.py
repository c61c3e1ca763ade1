"""The papers' errors of released marginals: [kumar2024c], section 7.3.

WE of a marginal: mean over its cells of |released count - true count|, divided by the rows alive. RelWE: mean over its
cells of that difference divided by the true count; a cell whose true count is zero adds zero, whatever is released
there (the papers do not say). Avg and Max are over the workload: all marginals of two attributes.
"""

from __future__ import annotations

import numpy as np

from engines.tabular.marginals import Marginals

METRICS = ("avg_we", "max_we", "avg_rel_we", "max_rel_we")
LAST = 10
"""Steps at the end that the papers' tables are about."""


def errors(layout: Marginals, true: np.ndarray, released: np.ndarray) -> tuple[float, float, float, float]:
    """In the order of `METRICS`; `(cells,)` counts of a layout."""
    off = np.abs(released - true)
    alive = max(int(true[: layout.offsets[1]].sum()), 1)
    by_rows = layout.sums(off) / layout.lengths / alive
    relative = layout.sums(np.divide(off, true, out=np.zeros(len(off)), where=true > 0)) / layout.lengths
    return float(by_rows.mean()), float(by_rows.max()), float(relative.mean()), float(relative.max())


def summarised(steps: np.ndarray, seconds: np.ndarray) -> dict[str, float]:
    """Figures of a run: means over all of its steps and over the last ones, and what a step took.

    Args: steps: `(steps, metrics)` errors. seconds: `(steps,)`.
    """
    found = {
        f"{name}_{period}": float(value)
        for period, part in (("all", steps), ("last", steps[-LAST:]))
        for name, value in zip(METRICS, part.mean(axis=0), strict=True)
    }
    return {**found, "median_ms": float(np.median(seconds) * 1e3), "worst_ms": float(seconds.max() * 1e3)}

"""The papers' errors of released marginals: [kumar2024c], section 7.3.

WE of a marginal: mean over its cells of |released count - true count|, divided by the rows alive. RelWE: mean over its
cells of that difference divided by the true count; a cell whose true count is zero adds zero, whatever is released
there (the papers do not say). Avg and Max are over the workload: all marginals of two attributes.
"""

from __future__ import annotations

import numpy as np

from engines.tabular.marginals import Marginals

METRICS = ("avg_we", "max_we", "avg_rel_we", "max_rel_we")


def errors(layout: Marginals, true: np.ndarray, released: np.ndarray) -> tuple[float, float, float, float]:
    """In the order of `METRICS`; `(cells,)` counts of a layout."""
    off = np.abs(released - true)
    alive = max(int(true[: layout.offsets[1]].sum()), 1)
    by_rows = layout.sums(off) / layout.lengths / alive
    relative = layout.sums(np.divide(off, true, out=np.zeros(len(off)), where=true > 0)) / layout.lengths
    return float(by_rows.mean()), float(by_rows.max()), float(relative.mean()), float(relative.max())

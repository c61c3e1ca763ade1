"""What `make bench-tabular` makes of its runs: the papers' errors, their printed figures, and which runs there are."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.tabular.metrics import METRICS, errors
from benchmarks.tabular.plan import EPSILONS, QUICK, SEEDS, Plan, fits, twin
from benchmarks.tabular.report import printed
from benchmarks.tabular.streams import ADULT, STREAMS, WINDOWS
from engines.tabular import Marginals


def test_errors_are_the_papers() -> None:
    layout = Marginals((2, 1, 2), ((0, 1), (0, 2)))
    true = np.array([6, 4, 6, 0, 2, 2])
    released = np.array([5.0, 4.0, 6.0, 3.0, 1.0, 2.0])
    average, worst, relative, worst_relative = errors(layout, true, released)
    by_rows = [(1 + 0) / 2 / 10, (0 + 3 + 1 + 0) / 4 / 10]
    # A cell that no row is in adds nothing to the relative error.
    by_count = [(1 / 6) / 2, (1 / 2) / 4]
    assert (average, worst) == pytest.approx((np.mean(by_rows), max(by_rows)))
    assert (relative, worst_relative) == pytest.approx((np.mean(by_count), max(by_count)))


def test_printed_figures_are_complete() -> None:
    found = printed()
    streams = (*ADULT, "evictions-weekly", "evictions-biweekly")
    for stream in streams:
        for epsilon in EPSILONS:
            for metric in METRICS:
                assert found[stream, epsilon, metric, "paper"] > 0
                assert found[stream, epsilon, metric, "streaming-mwem"] > 0
    # Table 3 compares counters on three streams.
    assert sum(mode == "paper-block" for *_, mode in found) == 3 * 4 * 4


def test_every_figure_of_the_papers_has_its_runs() -> None:
    keys = list(Plan().runs())
    assert len(keys) == len(set(keys))
    assert {key.seed for key in keys} == set(range(SEEDS))
    for stream, epsilon, _, mode in printed():
        assert any((key.stream, key.epsilon, key.mode) == (stream, epsilon, mode) for key in keys)
    for mode in ("default", "paper", "streaming-mwem"):
        for stream in STREAMS:
            assert fits(mode, twin(mode, stream))
    assert twin("paper", WINDOWS[1]) == WINDOWS[0]
    assert {key.stream for key in QUICK.runs()} == set(QUICK.streams)

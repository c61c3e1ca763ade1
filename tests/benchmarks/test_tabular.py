"""What `make bench-tabular` makes of its runs: the papers' errors, their printed figures, and which runs there are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.results import Results, Run
from benchmarks.tabular.metrics import METRICS, errors, summarised
from benchmarks.tabular.plan import EPSILONS, FEW, SEEDS, Plan, epsilon_of, fits, part, twin
from benchmarks.tabular.report import Report, printed
from benchmarks.tabular.streams import ADULT, STREAMS, WINDOWS
from engines.tabular.marginals import Marginals


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
    runs = list(Plan().runs())
    assert len(runs) == len(set(runs))
    assert {each.seed for each in runs} == set(range(SEEDS))
    for stream, epsilon, _, mode in printed():
        assert any((each.data, epsilon_of(each), each.method) == (stream, epsilon, mode) for each in runs)
    for mode in ("default", "paper", "streaming-mwem"):
        for stream in STREAMS:
            assert fits(mode, twin(mode, stream))
    assert twin("paper", WINDOWS[1]) == WINDOWS[0]
    assert {each.data for each in FEW.runs()} == set(FEW.streams)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.csv"


STREAM = "adult-randomised-200"


def run(
    results: Results, mode: str, error: float, *, epsilon: float = 1.0, seed: int = 0, stream: str = STREAM
) -> None:
    """Twenty steps, the last ten with half the error."""
    falling = np.repeat([error, error / 2], 10)
    figures = summarised(np.outer(falling, [1.0, 3.0, 5.0, 7.0]), np.full(20, 0.002))
    results.add(Run(part(epsilon), stream, mode, seed), figures)


def test_runs_are_kept_until_they_are_to_be_repeated(path: Path) -> None:
    results = Results(path)
    run(results, "default", 0.1)
    run(results, "default", 0.3, seed=1)
    run(results, "paper", 0.4, epsilon=0.5)
    again = Results(path)
    assert set(again.rows) == set(results.rows)
    assert again.of(part(1.0), STREAM, "default", "avg_we_all") == pytest.approx([0.075, 0.225])
    assert again.of(part(1.0), STREAM, "default", "max_rel_we_last") == pytest.approx([0.35, 1.05])
    planned = Plan(streams=(STREAM,), modes=("default",), seeds=2).runs()
    missing = [each for each in planned if each not in again.rows]
    assert {epsilon_of(each) for each in missing} == set(EPSILONS) - {1.0}
    repeated = Results(path, forget=Plan(epsilons=(1.0,), modes=("default",)).has)
    assert set(repeated.rows) == set(Results(path).rows) == {Run(part(0.5), STREAM, "paper", 0)}


def test_the_last_line_is_of_the_runs_that_there_are(path: Path) -> None:
    results = Results(path)
    nothing = json.loads(json.dumps(Report(results).summary()))
    assert set(nothing) >= {"ratio_avg_we", "ratio_max_we", "ratio_to_printed", "worst_ratio", "speedup_over_refit"}
    assert "delta_ratio" in nothing
    assert set(nothing.values()) == {None}
    run(results, "default", 0.01)
    run(results, "default", 0.9, seed=1)
    run(results, "paper", 0.04)
    line = Report(results).summary()
    # Of the seeds that both modes ran.
    assert line["ratio_avg_we"] == line["ratio_max_we"] == line["worst_ratio"] == 0.25
    assert line["ratio_to_printed"] == pytest.approx(
        (0.005 + 0.45) / 2 / printed()[STREAM, 1.0, "avg_we", "paper"], 1e-3
    )
    assert line["speedup_over_refit"] is None
    run(results, "default, delta", 0.006)
    run(results, "default, delta", 0.54, seed=1)
    assert Report(results).summary()["delta_ratio"] == 0.6
    assert "| adult-randomised-200 | 1 |" in Report(results).markdown()
    # A window whose rows have a ttl is compared with the papers' mode on rows that are deleted.
    run(results, "paper", 0.1, stream=WINDOWS[0])
    run(results, "default", 0.02, stream=WINDOWS[1])
    run(results, "default", 0.01, epsilon=2.0, stream=WINDOWS[1])
    line = Report(results).summary()
    assert (line["ratio_avg_we_ttl"], line["ratio_avg_we_ttl_at_one_promise"]) == (0.2, 0.1)

"""What `make bench-keys` makes of its data and of its runs: pairs, words, people of zones, and who is best at what."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.keys import report, zones
from benchmarks.keys.methods import ENGINE, SQLP
from benchmarks.keys.runs import BOUNDS, FEW, STREAMS, ZONES, at
from benchmarks.keys.streams import Pairs, first_pairs
from benchmarks.keys.words import rows
from benchmarks.keys.zones import Visits
from benchmarks.results import Results, Run

ROOT = Path(__file__).resolve().parents[2]


def test_the_first_pairs_of_a_user_count_by_test() -> None:
    pairs = Pairs(np.array([0, 10, 50, 99, 100]), np.array([0, 1, 0, 2, 1]), np.array([0, 1, 0, 2, 1]))
    assert pairs.counts(2, 2).tolist() == [[1, 1], [1, 1], [0, 0]]


def test_a_pair_is_of_its_first_time_in_whatever_order_rows_come() -> None:
    times, users, keys = np.array([9, 3, 5, 4]), np.array([0, 0, 0, 1]), np.array([1, 1, 0, 1])
    pairs, chosen = first_pairs(times, users, keys)
    assert chosen.tolist() == [1, 3, 2]
    assert pairs.times.tolist() == [3, 4, 5]
    assert pairs.ranks.tolist() == [0, 0, 1]


def test_a_word_is_of_its_author_once_and_authors_are_numbers() -> None:
    commits = [(90_000, "B@x.org", "Fix the fix"), (5, "a@x.org", "fix: add CI"), (90_001, "b@x.org", "fix docs")]
    assert list(rows(commits)) == [(0, 0, "fix"), (0, 0, "add"), (1, 1, "fix"), (1, 1, "the"), (1, 1, "docs")]


def test_people_of_a_zone_are_counted_once_in_all_weeks_or_once_in_each() -> None:
    """User 0 is in zone 3 in weeks 0, twice, and 2; user 1 in week 1."""
    visits = Visits(np.array([0, 0, 1, 0]), np.full(4, 3), np.array([0, 0, 1, 2]), np.zeros(4), "2012-04-03T00:00:00")
    assert visits.people(weekly=False)[3].tolist() == [1, 2, 2]
    assert visits.people(weekly=True)[3].tolist() == [1, 1, 1]
    assert visits.first(weekly=False).tolist() == [0, 2]
    assert visits.first(weekly=True).tolist() == [0, 2, 3]


def test_each_side_has_its_best_bound(tmp_path: Path) -> None:
    """The mean over seeds decides, and not the luckiest seed; of errors the least one, of keys the most."""
    results = Results(tmp_path / "keys.csv")
    for seed in range(2):
        for name, keys in ((at(ENGINE, FEW), 60), (at(SQLP, FEW), 20)):
            told = {f"keys, m={bound}": 1.0 for bound in BOUNDS}
            told |= {"keys, m=8": keys + 2.0 * seed, "keys, m=4": 100.0 * seed * (name != at(ENGINE, FEW)) / 10}
            results.add(Run(STREAMS, "a", name, seed), told)
        for name, error in ((ENGINE, 0.3), (zones.FIRST, 0.6)):
            told = {f"{each}, m={bound}": 0.9 for each in report.FIGURES for bound in zones.BOUNDS}
            results.add(Run(ZONES, "b", name, seed), told | {"error, m=8": error})
    assert report.best(results, "a", [at(SQLP, FEW)]) == (at(SQLP, FEW), 8)
    found = report.ratio(results, at(ENGINE, FEW), [at(SQLP, FEW)])
    assert found is not None
    assert found[0] == pytest.approx(61 / 21)
    assert found[2] == {"a": 61 / 21}
    assert report.people(results, "people_by_zone") == (pytest.approx(0.5), {"b": pytest.approx(0.5)})
    assert report.people(results, "people_by_zone_busy") == (pytest.approx(1), {"b": pytest.approx(1)})
    assert report.people(results, "people_by_week") is None


def test_the_page_says_what_the_results_say() -> None:
    results = Results(ROOT / "benchmarks" / "results" / "keys.csv")
    page = (ROOT / "docs" / "engines" / "keys.md").read_text(encoding="utf-8").partition("## Measured")[2]
    line = report.last_line(results)
    names = ("to_dpsqlp", "to_dpsqlp_100", "to_batch", "to_batch_100", *report.PEOPLE)
    quoted = {name: f"{line[name]:.2f}".removeprefix("0") for name in names}
    quoted |= {name: f"{line[name]:,}" for name in ("zipf_keys", "zipf_keys_10")}
    quoted |= {name: f"{line[name] / 1e6:.2f}" for name in ("zipf_l1", "zipf_l1_10")}
    assert {name: text for name, text in quoted.items() if text not in page} == {}

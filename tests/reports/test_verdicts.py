"""What a release is good for, on made data whose errors are known."""

from __future__ import annotations

import doctest
from datetime import UTC, datetime, timedelta
from math import nan
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from agents.show import charts, view
from agents.show.view import GOOD, POOR, RULE, Judged, Metric, Scale, StepRow, relative, with_undeclared
from agents.show.view import verdict as verdict_of
from agents.show.views import maps
from agents.show.views import markov as markov_view
from agents.show.views import series as series_view
from agents.show.views import spatial as spatial_view
from agents.show.views import tabular as tabular_view
from agents.show.views import trajectory as trajectory_view
from agents.show.views.maps import Area, Points, scales
from engines.checks.contract_case import contract_case
from engines.core.registry import build_domain
from engines.tabular.domain import Category, TableDomain
from engines.tabular.marginals import Marginals
from engines.trajectory.trips import LATTICE, Trips
from schemas.config import load_config
from schemas.config.engines.spatial import are_degrees
from tests.reports.made import EXAMPLES

NOBODY: Any = None
"""Series and markov streams are judged by their steps alone."""


@pytest.mark.parametrize(
    "module", [view, charts, maps, tabular_view, trajectory_view, series_view], ids=lambda m: m.__name__
)
def test_examples_in_the_text(module: ModuleType) -> None:
    done = doctest.testmod(module)
    assert done.attempted
    assert not done.failed


def said(*errors: float) -> str:
    return Judged(
        what="Counts", scales=[Scale(f"s{index}", error) for index, error in enumerate(errors)], how=""
    ).sentence()


@pytest.mark.parametrize(
    ("errors", "sentence"),
    [
        ((0.02, 0.08, 0.3, 1.4), "good for s1, errors of 8 %, and larger; not for s3, errors of 140 %"),
        ((0.02, 0.6, 0.7), "good for s0, errors of 2 %; not for s1, errors of 60 %"),
        ((0.02, 0.05, 0.3), "good for s1, errors of 5 %, and larger; rough for s2, errors of 30 %"),
        ((0.02, 0.03), "good down to s1, errors of 3 %, the finest that was looked at"),
        ((0.8, 0.9), "good for nothing that was looked at: even s0, errors of 80 %"),
        ((0.2, 0.15, 0.9), "rough at best, s1, errors of 15 %; not for s2, errors of 90 %"),
        ((0.12, 0.05, 0.9), "good only for s1, errors of 5 %; not for s2, errors of 90 %"),
        ((0.12, 0.05), "good only for s1, errors of 5 %; rough for s0, errors of 12 %"),
        ((0.02, 0.9, 0.2), "good for s0, errors of 2 %; not for s1, errors of 90 %"),
        ((0.03,), "good for s0, errors of 3 %"),
        ((0.9,), "not good for s0, errors of 90 %"),
        ((nan, nan), "there is nothing to compare yet"),
        ((nan, 0.05, 0.9), "good for s1, errors of 5 %; not for s2, errors of 90 %"),
    ],
)
def test_a_verdict_names_where_the_error_crosses_the_thresholds(errors: tuple[float, ...], sentence: str) -> None:
    assert said(*errors) == f"Counts: {sentence}."


def test_the_thresholds_are_those_that_are_told() -> None:
    assert [Scale("", error).judgement for error in (GOOD, GOOD + 1e-9, POOR, POOR + 1e-9)] == [
        *("good", "rough", "rough", "not")
    ]
    assert f"{GOOD:.0%}" in RULE
    assert f"{POOR:.0%}" in RULE
    assert np.isnan(relative(np.zeros(3), np.ones(3)))


def test_a_scale_good_only_below_a_bad_one_is_not_called_good() -> None:
    """Chance can make one fine scale right: good is what all coarser ones are, too."""
    assert "s2" not in said(0.05, 0.2, 0.06, 0.9)


LAND = Area((0.0, 0.0, 1.024, 1.024), ("lon", "lat"), degrees=True)


def test_points_moved_by_less_than_a_square_are_right_in_larger_ones_only() -> None:
    """One point in the middle of the west half of each of 8 x 8 squares, moved to the east half of the same square."""
    middle = (np.arange(8) + 0.25) * 0.128
    x, y = (part.reshape(-1) for part in np.meshgrid(middle, middle))
    true, made = Points(x, y, np.ones(64)), Points(x + 0.064, y, np.ones(64))
    errors = {scale.name: scale.error for scale in scales(LAND, true, made, None)}
    sides = list(errors.values())
    assert sides[:4] == [0.0] * 4, "the whole, and squares down to 8 x 8"
    assert sides[4:] == [2.0] * 6, "all are in a wrong square: each is missed once and too many once"
    sentence = Judged(what="Counts by place", scales=scales(LAND, true, made, None), how="").sentence()
    assert (
        "good for districts (14 km), errors of 0 %, and larger; not for districts (7.1 km), errors of 200 %" in sentence
    )


def test_the_even_map_is_what_knowing_nothing_gives() -> None:
    corner = Points(np.full(100, 0.1), np.full(100, 0.1), np.ones(100))
    spread = np.linspace(0.001, 1.02, 32)
    x, y = (part.reshape(-1) for part in np.meshgrid(spread, spread))
    found = scales(LAND, corner, corner, Points(x, y, np.full(1024, 100 / 1024)))
    assert all(scale.error == 0.0 for scale in found)
    assert found[0].baseline == pytest.approx(0.0)
    assert found[1].baseline == pytest.approx(2 * 3 / 4), "three quarters are elsewhere"


def test_the_even_map_of_a_box_is_what_is_expected_in_each_square() -> None:
    """Not a draw of some points, which leaves most of the finest squares empty."""
    stream = contract_case("spatial").stream("default")
    domain = build_domain(stream)
    audit: Any = SimpleNamespace(evaluator=SimpleNamespace(domain=domain))
    area = spatial_view.area_of(audit)
    even = spatial_view._even(stream, audit, 1_000_000)
    assert even is not None
    for side in (1, 8, 512):
        np.testing.assert_allclose(area.counts(even, side), 1_000_000 / side**2)
    xmin, ymin, xmax, ymax = area.bounds
    chance = np.random.default_rng(0)
    x, y = chance.uniform(xmin, xmax, 100_000), chance.uniform(ymin, ymax, 100_000)
    true = Points(x, y, np.full(100_000, 10.0))
    found = scales(area, true, true, even)
    assert found[-1].baseline == pytest.approx(relative(area.counts(true, 512), np.full((512, 512), 1e6 / 512**2)))
    assert found[-1].baseline < 1.5


def test_a_draw_of_points_says_nothing_of_squares_that_hardly_one_is_in() -> None:
    chance = np.random.default_rng(0)
    drawn = Points(chance.uniform(0, 1.024, 2000), chance.uniform(0, 1.024, 2000), np.ones(2000))
    known = [not np.isnan(scale.baseline) for scale in scales(LAND, drawn, drawn, drawn)]
    assert known == [True] * 4 + [False] * 6, "8 x 8 squares, not 16 x 16"


def test_coordinates_are_degrees_only_where_they_can_be() -> None:
    assert are_degrees(("pickup_longitude", "pickup_latitude"), (-74.0, 40.0, -73.0, 41.0))
    assert not are_degrees(("x", "y"), (-74.0, 40.0, -73.0, 41.0))
    assert not are_degrees(("lon", "lat"), (0.0, 0.0, 5000.0, 5000.0))
    assert Area((0.0, 0.0, 100.0, 50.0), ("x", "y"), degrees=False).name(4) == "areas of 25 x 12.5"


def steps_of(found: list[dict[str, float]], *, hours: int = 3) -> list[StepRow]:
    start = datetime(2013, 1, 1, tzinfo=UTC)
    return [
        StepRow(step, start + timedelta(hours=hours * step), 1, 1, each, 1, gathered=False)
        for step, each in enumerate(found)
    ]


def test_a_series_that_is_off_to_both_sides_is_right_in_the_mean() -> None:
    stream = load_config(EXAMPLES / "departures.toml").streams[0]
    steps = steps_of([{"true": 100.0, "released": 100.0 + (60 if step % 2 else -60), "se": nan} for step in range(300)])
    [judged] = series_view.judged(stream, NOBODY, steps)
    errors = {scale.name: scale.error for scale in judged.scales}
    assert errors["single steps"] == pytest.approx(0.6)
    assert errors["means of 10 steps (30 hours)"] == pytest.approx(0.0)
    assert errors["means of 3 steps (9 hours)"] == pytest.approx(0.2)
    assert judged.sentence().startswith(
        "Values over time: good for means of 10 steps (30 hours), errors of 0 %, and longer"
    )
    assert "not for single steps, errors of 60 %" in judged.sentence()


def test_counts_of_states_are_good_where_many_users_are() -> None:
    """An error of 6 users is a tenth of 60 and half of 12."""
    stream = contract_case("markov").stream("default").model_copy()
    section = stream.domain.model_copy(update={"population": 5000})
    stream = stream.model_copy(update={"domain": section})
    [judged] = markov_view.judged(stream, NOBODY, steps_of([{"mse": 36.0}, {"mse": nan}, {"mse": 36.0}]))
    errors = {scale.name.split(" (")[0]: scale.error for scale in judged.scales}
    assert errors["states with 30 users"] == pytest.approx(0.2)
    assert next(iter(errors)) == "states with 3,000 users"
    assert "at least 60 users" in judged.more
    assert "not below 12" in judged.more
    assert "0.12 points of 100" in judged.more
    assert markov_view.judged(stream, NOBODY, steps_of([{"mse": nan}]))[0].known == []


def line(*cells: int) -> tuple[list[int], list[int]]:
    """A trip through cells of a grid of 4 x 4, numbered by rows."""
    return [(cell % 4) * LATTICE // 4 for cell in cells], [(cell // 4) * LATTICE // 4 for cell in cells]


def trips(*each: tuple[list[int], list[int]]) -> Trips:
    x, y = (np.array([place for trip in each for place in trip[axis]], np.int64) for axis in (0, 1))
    return Trips(x, y, np.append(0, np.cumsum([len(trip[0]) for trip in each])))


def test_flows_know_the_direction_and_passages_do_not() -> None:
    there, back = trips(line(0, 1, 5)), trips(line(5, 1, 0))
    for power, wrong in ((0, 0.0), (1, 0.0), (2, 2.0)):  # 0, 1 and 5 are in one quarter
        _, true, made = trajectory_view.aligned(*(trajectory_view.flows(each, power) for each in (there, back)))
        assert relative(true, made) == wrong
        _, true, made = trajectory_view.aligned(*(trajectory_view.passages(each, power) for each in (there, back)))
        assert relative(true, made) == 0.0
    codes, counts = trajectory_view.passages(trips(line(0, 0, 0), line(0, 5)), 2)
    assert dict(zip(codes.tolist(), counts.tolist(), strict=True)) == {0: 2, 5: 1}, "a trip counts once in a square"


def test_values_are_judged_with_others_that_as_many_rows_have() -> None:
    true, made = np.array([4000.0, 350.0, 320.0, 5.0]), np.array([4040.0, 300.0, 370.0, 15.0])
    found = tabular_view.by_size(true, made, true, "values")
    assert [scale.name for scale in found] == [
        *("values of 3,000 to 9,999 rows", "values of 300 to 999 rows", "values of 3 to 9 rows")
    ]
    assert [scale.error for scale in found] == pytest.approx([0.01, 100 / 670, 2.0])


def test_rows_of_values_that_nobody_has_are_judged() -> None:
    """Invented rows: 160 for 1,000 true ones, and twice as many as there are."""
    true = np.array([600.0, 400.0, 0.0, 0.0])
    for made, share in (([600, 400, 100, 60], 0.16), ([600, 400, 1500, 500], 2.0)):
        found = tabular_view.by_size(true, np.array(made, np.float64), true, "values")
        assert [scale.name for scale in found] == ["values of 300 to 999 rows", "values that no row has"]
        assert [scale.error for scale in found] == pytest.approx([0.0, share])
    said = Judged(what="Values", scales=found, how="").sentence()
    assert said.endswith("errors of 0 %; not for values that no row has, errors of 200 %.")
    assert len(tabular_view.by_size(true, true, true, "values")) == 1
    assert tabular_view.by_size(true[2:], true[:2], true[2:], "values") == [], "nothing is true"


def test_an_engine_that_judges_nothing_gets_its_last_figures() -> None:
    stream = load_config(EXAMPLES / "departures.toml").streams[0]
    figures = with_undeclared([], ["error"], engine="other")
    [(found, more)] = verdict_of(stream, (), figures, steps_of([{"error": 4.0}, {"error": 2.0}]))
    assert found == "Error 2 after the last step, 3 in the mean of 2 steps."
    assert "does not say" in more
    [(found, _)] = verdict_of(stream, (), figures, [])
    assert "Nothing was released" in found


def test_a_figure_that_nobody_explains_says_so() -> None:
    declared = Metric(keys=("a", "b"), label="sum", meaning="Of both.", of=lambda a, b: a + b)
    both = with_undeclared([declared], ["a", "b", "c_d"], engine="other")
    assert [metric.label for metric in both] == ["sum", "c d"]
    assert "does not explain" in both[1].meaning
    assert declared.value({"a": 1.0, "b": 2.0}) == 3.0
    assert declared.value({"a": 1.0, "b": None}) is None
    assert declared.said({"a": nan, "b": 1.0}) == "nothing compared"


def test_values_of_which_most_are_not_listed_are_named() -> None:
    """A column of "8.0" against a declared "8" is another value, so all of it is other: a table that looks good."""
    domain = TableDomain(
        (
            Category(field="area", values=("8", "9"), unknown="other", missing=True),
            Category(field="paid", values=("cash", "card"), unknown="other"),
            Category(field="kind", values=("a", "b")),
        )
    )
    ones = Marginals(domain.sizes, ((0,), (1,), (2,)))
    true = np.array([1.0, 0, 6, 3, 4, 4, 2, 0, 10])
    said = tabular_view._unlisted(domain, ones, true)
    assert "not listed and count as other: area (86 % of them). Are they" in said
    assert tabular_view._unlisted(domain, ones, np.array([4.0, 0, 3, 3, 4, 4, 2, 0, 10])) == ""
    assert tabular_view._unlisted(domain, ones, np.zeros(9)) == ""

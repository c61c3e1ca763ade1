"""What `explain` says where a mode takes a delta or does without: both roads, and a delta that is large."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from agents.show.explain import explain
from agents.show.explain.registry import registry
from schemas.errors import ConfigError
from tests.cli.explain_support import USER, config, everywhere, explained, series


def table(*, delta: str = "", mode: str = "default", users: str = USER) -> str:
    return f"""
[[streams]]
name = "rows"
engine = "tabular"
mode = "{mode}"
source = "raw.rows"
[streams.privacy]
epsilon = 1.0
{delta}
{users}
[streams.time]
field = "at"
step = "1h"
start = "now"
[streams.domain]
kind = "table"
attributes = [{{ field = "a", values = [1, 2, 3] }}, {{ field = "b", values = [1, 2] }}]
"""


def roads(**changes: Any) -> dict[str, Any]:
    (stream,) = explain(config(table(**changes))).as_json()["streams"]
    return stream["roads"]


def test_both_roads_are_shown_whichever_is_taken() -> None:
    pure, gaussian = roads(), roads(delta="delta = 1e-6")
    assert pure["configured"] == "pure"
    assert gaussian["configured"] == "gaussian"
    assert pure["delta"] == gaussian["delta"] == 1e-6
    assert pure["answers"] == gaussian["answers"]
    larger = {answer["name"]: answer for answer in pure["answers"]}["larger cell"]
    # One pair, 20 events: sqrt(2) / (.6 / 20), and 20 / sqrt(.62 mu^2).
    assert larger["pure_standard_deviation"] == pytest.approx(47.14, rel=1e-3)
    assert larger["gaussian_standard_deviation"] == pytest.approx(107.3, rel=1e-2)
    assert larger["less_noise"] == "pure"


def test_of_many_marginals_the_delta_has_less_noise_and_every_form_says_so() -> None:
    many = table().replace(
        "attributes = [", "attributes = [" + "".join(f'{{ field = "c{i}", values = [1, 2] }}, ' for i in range(12))
    )
    for text in everywhere(explain(config(many))):
        assert "Noise by the two roads to this epsilon, pure and with delta = 1e-06" in text
        assert "would give less noise everywhere" in text


def test_a_mode_with_one_road_shows_none() -> None:
    assert explained().as_json()["streams"][0]["roads"] is None
    assert explain(config(series("default"))).as_json()["streams"][0]["roads"] is None


def test_the_budget_of_a_delta_adds_up_by_mu_squared() -> None:
    explanation = explain(config(table(delta="delta = 1e-6")))
    budget = explanation.streams[0].budget
    assert (budget.contributions, budget.event_epsilon, budget.delta) == (1, 1, 1e-6)
    assert sum((share.part for share in budget.shares), Fraction(0)) == 1
    for text in everywhere(explanation):
        assert "20 changes, and the noise is for all of them together" in text
    (entry,) = registry(explanation)["entries"]
    deployment = entry["deployment"]
    assert deployment["dp_variant"]["name"] == "Approximate differential privacy"
    assert deployment["privacy_loss"]["privacy_parameters"] == {"epsilon": 1.0, "delta": 1e-6}
    assert "Gaussian differential privacy of all mechanisms" in deployment["accounting"]["composition"]
    assert "two roads" in deployment["accounting"]["composition"]


@pytest.mark.parametrize(("delta", "warned"), [("", False), ("delta = 1e-6", False), ("delta = 2e-5", True)])
def test_a_delta_that_is_large_for_most_numbers_of_users_is_told(delta: str, warned: bool) -> None:
    made = config(table(delta=delta))
    assert (made.streams[0].privacy.delta_warning is not None) == warned
    for text in everywhere(explain(made)):
        assert ("too much from 50,000 users on" in text) == warned


@pytest.mark.parametrize(
    ("mode", "delta", "reason", "fix"),
    [
        ("paper", "delta = 1e-6", 'mode "paper", is epsilon-DP and has no use for a delta', "take one: default"),
        ("default", "delta = 0.02", "one user in a hundred", "1e-6"),
        ("default", "delta = 1.0", "below 1", "far below one"),
        ("default", "delta = -1e-6", "at least 0", "0.0"),
    ],
)
def test_a_delta_that_cannot_be_is_refused(mode: str, delta: str, reason: str, fix: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config(table(mode=mode, delta=delta))
    (problem,) = refused.value.problems
    assert problem.key.endswith("privacy.delta")
    assert reason in problem.reason
    assert fix in problem.fix


def test_a_delta_is_part_of_what_a_stream_is() -> None:
    pure, one, other = (config(table(delta=d)).streams[0] for d in ("", "delta = 1e-6", "delta = 1e-7"))
    assert len({str(stream.fingerprint_fields()) for stream in (pure, one, other)}) == 3
    assert (pure.contributions, pure.event_epsilon) == (20, Fraction(1, 20))
    assert (one.contributions, one.changes, one.event_epsilon) == (1, 20, 1)

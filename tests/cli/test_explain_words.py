"""What `explain` says in words, in every form, and how the command behaves."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from agents.cli.app import build_app
from agents.show.explain import explain
from agents.show.explain.render import render_page
from engines.spatial.points import Placement
from tests.cli.explain_support import EVENT, USER, config, everywhere, explained, series, toml

REPLAY = 'start = "2026-01-01T00:00:00"\nclock = "replay"'
PAPER = {"stream": 'mode = "paper"'}
LOUD: list[tuple[dict[str, str], list[str]]] = [
    ({"privacy": EVENT}, ["single events are protected, NOT PEOPLE", "Nothing bounds how many of them one person has"]),
    ({"privacy": EVENT, "domain": 'op = "action"'}, ["An insert and its later delete are two events"]),
    (
        {"privacy": USER + '\nper = "28d"'},
        [
            "epsilon = 1 for what a user contributes in one aligned period",
            "2 in any 28d in a row",
            "NO BOUND over a life",
        ],
    ),
    ({"stream": 'partitioner = "none"'}, ["Nobody checks that all records of a rider are on one partition"]),
    ({"time": REPLAY}, ["privstream replay places ticks by the times in its file"]),
    ({"epsilon": "12.0"}, ["epsilon above 10 promises little"]),
    ({"domain": 'ttl = "30d"', **PAPER}, ["an insert costs 2 contributions"]),
    ({"domain": 'ttl = "30d"'}, ["Each insert is gone after 30d by itself", "it costs nothing more"]),
    ({"domain": 'ttl = "30d"', "privacy": USER.replace("20", "21"), **PAPER}, ["one contribution can never be used"]),
    ({"privacy": USER + "\nsurplus = 5"}, ["up to 100 of a user, is measured for a tenth of epsilon", "1/200"]),
    ({"stream": 'audit = "audit.rides"'}, ["rides.utility holds the true error (the job compares with audit.rides)"]),
    (
        {},
        [
            "Somebody with k ids is protected with k times epsilon",
            "Every stream that sees the same people costs its own epsilon on top",
            "the timing of Kafka itself",
            "as sensitive as the raw data",
            "lon in [13, 14) and lat in [52, 53)",
            "Positions and arrival times of everybody else's records",
            'Step 0 begins when the stream is first started ("now"); a step lasts 1h',
            "can be at most 73.1 % sure afterwards",
            "One unit may make 20 changes, so each event runs at epsilon / 20 = 1/20 = 0.05",
            "Pr[M(D) ∈ S] ≤ exp(ε) · Pr[M(D') ∈ S]",
        ],
    ),
]


@pytest.mark.parametrize(("changes", "said"), LOUD, ids=lambda value: str(value)[:40])
def test_what_must_not_be_overlooked_is_said_in_every_form(changes: dict[str, str], said: list[str]) -> None:
    for form in everywhere(explained(**changes)):
        for sentence in said:
            assert sentence in form


def test_what_does_not_apply_is_not_said() -> None:
    text, _, _ = everywhere(explained())
    for words in ("NOT PEOPLE", "NO BOUND", 'partitioner = "none"', "ticks of a replay", "can never be used"):
        assert words not in text


@pytest.mark.parametrize("mode", ["default", "paper", "paper-binomial"])
@pytest.mark.parametrize("per_step", ["", "max_per_step = 5", "max_per_step = 1"])
def test_a_user_of_ten_events_is_in_ten_steps_at_most(mode: str, per_step: str) -> None:
    """Not in as few as would hold all of them, however many a step may have."""
    for text in everywhere(explain(config(series(mode, privacy=per_step)))):
        steps = re.findall(r"is in at most (\d+) steps", text)
        assert steps
        assert set(steps) == {"10"}


def test_a_window_of_two_periods_costs_twice_delta_too() -> None:
    for text in everywhere(explain(config(series("paper", privacy='per = "7d"')))):
        assert "2ε = 2 and 2δ = 2e-06" in text
        assert "kε and kδ" in text
    for text in everywhere(explained(privacy=f'{USER}\nper = "7d"')):
        assert "2ε = 2;" in text
        assert "δ" not in text


def test_streams_of_the_same_users_add_up() -> None:
    both = config(toml(epsilon="0.1"), toml(name="stops", epsilon="0.2", privacy=USER.replace("20", "3")))
    (shared,) = explain(both).shared
    assert shared.sentence() == (
        "Streams rides and stops add up for one user (field rider): epsilon = 3/10 = 0.3 together, for ever."
    )
    assert explain(both, ["rides"]).shared == (shared,)
    for form in everywhere(explain(both)):
        assert shared.sentence() in form
    other = config(toml(), toml(name="stops", privacy=USER.replace("rider", "driver")))
    assert explain(other).shared == ()
    renewing = config(toml(), toml(name="stops", privacy=USER + '\nper = "28d"'))
    (shared,) = explain(renewing).shared
    assert "3 in any 28d in a row, and no bound over a lifetime" in shared.sentence()
    events = config(toml(privacy=EVENT), toml(name="stops", privacy=EVENT))
    assert "add up for one event of raw.rides: epsilon = 2" in explain(events).shared[0].sentence()


def test_a_stream_started_anew_adds_up_with_what_it_released_before() -> None:
    now, before = config(toml(name="rides2", epsilon="0.5")), config(toml(epsilon="1.0"))
    (shared,) = explain(now, earlier=[before]).shared
    assert "epsilon = 3/2 = 1.5 together" in shared.sentence()
    assert explain(now, earlier=[now]).shared == ()


# --- the command ---


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.toml"
    path.write_text('[kafka]\nbootstrap = "localhost:9092"\n' + toml() + toml(name="stops", privacy=EVENT))
    return path


def run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(build_app(), ["explain", *words])
    return result.exit_code, result.stdout, result.stderr


def test_text_of_all_streams_or_of_one(file: Path) -> None:
    code, out, _ = run(str(file))
    assert code == 0
    assert "rides: raw.rides" in out
    assert "stops: raw.rides" in out
    assert max(map(len, out.splitlines())) < 132
    code, out, _ = run(str(file), "--stream", "stops")
    assert code == 0
    assert "rides: raw.rides" not in out


def test_json_is_one_object_and_exact(file: Path) -> None:
    code, out, _ = run(str(file), "--json", "--stream", "rides")
    told = json.loads(out)
    assert (code, told["ok"]) == (0, True)
    (stream,) = told["streams"]
    assert Fraction(stream["budget"]["event_epsilon_exact"]) == Fraction(1, 20)
    assert stream["expected_error"]["answers"][0]["after_releases"]["1"]["interval_95_percent"] > 0


def test_the_page_needs_nothing_but_itself(file: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, out, err = run(str(file), "--html", str(page))
    assert (code, out) == (0, "")
    assert str(page) in err
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"<script|<link|@import|url\(|https?://|\bsrc=(?!.data:)", text)
    assert text.count('src="data:image/svg+xml') == 2
    assert 'name="viewport"' in text
    tags = re.findall(r"<(/?)(article|section|table|div|dl|details|tr)\b", text)
    assert all(tags.count(("", tag)) == tags.count(("/", tag)) for _, tag in set(tags))


def test_what_is_written_in_the_file_is_text_and_no_markup() -> None:
    page = render_page(explained(privacy=USER.replace("rider", "<b>&id")))
    assert "<b>&id" not in page
    assert "&lt;b&gt;&amp;id" in page


def test_refusals_of_the_command(file: Path, tmp_path: Path) -> None:
    code, _, err = run(str(file), "--stream", "nothing")
    assert code == 2
    assert "rides, stops" in err
    code, _, err = run(str(file), "--html", str(tmp_path / "no" / "page.html"))
    assert code == 2
    assert "cannot be written" in err


def test_points_are_where_the_explanation_says_a_function_of_the_name() -> None:
    """`public` says that places follow from released counts and the stream's name alone."""
    nodes = np.arange(1, 50)
    assert (Placement("rides").words(nodes) == Placement("rides").words(nodes)).all()
    assert (Placement("rides").words(nodes) != Placement("stops").words(nodes)).any()

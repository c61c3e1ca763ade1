"""Choosing a bound on a file: the error is split where it should be, for every engine, and nothing private is hidden.

No test is statistical: every seed is fixed.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest

from agents.cli import output
from agents.local.offline.simulate import simulate
from agents.local.offline.tune import (
    NOT_COVERED,
    TRUE_VALUES,
    ErrorSplit,
    TuneCell,
    Tuned,
    default_bounds,
    default_epsilons,
    last_third,
    mean_split,
    parse_bounds,
    parse_epsilons,
    recommend,
    shares,
    tune,
    what_to_try,
)
from engines.checks.contract_case import contract_case
from schemas.config import ENGINES, Config, config_from_mapping, parse_config
from schemas.errors import ConfigError, PrivstreamError
from tests.commands import call

EXAMPLES = Path(__file__).parents[2] / "examples"
LIGHT, HEAVY, STEPS = 300, 12, 6
POINTS = """
[kafka]
bootstrap = "localhost:9092"
[[streams]]
name = "points"
engine = "spatial"
source = "raw.points"
[streams.privacy]
epsilon = 8.0
user = "user"
max_contributions = 10
[streams.time]
field = "at"
format = "s"
start = "now"
step = "10s"
[streams.domain]
kind = "box"
x = "x"
y = "y"
bounds = [0, 0, 1, 1]
[streams.options]
depth = 8
"""

ERRORS = ("error in small areas", "error in medium areas", "error in large areas")


def seeds() -> Callable[[], bytes]:
    """The same ones each time."""
    number = itertools.count()
    return lambda: hashlib.sha256(b"tune %d" % next(number)).digest()


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Many users with one event, in one place, and a few with ten in every step, in another."""
    chance = random.Random(11)
    rows = []
    for step in range(STEPS):
        users = [(f"light {step} {user}", 1, 0.3) for user in range(LIGHT)]
        users += [(f"heavy {user}", 10, 0.7) for user in range(HEAVY)]
        for user, events, middle in users:
            for _ in range(events):
                x, y = (min(0.999, max(0.0, chance.gauss(middle, 0.1))) for _ in range(2))
                rows.append({"user": user, "at": 1_000_000 + 10 * step, "x": x, "y": y})
    return write(tmp_path_factory.mktemp("points") / "points.jsonl", rows)


@pytest.fixture(scope="module")
def tuned(points: Path) -> Tuned:
    options: dict[str, Any] = {"bounds": (1, 10, 60), "epsilons": (Decimal(8),), "runs": 2}
    passed: list[tuple[int, int]] = []
    done = tune(
        parse_config(POINTS), points, **options, stream="points", draw=seeds(),
        progress=lambda done, total: passed.append((done, total)),
    )  # fmt: skip
    assert passed == sorted(passed)
    assert passed[-1][0] == passed[-1][1]
    return done


def test_a_small_bound_drops_and_a_large_one_drowns(tuned: Tuned) -> None:
    assert (tuned.rows, tuned.usable, tuned.steps) == (STEPS * (LIGHT + 10 * HEAVY), tuned.rows, STEPS)
    assert [cell.bound for cell in tuned.cells] == [1, 10, 60]
    assert [cell.accepted for cell in tuned.cells] == pytest.approx(
        [(STEPS * LIGHT + bound * HEAVY) / tuned.rows for bound in (1, 10, 60)]
    )
    for name in ERRORS:
        one, ten, sixty = (cell.errors for cell in tuned.cells)
        assert one.bias[name] > ten.bias[name] > sixty.bias[name] == 0, name
        assert one.noise[name] < ten.noise[name] < sixty.noise[name] == sixty.total[name], name


def test_first_come_first_served_starves_late_steps(tuned: Tuned) -> None:
    one, ten, sixty = tuned.cells
    alone = LIGHT / (LIGHT + 10 * HEAVY)
    assert one.accepted_last == ten.accepted_last == pytest.approx(alone)
    assert one.accepted_first < ten.accepted_first
    assert sixty.accepted_first == sixty.accepted_last == 1


def rows_of(config: Config, *, users: int, steps: int) -> list[dict[str, Any]]:
    """One event of each user in each step; trips have names of their own."""
    stream, chance = config.streams[0], random.Random(3)
    event, trip = contract_case(stream.engine).event, stream.domain.trip_field
    rows = []
    for step, user in itertools.product(range(steps), range(users)):
        at = stream.time.start_us // 1_000_000 + 3600 * step + user  # type: ignore[operator]
        row = {**event(stream.domain, chance), stream.time.field: at, str(stream.privacy.user): f"user {user}"}
        if trip is not None:
            row[trip] = f"trip {row[trip]} of {user}"
        rows.append(row)
    return rows


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_that_bounds_users(engine: str, tmp_path: Path) -> None:
    steps, users = 3, 40
    stream = contract_case(engine).stream("default", {"privacy": {"max_contributions": 10}})
    config = config_from_mapping({"kafka": {"bootstrap": "localhost:9092"}, "streams": [stream.model_dump()]})
    assert stream.privacy.bounds_users
    file = write(tmp_path / "rows.jsonl", rows_of(config, users=users, steps=steps))
    default, epsilons, _ = what_to_try(stream, bounds=None, epsilons=(Decimal(1), Decimal(2)))
    bounds = tuple(bound for bound in default if bound in (1, steps, stream.privacy.max_contributions))
    assert bounds[-1] == stream.privacy.max_contributions
    found = tune(config, file, stream=stream.name, bounds=bounds, epsilons=epsilons, runs=1, draw=seeds())
    assert [(cell.epsilon, cell.bound) for cell in found.cells] == list(itertools.product(epsilons, bounds))
    for cell in found.cells:
        everything = cell.bound >= steps
        assert (cell.accepted == 1) is everything
        (run,) = cell.runs
        assert run.known
        assert all(math.isfinite(value) for value in run.bias.values()), run
        assert (max(run.bias.values()) == 0) is everything, run
        if everything:
            assert run.noise == pytest.approx(run.total, nan_ok=True)
    assert all(each.bound is not None for each in found.recommended)


# --- the pure part ---------------------------------------------------------------------------------------------------


def test_the_grid_is_near_the_configured_bound() -> None:
    assert default_bounds(20) == (1, 2, 5, 10, 20, 50, 100)
    assert default_bounds(300) == (20, 50, 100, 200, 300, 500, 1000)
    assert default_bounds(2, charge=2) == (2, 5, 10)
    assert default_bounds(1_000_000)[-1] == 1_000_000
    assert default_epsilons(Decimal("1.0")) == (Decimal("0.5"), Decimal(1), Decimal(2))


def test_lists_are_sorted_and_each_value_is_once() -> None:
    assert parse_bounds("20, 1,5,5") == (1, 5, 20)
    assert parse_epsilons("2,0.5, 2") == (Decimal("0.5"), Decimal(2))


def cell(bound: int, *totals: float) -> TuneCell:
    runs = tuple(ErrorSplit({"a": 0.0}, {"a": 0.0}, {"a": total, "never": math.nan}) for total in totals)
    return TuneCell(bound, Decimal(1), 1.0, 1.0, 1.0, runs)


def test_the_least_error_is_recommended_and_what_runs_do_not_tell_from_it() -> None:
    (clear,) = recommend([cell(1, 4.0, 4.1), cell(2, 1.0, 1.02), cell(5, 3.0, 3.1)])
    assert (clear.bound, clear.alike, clear.edge) == (2, (), "")
    (close,) = recommend([cell(1, 4.0, 4.1), cell(2, 1.0, 1.3), cell(5, 1.1, 1.4)])
    assert (close.bound, close.alike, close.edge) == (2, (5,), "")
    assert "5 is within what runs differ by" in close.sentence()
    (edge,) = recommend([cell(1, 4.0), cell(2, 1.0)])
    assert (edge.bound, edge.spread, edge.edge) == (2, None, "largest")
    assert "--runs" in edge.sentence()
    assert "so try larger ones" in edge.sentence()
    (one,) = recommend([cell(1, 1.0), cell(2, 4.0)])
    assert (one.bound, one.edge) == (1, "")
    (low,) = recommend([cell(2, 1.0), cell(5, 4.0)])
    assert "so try smaller ones" in low.sentence()
    (exact,) = recommend([cell(1, 0.5, 0.5), cell(2, 0.0, 0.0)])
    assert exact.bound == 2
    (nothing,) = recommend([cell(1), cell(2)])
    assert nothing.bound is None
    assert "nothing was released" in nothing.sentence()


def test_steps_in_which_nothing_was_released_do_not_count() -> None:
    known = [ErrorSplit({"a": step}, {"a": step}, {"a": float(step)}) for step in range(6)]
    unknown = ErrorSplit({"a": 0.0}, {"a": math.nan}, {"a": math.nan})
    assert [split.total["a"] for split in last_third([*known, unknown, unknown])] == [4, 5]
    assert mean_split([known[1], unknown, known[2]]).total == {"a": 1.5}
    assert not mean_split([]).known


def test_shares_by_thirds() -> None:
    assert shares([10, 5, 0], [10, 10, 10]) == (0.5, 1.0, 0.0)
    every, first, last = shares([0, 3], [0, 4])
    assert (every, last) == (0.75, 0.75)
    assert math.isnan(first)


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "points.toml"
    path.write_text(POINTS)
    return path


@pytest.mark.usefixtures("drawn")
def test_it_says_what_it_found_and_that_it_is_not_private(
    config: Path, points: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "terminal_width", lambda: 80)
    out = tmp_path / "out"
    options = ("--bounds", "1,10", "--epsilons", "8", "--runs", "1", "--out", out)
    shown = call("tune", config, points, *options)
    assert shown.exit_code == 0
    assert re.search(r"^10 +\*? +76% +86% +71% ", shown.stdout, re.MULTILINE)
    assert re.search(r"^epsilon 8: max_contributions = \d+ has the least error", shown.stdout, re.MULTILINE)
    rows = [line for line in shown.stdout.splitlines() if re.match(r"bound |10? ", line)]
    assert {name for name in ERRORS if any(name in row for row in rows)} == set(ERRORS)
    assert max(map(len, rows)) <= 80, "a line of the table that is broken by the terminal cannot be read"
    flat = " ".join(shown.stderr.split())
    assert NOT_COVERED in flat
    assert TRUE_VALUES in flat
    page = (out / "tune.html").read_text()
    assert NOT_COVERED in page
    assert TRUE_VALUES in page
    assert page.count("data:image/svg+xml;base64,") == 2
    assert not re.search(r"(src|href)=[\"']?(?![\"']?data:)", page)  # nothing is fetched
    assert out.stat().st_mode & 0o077 == 0
    assert [path.name for path in out.iterdir()] == ["tune.html"]


def test_for_machines_and_in_few_words(config: Path, points: Path) -> None:
    options = ("--bounds", "10", "--epsilons", "4,8", "--runs", "1")
    result = call("tune", config, points, *options, "--json")
    document = json.loads(result.stdout)
    assert (document["ok"], document["private"]) == (True, False)
    assert document["warnings"] == [NOT_COVERED, TRUE_VALUES]
    assert [each["epsilon"] for each in document["recommended"]] == [4, 8]
    assert {each["bound"] for each in document["recommended"]} == {10}
    (four, _) = document["cells"]
    assert set(four) == {"epsilon", "bound", "accepted", "accepted_first", "accepted_last", "errors", "runs"}
    assert four["errors"].keys() == {"bias", "noise", "total"}
    assert all(each.keys() == set(ERRORS) for each in four["errors"].values())
    assert four["runs"] == [four["errors"]]
    few = call("tune", config, points, *options)
    assert [line.split(":")[0] for line in few.stdout.splitlines()][-2:] == ["epsilon 4", "epsilon 8"]
    assert "no guarantee covers it" in few.stderr


@pytest.mark.parametrize("bounds", ["0", "1,x", "-1", "1.5", "", "1,,2", "2000000", "²"])
def test_bounds_are_positive_whole_numbers(config: Path, points: Path, bounds: str) -> None:
    refused = call("tune", config, points, "--bounds", bounds)
    assert refused.exit_code == 2
    assert "--bounds must be whole numbers" in refused.stderr
    assert "fix: " in refused.stderr


@pytest.mark.parametrize("epsilons", ["0", "lots", "nan", "inf", "-1", "1,"])
def test_epsilons_are_positive_numbers(config: Path, points: Path, epsilons: str) -> None:
    refused = call("tune", config, points, "--epsilons", epsilons)
    assert refused.exit_code == 2
    assert "--epsilons must be positive numbers" in refused.stderr
    with pytest.raises(PrivstreamError):
        parse_epsilons(epsilons)


def test_streams_that_bound_nobody_are_refused(points: Path) -> None:
    refused = call("tune", EXAMPLES / "taxi.toml", points, "--json")
    assert refused.exit_code == 2
    (problem,) = json.loads(refused.stdout)["problems"]
    assert problem["key"] == "streams[0].privacy.unit"
    assert "bounds nobody" in problem["reason"]
    assert problem["fix"]


def test_files_that_say_nothing_are_refused(config: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.csv"
    empty.write_text("user,at,x,y\n")
    assert "has no rows" in call("tune", config, empty).stderr
    rows = [{"user": "u", "at": 1_000_000 + row, "x": 0.5 if row < 4 else 7.0, "y": 0.5} for row in range(10)]
    refused = call("tune", config, write(tmp_path / "outside.jsonl", rows))
    assert refused.exit_code == 2
    assert "less than half of the 10 rows: OUTSIDE_DOMAIN of x: 6 rows, 60%, first in row 5" in refused.stderr
    assert "fix: compare the field with [streams.domain]" in refused.stderr


def test_rows_that_are_in_no_figure_are_named_by_reason_and_field(config: Path, tmp_path: Path) -> None:
    rows = [{"user": f"u{row}", "at": 1_000_000 + row, "x": 0.5, "y": 0.5} for row in range(40)]
    rows += [{"user": "u", "at": 1_000_100, "x": 0.5, "y": 7.0}, {"user": "u", "at": 1_000_100, "x": 0.5}]
    file, out = write(tmp_path / "torn.jsonl", rows), tmp_path / "out"
    options = ("--bounds", "1", "--epsilons", "8", "--runs", "1")
    quiet = call("tune", config, file, *options, "--out", out)
    flat = " ".join(quiet.stderr.split())
    for named in ("Of 42 rows 5% refused", "OUTSIDE_DOMAIN of y 2%", "MISSING_FIELD of y 2%", "What to do: "):
        assert named in flat
        assert named in " ".join((out / "tune.html").read_text().split())
    document = json.loads(call("tune", config, file, *options, "--json").stdout)
    assert document["refused"] == {"OUTSIDE_DOMAIN of y": 1, "MISSING_FIELD of y": 1}
    assert document["refusals"] in document["warnings"][0]


def test_steps_of_the_calendar_are_tuned_and_simulated(tmp_path: Path) -> None:
    """Lengths of the calendar are another type than durations."""
    text = POINTS.replace('"now"', '"1970-01-01T00:00:00"').replace('"10s"', '"1 week"')
    path = tmp_path / "weeks.toml"
    path.write_text(text.replace("max_contributions = 10", 'max_contributions = 10\nper = "2 weeks"'))
    rows = [{"user": f"u{row}", "at": 1_000_000 + 86_400 * row, "x": 0.5, "y": 0.5} for row in range(40)]
    file = write(tmp_path / "rows.jsonl", rows)
    tuned = call("tune", path, file, "--bounds", "1,2", "--epsilons", "8", "--runs", "1", "--json")
    assert tuned.exit_code == 0, tuned.stderr
    assert json.loads(tuned.stdout)["steps"] == 8
    simulated = call("simulate", path, file, "--out", tmp_path / "out", "--epsilon", "4", "--json")
    assert simulated.exit_code == 0, simulated.stderr


def test_defaults_that_a_stream_cannot_have_are_left_out_and_said() -> None:
    """`validate` accepts 600, and twice as much is refused."""
    (stream,) = parse_config(POINTS.replace("epsilon = 8.0", "epsilon = 600")).streams
    bounds, epsilons, left_out = what_to_try(stream, bounds=None, epsilons=None)
    assert list(map(int, epsilons)) == [300, 600]
    assert bounds == [1, 2, 5, 10, 20, 50]
    assert [sentence.split(":")[0] for sentence in left_out] == ["epsilon 1200 was left out"]
    with pytest.raises(PrivstreamError, match=r"bounds from 1 to 50 cannot be tried: .* Fix: .* --bounds"):
        what_to_try(stream, bounds=None, epsilons=(Decimal(2000),))


def test_where_nothing_is_recommended_the_command_fails_with_a_fix(config: Path, points: Path, tmp_path: Path) -> None:
    path = tmp_path / "later.toml"
    path.write_text(config.read_text().replace("[streams.options]", "[streams.options]\ninitial_steps = 100"))
    options = ("--bounds", "1,2", "--epsilons", "8", "--runs", "1")
    refused = call("tune", path, points, *options)
    assert refused.exit_code == 2
    assert "no bound can be recommended" in refused.stderr
    assert "fix: name a longer file" in refused.stderr
    machine = call("tune", path, points, *options, "--json")
    assert machine.exit_code == 2
    document = json.loads(machine.stdout)
    assert document["ok"] is False
    assert document["problems"][0]["fix"]


def test_a_bound_that_the_stream_cannot_have_is_refused_before_the_file_is_read(points: Path) -> None:
    options: dict[str, Any] = {"bounds": (1_000_000,), "epsilons": (Decimal("0.01"),), "runs": 1}
    passed: list[int] = []
    with pytest.raises(ConfigError, match="epsilon"):
        tune(parse_config(POINTS), points, **options, stream="points", progress=lambda done, total: passed.append(done))
    assert passed == []


@pytest.mark.parametrize("form", ["single", "weighted"])
def test_errors_are_those_that_simulate_measures(form: str, points: Path, tmp_path: Path) -> None:
    """Also where a record stands for as many events as its weight says. At this epsilon there is next to no noise."""
    text = POINTS.replace("epsilon = 8.0", "epsilon = 600").replace("contributions = 10", "contributions = 60")
    config = parse_config(f'{text}\n[streams.records]\nform = "{form}"')
    options: dict[str, Any] = {"bounds": (60,), "epsilons": (Decimal(600),), "runs": 1}
    (cell,) = tune(config, points, **options, stream="points", draw=seeds()).cells
    (done,) = simulate(config, points, tmp_path / "out", seed=3)
    assert list(cell.errors.total.values()) == pytest.approx(list(done.metrics.values()), rel=0.1)

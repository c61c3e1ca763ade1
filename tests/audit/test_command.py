"""`privstream audit` as a person meets it."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agents.cli import audit as command
from agents.cli.app import build_app
from agents.cli.output import RowsProgress
from engines.auditor import AuditFinding

pytestmark = pytest.mark.seconds(1.5)

CONFIG = """
[kafka]
bootstrap = "localhost:9092"
[[streams]]
name = "tiny"
engine = "spatial"
mode = "paper"
source = "raw.tiny"
[streams.privacy]
epsilon = 1.0
unit = "event"
[streams.time]
field = "t"
start = "now"
step = "1h"
[streams.domain]
kind = "box"
x = "x"
y = "y"
bounds = [0.0, 0.0, 1.0, 1.0]
[streams.options]
depth = 2
initial_steps = 1
"""


SERIES = """
[kafka]
bootstrap = "localhost:9092"
[[streams]]
name = "tiny"
engine = "series"
source = "raw.tiny"
[streams.privacy]
epsilon = 2.0
delta = 1e-6
[streams.time]
field = "t"
start = "now"
step = "1h"
[streams.domain]
kind = "series"
fields = [{ name = "departures", of = "value", limits = [0, 400], sensitivity = 1 }]
[streams.options]
horizon = 8
"""


def run(*arguments: str):
    return CliRunner().invoke(build_app(), ["audit", *arguments])


def test_one_mechanism_as_a_table() -> None:
    done = run("--only", "laplace thresh", "--runs", "40", "--seed", "1", "--workers", "1")
    assert done.exit_code == 0
    head = done.stdout.splitlines()[0]
    assert all(word in head for word in ("claimed", "lower bound", "ceiling", "sees from", "confidence", "runs"))
    assert "Laplace threshold bit" in done.stdout
    assert "VIOLATED" not in done.stdout


def test_a_stream_as_json(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(CONFIG)
    done = run(str(path), "--runs", "40", "--seed", "1", "--json", "--plot", str(tmp_path / "audit.svg"))
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["ok"] is True
    assert {found["case"] for found in result["findings"]} == {"stream tiny"}
    assert {found["claimed"] for found in result["findings"]} == {1.0}
    guessed = [found for found in result["findings"] if found["detector"] == "monte carlo"]
    assert guessed
    assert all(found["ceiling"] > found["claimed"] and found["visible"] > found["claimed"] for found in guessed)
    assert (tmp_path / "audit.svg").read_text().startswith("<?xml")


def test_a_violation_ends_with_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = AuditFinding(
        case="c", kind="engine", check="k", detector="monte carlo", claimed=1.0, delta=0.0, lower_bound=1.5,
        confidence=1 - 1e-6, runs=10,
    )  # fmt: skip
    monkeypatch.setattr(command, "audited", lambda names, **_: iter([[broken]]))
    done = run("--only", "discrete Laplace", "--plot", str(tmp_path / "x.png"))
    assert done.exit_code == 1
    assert "VIOLATED" in done.stdout


def test_too_few_runs_are_an_error_that_says_how_many_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    weak = AuditFinding(
        case="c", kind="stream", check="k", detector="monte carlo", claimed=3.0, delta=0.0, lower_bound=0.2,
        confidence=1 - 1e-6, runs=60, guesses=30, ceiling=0.3, visible=float("inf"), runs_needed=569,
    )  # fmt: skip
    monkeypatch.setattr(command, "audited", lambda names, **_: iter([[weak]]))
    done = run("--only", "discrete Laplace")
    assert done.exit_code == 1
    assert "CANNOT FAIL" in done.stdout
    assert "kept" not in done.stdout
    assert "--runs 569" in done.output
    told = json.loads(run("--only", "discrete Laplace", "--json").stdout.splitlines()[-1])
    assert told["ok"] is False
    assert told["findings"][0]["visible"] is None


def test_what_does_not_exist_is_refused(tmp_path: Path) -> None:
    assert run("--only", "no such thing").exit_code == 2
    assert run(str(tmp_path / "missing.toml")).exit_code == 2


def test_a_plot_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    done = run("--only", "laplace thresh", "--runs", "40", "--workers", "1", "--plot", str(tmp_path / "no" / "x.png"))
    assert done.exit_code == 2


class Seen(RowsProgress):
    """Remembers how far it was told that things are."""

    def __init__(self) -> None:
        super().__init__(None, "")
        self.expected, self.steps = 0, [0]

    @property
    def told(self) -> list[int]:
        return list(itertools.accumulate(self.steps))

    def begun(self, rows: int, before: int = 0) -> None:
        self.expected = rows

    def advance(self, rows: int) -> None:
        super().advance(rows)
        self.steps.append(rows)


@pytest.mark.parametrize("delta", [False, True], ids=["together", "one at a time"])
def test_the_bar_of_one_stream_follows_its_runs(tmp_path: Path, delta: bool) -> None:
    """The time left follows from it. Coins say how many of a pair of inputs there are, so it is about as many."""
    path = tmp_path / "job.toml"
    path.write_text(SERIES if delta else CONFIG)
    seen = Seen()
    [_] = command.audited(command.case_names(path, None), runs=40, config=path, seed=1, progress=seen)
    assert seen.expected >= 40
    assert sum(seen.steps) == seen.expected
    assert len([steps for steps in seen.steps if steps == 1]) == pytest.approx(seen.expected, rel=0.4)


def test_the_bar_of_several_streams_moves_within_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though other processes audit them."""
    path = tmp_path / "job.toml"
    path.write_text(SERIES + SERIES[SERIES.index("[[streams]]") :].replace("tiny", "other"))
    monkeypatch.setattr(command, "LOOK_S", 0.001)
    names = command.case_names(path, None)
    seen = Seen()
    found = list(command.audited(names, runs=40, config=path, seed=1, workers=2, progress=seen))
    assert [{each.case for each in some} for some in found] == [{name} for name in names]
    assert sum(seen.steps) == seen.expected
    assert min(seen.steps) >= 0
    within = [told for told in seen.told if told not in (0, seen.expected // 2, seen.expected)]
    assert within, "it counts whole streams"

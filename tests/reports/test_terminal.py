"""What the demo and `simulate` print: no figure without its name, and each name explained."""

from __future__ import annotations

import gzip
import io
import json
from itertools import islice
from pathlib import Path

import pytest
from rich.console import Console

from agents.cli.demo import METRICS_SHOWN, DemoScreen
from agents.show.view import metrics_of
from benchmarks.pictures import shown_streams
from tests.commands import call
from tests.reports.made import EXAMPLES


def test_the_demo_explains_every_figure_of_every_engine_at_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    """Not only of those that the demo shows today."""
    streams = shown_streams()
    console = Console(file=io.StringIO(), width=400, record=True)
    screen = DemoScreen(console, streams)
    for stream in streams:
        screen.step(stream.name, {"end": "2016-01-02T05:00:00Z", "epsilon_spent": 1.0})
        metrics = {key: 0.25 for metric in metrics_of(stream) for key in metric.keys}
        screen.measured(stream.name, {"step": 3, "events_total": 10, "synthetic_points": 9, "metrics": metrics})
    screen.done()
    text = console.export_text()
    assert len(capsys.readouterr().out.splitlines()) == len(streams)
    for stream in streams:
        shown = [metric for metric in metrics_of(stream) if metric.tile][:METRICS_SHOWN]
        assert shown
        for metric in shown:
            assert f"{metric.name} {metric.said(dict.fromkeys(metric.keys, 0.25))}" in text
            assert f"{metric.name}: {metric.explained}" in text
    assert "truth of departures 0.25" in text, "a number of nothing says nothing"
    assert "nothing compared" not in text
    narrow = Console(file=io.StringIO(), width=80, record=True)
    narrow.print(f"{screen.table()}\n{screen.errors()}")
    heads, figures = 2, sum(min(METRICS_SHOWN, sum(metric.tile for metric in metrics_of(each))) for each in streams)
    assert len(narrow.export_text().splitlines()) == heads + len(streams) + figures, "no cell is broken into lines"


def test_simulate_prints_the_verdict_and_has_it_for_machines(tmp_path: Path) -> None:
    with gzip.open(EXAMPLES / "nyc_departures" / "departures_2013_01.csv.gz", "rt") as month:
        (tmp_path / "week.csv").write_text("".join(islice(month, 1 + 7 * 8)))
    rows = (tmp_path / "week.csv", "--out", tmp_path / "out", "--overwrite")
    command = ("simulate", EXAMPLES / "departures.toml", *rows)
    told = call(*command)
    assert "Values over time: " in told.stdout
    assert "explained at the end of the report" in told.stdout
    machines = call(*command, "--json")
    document = json.loads(machines.stdout)
    assert document["private"] is False
    assert document["streams"][0]["verdict"][0].startswith("Values over time: ")

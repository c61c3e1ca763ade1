"""What the demo and `simulate` print: no figure without its name, and each name explained."""

from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console
from typer.testing import CliRunner

from agents.cli.app import build_app
from agents.local.demo.screen import METRICS_SHOWN, Screen, StepSeen
from agents.show.view import metrics_of
from benchmarks.pictures import shown_streams
from tests.reports.made import EXAMPLES


def seen(metrics: dict[str, float]) -> StepSeen:
    ledger = {"gathered": False, "end": "2016-01-02T05:00:00Z", "epsilon_spent": 1.0}
    return StepSeen(3, ledger, {"events_total": 10, "synthetic_points": 9, "metrics": metrics})


def test_the_demo_explains_every_figure_of_every_engine_at_its_end() -> None:
    """Not only of those that the demo shows today."""
    main, *others = shown_streams()
    console = Console(file=io.StringIO(), width=400, record=True)
    with Screen(console, [main, *others]) as screen:
        screen.step(main.name, seen({"error_small": 0.1, "error_medium": 0.2, "error_large": 0.3}))
        for stream in others:
            figures = metrics_of(stream)
            screen.step(stream.name, seen({key: 0.25 for metric in figures for key in metric.keys}))
        screen.summary(seconds=1.0, bootstrap="here", lines=[])
        console.print(screen._render())
    text = console.export_text()
    for stream in others:
        shown = [metric for metric in metrics_of(stream) if metric.tile][:METRICS_SHOWN]
        assert shown
        for metric in shown:
            assert f"{metric.name} {metric.said(dict.fromkeys(metric.keys, 0.25))}" in text
            assert f"{metric.name}: {metric.explained}" in text
    assert "nothing compared" not in text


def test_simulate_prints_the_verdict_and_has_it_for_machines(tmp_path: Path) -> None:
    rows = (EXAMPLES / "nyc_departures" / "departures_2013_01.csv.gz", "--out", tmp_path / "out", "--overwrite")
    command = ("simulate", EXAMPLES / "departures.toml", *rows)
    told = CliRunner().invoke(build_app(), [str(part) for part in command])
    assert "Values over time: " in told.stdout
    assert "explained at the end of the report" in told.stdout
    machines = CliRunner().invoke(build_app(), [str(part) for part in (*command, "--json")])
    document = json.loads(machines.stdout)
    assert document["private"] is False
    assert document["streams"][0]["verdict"][0].startswith("Values over time: ")

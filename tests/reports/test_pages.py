"""Pages stay small however long a stream is, and every picture has a text."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from agents.local.offline import simulate as simulating
from agents.local.offline.simulate import FRAMES, Simulation
from agents.show.charts import MOST_POINTS, TABLE_ROWS, Curve, LineChart, Panel, draw, figure, image, thinned
from agents.show.report import render_report, section_html
from agents.show.view import StepRow, percent, view_of
from agents.show.views.maps import small_maps
from agents.show.views.series import judged, sections
from schemas.config import Stream, load_config
from tests.entries import ENTRY
from tests.reports.made import EXAMPLES, Page

pytestmark = pytest.mark.usefixtures("drawn")

YEAR = 52_560
"""Steps of ten minutes."""
START = datetime(2013, 1, 1, tzinfo=UTC)


def rows(steps: int) -> list[StepRow]:
    noise = np.sin(np.arange(steps)) * 9
    return [
        StepRow(
            step=step,
            start=START + timedelta(minutes=10 * step),
            events=100 + step % 7,
            released_total=step,
            metrics={"true": 100.0, "released": 100.0 + float(noise[step]), "se": 4.0},
            true_total=step,
            gathered=False,
        )
        for step in range(steps)
    ]


STREAM = load_config(EXAMPLES / "departures.toml").streams[0]


FACTS: dict[str, Any] = {**dict.fromkeys(("source", "promise", "record_time"), ""), "ledger": None, "rows": {}}


def report(steps: list[StepRow], *, scope: str = "alive", stream: Stream = STREAM, **changes: Any) -> str:
    audit: Any = SimpleNamespace(evaluator=SimpleNamespace(scope=scope))
    found = judged(stream, audit, steps)
    verdict = [(each.sentence(), each.more) for each in found]
    return render_report(stream, steps, audit, judged=found, verdict=verdict, **(FACTS | changes))


def test_a_year_of_ten_minutes_is_a_page_of_less_than_two_megabytes() -> None:
    content = report(rows(YEAR))
    assert len(content) < 700_000
    page = Page(content)
    assert page.pictures == 4, "scales, all steps, the last ones, counts over time"
    assert "off by 5.729 on average" in page.text
    assert f"in 52 % of {YEAR:,} steps" in page.text
    assert Page(report(rows(MOST_POINTS))).pictures == 3, "no last ones where all are drawn one by one"
    assert all(len(alt) > 40 for alt in page.alts)
    assert f"mean of {-(-YEAR // MOST_POINTS)} steps" in page.text


def test_steps_of_a_series_without_a_truth_or_a_release_are_left_out() -> None:
    steps = rows(4)
    steps[1].metrics["released"] = nan  # type: ignore[index]
    steps[2].metrics["true"] = None  # type: ignore[index]
    nobody: Any = None
    [found] = sections(STREAM, nobody, steps)
    assert "of 2 steps" in found.sub
    assert list(sections(STREAM, nobody, steps[:1])) == []


def test_what_is_refused_or_drowned_is_said_above_the_verdict() -> None:
    said: dict[str, Any] = {
        "refused_much": "12% refused: OUTSIDE_DOMAIN of x 12%",
        "drowned": "noise alone is larger than all 3",
    }
    content = report(rows(3), refused=[("a", "b", "c", "d", "e", "f")], **said)
    page = Page(content)
    assert page.text.index(said["refused_much"]) < page.text.index("Verdict")
    assert page.text.index(said["drowned"]) < page.text.index("Verdict")
    assert content.count('role="alert"') == 3, "they, and that it is not private"
    assert Page(report(rows(3))).text.count("refused") == 0


def test_one_reading_a_step_is_no_picture() -> None:
    steps = [replace(row, events=1) for row in rows(20)]
    assert "Counts over time" not in report(steps, scope="step")
    assert "Counts over time" in report(rows(20), scope="step")
    assert "readings and released values after each step" in report(steps)


def test_no_names_of_fields_become_part_of_the_page() -> None:
    assert "<script>" not in report(rows(3), source="<script>", stream=STREAM.model_copy(update={"name": "<script>"}))
    made, axes = figure(1, 1)
    axes.plot([1, 2])
    assert '"><script>' not in image(made, "svg", alt='"><script>')


def test_a_picture_without_words_is_none() -> None:
    made, _ = figure(1, 1)
    with pytest.raises(TypeError, match="alt"):
        image(made, "svg")  # type: ignore[call-arg]


def test_lines_are_means_of_whole_groups_and_known_values() -> None:
    assert thinned([1.0, 3.0, None, 5.0, 100.0], 2).tolist() == [2.0, 5.0]
    assert np.isnan(thinned([None, None], 2)).all()
    times = [START + timedelta(hours=step) for step in range(5000)]
    short, long = (
        draw(
            LineChart(
                x=times[:steps], panels=[Panel(lines={"a": Curve([0.5] * steps, "red")}, text=percent, shares=True)]
            )
        )
        for steps in (5, 5000)
    )
    assert len(long) < 2 * len(short) + 40_000
    assert long.count("<tr>") == TABLE_ROWS + 1
    assert "Each point is the mean of 13 steps" in long
    assert "a from 50 % to 50 %" in short


def test_few_frames_are_kept_and_they_cover_all_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = load_config(EXAMPLES / "taxi.toml").streams[0]
    asked: list[int] = []
    shown = replace(view_of(stream), frame=lambda stream, audit: asked.append(1) or len(asked))
    monkeypatch.setattr(simulating, "view_of", lambda stream: shown)
    with Simulation(stream, tmp_path / "out", source="") as output:
        for row in rows(1000):
            output.write(replace(row, metrics={}), ENTRY.encode())
            assert sum(each.frame is not None for each in output.steps) <= FRAMES
    kept = [each.step for each in output.steps if each.frame is not None]
    assert len(kept) >= FRAMES // 2
    assert len(set(np.diff(kept).tolist())) == 1
    assert kept[-1] > 1000 - 2 * (kept[1] - kept[0])
    assert len(asked) < 80


def test_small_maps_are_five_at_most_and_none_for_two_steps() -> None:
    grid = np.zeros((60, 60))
    grid[3, 4] = 7
    frames = [(START + timedelta(days=day), (grid, grid)) for day in range(8)]
    (section,) = small_maps(frames, what="events")
    page = Page(section_html(section))
    assert page.alts[0].count("7 true, 7") == 5
    assert small_maps(frames[:2], what="events") == []

"""What a simulated series shows: a sentence of how far releases are off, and pictures that stay small."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import nan
from pathlib import Path
from typing import Any

from agents.show.report import section_html
from agents.show.view import StepRow
from agents.show.views.series import MOST_POINTS, sections
from schemas.config import load_config

DEPARTURES = Path(__file__).parents[2] / "examples" / "departures.toml"
NOBODY: Any = None
"""A series looks at the steps alone."""


def rows(steps: int, *, off: float = 3.0) -> list[StepRow]:
    start = datetime(2013, 1, 1, tzinfo=UTC)
    return [
        StepRow(
            step=step,
            start=start + timedelta(minutes=10 * step),
            events=1,
            released_total=1,
            metrics={"true": 100.0, "released": 100.0 + (off if step % 2 else -off), "se": 4.0},
            true_total=1,
            gathered=False,
        )
        for step in range(steps)
    ]


def pages(steps: list[StepRow]) -> list[str]:
    return [section_html(each) for each in sections(load_config(DEPARTURES).streams[0], NOBODY, steps)]


def test_a_year_of_ten_minutes_is_two_small_pictures_and_a_sentence() -> None:
    [page] = pages(rows(52_560))
    assert "off by 3 on average" in page
    assert "in 100 % of 52,560 steps" in page
    assert page.count("<img") == 2, "all of it, and the last steps one by one"
    assert len(page) < 400_000
    [short] = pages(rows(MOST_POINTS))
    assert short.count("<img") == 1


def test_steps_without_a_truth_or_a_release_are_left_out() -> None:
    steps = rows(4)
    steps[1].metrics["released"] = nan  # type: ignore[index]
    steps[2].metrics["true"] = None  # type: ignore[index]
    [page] = pages(steps)
    assert "of 2 steps" in page
    assert pages(steps[:1]) == []

"""A row counts once: what `add` and `step` took in for a step to come, `run` does not take in again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.local.library.journal import Journal
from agents.local.library.stream import PrivateStream
from engines import configure
from schemas.errors import BatchError
from tests.library.tables import TABLES, rows

pytestmark = pytest.mark.seconds(0.2)

EVENTS: dict[str, Any] = {**TABLES, "privacy": {"epsilon": 2, "unit": "event"}}
WAITS = "were taken in before, by `add` or `step`, for a step that `run` is asked for"


def history(*steps: int) -> dict[str, Any]:
    return {name: np.concatenate([rows(step)[name] for step in steps]) for name in rows(0)}


def of_the_engine(stream: PrivateStream, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Events that each step gives to the engine from now on."""
    engine, seen = stream._stepper.engine, list[int]()
    step = engine.step

    def spy(batch: Any, *more: Any) -> Any:
        seen.append(batch.events.total)
        return step(batch, *more)

    monkeypatch.setattr(engine, "step", spy)
    return seen


def test_rows_that_wait_are_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = configure(EVENTS)
    stream.step(history(0, 1, 3))
    for longer in (history(0, 1, 3), history(0, 1, 2, 3, 4)):
        with pytest.raises(BatchError, match=WAITS):
            stream.run(longer, until=5)
    assert stream.next_step == 1
    seen = of_the_engine(stream, monkeypatch)
    assert [each.step for each in stream.run(history(0, 2, 4), until=5)] == [1, 2, 3, 4]
    assert seen == [40, 40, 40, 40]


def test_rows_that_are_released_are_left_by_a_longer_run() -> None:
    stream = configure(EVENTS)
    stream.add(history(0))
    with pytest.raises(BatchError, match=WAITS):
        stream.run(history(0), until=1)
    stream.step()
    assert stream.run(history(0, 1), until=2)[-1].taken.left == 40
    assert [each.taken.left for each in stream.run(history(0, 1, 2, 3), until=3)] == [120]
    assert not stream._journal.entry.waiting
    assert stream.run(history(0, 1, 2, 3), until=5)[0].taken.rows == 40


def test_rows_that_are_meant_to_count_again_do(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = configure(EVENTS)
    stream.step(history(0, 1))
    seen = of_the_engine(stream, monkeypatch)
    stream.run(history(1), until=2, repeated=True)
    assert seen == [80]


def test_rows_that_were_refused_as_too_far_ahead_are_run() -> None:
    stream = configure(EVENTS)
    with pytest.warns(UserWarning, match="refused many of the rows"):
        taken = stream.add(history(0, 20))
    assert taken.refused == {("TOO_FAR_AHEAD", "at"): 40}
    stream.step()
    assert stream.run(history(20), until=21)[-1].taken.accepted == 40


def test_a_step_that_was_interrupted_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "s.state"
    stream = configure(EVENTS, state=state)
    with monkeypatch.context() as patch:

        def interrupted(*_: Any) -> None:
            raise KeyboardInterrupt

        patch.setattr("agents.local.job.Stepper.compute", interrupted)
        with pytest.raises(KeyboardInterrupt):
            stream.step(history(0, 1))
    stream = configure(EVENTS, state=state)  # what waits is in the file
    with pytest.raises(BatchError, match=WAITS):
        stream.run(history(0, 1, 2), until=3)
    assert stream.next_step == 0
    assert stream.last is None
    assert stream.run(history(0), until=1)[0].taken.waiting == 40  # nothing of it is asked for twice
    seen = of_the_engine(stream, monkeypatch)
    stream.run(history(0, 2), until=3)
    assert seen == [40, 40]


def test_the_journal_holds_no_row() -> None:
    stream = configure(TABLES)
    stream.add({**rows(1), "who": [f"somebody-{row}" for row in range(40)]})
    assert [len(marks) for marks in stream._journal.entry.waiting.values()] == [40 * 8]
    assert isinstance(stream._journal, Journal)
    assert b"somebody" not in b"".join(stream._journal.entry.waiting.values())

"""A publisher's stream_tasks are made for all streams of its partition, those that could not start included."""

from __future__ import annotations

from typing import Any

from agents.lifecycle.stops import Stops
from agents.worker.publish import PublishStreamTask
from engines.contract_case import contract_case


def test_a_stream_whose_start_nobody_knows_has_a_task() -> None:
    stream = contract_case("spatial").stream("default")
    now = stream.model_copy(update={"time": stream.time.model_copy(update={"start": "now", "clock": "wall"})})
    task: Any = None
    stream_task = PublishStreamTask(task, now, Stops.of([now.name]))
    assert stream_task.first_needed() is None

"""A publisher's lanes are made for all streams of its partition, those that could not start included."""

from __future__ import annotations

from typing import Any

from agents.lifecycle.stops import Stops
from agents.worker.publish import Lane
from engines.contract_case import contract_case


def test_a_stream_whose_start_nobody_knows_has_a_lane() -> None:
    stream = contract_case("spatial").stream("default")
    now = stream.model_copy(update={"time": stream.time.model_copy(update={"start": "now", "clock": "wall"})})
    owner: Any = None
    lane = Lane(owner, now, Stops.of([now.name]))
    assert lane.first_needed() is None

"""A publisher's lanes are made for all streams of its partition, those that could not start included."""

from __future__ import annotations

from typing import Any

from agents.lifecycle.stops import Stops
from agents.publish import Lane
from tests.contracts.cases import CONTRACTS


def test_a_stream_whose_start_nobody_knows_has_a_lane() -> None:
    stream = CONTRACTS["spatial"].stream("spatial", "default")
    now = stream.model_copy(update={"time": stream.time.model_copy(update={"start": "now", "clock": "wall"})})
    owner: Any = None
    lane = Lane(owner, now, Stops.of([now.name]))
    assert lane.first_needed() is None

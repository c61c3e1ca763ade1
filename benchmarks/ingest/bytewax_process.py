"""Bytewax: events by user in windows of six hours. A program for `.venv-streams`, where nothing of ours is.

    python bytewax_process.py BOOTSTRAP TOPIC EVENTS FOLDER

Prints events and seconds as JSON, from the first event on.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.operators.windowing import EventClock, TumblingWindower, count_window
from bytewax.testing import TestingSink, run_main
from confluent_kafka import OFFSET_BEGINNING

times: list[float] = []


def event(message: Any) -> dict[str, Any]:
    """Decodes, and is the clock of the measurement."""
    times.append(time.perf_counter())
    decoded: dict[str, Any] = json.loads(message.value)
    return decoded


def event_time(value: dict[str, Any]) -> datetime:
    """With a time zone, as Bytewax wants it."""
    return datetime.fromisoformat(value["at"]).replace(tzinfo=UTC)


bootstrap, topic = sys.argv[1], sys.argv[2]
flow = Dataflow("count")
messages = op.input("in", flow, KafkaSource([bootstrap], [topic], tail=False, starting_offset=OFFSET_BEGINNING))
windows = count_window(
    "count",
    op.map("decode", messages, event),
    EventClock(event_time, wait_for_system_duration=timedelta(hours=6)),
    TumblingWindower(length=timedelta(hours=6), align_to=datetime(2016, 1, 1, tzinfo=UTC)),
    key=lambda value: str(value["user"]),
)
op.output("out", windows.down, TestingSink([]))
run_main(flow)
print(json.dumps([len(times), times[-1] - times[0]]), flush=True)

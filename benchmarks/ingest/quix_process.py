"""Quix Streams: events by user in windows of six hours. A program for `.venv-streams`, where nothing of ours is.

    python quix_process.py BOOTSTRAP TOPIC EVENTS FOLDER

Prints events and seconds as JSON, from the first event on.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from quixstreams import Application

times: list[float] = []


def event_time(value: Any, headers: Any, timestamp: float, timestamp_type: Any) -> int:
    """Milliseconds."""
    return int(datetime.fromisoformat(value["at"]).replace(tzinfo=UTC).timestamp() * 1000)


def seen(value: Any) -> None:
    """The clock of the measurement."""
    times.append(time.perf_counter())


bootstrap, topic, events, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
app = Application(
    broker_address=bootstrap,
    consumer_group=f"quix-{os.getpid()}",
    auto_offset_reset="earliest",
    state_dir=Path(folder) / f"quix-{os.getpid()}",
    loglevel="ERROR",
)
frame = app.dataframe(app.topic(topic, value_deserializer="json", timestamp_extractor=event_time))
frame = frame.update(seen).tumbling_window(timedelta(hours=6), grace_ms=timedelta(hours=6)).count().final()
app.run(count=events, timeout=30, collect=False)
print(json.dumps([len(times), times[-1] - times[0]]), flush=True)
os._exit(0)

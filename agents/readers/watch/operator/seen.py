"""What an operator sees of one stream beside the public view: true counts and errors, step by step. Not private."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from agents.kafka.lifecycle.refusals import Seen
from agents.kafka.status import StreamStatus
from agents.show.view import errors, metrics_of, view_of
from engines.core.registry import build_evaluator

if TYPE_CHECKING:
    from schemas.blocks import Tally
    from schemas.config import Stream

MOST_STEPS = 10_000
"""Of which errors are kept for the page."""


@dataclass(slots=True)
class UtilityRow:
    """One step as the audit measured it.

    Attributes:
        events: of the step. total: so far. alive: those that `records` estimates; None where nothing is alive.
    """

    step: int
    events: int
    total: int
    alive: int | None
    records: int
    errors: dict[str, float | None]

    def row(self) -> list[Any]:
        """As the page reads it, see `assets/operator.js`."""
        return [self.step, self.events, self.total, self.alive, self.records, self.errors]


class StreamTruth:
    """Utility and status of a stream. Sans-IO; bounded in memory."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.position: int | None = None
        self.revision = 0
        self.unreadable = 0
        self._shown = view_of(stream)
        self._metrics = metrics_of(stream)
        self._counted = build_evaluator(stream).scope == "alive"
        self._rows: deque[UtilityRow] = deque(maxlen=MOST_STEPS)
        self._status: StreamStatus | None = None

    def take(self, value: bytes | None) -> None:
        """A record of the stream's utility topic."""
        try:
            told = orjson.loads(value or b"")
            metrics = {name: float(metric) for name, metric in told["metrics"].items() if metric is not None}
            found = errors(self._metrics, metrics) if metrics else {}
            compared = {name: None if error != error else float(error) for name, error in found.items()}
            row = UtilityRow(
                int(told["step"]),
                int(told["events"]),
                int(told["events_total"]),
                None if (alive := told["events_alive"]) is None else int(alive),
                int(told["synthetic_points"]),
                compared,
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            self.unreadable += 1
            return
        while self._rows and self._rows[-1].step >= row.step:
            self._rows.pop()  # a repeated step overwrites itself
        self._rows.append(row)
        self.revision += 1

    def on_status(self, status: StreamStatus) -> None:
        if status != self._status:
            self._status = status
            self.revision += 1

    def rows(self, after: int) -> list[list[Any]]:
        """Steps after one, oldest first."""
        return [row.row() for row in self._rows if row.step > after]

    def summary(self) -> dict[str, Any]:
        """What changes from moment to moment. JSON-able."""
        stream, status = self.stream, self._status
        told: dict[str, Any] = {
            "stream": stream.name,
            "engine": stream.engine,
            "audited": stream.audit is not None,
            "error_unit": self._shown.error_unit,
            "events": self._shown.events(stream),
            "records": self._shown.records(stream),
            "counted": self._counted,
            "revision": self.revision,
            "last": self._rows[-1].row() if self._rows else None,
            "unreadable": self.unreadable,
        }
        if status is None:
            return {**told, "status": None}
        return {
            **told,
            "status": {
                "health": status.health,
                "clock": "wall" if status.live is None else "replay" if status.live == 0 else "live",
                "published": status.published,
                "over": status.over,
                "waiting": status.waiting,
                "ingest_lag": status.ingest_lag,
                "lost": status.lost,
                "source_problem": status.source_problem,
                "stopped": [str(stop) for stop in status.stopped],
                "doubt": None if status.doubt is None else status.doubt.detail,
                "refusals": _refusals(status.totals),
                "recently": Seen.of(status.recent).sentence() if status.recent else "",
                "advice": status.refusing.advice() if status.refusing is not None else [],
                "records": Seen.of(status.totals).records,
            },
        }


def _refusals(tally: Tally) -> list[list[Any]]:
    """Reason, field and number of what was refused, and of what bounds dropped; the most frequent first."""
    dropped = [(key, n) for key, n in Seen.of(tally).tally.most_common() if key[0] != "ACCEPTED"]
    return [[reason, field, n] for (reason, field), n in dropped]

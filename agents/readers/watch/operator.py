"""The operator's view: true counts, errors, lag and refusals, step by step. Not private, and none of it is public.

It always needs a token: `agents.readers.watch.guard` sees to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Any

import orjson
from aiohttp import web
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from agents.kafka.clients import follower
from agents.kafka.lifecycle.refusals import Seen
from agents.kafka.status import StreamStatus, registry_doubts, status
from agents.kafka.topics import existing_topics
from agents.protocol.ingest.events import PLACED_BY
from agents.readers.watch.routes import NO_STORE, Reader, Routes
from agents.show.view import errors, metrics_of, view_of
from engines.core.registry import build_evaluator
from schemas.config import Config, Stream
from schemas.errors import BrokerError, WireError
from schemas.events import Reason
from schemas.topics import Topics

log = logging.getLogger(__name__)

MOST_STEPS = 10_000
"""Steps whose errors are kept for the page."""
STATUS_S, AGAIN_S = 5.0, 2.0
UNSHOWN = (Reason.ACCEPTED.name, *(reason.name for reason in PLACED_BY.values()))
"""Not in the list of refusals: `advice` says what the latter tell."""


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
        self._rows: deque[list[Any]] = deque(maxlen=MOST_STEPS)
        self._status: StreamStatus | None = None

    def take(self, value: bytes | None) -> None:
        """Take in a record of the stream's utility topic.

        A row is, as `assets/operator.js` reads it: the step; its events; all events so far; those alive that `records`
        estimates, or null where nothing is alive; records; and the errors by name.
        """
        try:
            record = orjson.loads(value or b"")
            metrics = {name: float(metric) for name, metric in record["metrics"].items() if metric is not None}
            found = errors(self._metrics, metrics) if metrics else {}
            compared = {name: None if error != error else float(error) for name, error in found.items()}
            row = [
                int(record["step"]),
                int(record["events"]),
                int(record["events_total"]),
                None if (alive := record["events_alive"]) is None else int(alive),
                int(record["synthetic_points"]),
                compared,
            ]
        except (KeyError, TypeError, ValueError, AttributeError):
            self.unreadable += 1
            return
        while self._rows and self._rows[-1][0] >= row[0]:
            self._rows.pop()  # a repeated step overwrites itself
        self._rows.append(row)
        self.revision += 1

    def on_status(self, status: StreamStatus) -> None:
        """Take in the stream's status."""
        if status != self._status:
            self._status = status
            self.revision += 1

    def rows(self, after: int) -> list[list[Any]]:
        """Return steps after one, oldest first."""
        return [row for row in self._rows if row[0] > after]

    def summary(self) -> dict[str, Any]:
        """Return what changes from moment to moment. JSON-able."""
        stream, status = self.stream, self._status
        summary: dict[str, Any] = {
            "stream": stream.name,
            "whole": stream.whole,
            "engine": stream.engine,
            "audited": stream.audit is not None,
            "error_unit": self._shown.error_unit,
            "events": self._shown.events(stream),
            "records": self._shown.records(stream),
            "counted": self._counted,
            "revision": self.revision,
            "last": self._rows[-1] if self._rows else None,
            "unreadable": self.unreadable,
        }
        if status is None:
            return {**summary, "status": None}
        counted = Seen.of(status.totals)
        by_reason = [[*key, n] for key, n in counted.tally.most_common() if key[0] not in UNSHOWN]
        return {
            **summary,
            "status": {
                "health": status.health,
                "clock": status.clock,
                "published": status.published,
                "over": status.over,
                "waiting": status.waiting,
                "ingest_lag": status.ingest_lag,
                "unrouted": status.unrouted,
                "lost": status.lost,
                "source_problem": status.source_problem,
                "stopped": [str(stop) for stop in status.stopped],
                "doubt": None if status.doubt is None else status.doubt.detail,
                "refusals": by_reason,  # reason, field and number, the most frequent first
                "recently": Seen.of(status.recent).sentence() if status.recent else "",
                "advice": status.refusing.advice() if status.refusing is not None else [],
                "records": counted.records,
            },
        }


class OperatorReader(Reader):
    """Follows the utility topics, and asks for the job's status from time to time."""

    def __init__(self, config: Config, streams: Sequence[StreamTruth]) -> None:
        self._config = config
        self._streams = {Topics.utility(truth.stream.name): truth for truth in streams}
        super().__init__()

    async def run(self) -> None:
        """Follow the topics and the status for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._statuses())
            group.create_task(self._utilities())

    async def _statuses(self) -> None:
        by_name = {truth.stream.name: truth for truth in self._streams.values()}
        while True:
            try:
                for each in await registry_doubts(self._config, await status(self._config)):
                    by_name[each.stream].on_status(each)
                self.problem = None
            except (BrokerError, WireError) as error:
                self.problem = str(error)
            except (KafkaError, OSError) as error:
                self.problem = f"the cluster does not answer: {type(error).__name__}"
            self.tell()
            await asyncio.sleep(STATUS_S)

    async def _utilities(self) -> None:
        while True:
            try:
                await self._follow()
            except (KafkaError, OSError, BrokerError) as error:
                log.info("the utility topics cannot be read: %s", type(error).__name__)
            await asyncio.sleep(AGAIN_S)

    async def _follow(self) -> None:
        kafka = self._config.kafka
        found = await existing_topics(kafka, sorted(self._streams))
        positions = {TopicPartition(topic, 0): self._streams[topic].position for topic in found}
        if not positions:
            return
        async with follower(kafka, positions) as consumer:
            while True:
                batches = await consumer.getmany(timeout_ms=500, max_records=1_000)
                for partition, records in batches.items():
                    truth = self._streams[partition.topic]
                    for record in records:
                        truth.take(record.value)
                        truth.position = record.offset + 1
                if batches:
                    self.tell()
                await asyncio.sleep(0)


class OperatorRoutes(Routes[StreamTruth]):
    """All handlers under `/operator`."""

    def routes(self) -> list[web.RouteDef]:
        """Return them with their paths."""
        return [
            web.get("/operator/allowed", self._allowed),
            web.get("/operator/events", self.events),
            web.get("/operator/streams/{stream}/utility", self.rows),
        ]

    async def _allowed(self, _: web.Request) -> web.Response:
        """Answer a page that has to know whether its cookie is good: an event stream cannot tell why it is refused."""
        return web.Response(status=204, headers=NO_STORE)

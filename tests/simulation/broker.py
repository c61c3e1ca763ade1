"""A Kafka broker in memory: what of its protocol this job uses, with the answers that Apache Kafka 4 gives."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

from agents.kafka.topics import MetadataRequest12
from tests.simulation.groups import GroupCoordinator
from tests.simulation.log import OK, PartitionLog
from tests.simulation.timeline import Timeline
from tests.simulation.transactions import TransactionCoordinator

UNKNOWN_TOPIC = 3
NODE = (0, "broker", 9092, None)
LATEST = -1
COMMITTED = 1
SHORT_WAIT_MS = 100  # fetches that wait no longer are answered when they ask to be
HELD_S = 280.0  # others wait so long for data, or until the client sends something else: idle hours cost nothing
GATHER_S = 0.001

Reply = Callable[[Any], None]


class Broker:
    """One node that leads every partition and coordinates every group and transaction.

    Attributes:
        logs: (topic, partition) -> log.
    """

    def __init__(self, timeline: Timeline, chance: random.Random) -> None:
        self.timeline = timeline
        self.chance = chance
        self.logs: dict[tuple[str, int], PartitionLog] = {}
        self.partitions: dict[str, int] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.groups = GroupCoordinator(timeline, chance)
        self.transactions = TransactionCoordinator(timeline, chance, self.logs, self.groups)
        self._handlers: dict[int, Callable[[Any, Reply, Any], None]] = {
            0: self._produce,
            1: self._fetch,
            2: self._offsets,
            3: self._metadata,
            10: self._coordinator,
            21: self._delete,
            **self.groups.handlers,
            **self.transactions.handlers,
        }

    def create(self, topic: str, partitions: int) -> None:
        self.partitions[topic] = partitions
        self.topic_ids[topic] = self.chance.randbytes(16)
        for partition in range(partitions):
            self.logs[topic, partition] = PartitionLog(topic, partition)

    def handle(self, request: Any, reply: Reply, channel: Any) -> None:
        self._handlers[request.API_KEY](request, reply, channel)

    def restarted(self) -> None:
        self.groups.restarted()

    def snapshot(self) -> Callable[[], None]:
        """What puts the whole cluster back to how it is now, to be called while it is down."""
        parts = [log.snapshot() for log in self.logs.values()]
        parts += [self.groups.snapshot(), self.transactions.snapshot()]

        def restore() -> None:
            for part in parts:
                part()

        return restore

    def _produce(self, request: Any, reply: Reply, channel: Any) -> None:
        answers = []
        for topic, batches in request.topics:
            rows = []
            for partition, data in batches:
                log = self.logs.get((topic, partition))
                error, offset = UNKNOWN_TOPIC, -1
                if log is not None:
                    error, offset = self._append(log, bytes(data), request.transactional_id)
                rows.append((partition, error, offset, -1, 0 if log is None else log.start))
            answers.append((topic, rows))
        reply(request.RESPONSE_TYPE(answers, 0))

    def _append(self, log: PartitionLog, data: bytes, transactional_id: str | None) -> tuple[int, int]:
        if transactional_id is not None and (error := self.transactions.verdict(transactional_id, data, log)) != OK:
            return error, -1
        return log.append(data, now_s=self.timeline.now)

    def _fetch(self, request: Any, reply: Reply, channel: Any) -> None:
        committed = request.isolation_level == COMMITTED
        logs = [self.logs.get((topic, partition)) for topic, rows in request.topics for partition, *_ in rows]
        rung = False

        def answer() -> tuple[Any, bool]:
            topics, found = [], False
            for topic, rows in request.topics:
                parts: list[tuple[Any, ...]] = []
                for partition, offset, limit in rows:
                    log = self.logs.get((topic, partition))
                    if log is None:
                        parts.append((partition, UNKNOWN_TOPIC, -1, -1, [], b""))
                        found = True
                        continue
                    error, aborted, data = log.fetch(offset, limit, committed=committed)
                    found = found or bool(error or data)
                    parts.append((partition, error, log.end, log.stable_end, aborted, data))
                topics.append((topic, parts))
            return request.RESPONSE_TYPE(0, topics), found

        def finish() -> None:
            for log in logs:
                if log is not None and ring in log.listeners:
                    log.listeners.remove(ring)
            reply(answer()[0])

        def look() -> None:
            nonlocal rung
            rung = False
            if answer()[1]:
                finish()

        def ring() -> None:
            nonlocal rung
            if not rung:
                rung = True
                self.timeline.after(GATHER_S, look)

        response, found = answer()
        if found or request.max_wait_time == 0:
            reply(response)
            return
        for log in logs:
            if log is not None:
                log.listeners.append(ring)
        wait_ms = request.max_wait_time
        if wait_ms > SHORT_WAIT_MS:
            channel.impatient = finish
        self.timeline.after(wait_ms / 1000 if wait_ms <= SHORT_WAIT_MS else HELD_S, finish)

    def _offsets(self, request: Any, reply: Reply, channel: Any) -> None:
        committed = request.isolation_level == COMMITTED
        topics = []
        for topic, rows in request.topics:
            parts = []
            for partition, timestamp in rows:
                log = self.logs.get((topic, partition))
                if log is None:
                    parts.append((partition, UNKNOWN_TOPIC, -1, -1))
                    continue
                end = log.stable_end if committed else log.end
                parts.append((partition, OK, -1, end if timestamp == LATEST else log.start))
            topics.append((topic, parts))
        reply(request.RESPONSE_TYPE(0, topics))

    def _metadata(self, request: Any, reply: Reply, channel: Any) -> None:
        if isinstance(request, MetadataRequest12):
            reply(request.RESPONSE_TYPE(0, [], "simulated", 0, self._identities(request.topics), {}))
            return
        wanted: Iterable[str] = self.partitions if request.topics is None else request.topics
        topics: list[tuple[Any, ...]] = []
        for topic in wanted:
            count = self.partitions.get(topic)
            error = OK if count is not None else UNKNOWN_TOPIC
            rows: list[tuple[Any, ...]] = [(OK, partition, 0, [0], [0], []) for partition in range(count or 0)]
            topics.append((error, topic, False, rows))
        reply(request.RESPONSE_TYPE(0, [NODE], "simulated", 0, topics))

    def _identities(self, wanted: Any) -> list[Any]:
        topics: list[tuple[Any, ...]] = []
        for _, name, _ in wanted:
            count = self.partitions.get(name, 0)
            error = OK if count else UNKNOWN_TOPIC
            topics.append((error, name, self.topic_ids.get(name, bytes(16)), False, [()] * count, -1, {}))
        return topics

    def _coordinator(self, request: Any, reply: Reply, channel: Any) -> None:
        reply(request.RESPONSE_TYPE(0, OK, None, *NODE[:3]))

    def _delete(self, request: Any, reply: Reply, channel: Any) -> None:
        topics = []
        for topic, rows in request.topics:
            parts = []
            for partition, offset in rows:
                log = self.logs[topic, partition]
                log.delete_below(log.end if offset == -1 else offset)
                parts.append((partition, log.start, OK))
            topics.append((topic, parts))
        reply(request.RESPONSE_TYPE(0, topics))

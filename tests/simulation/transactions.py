"""The transaction coordinator: producer ids and epochs, and two-phase commits whose markers arrive one by one.

States and answers as in Kafka's TransactionCoordinator for clients of EndTxn version 0, which aiokafka speaks: nobody
but InitProducerId and the time-out raises an epoch, so one that a client sends twice can end its next transaction.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.simulation.log import HEADER, OK, PartitionLog
from tests.simulation.timeline import Timeline

if TYPE_CHECKING:
    from tests.simulation.groups import GroupCoordinator

INVALID_EPOCH, INVALID_TXN_STATE, INVALID_MAPPING, CONCURRENT = 47, 48, 49, 51
UNKNOWN_TOPIC = 3


@dataclass(slots=True)
class Transaction:
    """What the coordinator knows of a transactional id. States: empty, ongoing, ending, committed, aborted."""

    producer: int
    epoch: int
    timeout_s: float
    state: str = "empty"
    commit: bool = False
    number: int = 0
    partitions: dict[tuple[str, int], None] = field(default_factory=dict)
    groups: dict[str, None] = field(default_factory=dict)


class TransactionCoordinator:
    """See the module."""

    def __init__(
        self,
        timeline: Timeline,
        chance: random.Random,
        logs: dict[tuple[str, int], PartitionLog],
        groups: GroupCoordinator,
    ) -> None:
        self.timeline = timeline
        self.chance = chance
        self.logs = logs
        self.groups = groups
        self.known: dict[str, Transaction] = {}
        self._producers = 1000
        self.handlers: dict[int, Callable[..., None]] = {
            22: self._init,
            24: self._add_partitions,
            25: self._add_offsets,
            26: self._end,
            28: self._commit_offsets,
        }

    def snapshot(self) -> Callable[[], None]:
        """What puts this back to how it is now: open transactions run out, ended ones write their markers again."""
        known, producers = copy.deepcopy(self.known), self._producers

        def restore() -> None:
            for found in self.known.values():
                found.state = "empty"  # of what was to come of it, nothing comes
            self.known, self._producers = copy.deepcopy(known), producers
            for found in self.known.values():
                if found.state == "ongoing":
                    self.timeline.after(found.timeout_s, self._time_out, found, found.number)
                elif found.state == "ending":
                    self._finish(found, commit=found.commit)

        return restore

    def _init(self, request: Any, reply: Any, channel: Any) -> None:
        if request.transactional_id is None:
            self._producers += 1
            reply(request.RESPONSE_TYPE(0, OK, self._producers, 0))
            return
        found = self.known.get(request.transactional_id)
        if found is None:
            self._producers += 1
            found = self.known[request.transactional_id] = Transaction(self._producers, -1, 0.0)
        if found.state == "ongoing":  # fence and abort; the client asks again until that is done
            found.epoch += 1
            self._finish(found, commit=False)
        if found.state == "ending":
            reply(request.RESPONSE_TYPE(0, CONCURRENT, -1, -1))
            return
        found.epoch += 1
        found.state, found.timeout_s = "empty", request.transaction_timeout_ms / 1000
        reply(request.RESPONSE_TYPE(0, OK, found.producer, found.epoch))

    def _refusal(self, request: Any) -> int:
        found = self.known.get(request.transactional_id)
        if found is None or found.producer != request.producer_id:
            return INVALID_MAPPING
        return OK if found.epoch == request.producer_epoch else INVALID_EPOCH

    def _begin(self, found: Transaction) -> None:
        if found.state != "ongoing":
            found.state = "ongoing"
            found.number += 1
            self.timeline.after(found.timeout_s, self._time_out, found, found.number)

    def _time_out(self, found: Transaction, number: int) -> None:
        if found.state == "ongoing" and found.number == number:
            found.epoch += 1
            self._finish(found, commit=False)

    def _add_partitions(self, request: Any, reply: Any, channel: Any) -> None:
        error = self._refusal(request)
        found = self.known.get(request.transactional_id)
        if found is not None and error == OK and found.state == "ending":
            error = CONCURRENT
        wanted = [(topic, partition) for topic, partitions in request.topics for partition in partitions]
        if error == OK and any(place not in self.logs for place in wanted):
            error = UNKNOWN_TOPIC
        if found is not None and error == OK:
            self._begin(found)
            found.partitions.update(dict.fromkeys(wanted))
        rows = [(topic, [(partition, error) for partition in partitions]) for topic, partitions in request.topics]
        reply(request.RESPONSE_TYPE(0, rows))

    def _add_offsets(self, request: Any, reply: Any, channel: Any) -> None:
        error = self._refusal(request)
        found = self.known.get(request.transactional_id)
        if found is not None and error == OK and found.state == "ending":
            error = CONCURRENT
        if found is not None and error == OK:
            self._begin(found)
            found.groups[request.group_id] = None
        reply(request.RESPONSE_TYPE(0, error))

    def _commit_offsets(self, request: Any, reply: Any, channel: Any) -> None:
        error = self._refusal(request)
        found = self.known.get(request.transactional_id)
        if error == OK and (found is None or found.state != "ongoing" or request.group_id not in found.groups):
            error = INVALID_TXN_STATE
        if error == OK:
            offsets = {(topic, row[0]): (row[1], row[2]) for topic, rows in request.topics for row in rows}
            self.groups.promise(request.group_id, request.producer_id, offsets)
        rows = [(topic, [(row[0], error) for row in rows]) for topic, rows in request.topics]
        reply(request.RESPONSE_TYPE(0, rows))

    def _end(self, request: Any, reply: Any, channel: Any) -> None:
        error = self._refusal(request)
        found = self.known.get(request.transactional_id)
        if found is not None and error == OK:
            commit = bool(request.transaction_result)
            if found.state == "ongoing":
                self._finish(found, commit=commit)
            elif found.state == "ending":
                error = CONCURRENT if found.commit == commit else INVALID_TXN_STATE
            elif found.state != ("committed" if commit else "aborted"):
                error = INVALID_TXN_STATE
        reply(request.RESPONSE_TYPE(0, error))

    def _finish(self, found: Transaction, *, commit: bool) -> None:
        """Decided; from here on only the markers are to be written, each when its turn comes."""
        found.state, found.commit = "ending", commit
        left = len(found.partitions) + len(found.groups)

        def wrote() -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                found.state = "committed" if commit else "aborted"
                found.partitions, found.groups = {}, {}

        def mark(log: PartitionLog) -> None:
            log.mark(found.producer, found.epoch, commit=commit, now_s=self.timeline.now)
            wrote()

        def settle(group: str) -> None:
            self.groups.settle(group, found.producer, commit=commit)
            wrote()

        for place in found.partitions:
            self.timeline.after(self._marker_s(), mark, self.logs[place])
        for group in found.groups:
            self.timeline.after(self._marker_s(), settle, group)
        if not left:
            wrote()

    def _marker_s(self) -> float:
        return 0.0005 + self.chance.random() * (0.003 if self.chance.random() < 0.9 else 0.2)

    def verdict(self, transactional_id: str, data: bytes, log: PartitionLog) -> int:
        """Error code for a batch: its partition must be part of the ongoing transaction (Kafka asks since KIP-890,
        where the partition's log does not show one).
        """
        found = self.known.get(transactional_id)
        producer, epoch = HEADER.unpack_from(data)[9:11]
        if log.has_open(producer):
            return OK
        if found is None or found.producer != producer:
            return INVALID_MAPPING
        if found.epoch != epoch:
            return INVALID_EPOCH
        added = found.state == "ongoing" and (log.topic, log.partition) in found.partitions
        return OK if added else INVALID_TXN_STATE

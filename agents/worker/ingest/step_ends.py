"""Which steps are over by the wall clock, and whether anybody here needs that clock."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from aiokafka.errors import KafkaError

from agents.kafka.topics.admin import admin_client
from agents.kafka.topics.ids import topic_identities
from agents.lifecycle.backlog import MANY_STEPS, backlog_sentence
from agents.protocol.ingest.partition import PartitionIngest
from agents.protocol.ingest.spec import SourceSpec
from agents.worker.ingest.partition_task import SourceTask
from schemas.errors import BrokerError
from schemas.topics import Topics

if TYPE_CHECKING:
    from schemas.config import Config

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 20.0
"""How often a job of replays alone looks whether it has a clock topic by now."""


class StepEnds:
    """Of the machines of one worker.

    Attributes:
        next_us: when the next step of one of them ends, `grace` included, at most a second after `due` was asked; not
            before `due` finds nothing any more, since until then ticks are on their way that have no place yet.
    """

    def __init__(self, config: Config, specs: Mapping[str, Iterable[SourceSpec]]) -> None:
        self._config = config
        self._topic = Topics(config.job.name, config.kafka.partitions).clock
        self._always = any(not spec.replay for each in specs.values() for spec in each)
        self._told: set[str] = set()
        self.next_us = 0

    def due(
        self, tasks: Iterable[SourceTask], now_us: int, *, grace_us: Mapping[str, int]
    ) -> list[tuple[SourceTask, PartitionIngest, int]]:
        """The steps that are over and have no place yet, replayed streams included: see `AwaitedTicks`."""
        found = []
        next_us = now_us + 1_000_000
        for task in tasks:
            for machine in task.machines:
                clock, grace = machine.spec.clock, grace_us[machine.spec.stream]
                step = clock.last_over(now_us, grace_us=grace)
                next_us = min(next_us, clock.end_of(step + 1) + grace)
                if step > (asked := task.asked(machine)):
                    found.append((task, machine, step))
                    if machine.live:
                        self._tell_backlog(machine, step - asked)
        self.next_us = now_us if found else next_us
        return found

    def _tell_backlog(self, machine: PartitionIngest, steps: int) -> None:
        stream = machine.spec.stream
        if steps > MANY_STEPS and stream not in self._told:
            self._told.add(stream)
            log.warning("stream %s: %s", stream, backlog_sentence(steps))

    async def needed(self, tasks: Iterable[SourceTask]) -> bool:
        """Whether the brokers are to be asked for the time. Not by a job of an earlier version that only replays: it
        has no topic to ask by, and does not miss it.
        """
        if self._always or any(machine.live for machine in _machines(tasks)):
            return True
        try:
            async with admin_client(self._config.kafka) as admin:
                return self._topic in await topic_identities(admin, [self._topic])
        except (BrokerError, KafkaError, OSError, TimeoutError):
            return False


def _machines(tasks: Iterable[SourceTask]) -> Iterator[PartitionIngest]:
    return (machine for task in tasks for machine in task.machines)

"""Which steps are over by the wall clock."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from agents.kafka.lifecycle.backlog import MANY_STEPS, backlog_sentence
from agents.protocol.ingest.partition import PartitionIngest
from agents.worker.ingest.partition_task import SourceTask

log = logging.getLogger(__name__)


class StepEnds:
    """Of the machines of one worker.

    Attributes:
        next_us: when the next step of one of them ends, `grace` included, at most a second after `due` was asked; not
            before `due` finds nothing any more, since until then ticks are on their way that have no place yet.
    """

    def __init__(self) -> None:
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

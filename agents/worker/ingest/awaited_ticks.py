"""Ends of steps that have their place in a source partition, and wait for the records before it.

The wall clock places them for streams that are replayed, too: whether they hold there is decided where the records
before them are read, by whether the partition has gone live among these. So the place of each is where the partition
ended when the step was over, however far behind reading was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from agents.protocol.ingest.partition import PartitionIngest


class AwaitedTicks:
    """Of the machines of one source partition, each by itself."""

    def __init__(self, machines: Sequence[PartitionIngest]) -> None:
        self._waiting: dict[PartitionIngest, deque[tuple[int, int]]] = {machine: deque() for machine in machines}
        self._void: dict[PartitionIngest, int] = {}

    def __bool__(self) -> bool:
        return any(self._waiting.values())

    def leave_out(self, machine: PartitionIngest) -> None:
        del self._waiting[machine]

    def asked(self, machine: PartitionIngest) -> int:
        """The last step whose end has its place already. One that was void is not placed again before it goes live."""
        waiting = self._waiting[machine]
        void = -1 if machine.live else self._void.get(machine, -1)
        return max(machine.ticked, void, waiting[-1][0] if waiting else -1)

    def put(self, machine: PartitionIngest, step: int, offset: int) -> None:
        """Steps up to `step` are over, and the partition ended at `offset` when that was noticed."""
        if machine not in self._waiting:
            return  # left out meanwhile
        waiting = self._waiting[machine]
        if step > self.asked(machine):
            waiting.append((step, max(offset, waiting[-1][1]) if waiting else offset))

    def places(self) -> Iterator[int]:
        """The next place of each machine that waits for one."""
        return (waiting[0][1] for waiting in self._waiting.values() if waiting)

    def reached(self, machine: PartitionIngest, offset: int) -> Iterator[int]:
        """The steps that end now that the machine has taken in all records below `offset`."""
        waiting = self._waiting[machine]
        while waiting and offset >= waiting[0][1]:
            step, _ = waiting.popleft()
            if machine.live:
                yield step
            else:
                self._void[machine] = step

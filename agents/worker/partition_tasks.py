"""Who works on a partition: one owner for each role and partition, opened when the partition is assigned and recovered.

An owner fences its predecessors, catches up, and only then takes records: see `PartitionOwner.open`. It is one task,
so that a slow partition holds up no other. What a revoked owner still does is dropped. An error inside of one stream's
own work, from which nothing is sent, stops that stream (`agents.lifecycle.stops`); any other stops the worker, because
going on after an error of unknown effect is how a second answer is made. Restarting is cheap: everything is read back
from committed records.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from agents.lifecycle.cancellations import told
from agents.lifecycle.stops import Part, Stops, StreamStoppedError
from schemas.errors import PrivstreamError, WireError

log = logging.getLogger(__name__)

QUEUE_RECORDS = 16  # read ahead for each owner; a record can be a megabyte
STOP_TIMEOUT_S = 10.0
AGAIN_S = 3.0  # what an owner may take to end before it is told once more


class PartitionOwner(abc.ABC):
    """One role on one partition, from assignment to revocation."""

    role: str

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.closed = False
        self.queue: asyncio.Queue[Any] = asyncio.Queue(QUEUE_RECORDS)

    @abc.abstractmethod
    async def open(self) -> None:
        """Fence, catch up, and do what the state already allows."""

    @abc.abstractmethod
    async def handle(self, event: Any) -> None:
        """Take one record; called in offset order, after `open`."""

    async def close(self) -> None:
        """Give up the partition. The successor fences whatever is still under way."""
        self.closed = True

    async def run(self) -> None:
        await self.open()
        while True:
            await self.handle(await self.queue.get())


class StreamsOwner(PartitionOwner):
    """One that serves all streams at home on its partition: what fails in one of them stops that stream alone."""

    role: Part

    def __init__(self, partition: int, stops: Stops) -> None:
        super().__init__(partition)
        self._stops = stops

    @property
    def stop_place(self) -> int | None:
        """Where a stream stops in `Stops`."""
        return self.partition

    @abc.abstractmethod
    def leave_out(self, stream: str) -> int | None:
        """A stream stops: do nothing more for it. Returns the step that would have come next, if that is known."""

    @contextlib.contextmanager
    def serving(self, *streams: str) -> Iterator[None]:
        """For what may go wrong with some streams alone: they stop, the owner goes on.

        Raises: the error, if nothing is left to do in this job.
        """
        try:
            yield
        except WireError as error:  # of a record that could not even be read: whose it is says its key
            self._stop(streams, error)
        except StreamStoppedError as stopped:
            self._stop([stopped.stream], stopped.cause)

    def _stop(self, streams: Iterable[str], error: PrivstreamError) -> None:
        for stream in streams:
            if not self._stops.has(stream, self.role, self.stop_place):
                step = self.leave_out(stream)
                self._stops.add(stream, self.role, self.stop_place, error, step=step)


class AckList:
    """Events in the order in which they came; acknowledged from the front, and only when settled. What they say is let
    go at once, in Faust's books too: there can be many, and each a megabyte.
    """

    def __init__(self) -> None:
        self._held: deque[tuple[str, int, Any]] = deque()

    def hold(self, stream: str, mark: int, event: Any) -> None:
        """`mark`: what must be below the stream's settled mark before the event is acknowledged."""
        event.value = event.message.value = None
        self._held.append((stream, mark, event))

    def settle(self, settled: Mapping[str, int]) -> None:
        """Acknowledge from the front what lies below its stream's mark; streams without a mark hold nothing back."""
        while self._held:
            stream, mark, event = self._held[0]
            if stream in settled and mark >= settled[stream]:
                return
            event.ack()
            self._held.popleft()


class Owners:
    """All owners of this worker.

    Args:
        factories: role -> how to make the owner of a partition.
        crash: stops the worker with an error.
    """

    def __init__(
        self, factories: Mapping[str, Callable[[int], PartitionOwner]], crash: Callable[[BaseException], Any]
    ) -> None:
        self._factories = factories
        self._crash = crash
        self._owners: dict[tuple[str, int], PartitionOwner] = {}
        self._tasks: dict[PartitionOwner, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Any:
        return iter(list(self._owners.values()))

    def open(self, partitions: Iterable[int]) -> None:
        """Open the owners of newly assigned partitions; they start at once, in the background."""
        for partition in sorted(partitions):
            for role, make in self._factories.items():
                if (role, partition) not in self._owners:
                    owner = self._owners[role, partition] = make(partition)
                    self._tasks[owner] = asyncio.ensure_future(self._run(owner))

    async def deliver(self, role: str, event: Any) -> None:
        """Hand a record to its owner; waits while the owner's queue is full.

        A record without an owner is left over from an earlier assignment; an owner opened for it would fence the right
        one.
        """
        owner = self._owners.get((role, event.message.partition))
        while owner is not None and not owner.closed:
            if not owner.queue.full():
                owner.queue.put_nowait(event)
                return
            await asyncio.sleep(0.01)

    def revoke(self) -> None:
        """Close every owner. Kafka revokes all partitions in a rebalance and assigns again what stays."""
        owners, self._owners = list(self._owners.values()), {}
        for owner in owners:
            owner.closed = True
            task = self._tasks.pop(owner)
            task.cancel()
            leaving = asyncio.ensure_future(self._leave(owner, task))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    async def stop(self) -> None:
        """Close every owner and wait until they are gone."""
        self.revoke()
        if self._leaving:
            await asyncio.wait(set(self._leaving), timeout=STOP_TIMEOUT_S)

    async def _run(self, owner: PartitionOwner) -> None:
        try:
            await told(owner.run(), f"{owner.role} of partition {owner.partition}")
        except asyncio.CancelledError:
            if not owner.closed:
                raise
        except Exception as error:
            if owner.closed:
                log.info("%s of partition %s was revoked while it worked: dropped", owner.role, owner.partition)
                return
            while isinstance(error, ExceptionGroup):  # an owner may run several lanes; the first to fail is the cause
                error = error.exceptions[0]
            error.add_note(f"{owner.role} of partition {owner.partition}")
            await self._crash(error)

    async def _leave(self, owner: PartitionOwner, task: asyncio.Task[None]) -> None:
        # Told again, because libraries lose cancellations; and held until it is gone, because nobody else may hold it.
        while not (await asyncio.wait([task], timeout=AGAIN_S))[0]:
            task.cancel()
        try:
            await asyncio.wait_for(owner.close(), STOP_TIMEOUT_S)
        except Exception as error:
            # Its producer may be fenced, or the cluster away: nothing that the successor does not settle.
            log.info("%s of partition %s left with %s", owner.role, owner.partition, type(error).__name__)


def streams_of(key: bytes | None, served: Sequence[str], others: Collection[str]) -> Sequence[str]:
    """The streams of a partition that a record on it may concern, by its key alone: its value cannot be read.

    Without a key that says so it may be anybody's, and concerns all that are `served` there.
    """
    name = "" if key is None else key.decode(errors="replace")
    if name in served:
        return [name]
    return [] if name in others else served

"""Who works on a partition: one task for each role and partition, opened when the partition is assigned and recovered.

It fences its predecessors, catches up, and only then takes records: see `PartitionTask.open`. Each is a task of its
own, so that a slow partition holds up no other. What a revoked one still does is dropped. An error inside of one
stream's own work, from which nothing is sent, stops that stream (`agents.kafka.lifecycle.stops`); any other stops the
worker, because going on after an error of unknown effect is how a second answer is made. Restarting is cheap:
everything is read back from committed records.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

from agents.kafka.lifecycle.cancellations import raise_stray_cancellation
from agents.kafka.lifecycle.logs import about
from agents.kafka.lifecycle.stops import Part, Stops, StreamStoppedError
from agents.kafka.lifecycle.vitals import COMPUTE_S, WORK_S, Pulse, Vitals
from schemas.errors import PrivstreamError, WireError

log = logging.getLogger(__name__)

QUEUE_RECORDS = 16  # that wait before a partition is fetched no more; a record can be a megabyte
STOP_TIMEOUT_S = 10.0
AGAIN_S = 3.0  # what a task may take to end before it is cancelled once more


class RecordQueue(asyncio.Queue[Any]):
    """The records of one task that wait. It takes whatever comes, and says when its partition should not be fetched.

    So a task that has much to do keeps no other waiting.

    Attributes:
        hold: called with true when `QUEUE_RECORDS` wait, with false when half of them are left.
    """

    hold: Callable[[bool], None] | None = None

    def _put(self, item: Any) -> None:
        super()._put(item)
        if self.hold is not None and self.qsize() >= QUEUE_RECORDS:
            self.hold(True)

    def _get(self) -> Any:
        item = super()._get()
        if self.hold is not None and self.qsize() == QUEUE_RECORDS // 2:
            self.hold(False)
        return item


class PartitionTask(abc.ABC):
    """One role on one partition, from assignment to revocation."""

    role: str
    record_s = WORK_S
    """How long a record may take, or one effect of it."""
    vitals: Vitals | None = None

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.closed = False
        self.queue = RecordQueue()
        self.pulse = Pulse(f"{self.role} of partition {partition}")
        self.pulses = [self.pulse]
        """Of all that works by itself in this task."""

    @abc.abstractmethod
    async def open(self) -> None:
        """Fence, catch up, and do what the state already allows."""

    @abc.abstractmethod
    async def handle(self, event: Any) -> None:
        """Take one record; called in offset order, after `open`."""

    async def close(self) -> None:
        """Give up the partition. The successor fences whatever is still under way."""
        self.closed = True

    def shows(self, pulse: Pulse) -> None:
        """Watch something in this task that begins to work by itself."""
        pulse.ready = True
        self.pulses.append(pulse)
        if self.vitals is not None and not self.closed:
            self.vitals.take(pulse)

    async def opened(self) -> None:
        """Do `open`, as a piece of work."""
        with self.pulse.at("opens, and reads back what is committed", COMPUTE_S):
            await self.open()
        self.pulse.ready = True

    async def handle_all(self) -> NoReturn:
        """Handle every record, for as long as the task lives."""
        while True:
            self.pulse.waits("waits for records")
            event = await self.queue.get()
            with self.pulse.at("works on a record", self.record_s):
                await self.handle(event)

    async def run(self) -> None:
        await self.opened()
        await self.handle_all()


class StreamsTask(PartitionTask):
    """A task that serves all streams at home on its partition: what fails in one of them stops that stream alone."""

    role: Part

    def __init__(self, partition: int, stops: Stops) -> None:
        super().__init__(partition)
        self._stops = stops

    @property
    def stop_place(self) -> int | None:
        """The partition where a stream stops in `Stops`; None: as a whole."""
        return self.partition

    @abc.abstractmethod
    def leave_out(self, stream: str) -> int | None:
        """Do nothing more for a stream that stops. Returns the step that would have come next, if that is known."""

    @contextlib.contextmanager
    def serving(self, *streams: str) -> Iterator[None]:
        """Do what may go wrong with some streams alone: they stop, and the task goes on.

        Raises: the error, if nothing is left to do in this job.
        """
        try:
            with about(stream=streams[0]) if len(streams) == 1 else contextlib.nullcontext():
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
        """Hold an event. Args: mark: what must be below the stream's settled mark before it is acknowledged."""
        event.value = event.message.value = None
        self._held.append((stream, mark, event))

    def settle(self, settled: Callable[[str], int | None]) -> None:
        """Acknowledge from the front what lies below its stream's mark.

        Args: settled: returns a stream's mark; None where it holds nothing back.
        """
        while self._held:
            stream, mark, event = self._held[0]
            if (below := settled(stream)) is not None and mark >= below:
                return
            event.ack()
            self._held.popleft()


class PartitionTasks:
    """The tasks of this worker.

    Args:
        factories: role -> how to make the task of a partition.
        crash: stops the worker with an error.
        vitals: where each task says what it is doing; its own by default.
        hold: called with role, partition, and whether its records should be fetched no more for now; by default all are
            fetched.
    """

    def __init__(
        self,
        factories: Mapping[str, Callable[[int], PartitionTask]],
        crash: Callable[[BaseException], Any],
        vitals: Vitals | None = None,
        hold: Callable[[str, int, bool], None] | None = None,
    ) -> None:
        self._factories = factories
        self._crash = crash
        self._hold = hold
        self._vitals = Vitals() if vitals is None else vitals
        self._open: dict[tuple[str, int], PartitionTask] = {}
        self._running: dict[PartitionTask, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Any:
        return iter(list(self._open.values()))

    def open(self, partitions: Iterable[int]) -> None:
        """Open the tasks of newly assigned partitions; they start at once, in the background."""
        for partition in sorted(partitions):
            for role, make in self._factories.items():
                if (role, partition) not in self._open:
                    task = self._open[role, partition] = make(partition)
                    task.vitals = self._vitals
                    if self._hold is not None:
                        task.queue.hold = partial(self._hold, role, partition)
                    self._vitals.take(task.pulse)
                    self._running[task] = asyncio.ensure_future(self._run(task))

    def deliver(self, role: str, event: Any) -> None:
        """Hand a record to its task.

        A record without a task is left over from an earlier assignment; one opened for it would fence the right one.
        """
        task = self._open.get((role, event.message.partition))
        if task is not None and not task.closed:
            task.queue.put_nowait(event)

    def revoke(self) -> None:
        """Close every task. Kafka revokes all partitions in a rebalance and assigns again what stays."""
        tasks, self._open = list(self._open.values()), {}
        for task in tasks:
            task.closed = True
            task.queue.hold = None
            for pulse in task.pulses:
                self._vitals.ends(pulse)
            running = self._running.pop(task)
            running.cancel()
            leaving = asyncio.ensure_future(self._leave(task, running))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    async def stop(self) -> None:
        """Close every task and wait until they are gone."""
        self.revoke()
        if self._leaving:
            await asyncio.wait(set(self._leaving), timeout=STOP_TIMEOUT_S)

    async def _run(self, task: PartitionTask) -> None:
        try:
            with about(role=task.role, partition=task.partition):
                await raise_stray_cancellation(task.run(), f"{task.role} of partition {task.partition}")
        except asyncio.CancelledError:
            if not task.closed:
                raise
        except Exception as error:
            if task.closed:
                log.info("%s of partition %s was revoked while it worked: dropped", task.role, task.partition)
                return
            # A partition task may run several stream tasks; the first to fail is the cause.
            while isinstance(error, ExceptionGroup):
                error = error.exceptions[0]
            error.add_note(f"{task.role} of partition {task.partition}")
            await self._crash(error)

    async def _leave(self, task: PartitionTask, running: asyncio.Task[None]) -> None:
        # Cancelled again, because libraries lose cancellations; awaited, because nobody else may hold its partition.
        while not (await asyncio.wait([running], timeout=AGAIN_S))[0]:
            running.cancel()
        try:
            await asyncio.wait_for(task.close(), STOP_TIMEOUT_S)
        except Exception as error:
            # Its producer may be fenced, or the cluster away: nothing that the successor does not settle.
            log.info("%s of partition %s left with %s", task.role, task.partition, type(error).__name__)


def streams_of(key: bytes | None, served: Sequence[str], others: Collection[str]) -> Sequence[str]:
    """Return the streams of a partition that a record on it may concern, by its key alone: its value cannot be read.

    Without a key that says so it may be anybody's, and concerns all that are `served` there.
    """
    name = "" if key is None else key.decode(errors="replace")
    if name in served:
        return [name]
    return [] if name in others else served

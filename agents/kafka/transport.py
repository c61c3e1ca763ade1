"""Faust's consumer, fixed in two places on which the promise rests, and in one on which its end rests.

1. It reads committed records only. Faust asks for that only under `processing_guarantee="exactly_once"`, which is
broken. 2. After a table recovery Faust 0.15.3 resumes the partitions, lets the fetcher run, seeks, and clears the
agents' queues last: records delivered in between are lost. Here nothing flows before and during the seek, batches
fetched before it are dropped, and the positions come from the job's own state, never from the group's offsets. 3. After
a crash nobody works in the consumer's thread any more, and whoever asks it for something waits for ever: so does the
end of the worker. Here who asks a thread that has ended is told so.

Guarded by tests/kafka/test_transport.py. Why a subclass and not a patch: docs/notes/0010-faust-consumer.md.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from aiokafka.errors import KafkaError
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, Consumer, Transport
from faust.types import TP

from agents.kafka.answers import heed
from agents.kafka.membership import ask_for_missing_topics, give_place_up, keep_place
from schemas.errors import BrokerError

FETCH_WAIT_MS = 100
"""A fetch of partitions that have nothing holds up those that were handed out meanwhile: one at a time to a broker.
Faust asks for 1,500.
"""

POLL_BYTES = 4 << 20
"""A poll of Faust's asks for records of one partition after the other until it has a few: with many partitions it takes
longer to ask than to work.
"""

StartOffset = Callable[[int], int]
"""Partition -> first offset that is still needed; 0 means all there is."""


class FetchedBatch(dict[Any, Any]):
    """Fetched records by partition, the seek epoch in which they left the fetcher, and what it had sought by then."""

    epoch = 0
    sought: frozenset[TP] = frozenset()


class ThreadEndedError(KafkaError):
    """The consumer's thread has ended, as it does after a crash of the worker."""


class JobConsumerThread(AIOKafkaConsumerThread):
    """The thread of a consumer, in whose own loop everything here runs."""

    epoch = 0
    sought: frozenset[TP] = frozenset()

    def _create_worker_consumer(self, transport: Transport) -> Any:
        consumer = super()._create_worker_consumer(transport)
        consumer._isolation_level = "read_committed"
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS
        return consumer

    async def on_start(self) -> None:
        await super().on_start()
        heed(self._ensure_consumer()._client, self._ends_the_worker)
        keep_place(self._consumer, self._ends_the_worker)
        ask_for_missing_topics(self._consumer)

    async def call_thread(self, fun: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        """Run something in this thread. Raises: ThreadEndedError if the thread ends before it is done."""
        if self._shutdown.is_set() or self.thread_loop.is_closed():
            raise ThreadEndedError
        call = asyncio.ensure_future(super().call_thread(fun, *args, **kwargs))
        ended = asyncio.ensure_future(self._shutdown.wait())
        try:
            await asyncio.wait([call, ended], return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                raise ThreadEndedError
            return call.result()
        finally:
            call.cancel()
            ended.cancel()

    async def _ends_the_worker(self, error: BrokerError) -> None:
        asyncio.run_coroutine_threadsafe(self.app.crash(error), self.parent_loop)

    async def on_thread_stop(self) -> None:
        if self._consumer is not None:
            give_place_up(self._consumer)
        await super().on_thread_stop()

    async def _fetch_records(
        self, consumer: Any, partitions: set[TP], timeout: float | None = None, max_records: int | None = None
    ) -> FetchedBatch:
        """Return what is there of all partitions, of each one as much as is fetched at once; `POLL_BYTES` or so."""
        batch = FetchedBatch(await super()._fetch_records(consumer, partitions, timeout, max_records))
        size = _bytes_of(batch)
        # Without a partition to ask for, it is asked for all of them.
        while batch and size < POLL_BYTES and (others := partitions - batch.keys()):
            more = await super()._fetch_records(consumer, others, 0, max_records)
            if not more:
                break
            batch.update(more)
            size += _bytes_of(more)
        batch.epoch, batch.sought = self.epoch, self.sought
        return batch

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Make stale what is fetched up to the next seek: the fetcher stands where the group stopped."""
        self.sought = frozenset()
        self.epoch += 1
        await super().on_partitions_revoked(revoked)

    async def seek_all(self, positions: Mapping[TP, int]) -> None:
        """Seek, and make every batch that was fetched before stale; in one go, as nothing else runs in this thread."""
        consumer = self._ensure_consumer()
        for tp, offset in positions.items():
            consumer.seek(tp, offset)
        self.sought = frozenset(positions)
        self.epoch += 1

    async def committed(self, tp: TP) -> int:
        """Return the group's offset, 0 where it has none."""
        return int(await self._ensure_consumer().committed(tp) or 0)


def _bytes_of(batch: Mapping[Any, Sequence[Any]]) -> int:
    return sum(len(record.value or b"") for records in batch.values() for record in records)


async def delivered(app: Any, stream: Any) -> AsyncIterator[Any]:
    """Yield the events of an agent as they are delivered, but for those of an earlier assignment.

    They are those of the stream's channel. A stream acknowledges an event even when the body raises, and after each
    single one it gives way to all else that the worker does: 20 ms with 200 streams.
    """
    async for event in stream.channel:
        if app.flow_control.is_active() and event.message.generation_id == app.consumer_generation_id:
            yield event


class JobConsumer(Consumer):
    """See the module. `transport.starts` names the topics whose positions the job knows better than the group."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._batch_epoch = 0
        self._batch_sought: frozenset[TP] = frozenset()
        self._sought: dict[TP, int] = {}
        self._seeking = asyncio.Lock()

    async def on_stop(self) -> None:
        # A worker that has crashed has nothing to commit: where it goes on is in its own state.
        with contextlib.suppress(ThreadEndedError):
            await super().on_stop()

    def _new_consumer_thread(self) -> JobConsumerThread:
        return JobConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def _wait_next_records(self, timeout: float) -> Any:
        records, active = await super()._wait_next_records(timeout)
        self._batch_epoch = getattr(records, "epoch", self._thread.epoch)
        self._batch_sought = getattr(records, "sought", frozenset())
        return records, active

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[TP, Any]]:
        """Deliver what was fetched of the agents' topics, and yield the rest, which Faust delivers.

        For each record Faust makes two tasks and waits for one of them, and in each gap between records it gives way
        once more: some four turns of the event loop, 20 ms each where 200 streams are at work.
        """
        async for tp, message in super().getmany(timeout):
            if self._batch_epoch != self._thread.epoch:
                break
            if self._is_changelog_tp(tp):
                yield tp, message
                continue
            read = self._read_offset[tp]
            # Faust resumes the partitions before it seeks; the seek comes back for this record if it is needed.
            if tp not in self._batch_sought or (read is not None and message.offset < read):
                continue
            if read and message.offset > read + 1:
                await self._add_gap(tp, read + 1, message.offset)
            await self.callback(message)
            self._read_offset[tp] = message.offset
            if self._batch_epoch != self._thread.epoch and tp in self._sought:
                # A seek ran while the message was delivered, and the caller has just noted that message as read.
                self._read_offset[tp] = self._sought[tp] or None

    async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
        """Note offsets without records, markers of transactions, as read. Here nothing gives way meanwhile."""
        begin = max(offset_from, (self._committed_offset[tp] or 0) + 1)
        if begin <= offset_to:
            self._gap[tp].addi(begin, offset_to + 1)
            self._gap[tp].merge_overlaps()

    async def perform_seek(self) -> None:
        """Go to where the job's state ends. Faust resumes the flow afterwards."""
        self.stop_flow()
        async with self._seeking:
            positions = await self._positions()
            await self._thread.call_thread(self._thread.seek_all, positions)
            self._sought = positions
            for tp, offset in positions.items():
                self._read_offset[tp] = self._committed_offset[tp] = offset or None
                self._acked[tp].clear()
                self._acked_index[tp].clear()
                self._gap.pop(tp, None)

    async def _positions(self) -> dict[TP, int]:
        starts = cast(JobTransport, self.transport).starts
        tps = {tp for tp in self.assignment() if not self._is_changelog_tp(tp)}
        ours = [tp for tp in tps if tp.topic in starts]
        positions: dict[TP, int] = {}
        for tp, earliest in (await self.earliest_offsets(*ours)).items() if ours else ():
            positions[tp] = max(earliest, starts[tp.topic](tp.partition))
        for tp in tps - positions.keys():
            positions[tp] = await self._thread.call_thread(self._thread.committed, tp)
        return positions


class JobTransport(Transport):
    """Set it as `app.transport` before the app starts."""

    Consumer = JobConsumer

    def __init__(self, *args: Any, starts: Mapping[str, StartOffset], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.starts = starts

"""The committed end of partitions: how far they reach, and their newest records, without reading them whole."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from agents.kafka.answers import heed
from agents.kafka.clients import SOON_S, close_client, hanging
from agents.kafka.lifecycle.advice import explain
from agents.kafka.lifecycle.logs import Reminder
from agents.kafka.refusals import no_answer
from agents.kafka.security import security_kwargs
from schemas.topics import TopicAndPartition

if TYPE_CHECKING:
    from schemas.config import Kafka

log = logging.getLogger(__name__)

SETTLE_S = 30.0
FIRST_WINDOW = 64  # records at the end of a partition that are looked at first
COUNTED = 500  # records of a partition that are counted one by one


class Tail:
    """Made by `tail`. Sees what was committed when it was made, or renewed last."""

    def __init__(self, consumer: Any, begins: dict[TopicAndPartition, int], ends: dict[TopicAndPartition, int]) -> None:
        self._consumer = consumer
        self.begins = begins
        self.ends = ends

    async def overtaken(self, tp: TopicAndPartition) -> bool:
        """Whether records of this partition were deleted meanwhile: there may have been more than is found."""
        partition = TopicPartition(*tp)
        begins = await self._consumer.beginning_offsets([partition])
        return bool(begins[partition] > self.begins[tp])

    async def renew(self) -> None:
        """See what is there by now."""
        partitions = [TopicPartition(*tp) for tp in self.ends]
        self.begins = _by_partition(await self._consumer.beginning_offsets(partitions))
        self.ends = _by_partition(await self._consumer.end_offsets(partitions))

    async def newest(self, tp: TopicAndPartition, match: Callable[[Any], bool] = lambda record: True) -> Any:
        """The last committed record that matches, or None."""
        async for record in self.backwards(tp):
            if match(record):
                return record
        return None

    async def backwards(self, tp: TopicAndPartition) -> AsyncIterator[Any]:
        """Committed records from the end to the beginning, read in windows that grow."""
        partition, until, window = TopicPartition(*tp), self.ends[tp], FIRST_WINDOW
        while until > self.begins[tp]:
            start = max(self.begins[tp], until - window)
            found = []
            self._consumer.seek(partition, start)
            while await self._consumer.position(partition) < until:
                batch = await self._consumer.getmany(partition, timeout_ms=20)
                found += [record for record in batch.get(partition, []) if record.offset < until]
            for record in reversed(found):
                yield record
            until, window = start, window * 8

    async def left(self, starts: Mapping[TopicAndPartition, int]) -> dict[TopicAndPartition, int]:
        """Committed records from an offset of each partition to its end.

        Where there are more than `COUNTED`, offsets of the others: then markers of transactions and what was aborted
        count too. What was deleted is not there any more.
        """
        found = dict.fromkeys(starts, 0)
        reading = {TopicPartition(*tp): self.ends[tp] for tp, start in starts.items() if start < self.ends[tp]}
        for partition in reading:
            tp = (partition.topic, partition.partition)
            self._consumer.seek(partition, max(starts[tp], self.begins[tp]))
        while reading:
            batches = await self._consumer.getmany(*reading, timeout_ms=20)
            for partition, end in list(reading.items()):
                tp = (partition.topic, partition.partition)
                found[tp] += sum(record.offset < end for record in batches.get(partition, []))
                ahead = end - await self._consumer.position(partition)
                if ahead <= 0 or found[tp] >= COUNTED:
                    found[tp] += max(0, ahead)
                    del reading[partition]
        return found


@contextlib.asynccontextmanager
async def tail(kafka: Kafka, tps: Sequence[TopicAndPartition], *, wait: bool = True) -> AsyncIterator[Tail]:
    """The end of some partitions.

    Args:
        wait: until no transaction is open on them: a record behind an open one cannot be seen.
    Raises: HangingTransactionError if one stays open; BrokerError if the cluster does not answer.
    """
    common: dict[str, Any] = {"bootstrap_servers": kafka.bootstrap, "group_id": None, "enable_auto_commit": False}
    # A seek waits for the fetch under way, and that one waits where nothing comes: by default half a second.
    common |= {"fetch_max_wait_ms": 20, **security_kwargs(kafka)}
    everything = AIOKafkaConsumer(**common, isolation_level="read_uncommitted")
    committed = AIOKafkaConsumer(**common, isolation_level="read_committed")
    answers = heed(committed._client)
    partitions = [TopicPartition(*tp) for tp in tps]
    reminder = Reminder()
    try:
        await everything.start()
        await committed.start()
        committed.assign(partitions)
        begins = await committed.beginning_offsets(partitions)
        ends = await committed.end_offsets(partitions)
        begun = time.monotonic()
        while wait and (behind := _behind(ends, await everything.end_offsets(partitions))) is not None:
            open_there = hanging(behind.topic, behind.partition, f"read up to offset {ends[behind]}")
            if (waited_s := time.monotonic() - begun) > SETTLE_S:
                raise open_there
            if waited_s > SOON_S and reminder.due("open"):
                log.warning("WAITING: %s", explain(open_there))
            await asyncio.sleep(0.2)
            ends = await committed.end_offsets(partitions)
        yield Tail(committed, _by_partition(begins), _by_partition(ends))
    except (KafkaError, OSError) as error:
        raise await no_answer(kafka, "the topics cannot be read", error, answers) from error
    finally:
        await close_client(everything, committed)


def _behind(stable: dict[Any, int], ends: dict[Any, int]) -> Any:
    return next((partition for partition in stable if stable[partition] < ends[partition]), None)


def _by_partition(offsets: dict[Any, int]) -> dict[TopicAndPartition, int]:
    return {(partition.topic, partition.partition): offset for partition, offset in offsets.items()}

"""Where a consumer does not stand where its task does: finding out why, and saying what it means."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from agents.kafka.source_check import GIVE_UP_S
from agents.worker.ingest.partition_task import SourceTask

log = logging.getLogger(__name__)

Look = Callable[[], Awaitable[None]]
"""Looks whether sources have changed, and closes the tasks of those that have."""


async def pass_over(consumer: Any, task: SourceTask, position: int, *, look: Look) -> None:
    """The consumer is at `position`: find out why nothing came from where the task stands up to there.

    Markers of transactions and compaction leave offsets empty. Where the topic has since lost its head, records were
    deleted unread. Where the consumer went back it is another topic, or one that lost its tail: a Kafka consumer begins
    again with the topic where the broker knows of no offset as high as its own.
    """
    if position < task.position and task.position != task.went_back_from:
        await look()
        if (end := await _asked(consumer.end_offsets, task, look)) is not None:
            counted = f"counted as LOST from {end} on" if end < task.position else "how many cannot be told"
            log.error(
                "ingest of %s: the source lost its tail: it was read up to offset %d, and other records come at "
                "offsets below (unclean leader election, or an older copy). Which of them are new cannot be told: they "
                "are passed over; %s. What to do: unclean.leader.election.enable=false, min.insync.replicas=2 "
                '(docs/operations.md, "A source lost its tail")',
                task, task.position, counted,
            )  # fmt: skip
            task.went_back(end)
            if end < task.position:  # all that is before is known
                consumer.seek(task.source, end)
    elif position > max(task.position, task.explained):
        begin = await _asked(consumer.beginning_offsets, task, look)
        if begin is not None:
            task.lose(min(begin, position))
    task.explained = position


async def _asked(ask: Callable[..., Awaitable[Any]], task: SourceTask, look: Look) -> int | None:
    """An offset of the task's partition; None where it is closed meanwhile, since nobody answers for a lost topic."""
    while not task.closed:
        try:
            async with asyncio.timeout(GIVE_UP_S):
                return int((await ask([task.source]))[task.source])
        except TimeoutError:
            await look()
    return None

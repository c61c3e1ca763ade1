"""Where a consumer does not stand where its owner does: finding out why, and saying what it means."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from agents.kafka.source_check import GIVE_UP_S
from agents.worker.ingest.partition_task import SourceOwner

log = logging.getLogger(__name__)

Look = Callable[[], Awaitable[None]]
"""Looks whether sources have changed, and closes the owners of those that have."""


async def pass_over(consumer: Any, owner: SourceOwner, position: int, *, look: Look) -> None:
    """The consumer is at `position`: find out why nothing came from where the owner stands up to there.

    Markers of transactions and compaction leave offsets empty. Where the topic has since lost its head, records were
    deleted unread. Where the consumer went back it is another topic, or one that lost its tail: a Kafka consumer begins
    again with the topic where the broker knows of no offset as high as its own.
    """
    if position < owner.position and owner.position != owner.went_back_from:
        await look()
        if (end := await _asked(consumer.end_offsets, owner, look)) is not None:
            counted = f"counted as LOST from {end} on" if end < owner.position else "how many cannot be told"
            log.error(
                "ingest of %s: the source lost its tail: it was read up to offset %d, and other records come at "
                "offsets below (unclean leader election, or an older copy). Which of them are new cannot be told: they "
                "are passed over; %s. What to do: unclean.leader.election.enable=false, min.insync.replicas=2 "
                '(docs/operations.md, "A source lost its tail")',
                owner, owner.position, counted,
            )  # fmt: skip
            owner.went_back(end)
            if end < owner.position:  # all that is before is known
                consumer.seek(owner.source, end)
    elif position > max(owner.position, owner.explained):
        begin = await _asked(consumer.beginning_offsets, owner, look)
        if begin is not None:
            owner.lose(min(begin, position))
    owner.explained = position


async def _asked(ask: Callable[..., Awaitable[Any]], owner: SourceOwner, look: Look) -> int | None:
    """An offset of the owner's partition; None where it is closed meanwhile, since nobody answers for a lost topic."""
    while not owner.closed:
        try:
            async with asyncio.timeout(GIVE_UP_S):
                return int((await ask([owner.source]))[owner.source])
        except TimeoutError:
            await look()
    return None

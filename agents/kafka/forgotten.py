"""A transactional id that the cluster has forgotten, because nobody used it for long: its writer gets it anew.

Brokers do so after `transactional.id.expiration.ms`, seven days by default, which a stream with steps of a month meets
at each of them. Nothing of the transaction that met it was written: its first request is what was refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from agents.kafka.clients import TRANSACTION_TIMEOUT_MS, close_client, fenced_producer
from agents.kafka.tail import tail
from schemas.errors import OutcomeUnknownError

if TYPE_CHECKING:
    from agents.kafka.transactions import OneChanceProducer
    from schemas.config import Kafka
    from schemas.topics import TopicAndPartition

log = logging.getLogger(__name__)


async def fenced_anew(
    kafka: Kafka,
    transactional_id: str,
    tp: TopicAndPartition,
    same: Callable[[Any], bool],
    *,
    timeout_ms: int = TRANSACTION_TIMEOUT_MS,
) -> OneChanceProducer:
    """A producer in place of one whose transactional id the cluster has forgotten, for a writer that goes on with what
    it has in memory.

    Who had the id meanwhile may be forgotten too, so no fence tells of it. What it committed does: nobody but a holder
    of the id writes to `tp`, so where its newest record is the one that this writer knows, nothing was.

    Args: tp: a partition to which every transaction of the id writes. same: whether its newest committed record, None
        where there is none, is the one that is known.
    Raises: BrokerError, also where it is not: begin anew, and read what was committed.
    """
    producer = await fenced_producer(kafka, transactional_id, timeout_ms=timeout_ms)
    try:
        # Behind the fence: nobody adds to it any more.
        async with tail(kafka, [tp]) as end:
            if not same(await end.newest(tp)):
                raise OutcomeUnknownError(
                    f"{tp[0]}-{tp[1]} does not end as transactional id {transactional_id} left it, and the cluster had "
                    "forgotten that id: another holder of it may have written there"
                )
    except BaseException:
        await close_client(producer)
        raise
    log.info(
        "transactional id %s was forgotten by the cluster, as nobody had used it: it has it anew", transactional_id
    )
    return producer

"""Requests that arrive after their sender has given up: what the broker says to them."""

from __future__ import annotations

import io

from aiokafka.errors import InvalidProducerEpoch, InvalidTxnState

from agents.kafka.transactions import WITH_EPOCH
from tests.crash.proxy.server import Held

SHORT_TIMEOUT_MS = 1_500
"""How long a sender waits for an answer here: a held request comes after that, however long it takes."""
PRODUCER_FENCED = 90  # which aiokafka has no number for
REFUSED = {InvalidProducerEpoch.errno, InvalidTxnState.errno, PRODUCER_FENCED}
ANSWERS = {(each.API_KEY, each.API_VERSION): each.RESPONSE_TYPE for request in WITH_EPOCH for each in request._CLASSES}


async def refused(held: Held) -> bool:
    """Let a request arrive; whether the broker wants nothing more with its epoch."""
    held.release()
    data = await held.answer
    answer = ANSWERS[held.request.api, held.request.version].decode(io.BytesIO(data[4:]))  # behind the correlation id
    if hasattr(answer, "error_code"):
        return answer.error_code in REFUSED
    ((_, (partition, *_)),) = answer.errors if hasattr(answer, "errors") else answer.topics
    return partition[1] in REFUSED

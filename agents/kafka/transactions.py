"""A transactional producer that sends nothing more as soon as it cannot know what came of a request.

aiokafka 0.14 repeats a request that was not answered, with the same epoch, and so do its loops around `EndTxn`,
`AddPartitionsToTxn`, `AddOffsetsToTxn`, `TxnOffsetCommit` and `Produce`. The first copy may still be on its way: an
`EndTxn` that comes late ends the NEXT transaction in the middle (KAFKA-17754), a `TxnOffsetCommit` sets that one's
offset back. Kafka's own answer to it (KIP-890: a new epoch after each transaction) needs `EndTxn` version 5, and
aiokafka speaks version 0.

Here a request goes out once. Without an answer the producer is lost: whoever waits for it is told, and no request
with its epoch is sent again, neither by the loops nor by what they have under way. A new producer of the same id gets
a new epoch (`InitProducerId`); the broker refuses what is still on its way with the old one, and only then is it read
what was committed. All of that is done where every request passes, `AIOKafkaClient.send`, and rests on aiokafka's
inside: the version is pinned below 0.15, and tests/crash/test_torn_commits.py holds each of the five requests.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    CoordinatorNotAvailableError,
    IncompatibleBrokerVersion,
    KafkaError,
    NodeNotReadyError,
    NotCoordinatorError,
    RequestTimedOutError,
)
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)

from schemas.errors import OutcomeUnknownError

WITH_EPOCH = (
    ProduceRequest, AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, TxnOffsetCommitRequest, EndTxnRequest,
)  # fmt: skip
# Answers to `EndTxn` by a coordinator that may have written the end of the transaction and lost its office while it
# did. aiokafka asks again; a coordinator that is loading or busy with the transaction before has written nothing.
UNDECIDED = frozenset(
    error.errno for error in (CoordinatorNotAvailableError, NotCoordinatorError, RequestTimedOutError)
)
NOTHING_SENT = (NodeNotReadyError, IncompatibleBrokerVersion)


class OneChanceProducer(AIOKafkaProducer):
    """See the module. Every request that is not answered, or not for certain, raises OutcomeUnknownError once, for all
    that wait for the producer, and from every later call of a transaction.

    Attributes:
        lost: what was not answered; None as long as all is known.
    """

    def __init__(self, *, transactional_id: str, **settings: Any) -> None:
        super().__init__(transactional_id=transactional_id, **settings)
        self.lost: OutcomeUnknownError | None = None
        self._transactional_id = transactional_id
        self._send_request, self.client.send = self.client.send, self._send_once
        self._fail_all, self._sender._fail_all = self._sender._fail_all, self._sender_ended

    async def _send_once(self, node_id: int, request: Any, **settings: Any) -> Any:
        if not isinstance(request, WITH_EPOCH):
            return await self._send_request(node_id, request, **settings)
        if self.lost is not None:
            raise _final(self.lost)
        try:
            answer = await self._send_request(node_id, request, **settings)
        except NOTHING_SENT:
            raise
        except Exception as error:
            raise _final(self._lose(request, type(error).__name__)) from error
        except asyncio.CancelledError:
            self._lose(request, "it was cancelled")
            raise
        if isinstance(request, EndTxnRequest) and answer.error_code in UNDECIDED:
            raise _final(self._lose(request, f"error {answer.error_code}"))
        if self.lost is not None:  # by another request meanwhile; aiokafka's books are closed
            raise _final(self.lost)
        return answer

    def _lose(self, request: Any, why: str) -> OutcomeUnknownError:
        name = type(request).__name__.removesuffix("Request")
        self.lost = lost = OutcomeUnknownError(
            f"{name} of transactional id {self._transactional_id} was not answered for certain ({why}): whether it was "
            "carried out is not known, so this producer sends nothing more; the next one ends or adopts what it began"
        )
        self._message_accumulator.fail_all(lost)
        self._txn_manager.fatal_error(lost)
        # Read here, also where nobody waits for it, or asyncio says that nobody did.
        self._txn_manager.wait_for_transaction_end().exception()
        for batches in self._message_accumulator._batches.values():
            for batch in batches:
                batch._drain_waiter.exception()
        return lost

    def _sender_ended(self, task: asyncio.Task[None]) -> None:
        """What aiokafka does when its sender ends; of one that was lost, everybody knows already."""
        if self.lost is None:
            self._fail_all(task)
        elif not task.cancelled():
            task.exception()

    def _ensure_transactional(self) -> None:
        """Called by aiokafka at the head of begin, commit, abort and of sending offsets."""
        if self.lost is not None:
            raise self.lost
        super()._ensure_transactional()


def _final(lost: OutcomeUnknownError) -> KafkaError:
    """The same for aiokafka's sender: an error of its own tree, and one that is not worth another try."""
    return KafkaError(str(lost))


__all__ = ["OneChanceProducer"]

"""A transactional producer that sends nothing more as soon as it cannot know what came of a request.

aiokafka 0.14 repeats a request that was not answered, with the same epoch, and so do its loops around `EndTxn`,
`AddPartitionsToTxn`, `AddOffsetsToTxn`, `TxnOffsetCommit` and `Produce`. The first copy may still be on its way: an
`EndTxn` that comes late ends the NEXT transaction in the middle (KAFKA-17754), a `TxnOffsetCommit` sets that one's
offset back. Kafka's own answer to it (KIP-890: a new epoch after each transaction) needs `EndTxn` version 5, and
aiokafka speaks version 0.

Every answer is looked at as well (`agents.kafka.answers`): a request that may be sent again is, for a limited time, and
what aiokafka only finds unexpected is said by its name.

Here a request goes out once. Without an answer the producer is lost: whoever waits for it is told, and no request
with its epoch is sent again, neither by the loops nor by what they have under way. A new producer of the same id gets
a new epoch (`InitProducerId`); the broker refuses what is still on its way with the old one, and only then is it read
what was committed. All of that is done where every request passes, `AIOKafkaClient.send`, and rests on aiokafka's
inside: the version is pinned below 0.15, and tests/crash/test_torn_commits.py holds each of the five requests.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    BrokerResponseError,
    CoordinatorNotAvailableError,
    IllegalOperation,
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

from agents.kafka.answers import PATIENCE_S, Answers, name_of, refusal, request_name
from schemas.errors import BrokerError, OutcomeUnknownError, RefusalError

WITH_EPOCH = (
    ProduceRequest, AddPartitionsToTxnRequest, AddOffsetsToTxnRequest, TxnOffsetCommitRequest, EndTxnRequest,
)  # fmt: skip
# Answers to `EndTxn` by a coordinator that may have written the end of the transaction and lost its office while it
# did. aiokafka asks again; a coordinator that is loading or busy with the transaction before has written nothing.
UNDECIDED = frozenset(
    error.errno for error in (CoordinatorNotAvailableError, NotCoordinatorError, RequestTimedOutError)
)
NOTHING_SENT = (NodeNotReadyError, IncompatibleBrokerVersion)
SHARE = 0.8
"""Of the time that a transaction may take: who is answered with the same error for longer says so, before the broker
ends the transaction and the producer only hears that it was fenced."""


def _named(
    call: Callable[..., Awaitable[Any]],
) -> Callable[..., Awaitable[Any]]:
    """Name what a producer failed of, for a call of aiokafka's that only asserts that it has not.

    Raises: what it failed of; OutcomeUnknownError.
    """

    @functools.wraps(call)
    async def named(self: OneChanceProducer, *args: Any, **settings: Any) -> Any:
        try:
            return await call(self, *args, **settings)
        except (AssertionError, IllegalOperation) as error:
            ended = self._txn_manager.wait_for_transaction_end()
            refused = ended.exception() if ended is not None and ended.done() else None
            if (failed := self.lost or self._failed or refused) is not None:
                raise failed from failed.__cause__
            raise OutcomeUnknownError(
                f"the producer of transactional id {self._transactional_id} can do nothing more in its state "
                f"{self._txn_manager.state.name}: the next one ends or adopts what it began"
            ) from error

    return named


class _Topics(set[str]):
    """The topics of which a producer asks where they are: those that it has written to.

    Of an empty set aiokafka would ask for every topic of the cluster, whenever a coordinator is not there yet, and keep
    the answer, in each of a worker's producers: 140 MB of 200 streams with 800 public topics.
    """

    def __bool__(self) -> bool:
        return True


class OneChanceProducer(AIOKafkaProducer):
    """See the module. Every request that is not answered, or not for certain, raises OutcomeUnknownError once, for all
    that wait for the producer, and from every later call of a transaction. So does one that is refused, with an error
    of its own.

    Attributes:
        lost: what was not answered, or refused; None as long as all is well.
        answers: what it is answered.
    """

    def __init__(self, *, transactional_id: str, transaction_timeout_ms: int, **settings: Any) -> None:
        super().__init__(transactional_id=transactional_id, transaction_timeout_ms=transaction_timeout_ms, **settings)
        self.lost: BrokerError | None = None
        self.answers = Answers()
        self._failed: BaseException | None = None
        self._patience_s = min(PATIENCE_S, SHARE * transaction_timeout_ms / 1000)
        self._transactional_id = transactional_id
        self.client._topics = _Topics()
        self._send_request, self.client.send = self.client.send, self._send_once
        self._fail_all, self._sender._fail_all = self._sender._fail_all, self._sender_ended

    async def _send_once(self, node_id: int, request: Any, **settings: Any) -> Any:
        if not isinstance(request, WITH_EPOCH):
            answer = await self._send_request(node_id, request, **settings)
            self.answers.hear(request, answer)
            return answer
        if self.lost is not None:
            raise _final(self.lost)
        try:
            answer = await self._send_request(node_id, request, **settings)
        except NOTHING_SENT:
            raise
        except Exception as error:
            raise _final(self._lose(self._unknown(request, type(error).__name__))) from error
        except asyncio.CancelledError:
            self._lose(self._unknown(request, "it was cancelled"))
            raise
        if isinstance(request, EndTxnRequest) and answer.error_code in UNDECIDED:
            raise _final(self._lose(self._unknown(request, f"error {answer.error_code}")))
        for name, place, code in self.answers.hear(request, answer):
            if (refused := refusal(name, place, code, f"transactional id {self._transactional_id}")) is not None:
                raise _final(self._lose(refused))
        if (lasting := self.answers.lasting(self._patience_s)) is not None:
            raise _final(self._lose(lasting))
        if self.lost is not None:  # by another request meanwhile; aiokafka's books are closed
            raise _final(self.lost)
        return answer

    def _unknown(self, request: Any, why: str) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"{request_name(request)} of transactional id {self._transactional_id} was not answered for certain "
            f"({why}): whether it was carried out is not known, so this producer sends nothing more; the next one ends "
            "or adopts what it began"
        )

    def _lose(self, lost: BrokerError) -> BrokerError:
        self.lost = lost
        self._message_accumulator.fail_all(lost)
        self._txn_manager.fatal_error(lost)
        # Read here, also where nobody waits for it, or asyncio says that nobody did.
        self._txn_manager.wait_for_transaction_end().exception()
        accumulator = self._message_accumulator
        for batch in (*itertools.chain.from_iterable(accumulator._batches.values()), *accumulator._pending_batches):
            for waiter in (batch._drain_waiter, *(future for future, _ in batch._msg_futures)):
                if waiter.done() and not waiter.cancelled():
                    waiter.exception()
        # Else aiokafka's sender finds batches that have failed, and ends with an error of its own.
        accumulator._batches.clear()
        return lost

    def _sender_ended(self, task: asyncio.Task[None]) -> None:
        """What aiokafka does when its sender ends; of one that was lost, everybody knows already. An answer that it did
        not expect is named: everybody who waits gets a copy of its error, without what that was raised from.
        """
        if not task.cancelled():
            self._failed = task.exception()
        if self.lost is None and self._failed is not None and isinstance(self._failed.__cause__, BrokerResponseError):
            self._lose(
                RefusalError(
                    f"the cluster answers transactional id {self._transactional_id} with "
                    f"{name_of(self._failed.__cause__.errno)}"
                )
            )
        elif self.lost is None:
            self._fail_all(task)

    def _ensure_transactional(self) -> None:
        """Called by aiokafka at the head of begin, commit, abort and of sending offsets."""
        if self.lost is not None:
            raise self.lost
        super()._ensure_transactional()

    begin_transaction = _named(AIOKafkaProducer.begin_transaction)
    commit_transaction = _named(AIOKafkaProducer.commit_transaction)
    send = _named(AIOKafkaProducer.send)
    send_batch = _named(AIOKafkaProducer.send_batch)
    send_offsets_to_transaction = _named(AIOKafkaProducer.send_offsets_to_transaction)


def _final(lost: BrokerError) -> KafkaError:
    """Return the same for aiokafka's sender: an error of its own tree, which is not worth another try."""
    return KafkaError(str(lost))

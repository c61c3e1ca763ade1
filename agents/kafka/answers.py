"""What an error in an answer of the cluster means for who asked: the one table by which producers and consumers decide.

aiokafka asks again for as long as an error may pass, in silence and without an end, and of others it says only that
they were unexpected. Here every answer of a client is looked at where it arrives, `AIOKafkaClient.send`. What is not in
the table is named, and stops the worker after a few beginnings (`agents.kafka.lifecycle.leaving`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from aiokafka import errors
from aiokafka.protocol.types import Array, Schema

from agents.kafka.lifecycle.advice import explain
from agents.kafka.lifecycle.logs import Reminder
from schemas.errors import BrokerError, ForgottenIdError, RecordSizeError, RefusalError, UnforeseenAnswerError

log = logging.getLogger(__name__)

PATIENCE_S = 60.0
"""How long a consumer may be answered with an error that passes before that is said, once a minute."""
FORGET_S = 20.0
"""Who asks again does so sooner; what was not answered for so long is no longer asked."""

Meaning = Literal["passes", "library", "forgotten", "size", "unforeseen"]
MEANINGS: dict[Meaning, tuple[type[errors.BrokerResponseError], ...]] = {
    # A broker that starts, ends or follows; a group that finds its members; a transaction whose end is being written.
    "passes": (
        errors.OffsetOutOfRangeError, errors.CorruptRecordException, errors.UnknownTopicOrPartitionError,
        errors.LeaderNotAvailableError, errors.NotLeaderForPartitionError, errors.RequestTimedOutError,
        errors.BrokerNotAvailableError, errors.ReplicaNotAvailableError, errors.StaleLeaderEpochCodeError,
        errors.GroupLoadInProgressError, errors.GroupCoordinatorNotAvailableError, errors.NotCoordinatorForGroupError,
        errors.NotEnoughReplicasError, errors.NotEnoughReplicasAfterAppendError, errors.NotControllerError,
        errors.ConcurrentTransactions, errors.TransactionCoordinatorFenced, errors.OperationNotAttempted,
        errors.KafkaStorageError, errors.ReassignmentInProgress, errors.FetchSessionIdNotFound,
        errors.InvalidFetchSessionEpoch, errors.IllegalGenerationError, errors.UnknownMemberIdError,
        errors.RebalanceInProgressError, errors.MemberIdRequired,
    ),
    # aiokafka knows what to do with these, or raises them by their names: fences, and what a cluster may refuse. Not
    # DuplicateSequenceNumber, after which it says that the record is written, at offset -1: where a block stands
    # decides which blocks are kept for the bounds of users.
    "library": (
        errors.OutOfOrderSequenceNumber, errors.InvalidProducerEpoch, errors.InvalidTxnState,
        errors.TopicAuthorizationFailedError, errors.GroupAuthorizationFailedError,
        errors.ClusterAuthorizationFailedError, errors.TransactionalIdAuthorizationFailed,
        errors.UnsupportedSaslMechanismError, errors.IllegalSaslStateError, errors.SaslAuthenticationFailed,
    ),
    # transactional.id.expiration.ms, producer.id.expiration.ms
    "forgotten": (errors.InvalidProducerIdMapping, errors.UnknownProducerId),
    "size": (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError),
}  # fmt: skip
BY_CODE: dict[int, Meaning] = {
    **{kind.errno: meaning for meaning, kinds in MEANINGS.items() for kind in kinds},
    # Those that aiokafka has no class for: leaders and offsets that are not known yet, and quotas; what
    # `agents.kafka.membership` takes in; a fence.
    74: "passes", 75: "passes", 78: "passes", 89: "passes", 82: "library", 90: "library",
}  # fmt: skip


def meaning_of(code: int) -> Meaning:
    return BY_CODE.get(code, "unforeseen")


def name_of(code: int) -> str:
    """Return the name of an error as in Kafka's documents, and its number.

    A client that is older than the cluster knows the number alone.
    """
    kind = errors.kafka_errors.get(code)
    return f"error {code}" if kind is None else f"{kind.__name__} (error {code})"


OTHERS_SEE = frozenset(
    {errors.UnknownTopicOrPartitionError.errno} | {code for code, meaning in BY_CODE.items() if meaning == "library"}
)
Place = tuple[str, int | None]
"""Topic and partition; ("", None) of a request that is about neither."""


def codes_in(answer: Any) -> Iterator[tuple[Place, int]]:
    """Yield what an answer says of each topic and partition; 0 is no error."""
    return _codes(answer.SCHEMA, [getattr(answer, name) for name in answer.SCHEMA.names], ("", None))


def _codes(schema: Schema, values: Any, place: Place) -> Iterator[tuple[Place, int]]:
    found = dict(zip(schema.names, values, strict=False))
    topic, partition = found.get("topic", place[0]), found.get("partition", place[1])
    place = (topic if isinstance(topic, str) else place[0], partition if isinstance(partition, int) else place[1])
    for kind, (name, value) in zip(schema.fields, found.items(), strict=False):
        if name == "error_code":
            yield place, value
        elif isinstance(kind, Array) and isinstance(kind.array_of, Schema):
            for row in value or ():
                yield from _codes(kind.array_of, row, place)


@dataclass(slots=True)
class _Heard:
    code: int
    since: float
    last: float


class Answers:
    """What one client is answered: errors that were not followed by an answer without one, and since when.

    Args: apart_from: codes that are somebody else's business.
    """

    def __init__(self, apart_from: Collection[int] = ()) -> None:
        self._apart_from = apart_from
        self._heard: dict[tuple[str, Place], _Heard] = {}

    def hear(self, request: Any, answer: Any) -> list[tuple[str, Place, int]]:
        """Take an answer in, and return the errors in it, each with the name of its request and its place."""
        name, now, found = request_name(request), time.monotonic(), []
        for place, code in codes_in(answer):
            if not code:
                self._heard.pop((name, place), None)
                continue
            if code in self._apart_from:
                continue
            heard = self._heard.get((name, place))
            if heard is None or heard.code != code or now - heard.last > FORGET_S:
                heard = self._heard[name, place] = _Heard(code, now, now)
            heard.last = now
            found.append((name, place, code))
        return found

    def lasting(self, patience_s: float = 0.0) -> RefusalError | None:
        """Return the error that has been answered for longest, where that is longer than may be."""
        now = time.monotonic()
        asked = [item for item in self._heard.items() if now - item[1].last <= FORGET_S]
        if not asked:
            return None
        (name, place), heard = min(asked, key=lambda item: item[1].since)
        if (lasts_s := now - heard.since) < patience_s:
            return None
        kind = UnforeseenAnswerError if meaning_of(heard.code) == "unforeseen" else RefusalError
        return kind(f"the cluster has answered {_what(name, place)} with {name_of(heard.code)} for {lasts_s:.0f} s")


def request_name(request: Any) -> str:
    return type(request).__name__.lstrip("_").removesuffix("Request")


def _what(name: str, place: Place) -> str:
    topic, partition = place
    return f"{name} of {topic}" + ("" if partition is None else f"-{partition}") if topic else name


def refusal(name: str, place: Place, code: int, who: str) -> BrokerError | None:
    """Return what a producer must not go on after; None where it may ask again, or where aiokafka knows what to do."""
    what = f"the cluster answers {_what(name, place)} of {who} with {name_of(code)}"
    match meaning_of(code):
        case "forgotten":
            return ForgottenIdError(f"{what}: it has forgotten an id that nobody used for long")
        case "size":
            return RecordSizeError(
                f"{place[0]}: takes no record or batch of the size that the job writes there ({name_of(code)}). "
                "Fix: raise max.message.bytes of the topic; privstream topics CONFIG --check has the command"
            )
        case "unforeseen":
            return UnforeseenAnswerError(what)
    # What aiokafka has no class for it cannot ask again after, and would call unknown.
    return None if code in errors.kafka_errors else RefusalError(what)


def heed(client: Any, gives_up: Callable[[BrokerError], Awaitable[None]] | None = None) -> Answers:
    """Look at the answers of a client that reads. Errors that last are said; one that nobody foresaw ends
    the worker by `gives_up`. Returns: what it is answered.

    Not of topics that are unknown or forbidden: `agents.worker.topic_watch` and the watch of the sources see to these,
    and stop the streams that they are of.
    """
    answers, reminder, send = Answers(OTHERS_SEE), Reminder(), client.send

    async def heeding(node_id: int, request: Any, **settings: Any) -> Any:
        answer = await send(node_id, request, **settings)
        for name, place, code in answers.hear(request, answer):
            if gives_up is not None and meaning_of(code) == "unforeseen":
                await gives_up(UnforeseenAnswerError(f"the cluster answers {_what(name, place)} with {name_of(code)}"))
        lasting = answers.lasting(PATIENCE_S)
        if gives_up is not None and lasting is not None and reminder.due(str(lasting).rpartition(" for ")[0]):
            log.warning("WAITING: %s", explain(lasting))
        return answer

    client.send = heeding
    return answers

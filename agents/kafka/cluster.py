"""Whether the cluster answers, and if not, why: clients of aiokafka only say that they could not bootstrap."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from typing import TYPE_CHECKING

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    BrokerResponseError,
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationFailed,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
    UnsupportedSaslMechanismError,
)

from agents.kafka.answers import refusal
from agents.kafka.lifecycle.causes import causes
from agents.kafka.lifecycle.descriptors import no_descriptors
from agents.kafka.lifecycle.logs import Reminder
from agents.kafka.refusals import CUT_OFF, no_answer, unanswered
from agents.kafka.security import security_kwargs
from schemas.errors import (
    AccessError,
    BrokerError,
    PrivstreamError,
    ReplacedError,
    TopicError,
)

if TYPE_CHECKING:
    from schemas.config import Kafka

log = logging.getLogger(__name__)

PROBE_MS = 5_000
LOOK_S = 1.0
AUTHENTICATION = (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    IllegalSaslStateError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
RIGHTS = (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailed,
)


def access_error(error: BaseException) -> AccessError | None:
    """The refusal behind an error, if that is what it is. A name in an error of Kafka's is a topic's or a group's."""
    for seen in causes(error):
        if isinstance(seen, AccessError):
            return seen
        if isinstance(seen, AUTHENTICATION):
            return AccessError(f"the cluster refuses the name, the password or the mechanism ({type(seen).__name__})")
        if isinstance(seen, ssl.SSLError) and not isinstance(seen, CUT_OFF):
            return AccessError(f"no TLS with the cluster: {getattr(seen, 'reason', None) or type(seen).__name__}")
        if isinstance(seen, RIGHTS):
            what = f" of {seen.args[0]}" if isinstance(seen, BrokerResponseError) and seen.args else ""
            return AccessError(f"an ACL is missing: {type(seen).__name__}{what}")
    return None


def said(error: BaseException) -> BaseException:
    """What is to be said of an error, and decided by: what a client met, where that is behind what it raised."""
    return access_error(error) or no_descriptors(error) or _refused(error) or error


def _refused(error: BaseException) -> BrokerError | None:
    """An answer of the cluster after which nobody may go on."""
    return (
        refusal("a request", ("", None), error.errno, "this worker") if isinstance(error, BrokerResponseError) else None
    )


async def probe(kafka: Kafka) -> None:
    """Whether a server answers, and the cluster behind it.

    Raises: AccessError if it is refused, BrokerError if there is no answer, ConfigError.
    """
    if (error := await unanswered(kafka, f"no answer from the cluster at {kafka.bootstrap}")) is not None:
        raise error
    await _ask_for_brokers(kafka)


async def _ask_for_brokers(kafka: Kafka) -> None:
    """A broker that listens may not serve yet, and may advertise an address that cannot be reached from here."""
    admin = AIOKafkaAdminClient(
        bootstrap_servers=kafka.bootstrap, request_timeout_ms=PROBE_MS, **security_kwargs(kafka)
    )
    try:
        async with asyncio.timeout(2 * PROBE_MS / 1000):
            await admin.start()
            cluster = await admin.describe_cluster()
    except (KafkaError, OSError, TimeoutError) as error:
        what = f"the cluster at {kafka.bootstrap} takes connections and does not answer"
        raise await no_answer(kafka, what, error) from error
    finally:
        await admin.close()
    if not cluster["brokers"]:
        raise BrokerError(f"the cluster at {kafka.bootstrap} has no broker that serves yet")


async def until_it_answers(kafka: Kafka, *, look_s: float = LOOK_S) -> None:
    """Wait for the cluster, with one line a minute for each reason. Raises: AccessError, ConfigError."""
    reminder, begun, waited = Reminder(), time.monotonic(), False
    while True:
        try:
            await probe(kafka)
        except AccessError:
            raise
        except BrokerError as error:
            if reminder.due(str(error)):
                log.warning("WAITING for %.0f s: %s", time.monotonic() - begun, error)
            waited = True
            await asyncio.sleep(look_s)
            continue
        if waited:
            log.warning("the cluster answers again, after %.0f s", time.monotonic() - begun)
        return


def passes(error: BaseException) -> bool:
    """Whether an error is one of the cluster or the network, which another life of the worker may not meet again."""
    error = said(error)
    if isinstance(error, AccessError):
        return False
    if isinstance(error, PrivstreamError):
        return isinstance(error, BrokerError) and not isinstance(error, (ReplacedError, TopicError))
    return isinstance(error, (KafkaError, ConnectionError, TimeoutError, ssl.SSLError))

"""Whether the cluster answers, and if not, why, and what the operator should do.

A client that is refused only says that it could not connect, whatever the reason. `unanswered` asks each server by
itself, and names what it met: a password, a certificate, a token, no file descriptor left, or nobody at home.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    BrokerResponseError,
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from aiokafka.protocol.metadata import MetadataRequest

from agents.kafka.answers import refusal
from agents.kafka.lifecycle.advice import WHAT_TO_DO
from agents.kafka.lifecycle.logs import Reminder
from agents.kafka.security import security_kwargs
from schemas.errors import AccessError, BrokerError, DescriptorsError, PrivstreamError, ReplacedError, TopicError

if TYPE_CHECKING:
    from agents.kafka.answers import Answers
    from schemas.config import Kafka

log = logging.getLogger(__name__)


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, what it was raised from, and so on: each once, since a chain can lead back into itself.

    What stopped a stream and then ends the worker is the reason for its own context.
    """
    seen: BaseException | None = error
    before: list[BaseException] = []
    while seen is not None and not any(each is seen for each in before):
        yield seen
        before.append(seen)
        seen = seen.__cause__ or seen.__context__


def no_descriptors(error: BaseException) -> DescriptorsError | None:
    """Return what an error says, or one that it was raised from, where that is it."""
    for seen in causes(error):
        if isinstance(seen, DescriptorsError):
            return seen
        if isinstance(seen, OSError) and seen.errno in (errno.EMFILE, errno.ENFILE):
            return too_few()
    return None


def too_few() -> DescriptorsError:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = "no limit" if hard == resource.RLIM_INFINITY else str(hard)
    return DescriptorsError(
        f"no file descriptor is left: this process may have {soft} files and connections open at a time (it may be "
        f"raised up to {most}), or the machine has no more of them"
    )


ASK_TIMEOUT_MS = 8_000
NO_RIGHTS = "AuthorizationFailed"
"""In the names of aiokafka's errors of topics, groups, transactional ids and the cluster."""
ALERT_TRIES = 3
CUT_OFF = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)  # the connection went, nobody refused


async def no_answer(kafka: Kafka, what: str, error: BaseException, answers: Answers | None = None) -> BrokerError:
    """Return the error to raise where a client could not be started: AccessError where every server refuses it.

    Args:
        what: what cannot be done, to begin the sentence with.
        error: what the client said, which is named where asking again finds nothing wrong.
        answers: what the client was answered.
    Raises: DescriptorsError.
    """
    if isinstance(error, KafkaError) and NO_RIGHTS in type(error).__name__:
        todo = "give it the rights that privstream topics --acls prints"
        return AccessError(f"{what}: {error}. {_who(kafka)} may not. What to do: {todo}")
    if (away := await unanswered(kafka, what)) is not None:
        return away
    if answers is not None and (refused := answers.lasting()) is not None:
        return type(refused)(f"{what}: {refused}")
    return BrokerError(f"{what}: {type(error).__name__}")


async def unanswered(kafka: Kafka, what: str) -> BrokerError | None:
    """Ask all servers at once: None as soon as one answers, else the error to raise, AccessError where each refuses.

    Raises: ConfigError, DescriptorsError.
    """
    settings = security_kwargs(kafka)
    asking = [asyncio.ensure_future(ask(server, settings, kafka)) for server in kafka.servers]
    try:
        for each in asyncio.as_completed(asking):
            if await each is None:
                return None
    finally:
        for task in asking:
            task.cancel()
        await asyncio.wait(asking)
    reasons = [task.result() for task in asking]
    kind = AccessError if all(isinstance(each, AccessError) for each in reasons) else BrokerError
    # What to do is said once, behind all that is wrong: servers of one cluster seldom differ in it.
    happened, todo = zip(*(str(each).split(f". {WHAT_TO_DO} ") for each in reasons), strict=True)
    return kind(f"{what}: {'; '.join(dict.fromkeys(happened))}. {WHAT_TO_DO} {'; '.join(dict.fromkeys(todo))}")


async def ask(server: str, settings: Mapping[str, Any], kafka: Kafka) -> BrokerError | None:
    """Return why one server does not answer and what to do, in words that begin with its address; None: it does.

    It is an AccessError where the server is there and does not take this client as it comes: waiting does not help.

    Args: settings: those of `security_kwargs`. Raises: DescriptorsError.
    """
    host, port = server.rsplit(":", 1)
    connection: AIOKafkaConnection | None = None
    try:
        connection = await create_conn(host.strip("[]"), int(port), request_timeout_ms=ASK_TIMEOUT_MS, **settings)
        await connection.send(MetadataRequest([]))
        return None
    except SaslAuthenticationFailed:
        todo = "check kafka.sasl_username and the password in kafka.sasl_password_file"
        if kafka.sasl_mechanism == "OAUTHBEARER":
            todo = "renew the token in kafka.sasl_token_file: it may have expired, or be meant for another cluster"
        return AccessError(f"authentication failed: {server} refused {_who(kafka)}. What to do: {todo}")
    except (UnsupportedSaslMechanismError, IllegalSaslStateError):
        return AccessError(
            f"authentication failed: {server} does not offer {kafka.sasl_mechanism}. What to do: correct "
            "kafka.sasl_mechanism, or enable it at the brokers (sasl.enabled.mechanisms)"
        )
    except (KafkaError, OSError, TimeoutError) as error:
        if (too_few := no_descriptors(error)) is not None:
            raise too_few from error
        seen = await _alert(host.strip("[]"), int(port), settings.get("ssl_context")) or error
        refused = isinstance(seen, ssl.SSLError) and not isinstance(seen, CUT_OFF)
        return (AccessError if refused else BrokerError)(f"{server} {_why(seen, kafka)}")
    finally:
        if connection is not None:
            connection.close()


async def _alert(host: str, port: int, context: ssl.SSLContext | None) -> ssl.SSLError | None:
    """Return what a broker says to our certificate: under TLS 1.3 that comes after the handshake, and is lost if the
    client has sent something by then; now and then all the same, since the broker hangs up as it speaks.
    """
    for _ in range(ALERT_TRIES if context is not None else 0):
        try:
            async with asyncio.timeout(ASK_TIMEOUT_MS / 1000):
                reader, writer = await asyncio.open_connection(host, port, ssl=context)
                try:
                    await reader.read(1)
                finally:
                    writer.transport.abort()  # nothing is said to the end
        except ssl.SSLError as error:
            return error
        except TimeoutError:
            return None
        except OSError:
            continue
    return None


def _why(error: BaseException, kafka: Kafka) -> str:
    tls = error if isinstance(error, ssl.SSLError) else None
    if isinstance(tls, ssl.SSLCertVerificationError):
        return (
            f"has a certificate that is refused here: {tls.verify_message}. What to do: name the authority that signed "
            "it in kafka.ssl_cafile, renew it, or connect by a name that it holds"
        )
    if tls is not None and "ALERT" in str(tls.reason) and ("CERT" in str(tls.reason) or "CA" in str(tls.reason)):
        return (
            f"refused our certificate ({tls.reason}). What to do: name a certificate that is valid now and signed by "
            "an authority that the brokers trust in kafka.ssl_certfile, with its key in kafka.ssl_keyfile"
        )
    if tls is not None:
        return (
            f"does not speak TLS with us ({tls.reason}). What to do: check that the port is the one of "
            f"security_protocol = {kafka.security_protocol}"
        )
    if isinstance(error, socket.gaierror):
        return "is a name that cannot be resolved. What to do: correct kafka.bootstrap"
    if isinstance(error, ConnectionRefusedError):
        return "refused the connection: nothing listens there. What to do: start the broker or correct kafka.bootstrap"
    if isinstance(error, TimeoutError):
        return "did not answer in time. What to do: look at the broker and the network"
    if kafka.ssl_certfile is not None or kafka.security_protocol == "SSL":
        return (
            "ended the connection before it answered. What to do: check kafka.ssl_certfile (brokers may ask for a "
            f"valid one) and that the port is the one of security_protocol = {kafka.security_protocol}"
        )
    return (
        "ended the connection before it answered. What to do: check that the port is the one of "
        f"security_protocol = {kafka.security_protocol}"
    )


def _who(kafka: Kafka) -> str:
    if kafka.sasl_mechanism == "OAUTHBEARER":
        return f"the token of {kafka.sasl_token_file} (OAUTHBEARER)"
    if kafka.sasl_username is not None:
        return f"user {kafka.sasl_username} ({kafka.sasl_mechanism})"
    if kafka.ssl_certfile is not None:
        return f"the certificate of {kafka.ssl_certfile}"
    return "a client without a name"


PROBE_MS = 5_000
LOOK_S = 1.0
AUTHENTICATION = (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    IllegalSaslStateError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)


def access_error(error: BaseException) -> AccessError | None:
    """Return the refusal behind an error, if it is one. A name in an error of Kafka's is a topic's or a group's."""
    for seen in causes(error):
        if isinstance(seen, AccessError):
            return seen
        if isinstance(seen, AUTHENTICATION):
            return AccessError(f"the cluster refuses the name, the password or the mechanism ({type(seen).__name__})")
        if isinstance(seen, ssl.SSLError) and not isinstance(seen, CUT_OFF):
            return AccessError(f"no TLS with the cluster: {getattr(seen, 'reason', None) or type(seen).__name__}")
        if isinstance(seen, KafkaError) and NO_RIGHTS in type(seen).__name__:
            what = f" of {seen.args[0]}" if isinstance(seen, BrokerResponseError) and seen.args else ""
            return AccessError(f"an ACL is missing: {type(seen).__name__}{what}")
    return None


def said(error: BaseException) -> BaseException:
    """Return what is to be said of an error, and decided by: what a client met, where that is behind what it raised."""
    known: BaseException | None = access_error(error) or no_descriptors(error)
    if known is None and isinstance(error, BrokerResponseError):
        known = refusal("a request", ("", None), error.errno, "this worker")
    return known or error


async def probe(kafka: Kafka) -> None:
    """Check that a server answers, and the cluster behind it.

    Raises: AccessError if it is refused, BrokerError if there is no answer, ConfigError.
    """
    if (error := await unanswered(kafka, f"no answer from the cluster at {kafka.bootstrap}")) is not None:
        raise error
    await _ask_for_brokers(kafka)


async def _ask_for_brokers(kafka: Kafka) -> None:
    """Ask for brokers: one that listens may not serve yet, or advertise an address that cannot be reached from here."""
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


async def until_it_answers(kafka: Kafka) -> None:
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
            await asyncio.sleep(LOOK_S)
            continue
        if waited:
            log.warning("the cluster answers again, after %.0f s", time.monotonic() - begun)
        return


def passes(error: BaseException) -> bool:
    """Return whether an error is of the cluster or the network, so that another life of the worker may not meet it."""
    error = said(error)
    if isinstance(error, AccessError):
        return False
    if isinstance(error, PrivstreamError):
        return isinstance(error, BrokerError) and not isinstance(error, (ReplacedError, TopicError))
    return isinstance(error, (KafkaError, ConnectionError, TimeoutError, ssl.SSLError))

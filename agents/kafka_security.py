"""How a client proves who it is to the cluster, and what to tell the operator where that fails.

A client that is refused only says that it could not connect, whatever the reason. `no_answer` asks each server once
more, by itself, and names what it met: a password, a certificate, a token, or nobody at home.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import faust
from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import AIOKafkaConnection, OAuthAuthenticator, create_conn
from aiokafka.errors import (
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from aiokafka.protocol.metadata import MetadataRequest

from schemas.errors import AccessError, BrokerError, ConfigError, ConfigProblem

if TYPE_CHECKING:
    from schemas.config.server import Kafka

ASK_TIMEOUT_MS = 8_000
CUT_OFF = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)  # the connection went, nobody refused


def security_kwargs(kafka: Kafka) -> dict[str, Any]:
    """Protocol, SASL and TLS settings for any aiokafka client. Reads the secret files. Raises: ConfigError."""
    settings: dict[str, Any] = {"security_protocol": kafka.security_protocol}
    if kafka.security_protocol.endswith("SSL"):
        settings["ssl_context"] = _ssl_context(kafka)
    if kafka.security_protocol.startswith("SASL"):
        settings["sasl_mechanism"] = kafka.sasl_mechanism
        if kafka.sasl_token_file is not None:
            settings["sasl_oauth_token_provider"] = TokenFile(kafka.sasl_token_file)
        else:
            settings["sasl_plain_username"] = kafka.sasl_username
            settings["sasl_plain_password"] = _password(kafka)
    return settings


def faust_credentials(kafka: Kafka) -> faust.types.CredentialsT | None:
    """The same for Faust's own clients; None on a cluster without security. Raises: ConfigError."""
    protocol = kafka.security_protocol
    context = _ssl_context(kafka) if protocol.endswith("SSL") else None
    if protocol.startswith("SASL") and kafka.sasl_token_file is not None:
        return faust.OAuthCredentials(oauth_cb=TokenFile(kafka.sasl_token_file), ssl_context=context)
    if protocol.startswith("SASL"):
        return faust.SASLCredentials(
            username=kafka.sasl_username,
            password=_password(kafka),
            mechanism=kafka.sasl_mechanism,
            ssl_context=context,
        )
    return None if context is None else faust.SSLCredentials(context=context)


class TokenFile(AbstractTokenProvider):
    """The bearer token of a file, as it is when a connection is made: whoever renews it replaces the file.

    Raises: ConfigError at once if it cannot be read or is empty. Later that is an OSError, which a client takes for a
    failed connection and tries again: the file may be about to be replaced.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        read_secret(path, key="kafka.sasl_token_file")

    async def token(self) -> str:
        token = self._path.read_bytes().strip()
        if not token or not token.isascii():
            raise OSError(f"{self._path} holds no token")
        return token.decode()


class StrictBearer(OAuthAuthenticator):
    """aiokafka's, and it notices a refusal: a broker answers a bad token with a challenge (RFC 7628), which aiokafka
    0.14 takes for leave. What it then asks comes back empty, and a client believes in a cluster without brokers.
    """

    async def step(self, payload: bytes | None) -> Any:
        if self._token_sent and payload:
            raise SaslAuthenticationFailed("the broker refused the bearer token")
        return await super().step(payload)


# No client can be given an authenticator of its own.
AIOKafkaConnection.authenticator_oauth = lambda self: StrictBearer(
    sasl_oauth_token_provider=self._sasl_oauth_token_provider
)


def read_secret(path: Path, *, key: str) -> bytes:
    """A secret file without the line end at its end. Raises: ConfigError naming `key`, never the content."""
    try:
        secret = path.read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise _refused(key, f"cannot be read: {error.strerror}", "name a file that this user may read") from None
    if not secret:
        raise _refused(key, "the file is empty", "write the secret into it")
    return secret


def _password(kafka: Kafka) -> str:
    assert kafka.sasl_password_file is not None  # the configuration sees to it
    return _text(kafka.sasl_password_file, key="kafka.sasl_password_file")


def _text(path: Path, *, key: str) -> str:
    try:
        return read_secret(path, key=key).decode()
    except UnicodeDecodeError:
        raise _refused(key, "the file is not UTF-8 text", "write the password into it, and nothing else") from None


def _ssl_context(kafka: Kafka) -> ssl.SSLContext:
    context: ssl.SSLContext = _usable("kafka.ssl_cafile", lambda: ssl.create_default_context(cafile=kafka.ssl_cafile))
    if kafka.ssl_certfile is not None:
        certificate, secret = kafka.ssl_certfile, kafka.ssl_key_password_file
        # Without a password OpenSSL would ask for one at the terminal, and a worker would wait for ever.
        password = "" if secret is None else _text(secret, key="kafka.ssl_key_password_file")
        keys = "kafka.ssl_certfile, kafka.ssl_keyfile"
        _usable(keys, lambda: context.load_cert_chain(certificate, kafka.ssl_keyfile, lambda: password))
    return context


def _usable(key: str, load: Callable[[], Any]) -> Any:
    """What `load` gives. Raises: ConfigError about `key` if OpenSSL cannot use its files."""
    try:
        return load()
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            reason, mend = "the key is not the one of the certificate", "name a certificate with its own key"
        else:
            reason = f"cannot be used ({error.reason or 'no reason given'})"
            mend = "name PEM files; where the key is encrypted, name its password's file in ssl_key_password_file"
        raise _refused(key, reason, mend) from None
    except OSError as error:
        reason = f"cannot be read: {error.strerror or type(error).__name__}"
        raise _refused(key, reason, "name PEM files that this user may read") from None


def _refused(key: str, reason: str, mend: str) -> ConfigError:
    return ConfigError([ConfigProblem(key, reason, mend)])


# --- What went wrong ----------------------------------------------------------------------------------------------


async def no_answer(kafka: Kafka, what: str, error: BaseException) -> BrokerError:
    """The error to raise where a client could not be started: why, and what to do.

    Args:
        what: what cannot be done, to begin the sentence with.
        error: what the client said, which is named where asking again finds nothing wrong.
    """
    if isinstance(error, KafkaError) and "AuthorizationFailed" in type(error).__name__:
        return AccessError(f"{what}: {error}. {may_not(kafka)}")
    settings = security_kwargs(kafka)
    found = await asyncio.gather(*(_ask(server, settings, kafka) for server in kafka.servers))
    if (errors := [each for each in found if each is not None]) and len(errors) == len(found):
        kind = AccessError if any(isinstance(each, AccessError) for each in errors) else BrokerError
        return kind(f"{what}: {'; '.join(dict.fromkeys(map(str, errors)))}")
    return BrokerError(f"{what}: {type(error).__name__}")


def may_not(kafka: Kafka) -> str:
    """What to say where the cluster knows who asks, and refuses."""
    return f"{_who(kafka)} may not. What to do: give it the rights that privstream topics --acls prints"


async def _ask(server: str, settings: Mapping[str, Any], kafka: Kafka) -> BrokerError | None:
    """Why one server does not answer, an AccessError where it refuses us; None: it does."""
    host, port = server.rsplit(":", 1)
    connection: AIOKafkaConnection | None = None
    try:
        connection = await create_conn(host.strip("[]"), int(port), request_timeout_ms=ASK_TIMEOUT_MS, **settings)
        await connection.send(MetadataRequest([]))
        return None
    except SaslAuthenticationFailed:
        return AccessError(
            f"authentication failed: {server} refused {_who(kafka)}. What to do: {_what_to_check(kafka)}"
        )
    except (UnsupportedSaslMechanismError, IllegalSaslStateError):
        return AccessError(
            f"authentication failed: {server} does not offer {kafka.sasl_mechanism}. What to do: correct "
            "kafka.sasl_mechanism, or enable it at the brokers (sasl.enabled.mechanisms)"
        )
    except (KafkaError, OSError, TimeoutError) as error:
        alert = await _alert(host.strip("[]"), int(port), settings.get("ssl_context"))
        met = alert or error
        kind = AccessError if isinstance(met, ssl.SSLError) and not isinstance(met, CUT_OFF) else BrokerError
        return kind(f"{server} {_why(met, kafka)}")
    finally:
        if connection is not None:
            connection.close()


async def _alert(host: str, port: int, context: ssl.SSLContext | None) -> ssl.SSLError | None:
    """What a broker says to our certificate: under TLS 1.3 that comes after the handshake, and is lost if the client
    has sent something by then.
    """
    if context is None:
        return None
    try:
        async with asyncio.timeout(ASK_TIMEOUT_MS / 1000):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
            try:
                await reader.read(1)
            finally:
                writer.transport.abort()  # nothing is said to the end
    except ssl.SSLError as error:
        return error
    except (OSError, TimeoutError):
        pass
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


def _what_to_check(kafka: Kafka) -> str:
    if kafka.sasl_mechanism == "OAUTHBEARER":
        return "renew the token in kafka.sasl_token_file: it may have expired, or be meant for another cluster"
    return "check kafka.sasl_username and the password in kafka.sasl_password_file"


__all__ = ["CUT_OFF", "TokenFile", "faust_credentials", "may_not", "no_answer", "read_secret", "security_kwargs"]

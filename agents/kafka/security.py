"""How a client proves who it is to the cluster. What to say where that fails: `agents.kafka.cluster`."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import faust
from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import AIOKafkaConnection, OAuthAuthenticator
from aiokafka.errors import SaslAuthenticationFailed

from schemas.config.server import Kafka, Registry
from schemas.errors import ConfigError

_HEADERS_FIX = "write name=value, several separated by commas, with a percent code for what is no plain ASCII"
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\x20-\x7e]*")


def security_kwargs(kafka: Kafka) -> dict[str, Any]:
    """Return protocol, SASL and TLS settings for any aiokafka client. Reads the secret files. Raises: ConfigError."""
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
    """Return the same for Faust's own clients; None on a cluster without security. Raises: ConfigError."""
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
        _check_token_once(path)

    async def token(self) -> str:
        token = self._path.read_bytes().strip()
        if not token or not token.isascii():
            raise OSError(f"{self._path} holds no token")
        return token.decode()


@cache
def _check_token_once(path: Path) -> None:
    """Check the file at the first client of this process; later ones may meet it while it is being replaced."""
    read_secret(path, key="kafka.sasl_token_file")


class StrictBearer(OAuthAuthenticator):
    """aiokafka's authenticator, which notices a refusal: brokers answer a bad token with a challenge (RFC 7628), which
    aiokafka 0.14 takes for leave. What it then asks comes back empty, and a client believes in a cluster without
    brokers.
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
    """Read a secret file, without its last line end. Raises: ConfigError naming `key`, never the content."""
    try:
        secret = path.read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise ConfigError.of(key, f"cannot be read: {error.strerror}", "name a file that this user may read") from None
    if not secret:
        raise ConfigError.of(key, "the file is empty", "write the secret into it")
    return secret


def read_headers(path: Path, *, key: str) -> Mapping[str, str]:
    """Return the headers of a secret file. Raises: ConfigError naming `key`, never the content."""
    found = _headers(read_secret(path, key=key).decode("utf-8", errors="replace"))
    if not found:
        raise ConfigError.of(key, "the file holds no list of headers", _HEADERS_FIX)
    return found


def _headers(text: str) -> Mapping[str, str] | None:
    """Parse headers as `name=value`, separated by commas; None where one of them is none."""
    found = {}
    for entry in filter(None, (each.strip() for each in text.split(","))):
        name, joint, value = (unquote(part).strip() for part in entry.partition("="))
        if not joint or not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            return None
        found[name.lower()] = value
    return found


def _password(kafka: Kafka) -> str:
    assert kafka.sasl_password_file is not None  # the configuration sees to it
    return _text(kafka.sasl_password_file, key="kafka.sasl_password_file")


def _text(path: Path, *, key: str) -> str:
    try:
        return read_secret(path, key=key).decode()
    except UnicodeDecodeError:
        raise ConfigError.of(
            key, "the file is not UTF-8 text", "write the password into it, and nothing else"
        ) from None


def _ssl_context(kafka: Kafka) -> ssl.SSLContext:
    secret = kafka.ssl_key_password_file
    password = "" if secret is None else _text(secret, key="kafka.ssl_key_password_file")
    return tls_context("kafka", kafka, password=password)


def tls_context(section: str, files: Kafka | Registry, *, password: str = "") -> ssl.SSLContext:
    """Return the settings of TLS that the files of a section say. Raises: ConfigError where OpenSSL cannot use them."""
    authority, certificate = files.ssl_cafile, files.ssl_certfile
    context: ssl.SSLContext = _usable(f"{section}.ssl_cafile", lambda: ssl.create_default_context(cafile=authority))
    if certificate is not None:
        # Without a password OpenSSL would ask for one at the terminal, and a worker would wait for ever.
        keys = f"{section}.ssl_certfile, {section}.ssl_keyfile"
        _usable(keys, lambda: context.load_cert_chain(certificate, files.ssl_keyfile, lambda: password))
    return context


def _usable(key: str, load: Callable[[], Any]) -> Any:
    """Return what `load` gives. Raises: ConfigError about `key` if OpenSSL cannot use its files."""
    try:
        return load()
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            reason, fix = "the key is not the one of the certificate", "name a certificate with its own key"
        else:
            reason = f"cannot be used ({error.reason or 'no reason given'})"
            fix = "name PEM files; where the key is encrypted, name its password's file in ssl_key_password_file"
        raise ConfigError.of(key, reason, fix) from None
    except OSError as error:
        reason = f"cannot be read: {error.strerror or type(error).__name__}"
        raise ConfigError.of(key, reason, "name PEM files that this user may read") from None

"""`[job]` and `[kafka]` with `[kafka.registry]`: names, folders, and the connection to the cluster.

No guarantee depends on these keys.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StrictBool, StrictInt

from schemas.config.values import (
    PlainName,
    PositiveDuration,
    Section,
    base_address,
    is_loopback,
    microseconds,
    refusal,
)
from schemas.errors import ConfigProblem


def _registry(value: str) -> str:
    fix = 'write url = "https://registry.example:8081"'
    url = base_address(value, fix=fix, secrets="write them into username and password_file")
    if url.query or url.fragment:
        raise refusal("is not the registry's base address", fix)
    return value.rstrip("/")


class Registry(Section):
    """`[kafka.registry]`: a schema registry with the API of Confluent's registry."""

    header: ClassVar[str] = "[kafka.registry]"

    url: Annotated[str, Field(strict=True), AfterValidator(_registry)] = Field(
        examples=["https://registry.example:8081"]
    )
    """Base address, with the path if there is one (Apicurio: `.../apis/ccompat/v7`)."""
    username: Annotated[str, Field(strict=True, min_length=1)] | None = Field(None, examples=["privstream"])
    """User name for basic authentication, with `password_file`."""
    password_file: Path | None = Field(None, examples=["/run/secrets/registry-password"])
    """File with the password."""
    ssl_cafile: Path | None = Field(None, examples=["/etc/privstream/ca.pem"])
    """CA certificates that verify the registry's certificate; absent: those of the system."""
    ssl_certfile: Path | None = Field(None, examples=["/etc/privstream/client.pem"])
    """Client certificate, if the registry requires one (mTLS)."""
    ssl_keyfile: Path | None = Field(None, examples=["/run/secrets/client.key"])
    """Private key of the client certificate, PEM; a secret."""

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse settings that are incomplete, would be ignored, or would send a password unencrypted."""
        url = urlsplit(self.url)
        if (self.username is None) != (self.password_file is None):
            key = "password_file" if self.password_file is None else "username"
            yield ConfigProblem(
                key, "missing: a name needs a password, and vice versa", f"add {key}, or remove the other"
            )
        elif self.username is not None and url.scheme == "http" and not is_loopback(url):
            yield ConfigProblem("url", "would send the password unencrypted to another machine", "write https://")
        if self.username is not None and ":" in self.username:
            yield ConfigProblem("username", "has a colon, which ends a name in HTTP", "name a user without one")
        for key in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
            if getattr(self, key) is not None and url.scheme == "http":
                yield ConfigProblem(key, "would be ignored: url is http", "write https://, or remove the key")
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            yield ConfigProblem("ssl_certfile", "missing, and ssl_keyfile is set", "add ssl_certfile, or remove both")


SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]

_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})", re.ASCII)


def _host(value: str) -> str:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        raise refusal(
            "is not an IP address", 'write "127.0.0.1" for this machine only, "0.0.0.0" for all its networks'
        ) from None
    return value


Host = Annotated[str, Field(strict=True), AfterValidator(_host)]


def _witness(value: str) -> str:
    fix = 'write an absolute folder, "s3://bucket/folder", or "https://host/path"'
    if value.startswith("/"):
        return value
    if value.startswith("s3://"):
        if not re.fullmatch(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?:/[A-Za-z0-9._-]+)*/?", value):
            raise refusal("is not the address of a bucket", fix)
        return value.rstrip("/")
    url = base_address(value, fix=fix, secrets="write them into witness_headers_file, as authorization=Basic ...")
    if url.query or url.fragment:
        raise refusal("is not the address of a folder", fix)
    if url.scheme == "http" and not is_loopback(url):
        raise refusal(
            "is not encrypted, so that anybody on the way could answer", "write https://, or an address on loopback"
        )
    return value.rstrip("/")


Witness = Annotated[str, Field(strict=True), AfterValidator(_witness)]


class JobSection(Section):
    """`[job]`: the name, folders and ports of the job."""

    header: ClassVar[str] = "[job]"

    name: PlainName = Field("privstream", examples=["privstream"])
    """Prefix of what the job owns on the cluster (groups, transactional ids, private topics): never change it."""
    data_dir: Path | None = Field(None, examples=["/var/lib/privstream"])
    """Folder of the RocksDB tables, which are a cache but as sensitive as the raw topics, and, without `witness`, of
    the answers that this worker has seen; absent: a folder for each cluster below the user's state folder, such as
    ~/.local/state/privstream."""
    witness: Witness | None = Field(None, examples=["s3://witness-of-kafka/production"])
    """Place outside the cluster where each step is noted before it is public, so that a restored cluster does not
    answer again: a folder that all workers share, `s3://bucket/folder` or `https://`; absent: below `data_dir`."""
    witness_headers_file: Path | None = Field(None, examples=["/run/secrets/witness-headers"])
    """File with headers for an `https://` witness, `name=value` separated by commas; a secret."""
    http_port: StrictInt | None = Field(None, ge=1, le=65535, examples=[9464])
    """TCP port of /livez, /readyz and /metrics; if it is taken, one of the next nine is used; absent: none."""
    http_host: Host = Field("127.0.0.1", examples=["127.0.0.1"])
    """Address for `http_port`. Metrics count private records: beyond loopback, only operators may reach it."""
    max_clock_skew: PositiveDuration = Field(timedelta(seconds=10), examples=["10s"])
    """How far a worker's clock may be ahead of the brokers' clocks: no step is closed earlier than this before its
    end."""
    keep_private_log: StrictBool = Field(False, examples=[False])
    """Never delete seeds and blocks, for later checks. Anybody who can read both can remove the noise."""
    retired: tuple[PlainName, ...] = Field((), examples=[["last-years-stream"]])
    """Streams that were removed for good: what they would need to continue may be deleted."""

    @property
    def max_clock_skew_us(self) -> int:
        """`max_clock_skew` in microseconds."""
        return microseconds(self.max_clock_skew)

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse keys that would be ignored."""
        if self.witness_headers_file is not None and not (self.witness or "").startswith("http"):
            reason = "would be ignored: witness is not an http or https address"
            yield ConfigProblem("witness_headers_file", reason, "remove the key, or correct witness")


def _servers(value: str) -> str:
    # The message does not repeat the value, because people write passwords into addresses.
    for server in value.split(","):
        match = _SERVER.fullmatch(server.strip())
        if match is None or not 1 <= int(match[1]) <= 65535:
            raise refusal(
                "is not a list of host:port", 'write bootstrap = "host:9092", several separated by commas, no scheme'
            )
    return ",".join(server.strip() for server in value.split(","))


class Kafka(Section):
    """`[kafka]`: the connection to the cluster. Secrets are in files that keys name, never in the configuration."""

    header: ClassVar[str] = "[kafka]"

    bootstrap: Annotated[str, Field(strict=True), AfterValidator(_servers)] = Field(examples=["localhost:9092"])
    """Bootstrap servers, `host:port`, separated by commas; PRIVSTREAM_BOOTSTRAP overrides it."""
    partitions: StrictInt = Field(4, ge=1, le=10_000, examples=[4])
    """Partitions of the job's private topics; source topics keep their own number."""
    replication_factor: StrictInt | None = Field(None, ge=1, le=100, examples=[3])
    """Copies of each topic that `privstream topics` creates; absent: 3, or one on each broker if there are fewer."""
    session_timeout_s: StrictInt = Field(30, ge=6, le=1800, examples=[30])
    """Seconds after which the partitions of a silent worker go to another worker."""
    security_protocol: SecurityProtocol = Field("PLAINTEXT", examples=["SASL_SSL"])
    """Protocol of the connection: plain or TLS, with or without SASL."""
    sasl_mechanism: SaslMechanism | None = Field(None, examples=["SCRAM-SHA-512"])
    """How the job authenticates; required by a SASL protocol."""
    sasl_username: Annotated[str, Field(strict=True, min_length=1)] | None = Field(None, examples=["privstream"])
    """Name of the user, for PLAIN and SCRAM."""
    sasl_password_file: Path | None = Field(None, examples=["/run/secrets/kafka-password"])
    """File with the password, for PLAIN and SCRAM; a secret."""
    sasl_token_file: Path | None = Field(None, examples=["/run/secrets/kafka-token"])
    """File with the bearer token of OAUTHBEARER; it is read again for each connection, so that it can be renewed."""
    ssl_cafile: Path | None = Field(None, examples=["/etc/privstream/ca.pem"])
    """CA certificates that verify the brokers' certificates; absent: those of the system."""
    ssl_certfile: Path | None = Field(None, examples=["/etc/privstream/client.pem"])
    """Client certificate with its chain, if the brokers require one (mTLS)."""
    ssl_keyfile: Path | None = Field(None, examples=["/run/secrets/client.key"])
    """Private key of the client certificate, PEM; a secret."""
    ssl_key_password_file: Path | None = Field(None, examples=["/run/secrets/client-key-password"])
    """File with the password of the private key, if it has one."""
    registry: Registry | None = None
    """Registry with the schemas of avro and protobuf, and for those of `[streams.output]`; a running stream may switch
    to a copy of the same registry.
    """

    @property
    def servers(self) -> tuple[str, ...]:
        """The bootstrap servers, each `host:port`."""
        return tuple(self.bootstrap.split(","))

    def problems(self) -> Iterator[ConfigProblem]:
        """Refuse security settings that are missing or would be ignored."""
        yield from self._sasl_problems()
        protocol = self.security_protocol
        for key in ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_key_password_file"):
            if getattr(self, key) is not None and not protocol.endswith("SSL"):
                yield ConfigProblem(
                    key,
                    f"would be ignored: security_protocol is {protocol}",
                    f'set security_protocol = "{"SASL_SSL" if protocol.startswith("SASL") else "SSL"}", '
                    "or remove the key",
                )
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            yield ConfigProblem("ssl_certfile", "missing, and ssl_keyfile is set", "add ssl_certfile, or remove both")
        if self.ssl_key_password_file is not None and self.ssl_certfile is None:
            yield ConfigProblem(
                "ssl_key_password_file",
                "would be ignored: there is no private key to decrypt",
                "add ssl_certfile and ssl_keyfile, or remove the key",
            )

    def _sasl_problems(self) -> Iterator[ConfigProblem]:
        protocol, mechanism = self.security_protocol, self.sasl_mechanism
        secured = protocol.startswith("SASL")
        bearer = mechanism == "OAUTHBEARER"
        needed = ("sasl_token_file",) if bearer else ("sasl_username", "sasl_password_file")
        if secured and mechanism is None:
            yield ConfigProblem(
                "sasl_mechanism", f"missing, and security_protocol is {protocol}", "add sasl_mechanism to [kafka]"
            )
        for key in ("sasl_mechanism", "sasl_username", "sasl_password_file", "sasl_token_file"):
            given = getattr(self, key) is not None
            if not secured and given:
                yield ConfigProblem(
                    key,
                    f"would be ignored: security_protocol is {protocol}",
                    'set security_protocol = "SASL_SSL", or remove the key',
                )
            elif secured and key in needed and not given:
                why = f"sasl_mechanism is {mechanism}" if mechanism else f"security_protocol is {protocol}"
                yield ConfigProblem(key, f"missing, and {why}", f"add {key} to [kafka]")
            elif secured and mechanism and key != "sasl_mechanism" and key not in needed and given:
                if bearer:
                    fix = "remove the key: the token names the user"
                else:
                    fix = 'set sasl_mechanism = "OAUTHBEARER", or remove the key'
                yield ConfigProblem(key, f"would be ignored: sasl_mechanism is {mechanism}", fix)

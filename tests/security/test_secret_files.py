"""Files of passwords, tokens, certificates and keys: what is wrong with one is said, and never what is in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from agents.kafka.security import TokenFile, faust_credentials, security_kwargs
from schemas.config.server import Kafka
from schemas.errors import ConfigError
from tests.security.secured import Authority

PASSWORD = "hunter2"


def kafka(folder: Path, **settings: str) -> Kafka:
    files = {key: str(folder / value) for key, value in settings.items() if key.endswith("file")}
    return Kafka(**{"bootstrap": "localhost:9092", **settings, **files})


def scram(folder: Path, content: bytes | None) -> Kafka:
    if content is not None:
        (folder / "password").write_bytes(content)
    return kafka(
        folder,
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="me",
        sasl_password_file="password",
    )


def bearer(folder: Path, content: bytes) -> Kafka:
    (folder / "token").write_bytes(content)
    return kafka(folder, security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_token_file="token")


def certificate(folder: Path, *, password: str = "", said: bytes = b"", other_key: bool = False) -> Kafka:
    authority = Authority(folder)
    pem, key = authority.sign("me", password=password)
    if other_key:
        _, key = authority.sign("me")
    settings = {"security_protocol": "SSL", "ssl_certfile": pem.name, "ssl_keyfile": key.name}
    if said:
        (folder / "key-password").write_bytes(said)
        settings["ssl_key_password_file"] = "key-password"
    return kafka(folder, **settings)


def authority(folder: Path, content: bytes | None) -> Kafka:
    if content is not None:
        (folder / "ca.pem").write_bytes(content)
    return kafka(folder, security_protocol="SSL", ssl_cafile="ca.pem")


@pytest.mark.parametrize(
    ("made", "key", "reason"),
    [
        (lambda folder: scram(folder, None), "kafka.sasl_password_file", "No such file"),
        (lambda folder: scram(folder, b"\n"), "kafka.sasl_password_file", "empty"),
        (lambda folder: scram(folder, b"hunter2\xff"), "kafka.sasl_password_file", "not UTF-8"),
        (lambda folder: bearer(folder, b""), "kafka.sasl_token_file", "empty"),
        (lambda folder: authority(folder, None), "kafka.ssl_cafile", "No such file"),
        (lambda folder: authority(folder, b"hunter2"), "kafka.ssl_cafile", "cannot be used"),
        (lambda folder: certificate(folder, other_key=True), "kafka.ssl_certfile", "not the one of the certificate"),
        (lambda folder: certificate(folder, password=PASSWORD), "kafka.ssl_certfile", "cannot be used"),
        (
            lambda folder: certificate(folder, password=PASSWORD, said=b"another"),
            "kafka.ssl_certfile",
            "cannot be used",
        ),
    ],
)
@pytest.mark.parametrize("use", [security_kwargs, faust_credentials])
def test_an_unusable_file_is_named_and_not_quoted(
    tmp_path: Path, made: Callable[[Path], Kafka], key: str, reason: str, use: Callable[[Kafka], object]
) -> None:
    with pytest.raises(ConfigError) as refused:
        use(made(tmp_path))
    (problem,) = refused.value.problems
    assert key in problem.key
    assert reason in problem.reason
    assert PASSWORD not in str(refused.value)


def test_an_encrypted_key_is_opened_by_the_password_of_a_file(tmp_path: Path) -> None:
    context = security_kwargs(certificate(tmp_path, password=PASSWORD, said=b"hunter2\n"))["ssl_context"]
    assert context.check_hostname


def test_the_token_is_the_files_at_the_time(tmp_path: Path) -> None:
    bearer(tmp_path, b"first\n")
    tokens = TokenFile(tmp_path / "token")
    assert asyncio.run(tokens.token()) == "first"
    (tmp_path / "token").write_bytes(b"second")
    assert asyncio.run(tokens.token()) == "second"
    # A client takes an OSError for a connection that failed, and tries again.
    for content in (b"", b"\n", "t\u00f6ken".encode()):
        (tmp_path / "token").write_bytes(content)
        with pytest.raises(OSError, match="holds no token"):
            asyncio.run(tokens.token())
    (tmp_path / "token").unlink()
    with pytest.raises(OSError, match="No such file"):
        asyncio.run(tokens.token())

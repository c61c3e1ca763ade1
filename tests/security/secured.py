"""A broker that asks everybody who they are: SCRAM, OAUTHBEARER and mTLS over TLS, with Kafka's own authorizer.

Its plain door is the administrator's, who may do everything; tests look at the truth through it.
"""

from __future__ import annotations

import argparse
import base64
import datetime
import ipaddress
import shlex
import time
from collections.abc import Iterable
from pathlib import Path

import orjson
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import CreateAclsRequest_v1
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from agents.local.broker.embedded import EmbeddedBroker

WORKER, READER = "privstream", "reader"
DAY = datetime.timedelta(days=1)
PASSWORD = {WORKER: "the worker's", READER: "the reader's"}


class Authority:
    """Signs certificates; its own is `folder/ca.pem`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("an authority of the tests")
        certificate = (
            _certificate(self._name, self._name, self._key, until=DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = folder / "ca.pem"
        self.pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def sign(
        self, name: str, *, until: datetime.timedelta = DAY, host: str = "127.0.0.1", password: str = ""
    ) -> tuple[Path, Path]:
        """Files of a certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _certificate(_name(name), self._name, key, until=until)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))]), critical=False)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            encryption = serialization.BestAvailableEncryption(password.encode())
        where = self.folder / f"{name}-{time.monotonic_ns()}"
        pem, secret = where.with_suffix(".pem"), where.with_suffix(".key")
        pem.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption))
        return pem, secret


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, until: datetime.timedelta
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 30 * DAY)
        .not_valid_after(now + until)
    )


def token(principal: str, *, life_s: float = 3600.0) -> str:
    """An unsecured bearer token, as Kafka's validator for development takes it."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": principal, "iat": now - 3600, "exp": now + life_s})
    return ".".join(base64.urlsafe_b64encode(orjson.dumps(part)).decode().rstrip("=") for part in parts) + "."


class SecuredBroker:
    """See the module. `with SecuredBroker(folder) as secured`.

    Attributes:
        authority: whom the brokers and, with `client`, the clients trust.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = authority = Authority(folder)
        pem, key = authority.sign("broker")
        store = folder / "broker.pem"
        store.write_bytes(key.read_bytes() + pem.read_bytes())
        modules = "org.apache.kafka.common.security"
        self.broker = EmbeddedBroker(
            listeners={"SCRAM": "SASL_SSL", "OAUTH": "SASL_SSL", "MTLS": "SSL"},
            users=PASSWORD,
            properties={
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",  # whoever comes through the plain doors
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(store),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(authority.pem),
                "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "listener.name.scram.scram-sha-512.sasl.jaas.config": f"{modules}.scram.ScramLoginModule required;",
                "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
                "listener.name.oauth.oauthbearer.sasl.jaas.config": (
                    f'{modules}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
                ),
                "listener.name.mtls.ssl.client.auth": "required",
                "listener.name.mtls.ssl.principal.mapping.rules": "RULE:^CN=(.*?)(,.*)?$/$1/",
            },
        )

    def __enter__(self) -> SecuredBroker:
        self.broker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.stop()

    def scram(self, principal: str = WORKER, *, password: str | None = None) -> dict[str, str]:
        """Keys of `[kafka]` with which `principal` comes by SCRAM."""
        secret = self.folder / f"{principal}-{time.monotonic_ns()}.password"
        secret.write_text(PASSWORD[principal] if password is None else password)
        return {
            "bootstrap": self.broker.address("SCRAM"),
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_username": principal,
            "sasl_password_file": str(secret),
            "ssl_cafile": str(self.authority.pem),
        }

    def oauth(self, file: Path) -> dict[str, str]:
        """The same with the token of a file."""
        return {
            "bootstrap": self.broker.address("OAUTH"),
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_token_file": str(file),
            "ssl_cafile": str(self.authority.pem),
        }

    def mtls(self, pem: Path, key: Path) -> dict[str, str]:
        """The same with a certificate."""
        return {
            "bootstrap": self.broker.address("MTLS"),
            "security_protocol": "SSL",
            "ssl_cafile": str(self.authority.pem),
            "ssl_certfile": str(pem),
            "ssl_keyfile": str(key),
        }


def environment(settings: dict[str, str]) -> dict[str, str]:
    """`[kafka]` keys as environment variables."""
    return {f"PRIVSTREAM_KAFKA__{key.upper()}": value for key, value in settings.items()}


# --- Access rules -------------------------------------------------------------------------------------------------

# Numbers of Kafka's protocol.
_KINDS = {"topic": 2, "group": 3, "cluster": 4, "transactional-id": 5}
_PATTERNS = {"literal": 3, "prefixed": 4}
_OPERATIONS = {
    "All": 2, "Read": 3, "Write": 4, "Create": 5, "Delete": 6, "Alter": 7, "Describe": 8, "DescribeConfigs": 10,
    "IdempotentWrite": 12,
}  # fmt: skip
_ALLOW = 3


async def apply_acls(bootstrap: str, lines: Iterable[str]) -> int:
    """Do what `kafka-acls.sh` would with these lines, and nothing else; refuses any option it does not know.

    Kafka's tools are no part of the embedded broker's jars. Returns: how many rules that made.
    """
    parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
    parser.add_argument("program", choices=["kafka-acls.sh"])
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--command-config")
    parser.add_argument("--add", action="store_true", required=True)
    parser.add_argument("--allow-principal", required=True)
    parser.add_argument("--operation", action="append", choices=_OPERATIONS, required=True)
    parser.add_argument("--resource-pattern-type", choices=_PATTERNS, default="literal")
    for kind in ("topic", "group", "transactional-id"):
        parser.add_argument(f"--{kind}", action="append", default=[])
    rules = []
    for line in lines:
        said = vars(parser.parse_args(shlex.split(line)))
        rules += [
            (_KINDS[kind], name, _PATTERNS[said["resource_pattern_type"]], said["allow_principal"], "*", code, _ALLOW)
            for kind in ("topic", "group", "transactional-id")
            for name in said[kind.replace("-", "_")]
            for code in (_OPERATIONS[operation] for operation in said["operation"])
        ]
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        client = admin._client
        answer = await client.send(client.get_random_node(), _Rules(rules))
        assert [error for error, _ in answer.creation_responses] == [0] * len(rules)
    finally:
        await admin.close()
    return len(rules)


class _Rules:
    """All rules in one request; aiokafka's own class takes one."""

    API_KEY = CreateAclsRequest_v1.API_KEY

    def __init__(self, rules: list[tuple[int, str, int, str, str, int, int]]) -> None:
        self._rules = rules

    def prepare(self, versions: object) -> CreateAclsRequest_v1:
        return CreateAclsRequest_v1(self._rules)

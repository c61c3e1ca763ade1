"""`[kafka.registry]`: the schema registry. Nothing here moves a guarantee."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from schemas.config.section import Section, refusal
from schemas.config.values import base_address, is_loopback
from schemas.errors import ConfigProblem


def _registry(value: str) -> str:
    fix = 'write url = "https://registry.example:8081"'
    url = base_address(value, fix=fix, secrets="write them into username and password_file")
    if url.query or url.fragment:
        raise refusal("is not the registry's base address", fix)
    return value.rstrip("/")


class Registry(Section):
    """`[kafka.registry]`: where schemas are, with the interface of Confluent's registry."""

    url: Annotated[str, Field(strict=True), AfterValidator(_registry)] = Field(
        examples=["https://registry.example:8081"]
    )
    """Base address, with the path where there is one (Apicurio: `.../apis/ccompat/v7`)."""
    username: Annotated[str, Field(strict=True, min_length=1)] | None = Field(None, examples=["privstream"])
    """For basic authentication; with `password_file`."""
    password_file: Path | None = Field(None, examples=["/run/secrets/registry-password"])
    """File with the password."""
    ssl_cafile: Path | None = Field(None, examples=["/etc/privstream/ca.pem"])
    """Authorities that sign the registry's certificate; absent: those of the system."""
    ssl_certfile: Path | None = Field(None, examples=["/etc/privstream/client.pem"])
    """Certificate of this client, where the registry asks for one (mTLS)."""
    ssl_keyfile: Path | None = Field(None, examples=["/run/secrets/client.key"])
    """Private key of the client certificate, PEM; a secret."""

    def problems(self) -> Iterator[ConfigProblem]:
        """Settings that are half there, would be ignored, or would send a password in the clear."""
        url = urlsplit(self.url)
        if (self.username is None) != (self.password_file is None):
            key = "password_file" if self.password_file is None else "username"
            yield ConfigProblem(key, "missing: a name and a password go together", f"add {key}, or remove the other")
        elif self.username is not None and url.scheme == "http" and not is_loopback(url):
            yield ConfigProblem("url", "would send the password in the clear to another machine", "write https://")
        if self.username is not None and ":" in self.username:
            yield ConfigProblem("username", "has a colon, which ends a name in HTTP", "name a user without one")
        for key in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
            if getattr(self, key) is not None and url.scheme == "http":
                yield ConfigProblem(key, "would be ignored: url is http", "write https://, or remove the key")
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            yield ConfigProblem("ssl_certfile", "missing, and ssl_keyfile is set", "add ssl_certfile, or remove both")

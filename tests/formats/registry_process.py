"""A real schema registry: Apicurio, in memory, from Maven Central, on the Java that the tests' broker runs on.

In front of it stands a door of ours that asks for a password, speaks TLS where it is told to, and can be shut: the
registry is then out of reach, and keeps what it holds.
"""

from __future__ import annotations

import asyncio
import base64
import fcntl
import hashlib
import ssl
import subprocess
import tarfile
import tempfile
import time
import urllib.request
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web

from agents.local.broker.embedded import free_ports
from agents.local.broker.jars import _cache_folder, java_binary

VERSION = "2.5.11.Final"
SHA256 = "f894a17f650ec427de72cfb68edfc30f8020743269293e58372e22f67fd4fd15"
PATH = "/apis/ccompat/v7"
START_S = 180.0


def unpacked() -> Path:
    """Its folder in this user's cache; fetched once, and kept only with the hash that it must have."""
    cache = _cache_folder()
    folder = cache / f"apicurio-{VERSION}"
    if folder.exists():
        return folder
    from jgo.maven import MavenContext

    cache.mkdir(parents=True, exist_ok=True)
    with (
        (cache / ".lock-apicurio").open("w") as lock,
        tempfile.TemporaryDirectory(dir=cache, prefix=".apicurio-") as scratch,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return folder
        project = MavenContext(repo_cache=Path(scratch), timeout=300).project("io.apicurio", "apicurio-registry-app")
        archive = project.at_version(VERSION).artifact(classifier="all", packaging="tar.gz").resolve()
        assert hashlib.sha256(archive.read_bytes()).hexdigest() == SHA256, "not the registry that tests were made for"
        with tarfile.open(archive) as file:
            file.extractall(Path(scratch) / "unpacked", filter="data")
        (Path(scratch) / "unpacked").rename(folder)
    return folder


class SchemaRegistry:
    """One process. Its schemas are gone when it ends."""

    def __init__(self) -> None:
        self.url = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._clients: list[Any] = []

    def client(self) -> Any:
        """Confluent's own, as producers have it."""
        with warnings.catch_warnings():  # of its own libraries
            warnings.simplefilter("ignore")
            from confluent_kafka.schema_registry import SchemaRegistryClient
        self._clients.append(SchemaRegistryClient({"url": self.url}).__enter__())
        return self._clients[-1]

    def __enter__(self) -> Self:
        with free_ports(1) as [port]:
            pass
        command = [
            *(str(java_binary()), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}", "-Dquarkus.log.level=ERROR"),
            *("-jar", str(unpacked() / f"apicurio-registry-app-{VERSION}-runner.jar")),
        ]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.url = f"http://127.0.0.1:{port}{PATH}"
        end = time.monotonic() + START_S
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/subjects", timeout=5):
                    return self
            except OSError:
                assert self._process.poll() is None, "the registry ended while it started"
                assert time.monotonic() < end, "the registry did not start"
                time.sleep(0.2)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients:
            client.__exit__(None, None, None)
        assert self._process is not None
        self._process.kill()
        self._process.wait()


class Door:
    """What clients are told is the registry.

    Attributes:
        asked: paths that were asked for, of those who knew the password. refused: how many did not.
    """

    def __init__(self, registry: SchemaRegistry, *, login: tuple[str, str], tls: ssl.SSLContext | None = None) -> None:
        self._registry, self._tls = registry, tls
        self._login = "Basic " + base64.b64encode(":".join(login).encode()).decode()
        with free_ports(1) as [self._port]:
            pass
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self._port}"
        self.asked: list[str] = []
        self.refused = 0
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._pass_on)
        self._session = aiohttp.ClientSession()
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=self._tls).start()

    async def shut(self) -> None:
        """From now on nobody gets in."""
        if self._runner is not None and self._session is not None:
            await self._runner.cleanup()
            await self._session.close()
            self._runner = None
            await asyncio.sleep(0)

    async def _pass_on(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != self._login:
            self.refused += 1
            return web.Response(status=401, text="who are you?")
        assert self._session is not None
        self.asked.append(request.path)
        told = {"Content-Type": request.headers.get("Content-Type", "application/json")}
        async with self._session.request(
            request.method, self._registry.url + request.path_qs, data=await request.read(), headers=told
        ) as answer:
            headers: Mapping[str, Any] = {"Content-Type": answer.headers.get("Content-Type", "application/json")}
            return web.Response(status=answer.status, body=await answer.read(), headers=headers)

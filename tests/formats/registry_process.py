"""A real schema registry: Apicurio, in memory, from Maven Central, on the Java that the tests' broker runs on.

In front of it stands a door of ours that asks for a password, speaks TLS where it is told to, and can be shut: the
registry is then out of reach, and keeps what it holds.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import subprocess
import time
import urllib.request
import warnings
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web

from agents.local.broker.embedded import free_ports
from agents.local.broker.jars import java_binary
from tests.maven import kept

VERSION = "2.5.11.Final"
REGISTRY = f"io.apicurio:apicurio-registry-app:{VERSION}:all:tar.gz"
SHA256 = "f894a17f650ec427de72cfb68edfc30f8020743269293e58372e22f67fd4fd15"
PATH = "/apis/ccompat/v7"
START_S = 180.0


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
            *("-jar", str(kept(REGISTRY, SHA256) / f"apicurio-registry-app-{VERSION}-runner.jar")),
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

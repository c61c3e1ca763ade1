"""A schema registry, by Confluent's interface, as Karapace and Apicurio have it: schemas by id, and our own for it."""

from __future__ import annotations

import asyncio
import base64
import ssl
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import aiohttp
import orjson

from agents.kafka.security import read_secret, tls_context
from agents.protocol.formats.build import check_installed
from agents.protocol.formats.contract import SchemaBook, SchemaRef, SchemaText
from agents.protocol.release.record_formats import schema_text
from schemas.errors import ConfigError
from schemas.topics import Topics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from schemas.config import Config, Stream
    from schemas.config.server import Registry

TIMEOUT_S = 10.0
AT_ONCE = 8
NOT_THERE_S = 2.0
"""Between two answers that there is no such schema; the third is believed: a copy of the registry may lag behind."""
ANSWERS = 3
MOST_REFERENCES = 200
MOST_BYTES = 4 << 20
MOST_IDS = 1 << 32
"""A record says the id of its schema in four bytes."""
NO_REGISTRY = "answers, and is no schema registry"
WHAT_TO_DO = (
    "bring the registry back, or correct [kafka.registry] (url, username, password_file, ssl_cafile); until then "
    "records wait, and none is lost"
)
"""Where a registry is away."""


class RegistryError(Exception):
    """A registry that cannot be asked now, or says nothing that helps: ask again later. Names no schema's content."""


def check_files(registry: Registry | None) -> None:
    """Check a registry's files before anything starts. Raises: ConfigError where they cannot be used."""
    if registry is None:
        return
    _tls(registry)
    if registry.password_file is not None:
        read_secret(registry.password_file, key="kafka.registry.password_file")


class RegistryClient:
    """A client of one registry; a context. Raises: ConfigError where its files cannot be used."""

    def __init__(self, registry: Registry, *, not_there_s: float = NOT_THERE_S) -> None:
        self._url = registry.url
        self._not_there_s = not_there_s
        self._places = asyncio.Semaphore(AT_ONCE)
        self._making = asyncio.Lock()  # one at a time: engines compute in threads of the same pool
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if registry.username is not None and registry.password_file is not None:
            secret = read_secret(registry.password_file, key="kafka.registry.password_file")
            login = base64.b64encode(registry.username.encode() + b":" + secret).decode()
            headers["Authorization"] = f"Basic {login}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=_tls(registry)),
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
            headers=headers,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._session.close()

    async def check(self) -> None:
        """Check that it answers as a registry. Raises: RegistryError."""
        found = await self._get("/schemas/types")
        if not isinstance(found, list):
            raise RegistryError(f"{self._url} {NO_REGISTRY}")

    async def learn(self, book: SchemaBook, refs: Iterable[SchemaRef]) -> None:
        """Put schemas into the book that it does not have, each as soon as it is known and made ready, in a thread: to
        compile a large one takes seconds, in which everything else goes on.

        Raises: RegistryError, and what was learnt stays.
        """

        async def one(ref: SchemaRef) -> None:
            text = await self.schema(ref)
            async with self._making:
                prepared = await asyncio.to_thread(book.prepared, text)
            book.put(ref, text, prepared)

        asked = (one(ref) for ref in refs if ref not in book)
        for each in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(each, BaseException):
                raise each

    async def schema(self, ref: SchemaRef) -> SchemaText | None:
        """Return the schema of an id; None where the registry has none, or not all that it is made of: of either it may
        have more for later records. Raises: RegistryError.
        """
        where = f"/schemas/ids/{ref.name}" if isinstance(ref.name, int) else f"/schemas/guids/{ref.name}"
        for again in range(ANSWERS):
            if again:
                await asyncio.sleep(self._not_there_s)  # in nobody's place: ids that are made up keep no others waiting
            async with self._places:
                found, known = await self._get(where), dict[str, str]()
                if found is not None and await self._references(found, known, set()):
                    kind = str(found.get("schemaType", "AVRO"))
                    return SchemaText(kind, self._text(found), tuple(known.items()))
        async with self._places:
            await self.check()  # of a wrong path, some say as well that there is no such schema
        return None

    async def register(self, subject: str, schema: SchemaText) -> int:
        """Return the id of a schema of a subject, whose newest version it becomes if it is none already.

        Who may only read there is told the id of one that somebody else has registered.

        Raises: RegistryError, also where the registry does not take it.
        """
        path = f"/subjects/{quote(subject, safe='')}"
        body = {"schemaType": schema.kind, "schema": schema.text}
        status, found = await self._answer("POST", path, json=body)
        if status == 404:
            status, found = await self._answer("POST", f"{path}/versions", json=body)
        if status != 200 or not isinstance(found, dict) or not isinstance(found.get("id"), int):
            said = found.get("message") if isinstance(found, dict) else None
            raise RegistryError(f"{self._url} does not take the schema of {subject} (HTTP {status}): {said}")
        if not 0 <= found["id"] < MOST_IDS:
            raise RegistryError(f"{self._url} gives the schema of {subject} an id that no record can hold")
        return int(found["id"])

    async def _references(self, schema: Any, known: dict[str, str], begun: set[str]) -> bool:
        """Learn what a schema is made of, what that is made of first. Returns: whether all of it is there.

        Args: begun: names that were asked for, so that those which lead in a circle are asked for once.
        """
        self._text(schema)  # of what is no schema nothing is asked
        for name, path in self._named(schema):
            if name in begun or len(begun) >= MOST_REFERENCES:
                continue
            begun.add(name)
            found = await self._get(f"{path}?deleted=true")
            if found is None or not await self._references(found, known, begun):
                return False
            known[name] = self._text(found)
        return True

    def _named(self, schema: Any) -> list[tuple[str, str]]:
        """Return the names of references, and where each is asked for. Raises: RegistryError."""
        try:
            return [
                (str(each["name"]), f"/subjects/{quote(str(each['subject']), safe='')}/versions/{int(each['version'])}")
                for each in schema.get("references") or ()
            ]
        except (LookupError, TypeError, ValueError):
            raise RegistryError(f"{self._url} {NO_REGISTRY}") from None

    def _text(self, schema: Any) -> str:
        """Return the schema in an answer. Raises: RegistryError."""
        text = schema.get("schema") if isinstance(schema, dict) else None
        if not isinstance(text, str):
            raise RegistryError(f"{self._url} {NO_REGISTRY}")
        return text

    async def _get(self, path: str) -> Any:
        """Return what the registry has at a path; None: it says that there is no such thing. Raises: RegistryError."""
        status, found = await self._answer("GET", path)
        if status == 200:
            return found
        if status == 404 and isinstance(found, dict) and "error_code" in found:
            return None
        raise RegistryError(f"{self._url} answers with HTTP {status}")

    async def _answer(self, method: str, path: str, **request: Any) -> tuple[int, Any]:
        """Return status and JSON of an answer. Raises: RegistryError."""
        try:
            async with self._session.request(method, self._url + path, allow_redirects=False, **request) as response:
                status, body = response.status, bytearray()
                async for piece in response.content.iter_any():  # it comes in as many as the network makes of it
                    body += piece
                    if len(body) > MOST_BYTES:
                        raise RegistryError(f"{self._url} answers with more than {MOST_BYTES >> 20} MiB")
        except TimeoutError:
            raise RegistryError(f"{self._url} did not answer within {TIMEOUT_S:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise RegistryError(f"{self._url} cannot be reached: {_why(error)}") from None
        if status in (401, 403):
            raise RegistryError(f"{self._url} refuses this client (HTTP {status}): check username and password_file")
        try:
            return status, orjson.loads(body)
        except orjson.JSONDecodeError:
            raise RegistryError(f"{self._url} {NO_REGISTRY} (HTTP {status})") from None


def subject_of(topic: str) -> str:
    """Return the subject of a topic's values, as serializers name it by default."""
    return f"{topic}-value"


async def schema_ids(config: Config, streams: Iterable[Stream]) -> dict[str, int]:
    """Return stream -> id of the schema of its synthetic records, registered if it was not; of those with typed output.

    Raises: ConfigError where the registry cannot be asked, or does not take one.
    """
    typed = [stream for stream in streams if stream.output.typed]
    if not typed:
        return {}
    assert config.kafka.registry is not None, "the configuration sees to it"
    found = {}
    async with RegistryClient(config.kafka.registry) as client:
        for stream in typed:
            check_installed(stream, "output.format", stream.output.format)
            subject = subject_of(Topics.synthetic(stream.name))
            try:
                found[stream.name] = await client.register(subject, schema_text(stream))
            except RegistryError as error:
                raise ConfigError.of(
                    f"streams.{stream.name}.output.format",
                    f'is "{stream.output.format}", and the schema of {subject} cannot be registered: {error}',
                    "bring the registry back; let the job write there, or let somebody who may run privstream topics "
                    "CONFIG --register; where another schema is in the way, set the subject's compatibility to NONE. "
                    "Nothing was started",
                ) from None
    return found


def _why(error: Exception) -> str:
    reason = getattr(error, "strerror", None) or getattr(getattr(error, "os_error", None), "strerror", None)
    return f"{type(error).__name__}{f', {reason}' if reason else ''}"


def _tls(registry: Registry) -> ssl.SSLContext | bool:
    return True if registry.url.startswith("http:") else tls_context("kafka.registry", registry)

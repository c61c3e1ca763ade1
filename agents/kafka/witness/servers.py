"""A server of HTTP and a bucket of S3 as places for a witness; each loaded where `[job] witness` names one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import aiohttp

from agents.kafka.security import read_headers
from agents.kafka.witness.places import MOST_BYTES, TIMEOUT_S, ChangedError, Noted
from schemas.errors import ConfigError, WitnessAwayError

if TYPE_CHECKING:
    from obstore import PutMode
    from obstore.exceptions import BaseError
    from obstore.store import S3Store


class Endpoint:
    """`GET` and `PUT` of one small JSON document for each stream below an address, with entity tags (RFC 9110).

    Any server will do that answers with a strong `ETag` and heeds `If-Match` and `If-None-Match: *`. A session for each
    request: there is one for each publication, and none to close.

    Args: headers_file: sent with each request, read once. Raises: ConfigError if it cannot be used.
    """

    def __init__(self, url: str, own: str, headers_file: Path | None) -> None:
        self.place = f"{url}/{own}"
        self._headers: Mapping[str, str] = (
            {} if headers_file is None else read_headers(headers_file, key="job.witness_headers_file")
        )

    async def read(self, name: str) -> Noted:
        status, tag, data = await self._ask("GET", name)
        if status == 404:
            return Noted(None)
        if status != 200:
            raise WitnessAwayError(f"{self.place} answers a GET with status {status}")
        if tag is None or tag.startswith("W/"):
            raise WitnessAwayError(f"{self.place} gives no strong ETag, so a record could be replaced unseen")
        return Noted(data, tag)

    async def write(self, name: str, data: bytes, before: Noted) -> Noted:
        condition = {"If-None-Match": "*"} if before.tag is None else {"If-Match": before.tag}
        status, tag, _ = await self._ask("PUT", name, data, {**condition, "Content-Type": "application/json"})
        if status == 412 or (status == 404 and before.tag is not None):
            raise ChangedError
        if status not in (200, 201, 204):
            raise WitnessAwayError(f"{self.place} answers a PUT with status {status}")
        if tag is not None and not tag.startswith("W/"):
            return Noted(data, tag)
        found = await self.read(name)
        if found.data != data:
            raise ChangedError
        return found

    async def _ask(
        self, method: str, name: str, data: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, str | None, bytes]:
        """Return status, entity tag and content. A redirection, which would take the secrets along, is not followed."""
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(TIMEOUT_S)) as session,
                session.request(
                    method, f"{self.place}/{name}.json", data=data, headers={**self._headers, **(headers or {})},
                    allow_redirects=False,
                ) as answer,
            ):  # fmt: skip
                return answer.status, answer.headers.get("ETag"), await answer.content.read(MOST_BYTES)
        except aiohttp.ClientError as error:
            raise WitnessAwayError(f"{self.place} cannot be reached: {type(error).__name__}") from error


MOST_TOLD = 200


class Bucket:
    """One small object for each stream below a prefix, replaced by conditional writes (`If-Match`).

    Region, endpoint and credentials are those of the environment, as for other programs that use S3 (`AWS_REGION`,
    `AWS_ENDPOINT_URL`, with `AWS_ALLOW_HTTP=true` for one without TLS, `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`,
    a role of the machine or of the pod).

    Raises: ConfigError if the library is missing or the environment names no store.
    """

    def __init__(self, url: str, own: str) -> None:
        self.place = f"{url}/{own}"
        try:
            import obstore
            from obstore.exceptions import BaseError
            from obstore.store import S3Store
        except ModuleNotFoundError:
            fix = "pip install 'privstream[witness]', install a lock file of requirements/, or name another place"
            raise ConfigError.of("job.witness", "obstore is not installed", fix) from None
        self._obstore = obstore
        parts = urlsplit(url)
        try:
            self._store: S3Store = S3Store(
                parts.netloc,
                prefix=f"{parts.path.strip('/')}/{own}".strip("/"),
                retry_config={"max_retries": 0},
            )
        except BaseError as error:
            fix = "set AWS_REGION, AWS_ENDPOINT_URL and credentials in the environment, as for other programs"
            raise ConfigError.of("job.witness", _told(error), fix) from None

    async def read(self, name: str) -> Noted:
        errors = self._obstore.exceptions
        try:
            found = await self._obstore.get_async(self._store, f"{name}.json")
            data, tag = bytes(await found.bytes_async()), found.meta["e_tag"]
        except FileNotFoundError:  # what obstore makes of a 404
            return Noted(None)
        except errors.BaseError as error:
            raise WitnessAwayError(f"{self.place} cannot be read: {_told(error)}") from error
        if tag is None:
            raise WitnessAwayError(f"{self.place} gives no ETag, so a record could be replaced unseen")
        return Noted(data, tag)

    async def write(self, name: str, data: bytes, before: Noted) -> Noted:
        errors = self._obstore.exceptions
        mode: PutMode = "create" if before.tag is None else {"e_tag": before.tag}
        try:
            result = await self._obstore.put_async(self._store, f"{name}.json", data, mode=mode, use_multipart=False)
        except (errors.AlreadyExistsError, errors.PreconditionError):
            raise ChangedError from None
        except FileNotFoundError as error:
            if before.tag is not None:
                raise ChangedError from None
            raise WitnessAwayError(f"{self.place} cannot be written: there is no such bucket") from error
        except errors.BaseError as error:
            raise WitnessAwayError(f"{self.place} cannot be written: {_told(error)}") from error
        return Noted(data, result["e_tag"])


def _told(error: BaseError) -> str:
    """Return the store's own words, which hold no credentials, in a line."""
    return str(error).partition("\n")[0][:MOST_TOLD]

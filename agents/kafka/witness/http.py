"""A witness behind HTTP: `GET` and `PUT` of one small JSON document for each stream, with entity tags (RFC 9110).

Any server will do that answers with a strong `ETag` and heeds `If-Match` and `If-None-Match: *`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import aiohttp

from agents.kafka.security import read_headers
from agents.kafka.witness.store import MOST_BYTES, TIMEOUT_S, ChangedError, Noted
from schemas.errors import WitnessAwayError


class Endpoint:
    """Documents below an address. A session for each request: there is one for each publication, and none to close.

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
        """Status, entity tag and content. A redirection is not followed: it would carry the secret headers along."""
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

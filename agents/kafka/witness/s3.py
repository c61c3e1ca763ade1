"""A witness in a bucket: one small object for each stream, replaced by conditional writes (`If-Match`).

Region, endpoint and credentials are those of the environment, as for other programs that use S3 (`AWS_REGION`,
`AWS_ENDPOINT_URL`, with `AWS_ALLOW_HTTP=true` for one without TLS, `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, a
role of the machine or of the pod).
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agents.kafka.witness.store import ChangedError, Noted
from schemas.errors import ConfigError, ConfigProblem, WitnessAwayError

if TYPE_CHECKING:
    from obstore import PutMode
    from obstore.exceptions import BaseError
    from obstore.store import S3Store

MOST_TOLD = 200


class Bucket:
    """Objects below a prefix. Raises: ConfigError if the library is missing or the environment names no store."""

    def __init__(self, url: str, own: str) -> None:
        self.place = f"{url}/{own}"
        try:
            import obstore
            from obstore.exceptions import BaseError
            from obstore.store import S3Store
        except ModuleNotFoundError:
            fix = "pip install 'privstream[witness]', install a lock file of requirements/, or name another place"
            raise ConfigError([ConfigProblem("job.witness", "obstore is not installed", fix)]) from None
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
            raise ConfigError([ConfigProblem("job.witness", _told(error), fix)]) from None

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
    """In a line: the store's own words, which hold no credentials."""
    return str(error).partition("\n")[0][:MOST_TOLD]

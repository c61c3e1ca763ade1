"""A job's witness: where the last answered step of each stream is noted outside of the cluster, and who asks it.

It is a folder, a server of HTTP or a bucket that keeps one small record for each stream. Every place replaces a record
only by who names it, in one atomic act of its own: a folder under a lock, a server by the condition of the request
(`If-Match`, `If-None-Match: *`). So of two who have read the same record, one can replace it.

Whoever publishes a stream asks and writes its witness: nothing is published without it. A witness that cannot be
reached is waited for, loudly: the log, `status`, the metric `privstream_stopped` and the pulse of the publisher say so
at once, and how long it has been.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

import aiohttp

from agents.kafka import stop_log
from agents.kafka.lifecycle.advice import what_happened, what_to_do
from agents.kafka.lifecycle.logs import Reminder
from agents.kafka.lifecycle.state_folder import root_of
from agents.kafka.lifecycle.stops import STOPPED, Stop
from agents.kafka.security import read_headers
from agents.protocol.release.witness import Mark, Terms, advance, judge
from schemas.errors import BrokerError, ConfigError, ConfigProblem, WitnessAwayError, WitnessError

if TYPE_CHECKING:
    from obstore import PutMode
    from obstore.exceptions import BaseError
    from obstore.store import S3Store

    from agents.kafka.lifecycle.vitals import Pulse
    from agents.protocol.release.publisher import StreamPublisher
    from schemas.config import Config
    from schemas.config.server import JobSection

log = logging.getLogger(__name__)


TIMEOUT_S = 10.0
MOST_BYTES = 10_000
"""Of a record; what is larger is none."""
PROOF = "conditions"
"""Name of the record by which a place shows that it heeds conditions; no stream can be called `.conditions`."""

T = TypeVar("T")


class Noted(NamedTuple):
    """A record as it stands. `data` None: there is none. `tag`: the store's own name of it."""

    data: bytes | None
    tag: str | None = None


class ChangedError(Exception):
    """Another record stands there than the one that was to be replaced."""


class Store(Protocol):
    """See the module. Whatever is wrong with the place is an `OSError` or a `WitnessAwayError`, to be tried again.

    Attributes:
        place: for messages, without a secret.
    """

    place: str

    async def read(self, name: str) -> Noted: ...

    async def write(self, name: str, data: bytes, before: Noted) -> Noted:
        """Replace `before`, durably. Raises: ChangedError if it does not stand there any more."""


async def within(work: Awaitable[T], place: str) -> T:
    """Return the answer of a place, in time. Raises: WitnessAwayError, and ChangedError."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await work
    except TimeoutError:
        raise WitnessAwayError(f"{place} does not answer within {TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise WitnessAwayError(f"{place} cannot be used: {error.strerror or type(error).__name__}") from error


async def prove(store: Store) -> None:
    """Check that a place heeds conditions: a server that knows none would let an older worker write over a newer one.

    Raises: WitnessAwayError.
    """
    for _ in range(2):
        try:
            await within(store.write(f".{PROOF}", b"{}", Noted(None)), store.place)
        except ChangedError:
            return
    raise WitnessAwayError(
        f"{store.place} replaces a record on a condition that does not hold (If-None-Match: *), so it cannot be a "
        "witness: use a store that heeds conditional writes"
    )


class Folder:
    """One small file for each stream, replaced as a whole under a lock, in a folder of its own below `root`.

    The root must be there: where a volume is not mounted, an empty folder would stand for a witness that has seen
    nothing.
    """

    def __init__(self, root: Path, own: str) -> None:
        self._root = root
        self._folder = root / own
        self.place = str(self._folder)
        # One at a time: a file server that hangs holds one thread, and none of those in which steps are computed.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="witness")

    async def read(self, name: str) -> Noted:
        return await self._in_thread(lambda: self._read(name))

    async def write(self, name: str, data: bytes, before: Noted) -> Noted:
        def replace() -> Noted:
            self._root.stat()
            self._make()
            descriptor, new = tempfile.mkstemp(prefix=f".{name}.", dir=self._folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(descriptor)
                # For a moment only: a process that is stopped meanwhile holds its successor up.
                with self._locked(name):
                    if self._read(name).data != before.data:
                        raise ChangedError
                    Path(new).replace(self._path(name))
            finally:
                Path(new).unlink(missing_ok=True)
            _sync(self._folder)
            return Noted(data)

        return await self._in_thread(replace)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _read(self, name: str) -> Noted:
        self._root.stat()  # raises where it is away
        try:
            with self._path(name).open("rb") as file:
                return Noted(file.read(MOST_BYTES))
        except FileNotFoundError:
            return Noted(None)

    def _make(self) -> None:
        if not self._folder.is_dir():
            for folder in reversed([self._folder, *self._folder.parents]):
                if folder.is_relative_to(self._root) and folder != self._root:
                    with contextlib.suppress(FileExistsError):
                        folder.mkdir(mode=0o700)
                    _sync(folder.parent)

    @contextlib.contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        """Lock a record. Raises: BlockingIOError while another process has it: the next try is soon enough."""
        file = os.open(self._folder / f".{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(file)


def _sync(folder: Path) -> None:
    """Sync a folder: a name in it is as durable as it is."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


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
    """Return the store's own words, which hold no credentials, in a line."""
    return str(error).partition("\n")[0][:MOST_TOLD]


def store_of(job: JobSection) -> Store:
    """Return the witness of a job: as configured, else below the folder of its state tables.

    Raises: ConfigError if its library or its headers cannot be used.
    """
    place = job.witness
    if place is None:
        return Folder(root_of(job, cluster=None), f"{job.name}/witness")
    match urlsplit(place).scheme:
        case "s3":
            return Bucket(place, job.name)
        case "http" | "https":
            return Endpoint(place, job.name, job.witness_headers_file)
    return Folder(Path(place), job.name)


UNCONFIGURED = (
    "each worker notes in its own data_dir what was answered, and a cluster that is put back to an earlier moment is "
    'noticed by those that have kept it, and by no other (docs/operations.md, "The witness")'
)


async def witness_state(config: Config, stream: str, published: int) -> str | None:
    """Say in a line what the witness has of a stream that is public up to a step; None where none is configured."""
    if config.job.witness is None:
        return None
    try:
        store = store_of(config.job)
        data = (await within(store.read(stream), store.place)).data
        mark = None if data is None else Mark.decode(data, stream=stream, place=store.place)
    except (ConfigError, WitnessAwayError, WitnessError) as error:
        return str(error)
    if mark is None:
        return "has never seen this stream" if published >= 0 else "waits for the first step"
    since = "" if mark.since < 0 else f", since step {mark.since + 1}: what was before is taken on the ledger's word"
    if mark.step < published:
        return f"ENDS AT STEP {mark.step}, before the public ledger{since}"
    return f"step {mark.step}{since}"


AGAIN_S = 2.0


class StreamWitness:
    """See the module. `open` once the public ledger is read, then `note` before each transaction.

    Args:
        pulse: of the publisher.
        trusted: the step that `--trust-ledger` gives for this stream.
    """

    def __init__(self, config: Config, stream: str, store: Store, pulse: Pulse, *, trusted: int | None = None) -> None:
        self._config = config
        self._stream = stream
        self._store = store
        self._pulse = pulse
        self._terms = Terms(store.place, configured=config.job.witness is not None, trusted=trusted)
        self._mark: Mark | None = None
        self._found = Noted(None)
        self._reminder = Reminder()

    async def open(self, machine: StreamPublisher, logged: Callable[[int], Awaitable[str | None]]) -> None:
        """Compare the witness with the cluster.

        Args:
            machine: has read the public ledger, and nothing of the release log.
            logged: the digest of a step's candidate on the release log, read to its end; None where it has none.
        Raises: WitnessError; BrokerError where another worker has written the witness meanwhile.
        """
        last, place = machine.last_step, self._store.place
        await self._patiently(lambda: prove(self._store), last + 1)
        self._found = await self._patiently(lambda: self._store.read(self._stream), last + 1)
        data = self._found.data
        mark = None if data is None else Mark.decode(data, stream=self._stream, place=place)
        ahead = mark is not None and mark.step > last
        must = judge(
            self._stream,
            mark,
            self._terms,
            last=last,
            last_chain=machine.chain,
            ledger=None if mark is None else machine.chain_of(mark.step),
            logged=await logged(mark.step) if mark is not None and ahead else None,
        )
        if must is not None and must != mark:
            told = "on --trust-ledger" if self._terms.configured else f"no [job] witness is configured: {UNCONFIGURED}"
            log.warning(
                "stream %s: its witness (%s) %s. What is public up to step %d is taken on the ledger's word; %s",
                self._stream,
                place,
                "is empty" if mark is None else f"ends at step {mark.step}",
                last,
                told,
            )  # fmt: skip
            await self._write(must)
        elif self._terms.trusted is not None and mark is not None:
            log.warning("stream %s: its witness has step %d, and --trust-ledger is not needed", self._stream, mark.step)
        self._mark = must

    async def note(self, step: int, chain: str) -> None:
        """Let the witness have a step that is about to be shown, and wait until it has it.

        Raises: BrokerError where another worker has written it since it was read.
        """
        must = advance(self._mark, stream=self._stream, step=step, chain=chain)
        if must is not None:
            await self._write(must)
            self._mark = must

    async def _write(self, must: Mark) -> None:
        data = must.encode()
        try:
            before = self._found
            self._found = await self._patiently(lambda: self._store.write(self._stream, data, before), must.step)
        except ChangedError:
            self._found = await self._patiently(lambda: self._store.read(self._stream), must.step)
            if self._found.data != data:  # else the answer to an earlier try was lost
                raise BrokerError(
                    f"stream {self._stream}: another worker has written its witness ({self._store.place}) since this "
                    "one read it"
                ) from None

    async def _patiently(self, work: Callable[[], Awaitable[T]], step: int) -> T:
        """Try until the place answers. Raises: ChangedError."""
        since: float | None = None
        while True:
            try:
                done = await within(work(), self._store.place)
            except WitnessAwayError as error:
                first, since = since is None, time.monotonic() if since is None else since
                if self._reminder.due(str(error)):
                    log.warning(
                        "stream %s: WAITING for its witness for %.0f s, and publishes nothing: %s",
                        self._stream, time.monotonic() - since, error,
                    )  # fmt: skip
                if first:
                    await self._tell(error, step)
                await asyncio.sleep(AGAIN_S)
                continue
            if since is not None:
                STOPPED.labels(self._stream, "publish").set(0)
                log.warning(
                    "stream %s: its witness answers again, after %.0f s", self._stream, time.monotonic() - since
                )
            return done

    async def _tell(self, error: WitnessAwayError, step: int) -> None:
        """Say it where people look; it stays until the step is public."""
        self._pulse.waits(f"waits for its witness: {error}")
        STOPPED.labels(self._stream, "publish").set(1)
        reason = f"waits for its witness, and goes on by itself: {what_happened(error)}"
        stop = Stop(self._stream, "publish", None, reason, what_to_do(error), int(time.time() * 1000), step)
        with contextlib.suppress(*stop_log.NOT_KEPT):
            await stop_log.record(self._config, [stop])

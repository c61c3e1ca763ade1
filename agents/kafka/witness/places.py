"""Places for a witness: what each is asked, and a folder. Servers and buckets are in `servers`.

A place keeps one small record for each stream. It replaces a record only by who names it, in one atomic act of its own:
a folder under a lock, a server by the condition of the request (`If-Match`, `If-None-Match: *`). So of two who have
read the same record, one can replace it.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from schemas.errors import WitnessAwayError

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
    except BlockingIOError as error:
        raise WitnessAwayError(
            f"{place} is being written by another worker, which does not come to its end: one that is stopped there "
            "(SIGSTOP, a container or machine that is paused) must go on, or be ended"
        ) from error
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

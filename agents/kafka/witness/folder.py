"""A witness in a folder: one small file for each stream, replaced as a whole under a lock."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from agents.kafka.witness.store import MOST_BYTES, ChangedError, Noted

T = TypeVar("T")


class Folder:
    """Records in a folder of its own below `root`, which must be there: where a volume is not mounted, an empty folder
    would stand for a witness that has seen nothing.
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
        """Raises: BlockingIOError while another process has it: the next try is soon enough."""
        file = os.open(self._folder / f".{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(file)


def _sync(folder: Path) -> None:
    """A name is as durable as its folder is."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)

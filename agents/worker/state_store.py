"""RocksDB under the state tables: a cache, so what is damaged is thrown away, and states come from the changelog.

RocksDB's errors have one type and say what they mean in words alone.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import rocksdict
from faust.stores.rocksdb import RocksDBOptions, Store
from faust.types import TP
from faust.types.tables import CollectionT

from agents.kafka.cluster import too_few
from schemas.errors import DescriptorsError, StoreError

log = logging.getLogger(__name__)

LOCKED = re.compile(r"lock hold by|No locks available|While lock file")
UNUSABLE = re.compile(r"(?:IO error|os error)")
MISSING = re.compile(r"No such file or directory")
REASON = re.compile(
    r"No space left on device|Disk quota exceeded|File too large|Permission denied|Read-only file system"
    r"|Input/output error|Not a directory"
)
NO_FILES = re.compile(r"Too many open files")


class DamagedError(Exception):
    """The files of a partition do not fit together."""


def meaning_of(error: Exception, path: Path) -> StoreError | DescriptorsError | DamagedError:
    """Return what an error of RocksDB says of the folder at `path`."""
    text = str(error)
    if NO_FILES.search(text):
        return too_few()
    if LOCKED.search(text):
        return StoreError(f"{path} is locked by another worker on this machine: each needs a data_dir of its own")
    if UNUSABLE.search(text) and not MISSING.search(text):
        reason = REASON.search(text)
        return StoreError(f"{path} cannot be used: {reason[0] if reason else 'an input or output error'}")
    return DamagedError(text.split(":", 1)[0])


# The default is 64 MiB. With less than 4 a large state takes twice as long to be written.
OPTIONS = {"write_buffer_size": 8 << 20}
"""Of a partition's database."""
WRITE_BYTES = 16 << 20
"""Of states that all partitions of a worker hold in memory before they are written to files."""
ARENA_BYTES = 128 << 10
"""The least that a partition takes of them, by default an eighth of its buffer: more than there are, of many."""
CACHE_BYTES = 8 << 20
"""Of blocks of files that all partitions have read."""


class _Options(RocksDBOptions):
    """Faust's options of a partition's database, whose write buffer and cache are parts of those that all share."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._buffers = rocksdict.WriteBufferManager(WRITE_BYTES, False)
        self._files = rocksdict.BlockBasedOptions()
        self._files.set_block_cache(rocksdict.Cache(CACHE_BYTES))

    def as_options(self) -> Any:
        options = super().as_options()
        options.set_write_buffer_manager(self._buffers)
        options.set_arena_block_size(ARENA_BYTES)
        options.set_block_based_table_factory(self._files)
        return options


class StateStore(Store):
    """Faust's store, whose partitions are opened anew where they are damaged, and closed when they are given up.

    Faust drops its references and leaves the closing to the garbage collector. A task or a rebalance that ends behind
    the worker's stop would keep the files locked, or open them again, and the next worker could not have them.
    """

    _stopped_for_good = False

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self.rocksdb_options = _Options(**self.options, use_rocksdict=self.use_rocksdict)

    async def stop(self) -> None:
        """Close every database; none is opened again."""
        self._stopped_for_good = True
        for partition in list(self._dbs):
            self._close(partition)

    def revoke_partitions(self, table: CollectionT, tps: set[TP]) -> None:
        for tp in tps:
            if tp.topic in table.changelog_topic.topics:
                self._close(tp.partition)

    async def assign_partitions(self, table: CollectionT, tps: set[TP], generation_id: int = 0) -> None:
        if not self._stopped_for_good:
            await super().assign_partitions(table, tps, generation_id)

    def _close(self, partition: int) -> None:
        db = self._dbs.pop(partition, None)
        if db is not None:
            with contextlib.suppress(Exception):  # of a damaged file, or a full disk: what is lost is in the changelog
                db.close()

    def _open_for_partition(self, partition: int) -> Any:
        path = Path(self.partition_path(partition))
        if self._stopped_for_good:
            raise StoreError(f"{path} is closed: its worker has stopped")
        try:
            with self._meaning(partition):
                return super()._open_for_partition(partition)
        except DamagedError as error:
            why = str(error)
        self.discard(partition, why)
        with self._meaning(partition):
            path.parent.mkdir(parents=True, exist_ok=True)
            return super()._open_for_partition(partition)

    def discard(self, partition: int, why: str) -> None:
        """Throw the files of a partition away. Raises: StoreError if they cannot be removed."""
        path = Path(self.partition_path(partition))
        log.warning("state store %s is damaged (%s): discarded, states come from its changelog", path, why)
        self._close(partition)
        gc.collect()  # where that failed the files are closed when the last reference is gone
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StoreError(f"{path} is damaged and cannot be removed: {error.strerror}") from error

    def use(self, partition: int, work: Callable[[Any], Any]) -> Any:
        """Do something with a partition's database. Where it turns out to be damaged it is discarded, and tried again.

        Raises: StoreError.
        """
        try:
            with self._meaning(partition):
                return work(self._db_for_partition(partition))
        except DamagedError as error:
            why = str(error)
        self.discard(partition, why)  # not above: the error still holds the database open
        with self._meaning(partition):
            return work(self._db_for_partition(partition))

    @contextlib.contextmanager
    def _meaning(self, partition: int) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if type(error) is not Exception and not isinstance(error, OSError):
                raise  # not RocksDB's, which knows no other type: a fault of the program is no damage
            raise meaning_of(error, Path(self.partition_path(partition))) from error

    def persisted_offset(self, tp: TP) -> int | None:
        offset = self.use(tp.partition, lambda db: db.get(self.offset_key))
        return None if offset is None else int(offset)

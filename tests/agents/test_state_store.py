"""What an error of a partition's database means, and who has its files once a worker has stopped."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.types import TP
from rocksdict import Rdict

from agents.worker.state_store import OPTIONS, WRITE_BYTES, DamagedError, StateStore
from schemas.errors import DescriptorsError, StoreError


class Nowhere(StateStore):
    def __init__(self) -> None: ...

    def partition_path(self, partition: int) -> Path:
        return Path("store") / str(partition)


class Placed(StateStore):
    def __init__(self, url: str, app: faust.App, table: Any, folder: Path) -> None:
        super().__init__(url, app, table, table_name="state", options=OPTIONS)
        self._folder = folder

    def partition_path(self, partition: int) -> Path:
        return self._folder / str(partition)


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (Exception("Corruption: block checksum mismatch"), DamagedError),
        (Exception("IO error: No space left on device: While appending to file"), StoreError),
        (
            Exception("IO error: While open a file for appending: store/0/000004.log: Too many open files"),
            DescriptorsError,
        ),
        (Exception("IO error: While lock file: store/0/LOCK: Resource temporarily unavailable"), StoreError),
        (KeyError("a fault of the program"), KeyError),
        (MemoryError(), MemoryError),
        (ValueError("a fault of the program"), ValueError),
    ],
)
def test_only_what_rocksdb_says_is_damage(error: Exception, meaning: type[Exception]) -> None:
    with pytest.raises(meaning), Nowhere()._meaning(0):
        raise error


async def test_whoever_comes_late_neither_holds_nor_opens_what_a_stopped_worker_had(tmp_path: Path) -> None:
    """As a task does that ends behind the stop, with a database in its hands: the next worker has the files at once."""

    table: Any = SimpleNamespace(changelog_topic=SimpleNamespace(topics=["changelog"]))
    one, next_one = (Placed("rocksdb://", faust.App("job", datadir=tmp_path), table, tmp_path) for _ in range(2))
    held = [one.use(partition, lambda db: db) for partition in range(2)]
    one.revoke_partitions(table, {TP("changelog", 0)})
    next_one.use(0, lambda db: db.put(b"key", b"value"))
    await one.stop()
    with pytest.raises(StoreError, match="its worker has stopped"):
        one.use(1, lambda db: db.get(b"key"))
    await one.assign_partitions(table, {TP("changelog", 1)})
    next_one.use(1, lambda db: db.put(b"key", b"value"))
    assert len(held) == 2
    await next_one.stop()


def test_all_partitions_together_hold_no_more_unwritten_than_one_bound(tmp_path: Path) -> None:
    table: Any = SimpleNamespace(changelog_topic=SimpleNamespace(topics=["changelog"]))
    store = Placed("rocksdb://", faust.App("job", datadir=tmp_path), table, tmp_path)
    held = []
    for at in range(12 * 16):
        store.use(at % 16, partial(Rdict.put, key=b"%d" % at, value=os.urandom(1 << 19)))
        held.append(sum(_unwritten(store, partition) for partition in range(min(at + 1, 16))))
    # A partition looks at the bound before it writes, and goes on while files are written. Without it they hold 96 MiB.
    assert WRITE_BYTES // 2 < max(held) <= 3 * WRITE_BYTES, [each >> 20 for each in held]


def test_many_partitions_of_small_states_do_not_fill_the_bound_with_nothing(tmp_path: Path) -> None:
    table: Any = SimpleNamespace(changelog_topic=SimpleNamespace(topics=["changelog"]))
    store = Placed("rocksdb://", faust.App("job", datadir=tmp_path), table, tmp_path)
    for at in range(8 * 32):
        store.use(at % 32, partial(Rdict.put, key=b"%d" % at, value=bytes(1 << 10)))
    # By RocksDB's own measure each would have a megabyte.
    assert sum(_unwritten(store, partition) for partition in range(32)) < WRITE_BYTES // 2


def _unwritten(store: StateStore, partition: int) -> int:
    size = store.use(partition, lambda db: db.property_int_value("rocksdb.cur-size-active-mem-table"))
    return int(size)

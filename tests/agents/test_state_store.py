"""What an error of a partition's database means: damage is RocksDB's word, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.worker.state_store import DamagedError, StateStore
from schemas.errors import DescriptorsError, StoreError


class Nowhere(StateStore):
    def __init__(self) -> None: ...

    def partition_path(self, partition: int) -> Path:
        return Path("store") / str(partition)


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
